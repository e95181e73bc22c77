"""Bodies of requests about the data. LanceDB's own client writes some of them in a shorter form."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from inver.errors import Invalid
from inver.protocols.lance.text_wire import structured
from inver.protocols.lance.wire import Body, Number

Text = Annotated[str, Meta(min_length=1)]
Vector = list[float]
MAX_K = 1_000_000


class Count(Body, frozen=True, kw_only=True):
    version: Number | None = None
    branch: str | None = None
    predicate: str | None = None
    filter: str | None = None


class Update(Body, frozen=True, kw_only=True):
    updates: list[tuple[Text, str]]
    predicate: str | None = None
    branch: str | None = None


class Delete(Body, frozen=True, kw_only=True):
    predicate: Text
    branch: str | None = None


class Vectors(msgspec.Struct, frozen=True):
    single_vector: Vector | None = None
    multi_vector: list[Vector] | None = None


class Columns(msgspec.Struct, frozen=True):
    column_names: list[Text] | None = None
    column_aliases: dict[str, Text] | None = None


class Query(Body, frozen=True, kw_only=True):
    k: Annotated[int, Meta(ge=0, le=MAX_K)] | None = None
    vector: Any = None
    vector_column: str | None = None
    columns: Any = None
    filter: str | None = None
    full_text_query: Any = None
    prefilter: bool | None = None
    offset: Annotated[int, Meta(ge=0, le=2**31)] | None = None
    with_row_id: bool | None = None
    distance_type: str | None = None
    nprobes: Annotated[int, Meta(ge=0)] | None = None
    minimum_nprobes: Annotated[int, Meta(ge=0)] | None = None
    maximum_nprobes: Annotated[int, Meta(ge=0)] | None = None
    refine_factor: Annotated[int, Meta(ge=0)] | None = None
    ef: Annotated[int, Meta(ge=0)] | None = None
    bypass_vector_index: bool | None = None
    fast_search: bool | None = None
    lower_bound: float | None = None
    upper_bound: float | None = None
    version: Number | None = None
    branch: str | None = None

    def asked(self) -> dict[str, Any]:
        """For the engine: in one form, whatever form it came in."""
        plain = {
            name: getattr(self, name)
            for name in (
                *("vector_column", "filter", "offset", "with_row_id", "distance_type", "nprobes"),
                *("minimum_nprobes", "maximum_nprobes", "refine_factor", "ef", "bypass_vector_index"),
                *("fast_search", "lower_bound", "upper_bound", "prefilter"),
            )
            if getattr(self, name) is not None
        }
        plain["k"] = 10 if self.k is None else self.k
        plain["vectors"] = _vectors(self.vector)
        plain["columns"] = _columns(self.columns)
        plain["full_text"] = _text(self.full_text_query)
        return plain


class Plan(Body, frozen=True, kw_only=True):
    query: Query
    verbose: bool = False
    version: Number | None = None
    branch: str | None = None


class AddColumn(msgspec.Struct, frozen=True):
    name: Text
    expression: str | None = None
    virtual_column: Any = None
    computed: Any = None


class AddColumns(Body, frozen=True, kw_only=True):
    new_columns: list[AddColumn]
    branch: str | None = None


class AlterColumn(msgspec.Struct, frozen=True):
    path: Text
    rename: str | None = None
    nullable: bool | None = None
    data_type: Any = None
    virtual_column: Any = None


class AlterColumns(Body, frozen=True, kw_only=True):
    alterations: list[AlterColumn]
    branch: str | None = None


class DropColumns(Body, frozen=True, kw_only=True):
    columns: list[Text]
    branch: str | None = None


class FieldUpdate(msgspec.Struct, frozen=True):
    path: Text
    metadata: dict[str, str | None] = {}
    replace: bool | None = None


class FieldMetadata(Body, frozen=True, kw_only=True):
    updates: list[FieldUpdate]
    branch: str | None = None


class Restore(Body, frozen=True, kw_only=True):
    version: Number
    branch: str | None = None


SETTINGS = (
    *("num_partitions", "num_sub_vectors", "num_bits", "sample_rate", "max_iterations"),
    *("target_partition_size", "m", "ef_construction", "with_position", "base_tokenizer", "language"),
    *("max_token_length", "lower_case", "stem", "remove_stop_words", "ascii_folding"),
)


class CreateIndex(Body, frozen=True, kw_only=True):
    column: Text
    index_type: Text
    name: str | None = None
    distance_type: str | None = None
    metric_type: str | None = None
    branch: str | None = None
    num_partitions: Annotated[int, Meta(ge=1)] | None = None
    num_sub_vectors: Annotated[int, Meta(ge=1)] | None = None
    num_bits: Annotated[int, Meta(ge=1)] | None = None
    sample_rate: Annotated[int, Meta(ge=1)] | None = None
    max_iterations: Annotated[int, Meta(ge=1)] | None = None
    target_partition_size: Annotated[int, Meta(ge=1)] | None = None
    m: Annotated[int, Meta(ge=1)] | None = None
    ef_construction: Annotated[int, Meta(ge=1)] | None = None
    with_position: bool | None = None
    base_tokenizer: str | None = None
    language: str | None = None
    max_token_length: Annotated[int, Meta(ge=0)] | None = None
    lower_case: bool | None = None
    stem: bool | None = None
    remove_stop_words: bool | None = None
    ascii_folding: bool | None = None

    def settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in SETTINGS if getattr(self, name) is not None}


def _vectors(given: Any) -> list[Vector]:
    if given is None:
        return []
    try:
        if isinstance(given, dict):
            vectors = msgspec.convert(given, Vectors)
            return [vectors.single_vector] if vectors.single_vector else list(vectors.multi_vector or [])
        if given and isinstance(given[0], list):
            return msgspec.convert(given, list[Vector])
        return [found] if (found := msgspec.convert(given, Vector)) else []
    except (msgspec.ValidationError, TypeError) as error:
        raise Invalid(f"vector: {error}", field="vector") from None


def _columns(given: Any) -> list[str] | dict[str, str] | None:
    if given is None:
        return None
    try:
        if isinstance(given, dict) and set(given) <= {"column_names", "column_aliases"}:
            columns = msgspec.convert(given, Columns)
            if columns.column_names is not None and columns.column_aliases is not None:
                raise Invalid("give column_names or column_aliases, not both", field="columns")
            return columns.column_names or columns.column_aliases
        if isinstance(given, list) and given and isinstance(given[0], list):
            return dict(msgspec.convert(given, list[tuple[str, str]]))
        return msgspec.convert(given, list[Text])
    except msgspec.ValidationError as error:
        raise Invalid(f"columns: {error}", field="columns") from None


def _text(given: Any) -> dict[str, Any] | None:
    """`{string_query: {query, columns}}`, `{structured_query: {query}}`, or either without its cover."""
    if given is None:
        return None
    if not isinstance(given, dict):
        raise Invalid("full_text_query is an object", field="full_text_query")
    inner = given.get("string_query") or given.get("structured_query") or given
    query = inner.get("query") if isinstance(inner, dict) else None
    if isinstance(query, str):
        columns = inner.get("columns")
        try:
            return {"text": query, "columns": msgspec.convert(columns, list[Text] | None)}
        except msgspec.ValidationError as error:
            raise Invalid(f"columns: {error}", field="full_text_query.columns") from None
    if isinstance(query, dict):
        return {"tree": structured(query)}
    raise Invalid("full_text_query has no query", field="full_text_query")


count = msgspec.json.Decoder(Count).decode
update = msgspec.json.Decoder(Update).decode
delete = msgspec.json.Decoder(Delete).decode
query = msgspec.json.Decoder(Query).decode
plan = msgspec.json.Decoder(Plan).decode
add_columns = msgspec.json.Decoder(AddColumns).decode
alter_columns = msgspec.json.Decoder(AlterColumns).decode
drop_columns = msgspec.json.Decoder(DropColumns).decode
field_metadata = msgspec.json.Decoder(FieldMetadata).decode
schema_metadata = msgspec.json.Decoder(dict[str, str]).decode
restore = msgspec.json.Decoder(Restore).decode
create_index = msgspec.json.Decoder(CreateIndex).decode
text_map = msgspec.json.Decoder(dict[str, str]).decode

"""Each operation on the data of a Lance table, in pylance's words.

This module is imported only in a thread of the engine, and only where pylance is installed.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module as library
from typing import TYPE_CHECKING, Any

import msgspec

from inver.domain.lance import SchemaInvalid
from inver.errors import AlreadyExists, Invalid, InverError, NotFound
from inver.formats.lance_text import text_query
from inver.ports import LancePlace, LedgeredVersion

if TYPE_CHECKING:
    from inver.formats.lance_engine import Bridge

TABLE = ["table"]
Options = Mapping[str, str] | None


# --- the way to the ledger ---


def namespace_of(bridge: Bridge, place: LancePlace, options: Options) -> Any:
    """A namespace of one table. pylance asks it for versions, and gives it new ones."""
    words = library("lance_namespace")

    def shown(version: LedgeredVersion) -> Any:
        return words.TableVersion(
            version=version.version,
            manifest_path=version.path,
            manifest_size=version.size,
            timestamp_millis=version.at,
        )

    base: Any = words.LanceNamespace

    class Ledger(base):  # type: ignore[misc]
        def namespace_id(self) -> str:
            return place.location

        def declare_table(self, request: Any) -> Any:
            return words.DeclareTableResponse(
                location=place.location, storage_options=options, managed_versioning=True
            )

        def describe_table(self, request: Any) -> Any:
            return words.DescribeTableResponse(
                location=place.location, storage_options=options, managed_versioning=True
            )

        def list_table_versions(self, request: Any) -> Any:
            try:
                newest = bridge.newest(_asked(request, "branch"))
            except NotFound as missing:
                raise words.TableNotFoundError(missing.message) from None
            return words.ListTableVersionsResponse(versions=[] if newest is None else [shown(newest)])

        def describe_table_version(self, request: Any) -> Any:
            branch = _asked(request, "branch")
            try:
                found = bridge.newest(branch) if _asked(request, "version") is None else None
                found = found or bridge.version(branch, _asked(request, "version"))
            except NotFound as missing:
                raise words.TableVersionNotFoundError(missing.message) from None
            return words.DescribeTableVersionResponse(version=shown(found))

        def create_table_version(self, request: Any) -> Any:
            scheme = _asked(request, "naming_scheme")
            try:
                made = bridge.create(
                    _asked(request, "branch"),
                    _asked(request, "version"),
                    _asked(request, "manifest_path"),
                    _asked(request, "manifest_size"),
                    None if scheme is None else str(scheme).upper() == "V2",
                )
            except InverError as refused:
                raise words.ConcurrentModificationError(refused.message) from None
            return words.CreateTableVersionResponse(version=shown(made))

    return Ledger()


def _asked(request: Any, name: str) -> Any:
    """A field of a request, which pylance gives as a map or as a model of the specification."""
    return request.get(name) if isinstance(request, Mapping) else getattr(request, name, None)


def opened(bridge: Bridge, place: LancePlace, options: Options) -> Any:
    lance = library("lance")

    dataset = lance.dataset(namespace_client=namespace_of(bridge, place, options), table_id=TABLE)
    return dataset.checkout_version((place.branch, None)) if place.branch else dataset


# --- changes ---


def write(bridge: Bridge, place: LancePlace, options: Options, data: bytes, mode: str) -> dict[str, int]:
    lance = library("lance")

    table = arrow_of(data)
    if place.branch:
        dataset = opened(bridge, place, options)
        dataset.insert(table, mode=mode)
    else:
        dataset = lance.write_dataset(
            table, mode=mode, namespace_client=namespace_of(bridge, place, options), table_id=TABLE
        )
    return {"version": dataset.version, "rows": table.num_rows}


def merge(
    bridge: Bridge,
    place: LancePlace,
    options: Options,
    data: bytes,
    on: Sequence[str],
    update: bool,
    update_if: str | None,
    insert: bool,
    delete: bool,
    delete_if: str | None,
) -> dict[str, int]:
    dataset = opened(bridge, place, options)
    _require_columns(dataset, on)
    builder = dataset.merge_insert(list(on))
    if update or update_if:
        builder.when_matched_update_all(update_if)
    if insert:
        builder.when_not_matched_insert_all()
    if delete or delete_if:
        builder.when_not_matched_by_source_delete(delete_if)
    done = builder.execute(arrow_of(data))
    return {
        "version": dataset.version,
        "updated": done.get("num_updated_rows", 0),
        "inserted": done.get("num_inserted_rows", 0),
        "deleted": done.get("num_deleted_rows", 0),
    }


def update(
    bridge: Bridge, place: LancePlace, options: Options, updates: Mapping[str, str], predicate: str | None
) -> dict[str, int]:
    dataset = opened(bridge, place, options)
    _require_columns(dataset, updates)
    done = dataset.update(dict(updates), where=predicate)
    return {"version": dataset.version, "rows": done.get("num_rows_updated", 0)}


def delete(bridge: Bridge, place: LancePlace, options: Options, predicate: str) -> dict[str, int]:
    dataset = opened(bridge, place, options)
    before = dataset.count_rows()
    dataset.delete(predicate)
    return {"version": dataset.version, "rows": before - dataset.count_rows()}


def restore(bridge: Bridge, place: LancePlace, options: Options, version: int) -> dict[str, int]:
    bridge.version(place.branch, version)
    dataset = opened(bridge, place, options)
    dataset.checkout_version((place.branch, version) if place.branch else version).restore()
    return {"version": opened(bridge, place, options).version}


def add_columns(
    bridge: Bridge, place: LancePlace, options: Options, columns: Mapping[str, str]
) -> dict[str, int]:
    dataset = opened(bridge, place, options)
    dataset.add_columns(dict(columns))
    return {"version": dataset.version}


def alter_columns(
    bridge: Bridge, place: LancePlace, options: Options, alterations: Sequence[Mapping[str, Any]]
) -> dict[str, int]:
    dataset = opened(bridge, place, options)
    changes = []
    for each in alterations:
        change = {"path": each["path"]}
        if each.get("rename") is not None:
            change["name"] = each["rename"]
        if each.get("nullable") is not None:
            change["nullable"] = each["nullable"]
        if each.get("data_type") is not None:
            change["data_type"] = _data_type(each["data_type"])
        changes.append(change)
    _require_columns(dataset, [str(each["path"]).split(".")[0] for each in alterations])
    dataset.alter_columns(*changes)
    return {"version": dataset.version}


def drop_columns(
    bridge: Bridge, place: LancePlace, options: Options, columns: Sequence[str]
) -> dict[str, int]:
    dataset = opened(bridge, place, options)
    _require_columns(dataset, [column.split(".")[0] for column in columns])
    dataset.drop_columns(list(columns))
    return {"version": dataset.version}


def schema_metadata(
    bridge: Bridge, place: LancePlace, options: Options, metadata: Mapping[str, str]
) -> dict[str, str]:
    dataset = opened(bridge, place, options)
    return dict(dataset.update_schema_metadata(dict(metadata), replace=True))


def field_metadata(
    bridge: Bridge, place: LancePlace, options: Options, updates: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    dataset = opened(bridge, place, options)
    _require_columns(dataset, [each["path"].split(".")[0] for each in updates])
    told: dict[str, dict[str, str]] = {}
    for each in updates:
        changes = {each["path"]: dict(each["metadata"])}
        dataset.update_field_metadata(changes, replace=bool(each.get("replace")))
        field = dataset.schema.field(each["path"].split(".")[0])
        told[each["path"]] = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
    return {"version": dataset.version, "fields": told}


def create_branch(
    bridge: Bridge, place: LancePlace, options: Options, name: str, version: int | None
) -> dict[str, int]:
    if version is not None:
        bridge.version(place.branch, version)
    dataset = opened(bridge, place, options)
    if name in dataset.branches.list():
        raise AlreadyExists(f"branch {name!r} already exists", kind="branch")
    made = dataset.create_branch(name, dataset.version if version is None else version)
    return {"version": made.version}


_VECTOR = ("IVF_FLAT", "IVF_PQ", "IVF_SQ", "IVF_HNSW_PQ", "IVF_HNSW_SQ", "IVF_HNSW_FLAT", "IVF_RQ")
_SCALAR = {"FTS": "INVERTED"}


def create_index(
    bridge: Bridge,
    place: LancePlace,
    options: Options,
    column: str,
    kind: str,
    name: str | None,
    distance: str | None,
    settings: Mapping[str, Any],
) -> dict[str, int]:
    dataset = opened(bridge, place, options)
    _require_columns(dataset, [column.split(".")[0]])
    kind = kind.upper()
    if kind in _VECTOR:
        given = dict(settings)
        rows = max(1, dataset.count_rows())
        given.setdefault("num_partitions", max(1, min(256, int(rows**0.5))))
        if kind in ("IVF_PQ", "IVF_HNSW_PQ") and "num_sub_vectors" not in given:
            given["num_sub_vectors"] = _sub_vectors(dataset, column)
        dataset.create_index(
            column, kind, name=name, metric=(distance or "l2").lower(), replace=True, **given
        )
    else:
        try:
            dataset.create_scalar_index(
                column, _SCALAR.get(kind, kind), name=name, replace=True, **dict(settings)
            )
        except NotImplementedError:
            raise Invalid(f"{kind[:50]!r} is no type of index", field="index_type") from None
    return {"version": dataset.version}


def drop_index(bridge: Bridge, place: LancePlace, options: Options, name: str) -> dict[str, int]:
    dataset = opened(bridge, place, options)
    dataset.drop_index(name)
    return {"version": dataset.version}


def _sub_vectors(dataset: Any, column: str) -> int:
    kind: Any = dataset.schema.field(column).type if column in dataset.schema.names else None
    if not library("pyarrow").types.is_fixed_size_list(kind):
        raise Invalid(f"{column!r} is no column of vectors", field="column")
    size = int(kind.list_size)
    return size // 16 if size % 16 == 0 else size // 8 if size % 8 == 0 else 1


# --- reads ---


def count(dataset: Any, predicate: str | None) -> int:
    return int(dataset.count_rows(predicate))


def query(dataset: Any, asked: Mapping[str, Any]) -> bytes:
    pyarrow = library("pyarrow")

    vectors = asked.get("vectors") or []
    if len(vectors) < 2:
        found = _scanner(dataset, asked, vectors[0] if vectors else None).to_table()
    else:
        parts = []
        for index, vector in enumerate(vectors):
            part = _scanner(dataset, asked, vector).to_table()
            which = pyarrow.array([index] * part.num_rows, pyarrow.int32())
            parts.append(part.add_column(0, "query_index", which))
        found = pyarrow.concat_tables(parts)
    sink = io.BytesIO()
    with library("pyarrow.ipc").new_file(sink, found.schema) as writer:
        writer.write_table(found)
    return sink.getvalue()


def explain(dataset: Any, asked: Mapping[str, Any], verbose: bool) -> str:
    vectors = asked.get("vectors") or []
    return str(_scanner(dataset, asked, vectors[0] if vectors else None).explain_plan(verbose))


def analyze(dataset: Any, asked: Mapping[str, Any]) -> str:
    vectors = asked.get("vectors") or []
    return str(_scanner(dataset, asked, vectors[0] if vectors else None).analyze_plan())


def index_stats(dataset: Any, name: str) -> dict[str, Any]:
    known = {index["name"] for index in dataset.list_indices()}
    if name not in known:
        raise NotFound(f"index {name!r} does not exist", kind="index")
    stats = dataset.stats.index_stats(name)
    told = {
        "index_type": stats.get("index_type"),
        "num_indexed_rows": stats.get("num_indexed_rows"),
        "num_unindexed_rows": stats.get("num_unindexed_rows"),
        "num_indices": stats.get("num_indices"),
    }
    parts = stats.get("indices") or [{}]
    told["distance_type"] = parts[0].get("metric_type")
    return {key: value for key, value in told.items() if value is not None}


def _scanner(dataset: Any, asked: Mapping[str, Any], vector: Sequence[float] | None) -> Any:
    options: dict[str, Any] = {
        "columns": asked.get("columns"),
        "filter": asked.get("filter"),
        "with_row_id": bool(asked.get("with_row_id")),
        "prefilter": asked.get("prefilter", True) is not False,
        "fast_search": bool(asked.get("fast_search")),
    }
    k, offset = asked["k"], asked.get("offset") or 0
    if vector is not None:
        options["nearest"] = _nearest(dataset, asked, vector, k + offset)
    if k or offset:
        options["limit"] = k
        options["offset"] = offset
    text = asked.get("full_text")
    if text is not None:
        options["full_text_query"] = text_query(text, lambda: _text_columns(dataset))
    return dataset.scanner(**{key: value for key, value in options.items() if value is not None})


def _nearest(dataset: Any, asked: Mapping[str, Any], vector: Sequence[float], k: int) -> dict[str, Any]:
    column = asked.get("vector_column") or _vector_column(dataset)
    nearest = {"column": column, "q": list(vector), "k": k}
    for ours, theirs in (
        ("distance_type", "metric"),
        ("nprobes", "nprobes"),
        ("minimum_nprobes", "minimum_nprobes"),
        ("maximum_nprobes", "maximum_nprobes"),
        ("refine_factor", "refine_factor"),
        ("ef", "ef"),
    ):
        if asked.get(ours) is not None:
            nearest[theirs] = asked[ours]
    if asked.get("bypass_vector_index"):
        nearest["use_index"] = False
    if asked.get("lower_bound") is not None or asked.get("upper_bound") is not None:
        nearest["distance_range"] = (asked.get("lower_bound"), asked.get("upper_bound"))
    return nearest


def _text_columns(dataset: Any) -> list[str]:
    indices = (each for each in dataset.list_indices() if each["type"] == "Inverted")
    return sorted({str(column) for each in indices for column in each["fields"]})


def _vector_column(dataset: Any) -> str:
    pyarrow = library("pyarrow")

    for field in dataset.schema:
        if pyarrow.types.is_fixed_size_list(field.type):
            return str(field.name)
    raise Invalid("the table has no column of vectors", field="vector_column")


def arrow_of(data: bytes) -> Any:
    pyarrow = library("pyarrow")

    try:
        return library("pyarrow.ipc").open_stream(data).read_all()
    except (pyarrow.ArrowInvalid, OSError, EOFError, ValueError) as error:
        raise SchemaInvalid(f"the body is not an Arrow IPC stream: {error}", field="body") from None


def _data_type(given: Any) -> Any:
    json_to_schema = library("lance.schema").json_to_schema

    named = {"type": given} if isinstance(given, str) else given
    field = {"name": "x", "type": named, "nullable": True}
    try:
        return json_to_schema({"fields": [field], "metadata": None}).field(0).type
    except Exception:
        shown = msgspec.json.encode(given).decode()[:100]
        raise Invalid(f"{shown} is not a data type", field="alterations.data_type") from None


def _require_columns(dataset: Any, names: Any) -> None:
    known = set(dataset.schema.names)
    for name in names:
        if name.split(".")[0].strip("`") not in known:
            raise NotFound(f"column {name!r} does not exist", kind="column")


CHANGES: dict[str, Callable[..., Any]] = {
    "write": write,
    "merge": merge,
    "update": update,
    "delete": delete,
    "restore": restore,
    "add_columns": add_columns,
    "alter_columns": alter_columns,
    "drop_columns": drop_columns,
    "schema_metadata": schema_metadata,
    "field_metadata": field_metadata,
    "create_branch": create_branch,
    "create_index": create_index,
    "drop_index": drop_index,
}
READS: dict[str, Callable[..., Any]] = {
    "count": count,
    "query": query,
    "explain": explain,
    "analyze": analyze,
    "index_stats": index_stats,
}

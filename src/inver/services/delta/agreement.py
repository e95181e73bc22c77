"""A request and the staged file that it is about say the same thing.

The file is what readers read. What the request leaves out is taken from it, because the older
dialects have no words for all of it; what the two say differently is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from inver.domain import delta, ledger
from inver.domain.datatypes import read_type
from inver.domain.delta import CLUSTERING, ROW_TRACKING, CommitSummary
from inver.domain.tables import Table, TableDetails
from inver.errors import Invalid
from inver.services.delta.types import Changes

MAX_NESTING = 200
"""More than types need that are nested as deep as they may be."""

_decode = msgspec.json.decode
_encode = msgspec.json.encode
_REQUIRED = (delta.TABLE_ID, *delta.REQUIRED_PROPERTIES)
_MARKS = ("delta.", "CURRENT_DEFAULT", "EXISTS_DEFAULT", "__CHAR_VARCHAR_TYPE_STRING")
"""How the names of metadata begin by which Delta and Spark read a column."""


def is_plain(summary: CommitSummary) -> bool:
    """Whether the file changes nothing of what the catalog knows of a table but its version."""
    return summary.protocol is None and summary.metadata is None and CLUSTERING not in summary.domains


def completed(changes: Changes | None, summary: CommitSummary, before: TableDetails) -> Changes | None:
    """The changes with those that only the file tells; `before` is the table so far."""
    told = changes or Changes()
    found: dict[str, Any] = {}
    if summary.metadata is not None:
        _require_description(told, summary.metadata)
        found.update(_properties(told, summary.metadata.properties, before.properties))
    else:
        _require_standing(told, before.properties)
    if summary.protocol is not None and told.protocol is msgspec.UNSET:
        _require_spelled(told, summary.protocol)
        found["protocol"] = summary.protocol
    if summary.metadata is not None and told.partition_columns is msgspec.UNSET:
        found["partition_columns"] = summary.metadata.partition_columns
    if summary.metadata is not None or isinstance(told.columns, bytes):
        fields = standing = fields_of_columns(before.columns)
        if summary.metadata is not None:
            fields = fields_of_schema(summary.metadata.schema)
        if isinstance(told.columns, bytes):
            _require_same(fields_of_columns(told.columns), fields)
            found["columns"] = as_written(told.columns, fields)
        elif fields != standing:
            found["columns"] = _encode(fields)
    if CLUSTERING in summary.domains and CLUSTERING not in {*told.set_domains, *told.remove_domains}:
        clustering = summary.domains[CLUSTERING]
        if clustering is None:
            found["remove_domains"] = (*told.remove_domains, CLUSTERING)
        else:
            read = delta.read_domain(CLUSTERING, clustering)
            found["set_domains"] = {**told.set_domains, CLUSTERING: read}
    return msgspec.structs.replace(told, **found) if found else changes


def compare(table: Table, append: ledger.Append, summary: CommitSummary) -> None:
    """What the file does not say stays as it was, so the request must not say otherwise."""
    before = delta.head_of(table.head)
    head = before if append.head is None else delta.head_of(append.head)
    declared, written = head.protocol, summary.protocol or before.protocol
    if not delta.is_same_protocol(declared, written):
        raise _other("protocol")
    if set(declared.reader_features) != set(written.reader_features):
        raise Invalid("the staged commit has other reader features than the request", field="protocol")
    metadata = summary.metadata
    if metadata is not None:
        # What the catalog keeps of the properties it had before does not make up for it.
        delta.require_properties(table.id, metadata.properties)
    partition = before.partition_columns if metadata is None else metadata.partition_columns
    if folded(partition) != folded(head.partition_columns):
        raise Invalid(
            "the staged commit has other partition columns than the request", field="partition-columns"
        )


def compare_domains(table: Table, told: Changes, summary: CommitSummary) -> None:
    """The domains that the catalog knows are set and removed by the file, too."""
    before = delta.head_of(table.head).domains
    for name in (CLUSTERING, ROW_TRACKING):
        if name not in told.set_domains and name not in told.remove_domains:
            continue
        written = before.get(name)
        if name in summary.domains:
            text = summary.domains[name]
            written = None if text is None else delta.read_domain(name, text)
        if folded(told.set_domains.get(name)) != folded(written):
            raise _other(name)


def require_catalog_only(told: Changes) -> None:
    """What readers and writers take from the log changes with a commit, which is in the log."""
    parts = {"columns": told.columns, "partition-columns": told.partition_columns, "protocol": told.protocol}
    found = [name for name, value in parts.items() if value is not msgspec.UNSET]
    found += [*told.set_domains, *told.remove_domains]
    found += [key for key in (*told.set_properties, *told.remove_properties) if _is_of_log(key)]
    if found:
        raise Invalid(
            f"the {found[0]} of a managed table change with a commit",
            field=found[0],
            fix="send the change together with the commit that makes it",
        )


def _other(field: str) -> Invalid:
    return Invalid(f"the staged commit has another {field} than the request", field=field)


def _require_description(told: Changes, written: delta.Metadata) -> None:
    """A file without one says nothing, as most writers leave the comment to the catalog."""
    if told.comment is msgspec.UNSET or written.description is None:
        return
    if (told.comment or "") != written.description:
        raise _other("description")


def _require_spelled(told: Changes, written: delta.Protocol) -> None:
    properties = told.properties if isinstance(told.properties, dict) else {}
    spelled = delta.spelled_protocol(properties)
    if spelled is not None and not delta.is_same_protocol(spelled, written):
        raise _other("protocol")


def beside_log(given: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """All properties of a managed table, of which these are to be the catalog's own: the log's stay."""
    kept = {key: value for key, value in before.items() if _is_of_log(key)}
    for key, value in delta.stored_properties(given).items():
        if _is_of_log(key) and kept.get(key) != value:
            raise Invalid(
                f"the {key} of a managed table changes with a commit",
                field=key,
                fix="leave it out; a client that writes to the table can change it",
            )
    return {**kept, **delta.stored_properties(given)}


def _is_of_log(key: str) -> bool:
    return key == delta.TABLE_ID or (key.startswith("delta.") and bool(delta.stored_properties({key: ""})))


def _properties(told: Changes, written: Mapping[str, str], before: Mapping[str, str]) -> dict[str, Any]:
    """What of the file's properties the request leaves out; it may know more of them than the file.

    Whoever tells all of them tells those too without which a table is not managed. Of Delta's own
    properties those go that the file has no more.
    """
    whole = isinstance(told.properties, dict)
    said = told.properties if isinstance(told.properties, dict) else told.set_properties
    written = delta.stored_properties(written)
    for key, value in written.items():
        if said.get(key, value) != value or key in told.remove_properties:
            raise _other(key)
    require_written(said, written)
    more = {
        key: value
        for key, value in written.items()
        if key not in said and (key not in _REQUIRED if whole else before.get(key) != value)
    }
    found: dict[str, Any] = {}
    if more:
        found["properties" if whole else "set_properties"] = {**said, **more}
    gone = {key for key in before.keys() - written.keys() - said.keys() if _is_of_log(key)}
    if gone and not whole:
        found["remove_properties"] = tuple(gone.union(told.remove_properties))
    return found


def require_written(said: Mapping[str, str], written: Mapping[str, str]) -> None:
    """Delta's own properties are those of the file, also where the table had others before."""
    for key in said:
        if key not in written and _is_of_log(key):
            raise Invalid(f"the commit file does not have the {key} of the request", field=key)


def _require_standing(told: Changes, before: Mapping[str, str]) -> None:
    """What Delta reads from the metadata does not change where the file has none."""
    said = told.properties if isinstance(told.properties, dict) else told.set_properties
    changing = {key for key, value in said.items() if before.get(key) != value}
    changing |= {key for key in told.remove_properties if key in before}
    if isinstance(told.properties, dict):
        changing |= before.keys() - said.keys()
    for key in sorted(changing):
        if _is_of_log(key):
            raise Invalid(f"the staged commit has no metadata, and so no other {key}", field=key)


def fields_of_schema(schema: bytes) -> list[dict[str, Any]]:
    try:
        struct = _decode(schema)
        found = [_field(each) for each in struct["fields"]] if struct["type"] == "struct" else [{}]
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError, RecursionError):
        found = [{}]
    names = {each["name"].lower() for each in found if _is_name(each.get("name"))}
    if len(names) == len(found) and all(map(_is_valid, found)):
        return found
    raise Invalid("the commit file has no valid schema", field="metadata.schema")


def _is_valid(field: dict[str, Any]) -> bool:
    if _is_deep(field) or not isinstance(field["nullable"], bool) or not isinstance(field["metadata"], dict):
        return False
    return _is_type(field["type"])


def _is_type(given: Any) -> bool:
    """Whether its parts are there. Names of types are taken as they are: there may be new ones."""
    match given:
        case str():
            return given != ""
        case {"type": "array", "elementType": element}:
            return _is_type(element)
        case {"type": "map", "keyType": key, "valueType": value}:
            return _is_type(key) and _is_type(value)
        case {"type": "struct", "fields": list(fields)}:
            named = {str(each.get("name")).lower() for each in fields if isinstance(each, dict)}
            return len(named) == len(fields) and all(
                _is_name(each.get("name")) and _is_type(each.get("type")) for each in fields
            )
        case {"type": "udt", "sqlType": kind}:
            return _is_type(kind)
    return False


def _is_deep(given: Any, most: int = MAX_NESTING) -> bool:
    """What one decoder just takes, another that is called from deeper inside does not."""
    inner = given.values() if isinstance(given, dict) else given if isinstance(given, list) else ()
    return most == 0 or any(_is_deep(each, most - 1) for each in inner)


def _is_name(given: object) -> bool:
    return isinstance(given, str) and given != "" and "\0" not in given


def fields_of_columns(columns: bytes) -> list[dict[str, Any]]:
    """Columns are kept as fields, or with the field as JSON text beside what follows from it."""
    return [
        _field(_decode(each["type_json"]) if each.get("type_json") else each) for each in _decode(columns)
    ]


def _field(given: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": given["name"],
        "type": given.get("type"),
        "nullable": given.get("nullable", True),
        "metadata": given.get("metadata") or {},
    }


def _require_same(told: list[dict[str, Any]], written: list[dict[str, Any]]) -> None:
    try:
        same = shape(told) == shape(written)
    except (AttributeError, RecursionError):
        # What cannot be walked through is no schema, and certainly not the one in the request.
        same = False
    if not same:
        raise Invalid("the staged commit has other columns than the request", field="columns")


def as_written(columns: bytes, fields: list[dict[str, Any]]) -> bytes:
    """The columns of a request as the file has them, with what the catalog alone knows of them."""
    told = {column["name"].lower(): column for column in _decode(columns)}
    found = []
    for position, field in enumerate(fields):
        column = told[field["name"].lower()]
        text = column.get("type_json")
        own = _field(_decode(text) if text else column)["metadata"]
        own = {key: value for key, value in own.items() if not key.startswith(_MARKS)}
        kind = read_type(field["type"], "metadata.schema")
        said = {**field, "type": kind, "metadata": {**own, **field["metadata"]}}
        if not text:
            found.append({**column, **said})
            continue
        column.update(name=said["name"], nullable=said["nullable"], position=position)
        if isinstance(said["metadata"].get("comment"), str):
            column["comment"] = said["metadata"]["comment"]
        found.append({**column, "type_json": _encode(said).decode()})
    return _encode(found)


def folded(names: Any) -> bytes:
    """Names of columns to be compared: ASCII letters are the same in both cases."""
    return _encode(names).lower()


def shape(given: Any) -> Any:
    """Names and types alone: what else a field says may be lost on the way through a dialect."""
    match given:
        case str():
            name = given.replace(" ", "").lower()
            # The log has these as strings of a length that only metadata tells.
            if name.startswith(("char(", "varchar(")):
                return "string"
            return "decimal(10,0)" if name == "decimal" else name
        case list():
            return [(each.get("name"), shape(each.get("type"))) for each in given]
        case {"type": "struct", "fields": fields}:
            return "struct", shape(fields)
        case {"type": "array", "elementType": element}:
            return "array", shape(element)
        case {"type": "map", "keyType": key, "valueType": value}:
            return "map", shape(key), shape(value)
    return given

"""Metadata documents of views: writing them out of a state, and taking one in."""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from inver.domain.iceberg.documents import write_array
from inver.domain.iceberg.failures import IllegalArgument
from inver.domain.iceberg.files import strip_slash
from inver.domain.iceberg.nodes import (
    decode_any,
    elements,
    encode,
    get_int,
    get_long,
    get_map,
    get_str,
    members,
    refuse_nul,
)
from inver.domain.iceberg.schemas import parse_schema
from inver.domain.iceberg.state import SCHEMA, VERSION, VERSION_LOG, Change, Draft, State, ViewHead, log_key
from inver.domain.iceberg.views import check_supported, parse_version, read_version

_FIELDS = {"schemas": SCHEMA, "versions": VERSION, "version-log": VERSION_LOG}
_KNOWN = frozenset({*_FIELDS, "view-uuid", "format-version", "location", "properties", "current-version-id"})


def view_document(state: State, head: ViewHead) -> list[bytes]:
    scalars: dict[str, Any] = {
        "view-uuid": head.uuid,
        "format-version": head.format_version,
        "location": head.location,
        "properties": head.properties,
        "current-version-id": head.current_version_id,
    }
    out = [encode(scalars | head.unknown)[:-1]]
    for field, kind in _FIELDS.items():
        write_array(out, field, state.parts(kind))
    out.append(b"}")
    return out


def from_view_document(body: bytes, *, metadata_location: str | None) -> Change:
    """A view as its metadata file says."""
    refuse_nul(body)
    fields = members(body, "view metadata")
    document = {name: decode_any(raw, name) for name, raw in fields.items() if name not in _FIELDS}
    version = get_int(document, "format-version")
    check_supported(version)
    head = ViewHead(
        format_version=version,
        uuid=get_str(document, "view-uuid"),
        location=strip_slash(get_str(document, "location")),
        current_version_id=get_int(document, "current-version-id"),
        properties={} if document.get("properties") is None else get_map(document, "properties"),
        metadata_location=metadata_location,
        unknown={name: Raw(bytes(raw)) for name, raw in fields.items() if name not in _KNOWN},
    )
    draft = Draft(None)
    for field, kind in _FIELDS.items():
        if field not in fields:
            raise IllegalArgument(f"Cannot parse missing field: {field}", field=field)
        for position, raw in enumerate(elements(fields[field], field)):
            key = _key_of(kind, raw, position)
            if (kind, key) in draft:
                raise IllegalArgument(f"Invalid view metadata: two of {kind} with the id {key}", field=field)
            draft.put(kind, key, bytes(raw))
    current = draft.get(VERSION, str(head.current_version_id))
    if current is None:
        message = f"Cannot find current version {head.current_version_id} in view versions"
        raise IllegalArgument(message, field="current-version-id")
    schema_id = read_version(current).schema_id
    if (SCHEMA, str(schema_id)) not in draft:
        raise IllegalArgument(f"Cannot find current schema with id {schema_id} in schemas", field="schemas")
    state, parts = draft.finish(head)
    return Change(state=state, head=encode(head), parts=parts)


def _key_of(kind: str, raw: Raw, position: int) -> str:
    if kind == SCHEMA:
        return str(parse_schema(raw).id)
    if kind == VERSION:
        return str(parse_version(raw).version_id)
    entry = decode_any(raw, "version-log")
    if type(entry) is not dict:
        raise IllegalArgument("Cannot parse version-log: an entry must be an object", field="version-log")
    get_long(entry, "timestamp-ms")
    return log_key(position, get_int(entry, "version-id"))

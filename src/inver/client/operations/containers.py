"""Catalogs and schemas."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from inver.client.core import Call, Page, json_answer, json_body, no_answer, query_of
from inver.client.naming import SEPARATOR, Name, parts_of, schema_segment, segment
from inver.client.operations.listing import listing
from inver.client.types import Catalog, Schema


def catalogs(*, page_size: int | None = None) -> Call[Page[Catalog]]:
    """All catalogs that the caller may see, by name."""
    return listing("/catalogs", "catalogs", Catalog, query_of(max_results=page_size))


def catalog(name: Name) -> Call[Catalog]:
    return Call(method="GET", path=_catalog(name), read=json_answer(Catalog))


def create_catalog(
    name: Name,
    *,
    comment: str | None = None,
    properties: dict[str, str] | None = None,
    storage_root: str | None = None,
) -> Call[Catalog]:
    body = {
        "name": parts_of(name, most=1, what="catalog")[0],
        "comment": comment,
        "properties": properties or {},
        "storage_root": storage_root,
    }
    return Call(method="POST", path="/catalogs", body=json_body(body), read=json_answer(Catalog))


def alter_catalog(
    name: Name,
    *,
    new_name: str | UnsetType = UNSET,
    comment: str | None | UnsetType = UNSET,
    properties: dict[str, str] | UnsetType = UNSET,
    owner: str | UnsetType = UNSET,
    if_match: str | None = None,
) -> Call[Catalog]:
    """What is not given stays. `properties` replaces all of them."""
    body = json_body({"name": new_name, "comment": comment, "properties": properties, "owner": owner})
    return Call(method="PATCH", path=_catalog(name), body=body, if_match=if_match, read=json_answer(Catalog))


def delete_catalog(name: Name, *, if_match: str | None = None) -> Call[None]:
    return Call(method="DELETE", path=_catalog(name), if_match=if_match, read=no_answer)


def schemas(parent: Name, *, page_size: int | None = None) -> Call[Page[Schema]]:
    """The schemas directly below a catalog or a schema, by name."""
    parts = parts_of(parent, what="catalog")
    query = query_of(max_results=page_size, parent=SEPARATOR.join(parts[1:]) or None)
    return listing(f"/catalogs/{segment(parts[0])}/schemas", "schemas", Schema, query)


def schema(name: Name) -> Call[Schema]:
    return Call(method="GET", path=schema_path(name), read=json_answer(Schema))


def create_schema(
    name: Name,
    *,
    comment: str | None = None,
    properties: dict[str, str] | None = None,
    storage_root: str | None = None,
) -> Call[Schema]:
    """What is above the last part of the name must exist."""
    parts = parts_of(name, least=2, what="schema")
    body = {
        "path": parts[1:],
        "comment": comment,
        "properties": properties or {},
        "storage_root": storage_root,
    }
    path = f"/catalogs/{segment(parts[0])}/schemas"
    return Call(method="POST", path=path, body=json_body(body), read=json_answer(Schema))


def alter_schema(
    name: Name,
    *,
    new_name: str | UnsetType = UNSET,
    comment: str | None | UnsetType = UNSET,
    properties: dict[str, str] | UnsetType = UNSET,
    owner: str | UnsetType = UNSET,
    if_match: str | None = None,
) -> Call[Schema]:
    """What is not given stays. `properties` replaces all of them."""
    body = json_body({"name": new_name, "comment": comment, "properties": properties, "owner": owner})
    return Call(
        method="PATCH", path=schema_path(name), body=body, if_match=if_match, read=json_answer(Schema)
    )


def delete_schema(name: Name, *, if_match: str | None = None) -> Call[None]:
    return Call(method="DELETE", path=schema_path(name), if_match=if_match, read=no_answer)


def schema_path(name: Name) -> str:
    parts = parts_of(name, least=2, what="schema")
    return f"/catalogs/{segment(parts[0])}/schemas/{schema_segment(parts[1:])}"


def _catalog(name: Name) -> str:
    return f"/catalogs/{segment(parts_of(name, most=1, what='catalog')[0])}"

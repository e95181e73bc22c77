"""Grants: who may do what, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inver.client.core import Call, Page, json_answer, json_body, query_of
from inver.client.naming import SEPARATOR, Name, parts_of
from inver.client.operations.listing import listing
from inver.client.types import Explanation, Grant, Securable

METASTORE = "metastore"
KINDS = (METASTORE, "catalog", "schema", "table", "view", "function", "volume")


def securable(name: Name = (), kind: str | None = None) -> Securable:
    """By its name; one part is a catalog, two are a schema, more are a table unless `kind` says otherwise."""
    if not name:
        return Securable(kind=kind or METASTORE)
    parts = parts_of(name, what="securable")
    return Securable(kind=kind or {1: "catalog", 2: "schema"}.get(len(parts), "table"), name=list(parts))


def grants(on: Securable | None = None, *, principal: str | None = None) -> Call[Page[Grant]]:
    """The grants on a securable, those of a principal, or both."""
    query = query_of(principal=principal)
    if on is not None:
        query |= {"kind": on.kind, "name": SEPARATOR.join(on.name)}
    return listing("/grants", "grants", Grant, query)


def grant(principal: str, privileges: Sequence[str], on: Securable) -> Call[list[Grant]]:
    """Returns what the principal now holds on the securable."""
    return _changed("/grants", principal, privileges, on)


def revoke(principal: str, privileges: Sequence[str], on: Securable) -> Call[list[Grant]]:
    """Returns what the principal still holds on the securable."""
    return _changed("/grants/revoke", principal, privileges, on)


def explain(principal: str, action: str, on: Securable) -> Call[Explanation]:
    """Whether the principal may do this, and by which grants, or what is missing."""
    body = json_body({"principal": principal, "action": action, "securable": _wire(on)})
    return Call(method="POST", path="/grants/explain", body=body, read=json_answer(Explanation))


def _changed(path: str, principal: str, privileges: Sequence[str], on: Securable) -> Call[list[Grant]]:
    body = json_body({"principal": principal, "privileges": list(privileges), "securable": _wire(on)})
    page = listing(path, "grants", Grant).read
    return Call(method="POST", path=path, body=body, read=lambda response: page(response).items)


def _wire(on: Securable) -> dict[str, Any]:
    return {"kind": on.kind, "name": on.name}

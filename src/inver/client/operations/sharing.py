"""Shares and recipients, for who provides them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET, UnsetType

from inver.client.core import Call, Page, json_answer, json_body, no_answer, query_of
from inver.client.naming import Name, parts_of, segment
from inver.client.operations.listing import listing
from inver.client.types import NewRecipient, Recipient, Share, SharedItem


def shares(*, page_size: int | None = None) -> Call[Page[Share]]:
    return listing("/shares", "shares", Share, query_of(max_results=page_size))


def share(name: str) -> Call[Share]:
    """With what it contains and who has it."""
    return Call(method="GET", path=_share(name), read=json_answer(Share))


def create_share(name: str, *, comment: str | None = None) -> Call[Share]:
    body = json_body({"name": name, "comment": UNSET if comment is None else comment})
    return Call(method="POST", path="/shares", body=body, read=json_answer(Share))


def drop_share(name: str) -> Call[None]:
    return Call(method="DELETE", path=_share(name), read=no_answer)


def add_to_share(
    share: str,
    source: Name,
    *,
    schema: bool = False,
    alias: Name | None = None,
    start_version: int = 0,
    history: bool = True,
) -> Call[SharedItem]:
    """A table, or with `schema` a whole schema; under its own names, or as `alias` says."""
    body = {
        "kind": "schema" if schema else "table",
        "name": parts_of(source, least=2, what="schema" if schema else "table"),
        "as": UNSET if alias is None else parts_of(alias),
        "start_version": start_version or UNSET,
        "history": UNSET if history else False,
    }
    return Call(
        method="POST", path=_share(share) + "/items", body=json_body(body), read=json_answer(SharedItem)
    )


def remove_from_share(share: str, schema: str, table: str | None = None) -> Call[None]:
    """By the names that it has in the share."""
    path = f"{_share(share)}/schemas/{segment(schema)}"
    if table is not None:
        path += f"/tables/{segment(table)}"
    return Call(method="DELETE", path=path, read=no_answer)


def grant_share(share: str, recipient: str, *, filters: Mapping[str, str] | None = None) -> Call[None]:
    """`filters` say by `schema.table` of the share which partitions the recipient gets."""
    told = []
    for name, where in (filters or {}).items():
        schema, _, table = name.partition(".")
        told.append({"schema": schema, "table": table, "where": where})
    path = f"{_share(share)}/recipients/{segment(recipient)}"
    return Call(method="PUT", path=path, body=json_body({"filters": told}), read=no_answer)


def revoke_share(share: str, recipient: str) -> Call[None]:
    path = f"{_share(share)}/recipients/{segment(recipient)}"
    return Call(method="DELETE", path=path, read=no_answer)


def recipients(*, page_size: int | None = None) -> Call[Page[Recipient]]:
    return listing("/recipients", "recipients", Recipient, query_of(max_results=page_size))


def recipient(name: str) -> Call[Recipient]:
    return Call(method="GET", path=_recipient(name), read=json_answer(Recipient))


def create_recipient(
    name: str,
    kind: str = "token",
    *,
    comment: str | None = None,
    networks: Sequence[str] = (),
    expires_in_s: int | None = None,
    activate: bool = True,
) -> Call[NewRecipient]:
    """With `activate` the answer has a link for the recipient, else the profile itself; shown this once."""
    body = _given(
        name=name,
        kind=kind,
        comment=comment,
        networks=list(networks) or None,
        expires_in_s=expires_in_s,
        activate=activate,
    )
    return Call(method="POST", path="/recipients", body=body, read=json_answer(NewRecipient))


def alter_recipient(
    name: str,
    *,
    comment: str | None | UnsetType = UNSET,
    networks: Sequence[str] | UnsetType = UNSET,
) -> Call[Recipient]:
    given = networks if isinstance(networks, UnsetType) else list(networks)
    body = json_body({"comment": comment, "networks": given})
    return Call(method="PATCH", path=_recipient(name), body=body, read=json_answer(Recipient))


def drop_recipient(name: str) -> Call[None]:
    return Call(method="DELETE", path=_recipient(name), read=no_answer)


def rotate_recipient(
    name: str, *, grace_s: int = 0, expires_in_s: int | None = None, activate: bool = True
) -> Call[NewRecipient]:
    """New credentials; the old ones go on for the time of grace."""
    body = _given(grace_s=grace_s, expires_in_s=expires_in_s, activate=activate)
    return Call(method="POST", path=_recipient(name) + "/rotate", body=body, read=json_answer(NewRecipient))


def revoke_recipient(name: str) -> Call[None]:
    """Every credential ends at once."""
    return Call(method="POST", path=_recipient(name) + "/revoke", read=no_answer)


def _given(**fields: Any) -> bytes:
    return json_body({name: value for name, value in fields.items() if value is not None})


def _share(name: str) -> str:
    return f"/shares/{segment(name)}"


def _recipient(name: str) -> str:
    return f"/recipients/{segment(name)}"

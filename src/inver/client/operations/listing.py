"""Calls whose answer comes in pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

import msgspec

from inver.client.core import Call, Page, Response
from inver.errors import Broken

T = TypeVar("T")


def listing(path: str, key: str, kind: type[T], query: Mapping[str, str] | None = None) -> Call[Page[T]]:
    """Everything below `path`; the items of a page are under `key`."""

    def read(response: Response) -> Page[T]:
        try:
            answer = msgspec.json.decode(response.body, type=dict[str, msgspec.Raw])
            items = msgspec.json.decode(answer[key], type=list[kind])  # type: ignore[valid-type]
            token = msgspec.json.decode(answer.get("next_page_token", b"null"), type=str | None)
        except (msgspec.DecodeError, KeyError) as error:
            raise Broken(f"the server's answer is not understood: {error}") from None
        return Page(items, _after(token))

    def _after(token: str | None) -> Call[Page[T]] | None:
        return None if token is None else replace(first, query={**first.query, "page_token": token})

    first: Call[Page[T]] = Call(method="GET", path=path, read=read, query=query or {})
    return first

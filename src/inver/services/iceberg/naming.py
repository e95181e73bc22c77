"""Names of Iceberg's clients, and what is said when one of them does not stand for anything, or already does.

Clients show these texts to people and compare them in tests, so they are the words of the Java library.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from inver.domain.names import path_key
from inver.errors import AlreadyExists, NotEmpty, NotFound


class Identifier(msgspec.Struct, frozen=True):
    """A table or view: the catalog that the request's prefix names, the namespace in it, and the name."""

    catalog: str
    namespace: tuple[str, ...]
    name: str

    @property
    def key(self) -> str:
        """The same for all spellings of one name."""
        return path_key((self.catalog, *self.namespace, self.name))

    def __str__(self) -> str:
        return ".".join((*self.namespace, self.name))


def noun(view: bool) -> str:
    return "View" if view else "Table"


def missing(identifier: Identifier, view: bool = False, because: str = "") -> NotFound:
    text = f"{noun(view)} does not exist: {identifier}"
    return NotFound(f"{text} ({because})" if because else text, kind="view" if view else "table")


def taken(identifier: Identifier, view: bool, by_view: bool) -> AlreadyExists:
    """`view` is what was to be made, `by_view` what has the name."""
    same = "" if view is by_view else " with same name"
    return AlreadyExists(f"{noun(by_view)}{same} already exists: {identifier}", kind="table")


def no_namespace(path: Sequence[str]) -> NotFound:
    return NotFound(f"Namespace does not exist: {'.'.join(path)}", kind="schema")


def namespace_taken(path: Sequence[str]) -> AlreadyExists:
    return AlreadyExists(f"Namespace already exists: {'.'.join(path)}", kind="schema")


def namespace_not_empty(path: Sequence[str]) -> NotEmpty:
    return NotEmpty(f"Namespace {'.'.join(path)} is not empty")


def no_warehouse(name: str) -> NotFound:
    return NotFound(f"Warehouse does not exist: {name}", kind="catalog")

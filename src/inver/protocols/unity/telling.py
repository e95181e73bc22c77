"""A column tells its type by a text, a name and JSON; clients read one of them, and each another."""

from __future__ import annotations

from inver.domain.datatypes import TYPE_NAMES, DataType, ddl
from inver.domain.ddl import parse_ddl
from inver.errors import Invalid
from inver.services.delta.agreement import folded, shape

_TEXTS = frozenset({"STRING", "CHAR"})
_LOOSE = frozenset({"USER_DEFINED_TYPE", "TABLE_TYPE"})


def text_of(kind: DataType, given: str | None, path: str) -> str:
    """What readers parse: the client's own text of this type, or ours where that cannot be read.

    Spark cuts long texts short and does not quote names in them, so such a text is no contradiction.
    """
    try:
        said = parse_ddl(given or "", path)
    except Invalid:
        return ddl(kind)
    if folded(shape(said)) != folded(shape(kind)):
        raise Invalid(
            f"{path}: {str(given)[:100]!r} is another type than the rest of the column says", field=path
        )
    return given or ddl(kind)


def name_of(known: str, named: str | None, path: str) -> str:
    """The client's own name of the type that is known by this one."""
    if not named:
        return known
    upper = named.upper()
    if upper not in TYPE_NAMES:
        raise Invalid(f"{path}: {named[:100]!r} is not a type name", field=path)
    # A text of fixed length is a string to some, and a type of a user's own is known to them alone.
    if upper != known and upper not in _LOOSE and not {upper, known} <= _TEXTS:
        raise Invalid(f"{path}: {upper} is another type than {known}, which the column has", field=path)
    return upper

"""Names of catalogs, schemas, tables, views and principals.

A name is shown as it was given and compared by its key. Names never become path segments or parts
of a policy, so `/`, `.`, `%`, `+` and spaces are as good as any other character; what is refused
is what a reader cannot see or cannot tell apart.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from inver.errors import Invalid

MAX_NAME_BYTES = 255

# A control character is refused in every name, so joined keys are unambiguous and sort parent first.
SEPARATOR = "\x1f"

# Control, format, surrogate, private use, line separator, paragraph separator.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def check_name(value: str, field: str) -> str:
    """The name itself, or Invalid saying what is wrong with it."""
    if not value:
        raise Invalid(f"{field} is empty", field=field, fix="give a name of at least one character")
    if value in (".", ".."):
        raise Invalid(f"{field} is {value!r}, which is not a name", field=field, fix="choose another name")
    at = hidden_character(value)
    if at is not None:
        raise Invalid(
            f"{field} contains the character {codepoint(value[at])} at position {at}",
            field=field,
            fix="remove control, format and private-use characters",
        )
    if value[0].isspace() or value[-1].isspace():
        raise Invalid(
            f"{field} {value!r} starts or ends with white space", field=field, fix="remove the white space"
        )
    size = len(value) if value.isascii() else len(value.encode())
    if size > MAX_NAME_BYTES:
        raise Invalid(
            f"{field} is {size} bytes long in UTF-8; at most {MAX_NAME_BYTES} are allowed",
            field=field,
            fix="choose a shorter name",
        )
    return value


def name_key(value: str) -> str:
    """What decides whether two names are the same: NFC and casefold, stable under repetition."""
    if value.isascii():
        return value.lower()
    # Folding can leave a base letter and its mark apart, which only a second NFC joins again.
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", value).casefold())


def path_key(parts: Sequence[str]) -> str:
    """The key of a whole path of names, such as catalog, schema, table."""
    return SEPARATOR.join([name_key(part) for part in parts])


def dotted(parts: Sequence[str]) -> str:
    """A path of names for people to read; a part with a dot or a backtick is quoted as SQL does."""
    return ".".join([_quoted(part) if "." in part or "`" in part else part for part in parts])


def hidden_character(value: str) -> int | None:
    """Position of the first character that a reader cannot see, if there is one."""
    if value.isprintable():
        return None
    for at, character in enumerate(value):
        if not character.isprintable() and unicodedata.category(character) in _HIDDEN:
            return at
    return None


def codepoint(character: str) -> str:
    """`U+200B`, because printing the character itself would show nothing."""
    return f"U+{ord(character):04X}"


def _quoted(part: str) -> str:
    return "`" + part.replace("`", "``") + "`"

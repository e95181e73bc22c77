"""Where a table's files are, as one byte-literal value.

A location is never decoded, never resolved and never repaired: what could mean two things is
refused. Two spellings of one place (`s3a://b/x/` and `s3://b/x`, `/x` and `file:///x`) have the same
canonical form, and every question of containment is asked of that form with its closing slash, so
`orders` never contains `orders2`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NoReturn

from inver.domain.names import codepoint, hidden_character
from inver.errors import Invalid

MAX_LOCATION_BYTES = 4096

_CANONICAL_SCHEME = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "abfs": "abfss",
    "abfss": "abfss",
    "az": "abfss",
    "file": "file",
}
_FILE_ROOT = "file:///"
_BUCKET = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.|$))*")
# Hosts and containers of Azure are lower case; taking capitals would give one place two spellings.
_AZURE = re.compile(r"[a-z0-9](?:[a-z0-9_-]|\.(?!\.|$))*")
_ENCODED = re.compile(r"%(?:2e|2f|5c|00)", re.IGNORECASE)
_FORBIDDEN = {
    "\\": "separate folders with '/'",
    "?": "a location has no query",
    "#": "a location has no fragment",
}


@dataclass(frozen=True, slots=True)
class Location:
    """`prefix` is the canonical form with its closing slash; it alone decides equality."""

    prefix: str
    text: str = field(compare=False)
    """As it was given, without trailing slashes: what clients get back."""

    @classmethod
    def parse(cls, text: str, *, field: str = "location") -> Location:
        _check_characters(text, field)
        if text.startswith("/"):
            scheme, authority, path = "file", "", text[1:]
        else:
            scheme, authority, path = _split(text, field)
        path = path.rstrip("/")
        if path:
            _check_segments(path, text, field)
        prefix = f"{_CANONICAL_SCHEME[scheme]}://{authority}/{path}"
        if path:
            prefix += "/"
        return cls(prefix, _FILE_ROOT if prefix == _FILE_ROOT else text.rstrip("/"))

    @property
    def canonical(self) -> str:
        """Without the closing slash, except for the root of the local file system: `file:///`."""
        return _without_slash(self.prefix)

    @property
    def scheme(self) -> str:
        """One of s3, gs, abfss, file."""
        return self.prefix[: self.prefix.index(":")]

    @property
    def authority(self) -> str:
        """Bucket, or `container@account-host`; empty for local files."""
        start = self.prefix.index("://") + 3
        return self.prefix[start : self.prefix.index("/", start)]

    @property
    def key(self) -> str:
        """The path below the bucket or below `/`, without slashes at its ends."""
        return self.prefix[self._root_length() : -1]

    @property
    def is_local(self) -> bool:
        return self.prefix.startswith("file:")

    @property
    def local_path(self) -> str:
        """The absolute path of a local location."""
        if not self.is_local:
            raise Invalid(f"{self.canonical} is not on the local file system")
        return "/" + self.key

    @property
    def is_root(self) -> bool:
        """A whole bucket, or `/`."""
        return len(self.prefix) == self._root_length()

    def contains(self, other: Location) -> bool:
        """Whether `other` is this location or lies below it, by whole segments."""
        return other.prefix.startswith(self.prefix)

    def overlaps(self, other: Location) -> bool:
        return self.contains(other) or other.contains(self)

    def join(self, relative: str, *, field: str = "location") -> Location:
        """The location `relative` below this one, spelled with this one's scheme."""
        _check_characters(relative, field)
        relative = relative.rstrip("/")
        _check_segments(relative, relative, field)
        text = self.text + relative if self.text.endswith("/") else f"{self.text}/{relative}"
        _check_length(text, field)
        return Location(f"{self.prefix}{relative}/", text)

    def relative(self, other: Location) -> str:
        """The path from here down to `other`; empty if they are the same place."""
        if not self.contains(other):
            raise Invalid(f"{other.canonical} does not lie below {self.canonical}")
        return other.prefix[len(self.prefix) : -1]

    def ancestors(self) -> tuple[Location, ...]:
        """Every location that strictly contains this one, outermost first."""
        found = []
        end = self._root_length()
        while end < len(self.prefix):
            prefix = self.prefix[:end]
            found.append(Location(prefix, _without_slash(prefix)))
            end = self.prefix.index("/", end) + 1
        return tuple(found)

    def scan_range(self) -> tuple[str, str]:
        """Bounds `lower <= prefix < upper` that hold exactly for this location and those below it.

        They need a column that compares by bytes: `0` is the byte after `/`.
        """
        return self.prefix, self.prefix[:-1] + "0"

    def __str__(self) -> str:
        return self.canonical

    def _root_length(self) -> int:
        return self.prefix.index("/", self.prefix.index("://") + 3) + 1


def _without_slash(prefix: str) -> str:
    return prefix if prefix == _FILE_ROOT else prefix[:-1]


def _split(text: str, field: str) -> tuple[str, str, str]:
    scheme, colon, rest = text.partition(":")
    if not colon or scheme not in _CANONICAL_SCHEME:
        _refuse(
            text,
            "has no scheme that is known here",
            field,
            f"start it with one of {', '.join(_CANONICAL_SCHEME)} followed by '://', or with '/'",
        )
    if scheme == "file":
        return scheme, "", _file_path(text, rest, field)
    if not rest.startswith("//"):
        _refuse(text, f"does not start with '{scheme}://'", field, f"write {scheme}://bucket/path")
    authority, _, path = rest[2:].partition("/")
    if _CANONICAL_SCHEME[scheme] == "abfss":
        return scheme, _azure_authority(authority, text, field), path
    if not _BUCKET.fullmatch(authority):
        _refuse(text, f"has no valid bucket name: {authority!r}", field, f"write {scheme}://bucket/path")
    return scheme, authority, path


def _file_path(text: str, rest: str, field: str) -> str:
    """`file:/x` and `file:///x`; a host between the slashes would be another machine's disk."""
    path = rest[2:] if rest.startswith("//") else rest
    if not path.startswith("/"):
        _refuse(text, "names a host or a relative path", field, "write file:///absolute/path")
    return path[1:]


def _azure_authority(authority: str, text: str, field: str) -> str:
    container, at, host = authority.partition("@")
    if not _AZURE.fullmatch(container) or (at and not _AZURE.fullmatch(host)):
        _refuse(
            text,
            f"has no valid container and account: {authority!r}",
            field,
            "write abfss://container@account.dfs.core.windows.net/path in lower case",
        )
    # The blob and the dfs endpoint of an account show the same files.
    return f"{container}@{host.replace('.blob.core.', '.dfs.core.')}" if at else container


def _check_characters(text: str, field: str) -> None:
    if not text:
        raise Invalid(f"{field} is empty", field=field, fix="give a URI such as s3://bucket/path")
    _check_length(text, field)
    at = hidden_character(text)
    if at is not None:
        _refuse(text, f"contains the character {codepoint(text[at])} at position {at}", field, "remove it")
    for character, fix in _FORBIDDEN.items():
        if character in text:
            _refuse(text, f"contains {character!r}", field, fix)
    encoded = _ENCODED.search(text)
    if encoded:
        _refuse(text, f"contains the encoded character {encoded[0]}", field, "locations are not decoded")
    if text[0].isspace() or text[-1].isspace():
        _refuse(text, "starts or ends with white space", field, "remove the white space")


def _check_length(text: str, field: str) -> None:
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_LOCATION_BYTES:
        raise Invalid(
            f"{field} is {size} bytes long; at most {MAX_LOCATION_BYTES} are allowed",
            field=field,
            fix="choose a shorter path",
        )


def _check_segments(path: str, text: str, field: str) -> None:
    for segment in path.split("/"):
        if not segment:
            _refuse(text, "has an empty segment", field, "write one '/' between folders")
        if segment in (".", ".."):
            _refuse(text, f"has the segment {segment!r}", field, "write the path out")


def _refuse(text: str, problem: str, field: str, fix: str) -> NoReturn:
    shown = ascii(text if len(text) <= 100 else text[:100] + "...")
    raise Invalid(f"{field} {shown} {problem}", field=field, fix=fix)

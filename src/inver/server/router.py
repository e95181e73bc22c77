"""From a raw path to a route, and from any path to the face that speaks for it.

The path is split before it is decoded, and each segment is decoded exactly once: `%2F` belongs
to a name, `+` is a space. A literal segment wins over a parameter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from urllib.parse import unquote_to_bytes

import msgspec

from inver.errors import Invalid, MethodNotAllowed, NotFound
from inver.protocols.http import Face, Handler, Route

_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_PARAMETER = re.compile(r"\{[A-Za-z_][A-Za-z0-9_-]*\}")

# A path always resolves to the same thing, and writers come back to the same tables. Both numbers
# only bound the memory that made-up paths can take.
_REMEMBERED = 4096
_REMEMBERED_LENGTH = 512


class Entry(msgspec.Struct, frozen=True, eq=False):
    """One route under one mount. `index` is its place in `Router.entries`.

    `method` differs from `route.method` only where a GET route also answers HEAD.
    """

    index: int
    method: str
    template: str
    mount: str
    face: Face
    route: Route
    handler: Handler
    public: bool


Resolved = tuple[Entry, tuple[str, ...]]


class Owner(msgspec.Struct, frozen=True):
    """The face that renders errors for a path, and the mount by which it got it."""

    face: Face
    mount: str


class _Node:
    __slots__ = ("entries", "literals", "owner", "parameter")

    def __init__(self) -> None:
        self.literals: dict[str, _Node] = {}
        self.parameter: _Node | None = None
        self.entries: dict[str, Entry] = {}
        self.owner: Owner | None = None

    def steps(self, segment: str, args: tuple[str, ...]) -> Iterator[tuple[_Node, tuple[str, ...]]]:
        literal = self.literals.get(segment)
        if literal is not None:
            yield literal, args
        if self.parameter is not None and segment:
            yield self.parameter, (*args, segment)


class Router:
    """All routes of some faces in one trie; `default` speaks for paths below nobody's mount."""

    def __init__(self, faces: Iterable[Face], default: Face) -> None:
        self._root = _Node()
        self._default = Owner(default, "")
        entries: list[Entry] = []
        for face in faces:
            for mount in face.mounts:
                self._mount(face, mount)
                for route in face.routes:
                    entries.append(self._add(len(entries), face, mount, route))
        for entry in tuple(entries):
            if entry.method == "GET":
                leaf = self._leaf(entry.template).entries
                if "HEAD" not in leaf:
                    head = msgspec.structs.replace(entry, index=len(entries), method="HEAD")
                    leaf["HEAD"] = head
                    entries.append(head)
        self.entries = tuple(entries)
        self._memory: dict[tuple[str, bytes], Resolved] = {}

    def routes(self) -> Iterator[tuple[Face, str, Route]]:
        """Every route that a face declares, once per mount."""
        for entry in self.entries:
            if entry.method == entry.route.method:
                yield entry.face, entry.mount, entry.route

    def resolve(self, method: str, raw_path: bytes) -> Resolved:
        """The route and its decoded arguments; or Invalid, NotFound("route"), MethodNotAllowed."""
        key = (method, raw_path)
        resolved = self._memory.get(key)
        if resolved is None:
            resolved = self._walk(method, raw_path)
            if len(raw_path) <= _REMEMBERED_LENGTH:
                if len(self._memory) >= _REMEMBERED:
                    self._memory.clear()
                self._memory[key] = resolved
        return resolved

    def owner(self, raw_path: bytes) -> Owner:
        """The face with the longest mount, by whole segments, that holds this path; never fails."""
        found = self._default
        node = self._root
        for position, raw in enumerate(raw_path.split(b"/")):
            try:
                child = node.literals.get(_decode(raw, position))
            except Invalid:
                break
            if child is None:
                break
            node = child
            found = node.owner or found
        return found

    def _walk(self, method: str, raw_path: bytes) -> Resolved:
        segments = split(raw_path)
        node = self._root
        args: list[str] = []
        for segment in segments:
            child = node.literals.get(segment)
            if child is None:
                child = node.parameter
                if child is None or not segment:
                    break
                args.append(segment)
            node = child
        else:
            entry = node.entries.get(method)
            if entry is not None:
                return entry, tuple(args)
        return self._search(method, segments, raw_path)

    def _search(self, method: str, segments: list[str], raw_path: bytes) -> Resolved:
        """All templates that fit, the most literal first; only the walk that failed pays for it."""
        states: list[tuple[_Node, tuple[str, ...]]] = [(self._root, ())]
        for segment in segments:
            states = [step for node, args in states for step in node.steps(segment, args)]
            if not states:
                break
        fitting = [(node.entries, args) for node, args in states if node.entries]
        for entries, args in fitting:
            if method in entries:
                return entries[method], args
        shown = raw_path[:256].decode("latin-1")
        if not fitting:
            raise NotFound(f"nothing is served at {shown}", kind="route")
        allowed = sorted({name for entries, _ in fitting for name in entries})
        raise MethodNotAllowed(f"{method} is not offered at {shown}", allowed)

    def _mount(self, face: Face, mount: str) -> None:
        if "{" in mount:
            raise ValueError(f"mount {mount!r} contains a parameter")
        node = self._leaf(mount)
        if node.owner is not None and node.owner.face is not face:
            raise ValueError(f"mount {mount!r} is taken twice")
        node.owner = Owner(face, mount)

    def _add(self, index: int, face: Face, mount: str, route: Route) -> Entry:
        template = mount + route.template
        entries = self._leaf(template).entries
        taken = entries.get(route.method)
        if taken is not None:
            raise ValueError(f"{route.method} {template} is the same route as {taken.template}")
        entry = Entry(index, route.method, template, mount, face, route, route.handler, route.public)
        entries[route.method] = entry
        return entry

    def _leaf(self, template: str) -> _Node:
        """The node of a template, made where it is missing."""
        if template and (not template.startswith("/") or template.endswith("/")):
            raise ValueError(f"{template!r} must start with a slash and not end with one")
        node = self._root
        for segment in template.split("/"):
            if _PARAMETER.fullmatch(segment):
                if node.parameter is None:
                    node.parameter = _Node()
                node = node.parameter
            elif "{" in segment or "}" in segment:
                raise ValueError(f"{segment!r} in {template!r} must be a whole {{name}} or a literal")
            else:
                node = node.literals.setdefault(segment, _Node())
        return node


def split(raw_path: bytes) -> list[str]:
    """The decoded segments, the empty one before the first slash included; one trailing slash is dropped."""
    plain = raw_path.find(b"%") < 0 and raw_path.find(b"+") < 0 and raw_path.find(b"\x00") < 0
    if plain and raw_path.isascii():
        segments = raw_path.decode().split("/")
    else:
        segments = [_decode(raw, position) for position, raw in enumerate(raw_path.split(b"/"))]
    if not segments[-1]:
        segments.pop()
    return segments


def _decode(raw: bytes, position: int) -> str:
    if _BAD_ESCAPE.search(raw) is None:
        try:
            segment = unquote_to_bytes(raw.replace(b"+", b" ")).decode()
        except UnicodeDecodeError:
            segment = "\x00"
        if "\x00" not in segment:
            return segment
    shown = raw[:64].decode("latin-1")
    raise Invalid(
        f"path segment {position} ({shown!r}) is not percent-encoded UTF-8 without NUL", field="path"
    )

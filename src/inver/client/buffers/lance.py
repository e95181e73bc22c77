"""A Lance namespace for pylance whose commits wait for the end of a transaction.

A version that waits is read from a copy of its manifest, in a folder where nobody looks who is not
told of it: under its final name it would be seen before it is decided.

A table that the block declares stands under a name of the server's choosing meanwhile, so that its
files have their place. It gets its own name, and its versions, when the transaction is decided.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from inver.client.buffers.buffer import Buffer

Id = tuple[str, ...]

FOLDER = "_inver"
_FIELDS = ("version", "manifest_path", "manifest_size", "e_tag", "metadata", "naming_scheme", "branch")
_SHOWN = ("version", "manifest_path", "manifest_size", "e_tag", "metadata")
_READS = ("list_", "describe_", "get_", "count_", "query_", "explain_", "analyze_", "namespace_exists")


class Asked(dict[str, Any]):
    """A request as pylance hands it to namespaces."""

    def model_dump(self) -> dict[str, Any]:
        return dict(self)


def namespace_of(buffer: Buffer, properties: dict[str, str]) -> Any:
    """A `LanceNamespace`, for pylance's `namespace_client`."""
    import lance_namespace as spec

    others = {
        method: _forward(method) if method.startswith(_READS) else _refuse(method)
        for method in vars(spec.LanceNamespace)
        if not method.startswith("_") and not hasattr(_Buffered, method)
    }
    made: Any = type("BufferedNamespace", (_Buffered, spec.LanceNamespace), others)
    return made(spec, buffer, properties)


class _Buffered:
    """Reads see the block's own versions. What the server would do at once is refused.

    `spec` is the library that has the words of the protocol, loaded on first use.
    """

    def __init__(self, spec: Any, buffer: Buffer, properties: dict[str, str]) -> None:
        self._spec = spec
        self._buffer = buffer
        self._rest = spec.connect("rest", properties)
        self._standing: dict[Id, Id | None] = {}
        self._versions: dict[tuple[Id, str], list[dict[str, Any]]] = {}
        self._places: dict[Id, Place] = {}

    def namespace_id(self) -> str:
        return f"{self._rest.namespace_id()} in transaction {self._buffer.id}"

    # --- tables ---

    def declare_table(self, request: Any) -> Any:
        asked = request.model_dump()
        name = tuple(asked["id"])
        if self._exists(name):
            raise self._spec.errors.TableAlreadyExistsError(f"Table already exists: {'.'.join(name)}")
        self._buffer.check()
        standing = (*name[:-1], f"{name[-1]}-{self._buffer.id}")
        answer = self._rest.declare_table(Asked(asked, id=list(standing)))
        self._buffer.placeholders.append(standing)
        self._standing[name] = standing
        self._places[standing] = Place(answer)
        self._rename(standing, name)
        return answer

    def describe_table(self, request: Any) -> Any:
        asked = request.model_dump()
        _, standing = self._named(asked)
        waiting = self._versions.get((standing, asked.get("branch") or ""))
        versions = [each["version"] for each in waiting or ()]
        if asked.get("version") in versions:
            asked["version"] = None
        answer = self._rest.describe_table(Asked(asked, id=list(standing)))
        self._places[standing] = Place(answer)
        if versions and asked.get("version") is None and asked.get("tag") is None:
            answer.version = request.model_dump().get("version") or versions[-1]
        return answer

    def table_exists(self, request: Any) -> Any:
        name = tuple(request.model_dump()["id"])
        if not self._exists(name):
            raise self._spec.errors.TableNotFoundError(f"Table not found: {'.'.join(name)}")
        return self._spec.TableExistsResponse()

    def rename_table(self, request: Any) -> Any:
        asked = request.model_dump()
        name, standing = self._named(asked)
        space = asked.get("new_namespace_id")
        to = (*(name[:-1] if space is None else space), asked["new_table_name"])
        if self._exists(to):
            raise self._spec.errors.TableAlreadyExistsError(f"Table already exists: {'.'.join(to)}")
        self._rename(standing, to)
        self._standing[name], self._standing[to] = None, standing
        return self._spec.RenameTableResponse()

    def drop_table(self, request: Any) -> Any:
        name, standing = self._named(request.model_dump())
        self._buffer.add({"op": "drop-table", "table": {"name": list(standing)}}, name)
        self._standing[name] = None
        return self._spec.DropTableResponse(id=list(name))

    def deregister_table(self, request: Any) -> Any:
        name, standing = self._named(request.model_dump())
        self._add("deregister_table", {"id": list(standing)}, name)
        self._standing[name] = None
        return self._spec.DeregisterTableResponse(id=list(name))

    # --- versions ---

    def create_table_version(self, request: Any) -> Any:
        asked = request.model_dump()
        name, standing = self._named(asked)
        version, branch = asked["version"], asked.get("branch") or ""
        waiting = self._versions.setdefault((standing, branch), [])
        if any(each["version"] >= version for each in waiting):
            raise self._spec.errors.ConcurrentModificationError(
                f"version {version} exists in this transaction"
            )
        body = {field: asked[field] for field in _FIELDS if asked.get(field) is not None}
        copy = self._place(standing).copy(asked["manifest_path"], branch, self._buffer)
        self._add("create_table_version", {"id": list(standing), **body}, name)
        shown = {field: body[field] for field in _SHOWN if field in body} | {"manifest_path": copy}
        waiting.append(shown)
        return self._spec.CreateTableVersionResponse(version=self._spec.TableVersion(**shown))

    def batch_create_table_versions(self, request: Any) -> Any:
        made = [self.create_table_version(Asked(each)).version for each in request.model_dump()["entries"]]
        return self._spec.BatchCreateTableVersionsResponse(versions=made)

    def batch_commit_tables(self, request: Any) -> Any:
        steps = {
            "declare_table": self.declare_table,
            "create_table_version": self.create_table_version,
            "deregister_table": self.deregister_table,
        }
        results = []
        for operation in request.model_dump()["operations"]:
            ((kind, body),) = [(key, value) for key, value in operation.items() if value is not None]
            if kind not in steps:
                raise self._outside(kind)
            results.append(self._spec.CommitTableResult(**{kind: steps[kind](Asked(body))}))
        return self._spec.BatchCommitTablesResponse(results=results)

    def list_table_versions(self, request: Any) -> Any:
        asked = request.model_dump()
        _, standing = self._named(asked)
        answer = self._rest.list_table_versions(Asked(asked, id=list(standing)))
        waiting = self._versions.get((standing, asked.get("branch") or ""), [])
        mine = [self._spec.TableVersion(**each) for each in waiting]
        if asked.get("descending"):
            if not asked.get("page_token"):
                answer.versions = [*reversed(mine), *answer.versions]
        elif not answer.page_token:
            answer.versions = [*answer.versions, *mine]
        return answer

    def describe_table_version(self, request: Any) -> Any:
        asked = request.model_dump()
        _, standing = self._named(asked)
        for each in self._versions.get((standing, asked.get("branch") or ""), ()):
            if each["version"] == asked.get("version"):
                return self._spec.DescribeTableVersionResponse(version=self._spec.TableVersion(**each))
        return self._rest.describe_table_version(Asked(asked, id=list(standing)))

    # --- of use to all ---

    def _named(self, asked: dict[str, Any]) -> tuple[Id, Id]:
        """The name in the block, and what the server still calls the table."""
        name = tuple(asked["id"])
        standing = self._standing.get(name, name)
        if standing is None:
            raise self._spec.errors.TableNotFoundError(f"Table not found: {'.'.join(name)}")
        return name, standing

    def _exists(self, name: Id) -> bool:
        if name in self._standing:
            return self._standing[name] is not None
        try:
            self._rest.table_exists(Asked(id=list(name)))
        except self._spec.errors.TableNotFoundError:
            return False
        return True

    def _rename(self, standing: Id, to: Id) -> None:
        self._buffer.add({"op": "rename-table", "table": {"name": list(standing)}, "to": list(to)}, to)

    def _add(self, kind: str, body: dict[str, Any], name: Id) -> None:
        self._buffer.add({"op": "lance", "operation": {kind: body}}, name)

    def _outside(self, what: str) -> Exception:
        refused: Exception = self._spec.errors.UnsupportedOperationError(
            f"{what} cannot be part of a transaction; do it before or after the block"
        )
        return refused

    def _place(self, standing: Id) -> Place:
        if standing not in self._places:
            self._places[standing] = Place(self._rest.describe_table(Asked(id=list(standing))))
        return self._places[standing]


class Place:
    """Where a table lies, as its description tells."""

    def __init__(self, told: Any) -> None:
        self._location = told.location
        self._options = told.storage_options or {}
        parts = urlsplit(told.location)
        self._local = parts.scheme in ("", "file")
        self._key = (unquote(parts.path) if parts.scheme == "file" else parts.path).strip("/")

    def copy(self, staged: str, branch: str, buffer: Buffer) -> str:
        """Where pylance may read a manifest that it has staged; both paths start at the store's root."""
        from lance.file import LanceFileSession

        relative = staged.removeprefix("/").removeprefix(self._key + "/")
        final = relative.rpartition("/")[2].partition(".manifest-")[0] + ".manifest"
        target = "/".join(part for part in (FOLDER, f"tx-{buffer.id}", branch, final) if part)
        files = LanceFileSession(self._location, storage_options=self._options)
        with tempfile.TemporaryDirectory() as folder:
            file = str(Path(folder) / "manifest")
            files.download_file(relative, file)
            files.upload_file(file, target)
        path = f"{self._key}/{target}"
        if self._local:
            buffer.endings.append(lambda: _forget(Path("/" + path)))
        return path


def _forget(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
        path.parent.rmdir()
        path.parent.parent.rmdir()


def _forward(method: str) -> Callable[..., Any]:
    def forward(self: Any, request: Any) -> Any:
        asked = request.model_dump()
        if "table" in method and asked.get("id") is not None:
            asked["id"] = list(self._standing.get(tuple(asked["id"])) or asked["id"])
        return getattr(self._rest, method)(Asked(asked))

    return forward


def _refuse(method: str) -> Callable[..., Any]:
    def refuse(self: Any, *_: Any, **__: Any) -> Any:
        raise self._outside(method)

    return refuse

"""Lance's rules: how versions are named on storage, what a manifest says, what one version changed."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from inver.domain.ledger import MAIN, Counts
from inver.domain.sizes import bin_of, flat
from inver.errors import Conflict, Invalid

LAST_VERSION = 2**63 - 1
MAX_BRANCH_BYTES = 200
_TOP = 2**64 - 1
_FINAL = re.compile(r"([0-9]{1,20})\.manifest")
_SEGMENT = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


class WrongState(Conflict):
    """The table is not in a state in which this can be done."""


class SchemaInvalid(Invalid):
    """Data that does not fit the table."""


class Naming(msgspec.Struct, frozen=True):
    """`V2` counts down from the largest number, so that the newest version is listed first."""

    v2: bool = True

    def file(self, version: int) -> str:
        return f"{_TOP - version:020d}.manifest" if self.v2 else f"{version}.manifest"


V1, V2 = Naming(False), Naming(True)


class DataFile(msgspec.Struct, frozen=True, array_like=True):
    path: str
    size: int | None


class Fragment(msgspec.Struct, frozen=True, array_like=True):
    """`rows` are those that were written, `deleted` those of them that count no more."""

    id: int
    rows: int
    deleted: int
    files: tuple[DataFile, ...]


class Index(msgspec.Struct, frozen=True):
    uuid: str
    name: str
    fields: tuple[int, ...]
    version: int
    created_at: int | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What the catalog reads of a manifest. `fragments` is None where a feature that is not known hides them.

    `schema` is the JSON form of the Arrow schema, with a `digest` of it, `columns` the paths of all fields
    by their ids. Manifests of equal schemas share them.
    """

    version: int
    branch: str = MAIN
    transaction: str = ""
    operation: str | None = None
    timestamp: int | None = None
    writer: str = ""
    reader_flags: int = 0
    writer_flags: int = 0
    fragments: tuple[Fragment, ...] | None = ()
    schema: dict[str, Any] = {}
    digest: str = ""
    columns: dict[int, str] = {}
    metadata: dict[str, str] = {}
    indices: tuple[Index, ...] = ()

    @property
    def uuid(self) -> str | None:
        """Of the transaction that made this version; it stays the same when a commit is tried again."""
        return self.transaction.removesuffix(".txn").partition("-")[2] or None


class Totals(msgspec.Struct, frozen=True, omit_defaults=True):
    """A table at one version, as sums; None where they are not known."""

    rows: int | None = None
    deleted: int | None = None
    fragments: int | None = None
    small_fragments: int | None = None
    files: int | None = None
    bytes: int | None = None
    indices: int = 0
    lengths: dict[str, int] = {}


class LanceHead(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the catalog keeps of the newest version of a Lance table, so that describing it reads no file."""

    totals: Totals = Totals()
    schema: str = ""
    """A digest, so that the definition is written only when it changes."""
    metadata: dict[str, str] = {}
    flags: int = 0


_decode_head = msgspec.json.Decoder(LanceHead).decode
SMALL_ROWS = 100_000
"""A fragment with fewer rows is one that compaction would join with others."""


def head_of(stored: bytes | None) -> LanceHead:
    return LanceHead() if stored is None else _decode_head(stored)


class VersionBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is recorded of one version. `staged` is where its writer left the manifest, below the table."""

    staged: str
    size: int
    v2: bool = True
    metadata: dict[str, str] = {}

    def final(self, branch: str, version: int) -> str:
        return folder_of(branch) + Naming(self.v2).file(version)


body_of = msgspec.json.Decoder(VersionBody).decode


def check_branch(name: str | None) -> str:
    """The branch that is meant; folders of branches may be nested, as their names are."""
    if name is None or name in ("", "main"):
        return MAIN
    parts = name.split("/")
    if len(name.encode()) > MAX_BRANCH_BYTES or not all(_SEGMENT.fullmatch(part) for part in parts):
        raise Invalid(f"{name[:100]!r} is not the name of a branch", field="branch")
    if name.endswith(".lock") or any(".." in part or part in ("_versions", "tree") for part in parts):
        raise Invalid(f"{name[:100]!r} is not the name of a branch", field="branch")
    return name


def folder_of(branch: str) -> str:
    """Where the manifests of a branch lie, below the table's location."""
    return f"tree/{branch}/_versions/" if branch else "_versions/"


def version_of(name: str) -> tuple[int, bool] | None:
    """The version that a final manifest is of, and whether its name counts down; None for other files."""
    match = _FINAL.fullmatch(name)
    if match is None:
        return None
    number = int(match[1])
    if len(match[1]) == 20 and number > LAST_VERSION:
        return _TOP - number, True
    return number, False


def staged_version(name: str) -> int | None:
    """The version that a staged manifest is meant for; None for other files."""
    final, _, mark = name.partition("-")
    known = version_of(final)
    return known[0] if known is not None and mark else None


def staged_path(path: str, key: str, branch: str, version: int) -> tuple[str, bool]:
    """Where a manifest lies below its table, from what a client calls it, and whether its name counts down.

    `key` is the table's place below the root of its store, which is what clients write paths from.
    """
    relative = path.removeprefix("/")
    if relative.startswith(key + "/"):
        relative = relative[len(key) + 1 :]
    folder = folder_of(branch)
    name = relative.removeprefix(folder)
    if not relative.startswith(folder) or not name or "/" in name or "\\" in name or "%" in name:
        raise Invalid(f"manifest_path must be a file in {folder} of the table", field="manifest_path")
    if not name.isprintable() or name in (".", "..") or len(name) > 255:
        raise Invalid("manifest_path has characters that no manifest has", field="manifest_path")
    for naming in (V2, V1):
        final = naming.file(version)
        if name == final or name.startswith(final + "-"):
            return relative, naming.v2
    raise Invalid(
        f"manifest_path is not a manifest of version {version}",
        field="manifest_path",
        fix=f"name it {V2.file(version)}-<uuid>",
    )


def totals_of(manifest: Manifest) -> Totals:
    fragments = manifest.fragments
    if fragments is None:
        return Totals(indices=len({index.name for index in manifest.indices}))
    lengths = sorted(fragment.rows - fragment.deleted for fragment in fragments)
    sizes = [file.size for fragment in fragments for file in fragment.files]
    return Totals(
        rows=sum(lengths),
        deleted=sum(fragment.deleted for fragment in fragments),
        fragments=len(fragments),
        small_fragments=sum(1 for length in lengths if length < SMALL_ROWS),
        files=len(sizes),
        bytes=None if None in sizes else sum(size for size in sizes if size is not None),
        indices=len({index.name for index in manifest.indices}),
        lengths=_lengths(lengths),
    )


def _lengths(lengths: list[int]) -> dict[str, int]:
    if not lengths:
        return dict.fromkeys(("min", "max", "mean", "p25", "p50", "p75", "p99"), 0)

    def at(part: float) -> int:
        return lengths[min(len(lengths) - 1, int(part * len(lengths)))]

    mean = sum(lengths) // len(lengths)
    ends = {"min": lengths[0], "max": lengths[-1], "mean": mean}
    return {**ends, "p25": at(0.25), "p50": at(0.5), "p75": at(0.75), "p99": at(0.99)}


def counts_of(before: Manifest | None, after: Manifest) -> Counts | None:
    """What a version changed, by comparing its fragments with those of the version before."""
    if after.fragments is None or (before is not None and before.fragments is None):
        return None
    old = {} if before is None or before.fragments is None else {each.id: each for each in before.fragments}
    rows_added = rows_removed = deletes = deleted_rows = 0
    old_files = {file.path: file.size for each in old.values() for file in each.files}
    new_files = {file.path: file.size for each in after.fragments for file in each.files}
    kept: set[int] = set()
    for each in old.values():
        if each.deleted:
            deletes -= 1
            deleted_rows -= each.deleted
    for fragment in after.fragments:
        if fragment.deleted:
            deletes += 1
            deleted_rows += fragment.deleted
        known = old.get(fragment.id)
        if known is None or known.rows != fragment.rows:
            rows_added += fragment.rows - fragment.deleted
            continue
        kept.add(fragment.id)
        rows_removed += max(0, fragment.deleted - known.deleted)
        rows_added += max(0, known.deleted - fragment.deleted)
    rows_removed += sum(each.rows - each.deleted for each in old.values() if each.id not in kept)
    added = [size for path, size in new_files.items() if path not in old_files]
    removed = [size for path, size in old_files.items() if path not in new_files]
    return Counts(
        rows_added=rows_added,
        rows_removed=rows_removed,
        files_added=len(added),
        files_removed=len(removed),
        bytes_added=_sum(added),
        bytes_removed=_sum(removed),
        sizes=_sizes(added, removed),
        deletes=deletes,
        deleted_rows=deleted_rows,
    )


def _sizes(added: list[int | None], removed: list[int | None]) -> tuple[tuple[int, int, int], ...] | None:
    bins: dict[int, tuple[int, int]] = {}
    for sign, sizes in ((1, added), (-1, removed)):
        for size in sizes:
            if size is None:
                return None
            files, total = bins.get(bin_of(size), (0, 0))
            bins[bin_of(size)] = files + sign, total + sign * size
    return flat(bins) if bins else None


def _sum(sizes: list[int | None]) -> int | None:
    return None if None in sizes else sum(size for size in sizes if size is not None)

"""Clustering of Delta tables: by which columns, and which files are laid out anew together.

Files that were laid out together are a cube, and say so in their tags. What is not in a cube of the
table's columns is laid out together with the cubes that are still small; large ones are left alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from inver.domain.care import GIB, Curve, Options
from inver.domain.delta_actions import Add, Metadata
from inver.domain.delta_bins import CUBE_TAG, Bin, cube_of, partition_of
from inver.domain.delta_rebase import CLUSTERING, Standing
from inver.domain.delta_schema import columns, mapped, physical_partition_columns
from inver.errors import Invalid, Unsupported

COLUMNS_TAG = "ZCUBE_ZORDER_BY"
CURVE_TAG = "ZCUBE_ZORDER_CURVE"
LIQUID = "liquid"

_LARGEST_CUBE = 100 * GIB
_SORTED = frozenset(
    {
        *("string", "long", "integer", "short", "byte", "float", "double", "date"),
        *("timestamp", "timestamp_ntz", "boolean"),
    }
)


class Clustering(msgspec.Struct, frozen=True):
    """`names` are the columns as people call them, `paths` as files do. A liquid table says itself by
    which columns it is clustered, and its files say that they are."""

    names: tuple[str, ...]
    paths: tuple[tuple[str, ...], ...]
    liquid: bool
    curve: Curve = Curve.HILBERT

    @property
    def tag(self) -> str:
        return msgspec.json.encode(self.names).decode()

    def holds(self, file: Add) -> bool:
        """Whether a file is laid out like this already."""
        tags = file.tags or {}
        if self.liquid and file.clustering_provider != LIQUID:
            return False
        if tags.get(CURVE_TAG, Curve.HILBERT) != self.curve:
            return False
        return cube_of(file) is not None and tags.get(COLUMNS_TAG) == self.tag

    def tags(self, cube: str) -> dict[str, str]:
        return {CUBE_TAG: cube, COLUMNS_TAG: self.tag, CURVE_TAG: self.curve}


class _Domain(msgspec.Struct):
    columns: list[list[str]] = msgspec.field(default_factory=list, name="clusteringColumns")


def clustering(standing: Standing, options: Options) -> Clustering | None:
    """The table's own columns, or those of the policy; None where there are neither."""
    own = standing.domains.get(CLUSTERING)
    if own is None:
        if not options.cluster_columns:
            return None
        paths = tuple(_path(standing.metadata, name) for name in options.cluster_columns)
        return Clustering(options.cluster_columns, paths, False, options.cluster_curve)
    try:
        found = msgspec.json.decode(own, type=_Domain).columns
    except msgspec.DecodeError:
        raise Unsupported("the domain delta.clustering of the table is not understood") from None
    if not found:
        return None
    names = tuple(_name(standing.metadata, path) for path in found)
    return Clustering(names, tuple(map(tuple, found)), True)


def cubes(files: Iterable[Add], clustering: Clustering, options: Options, table_bytes: int) -> list[Bin]:
    """What is laid out anew, cube by cube; nothing where everything has its place."""
    least = min(_LARGEST_CUBE, max(8 * options.target_file_size, table_bytes // 8))
    partitions: dict[Any, list[Add]] = {}
    for file in files:
        partitions.setdefault(partition_of(file), []).append(file)
    found: list[Bin] = []
    for together in partitions.values():
        loose = [file for file in together if not clustering.holds(file)]
        if loose:
            found += _filled([*loose, *_small_cubes(together, clustering, least)], least + least // 2)
    return found


def _small_cubes(files: list[Add], clustering: Clustering, least: int) -> list[Add]:
    known: dict[str | None, list[Add]] = {}
    for file in files:
        if clustering.holds(file):
            known.setdefault(cube_of(file), []).append(file)
    return [file for cube in known.values() if sum(each.size for each in cube) < least for file in cube]


def _filled(files: list[Add], most: int) -> list[Bin]:
    cubes: list[Bin] = []
    cube: list[Add] = []
    size = 0
    for file in sorted(files, key=lambda file: (file.modification_time, file.path)):
        if cube and size + file.size > most:
            cubes.append(Bin(tuple(cube)))
            cube, size = [], 0
        cube.append(file)
        size += file.size
    return [*cubes, Bin(tuple(cube))]


def _path(metadata: Metadata, name: str) -> tuple[str, ...]:
    found = next((column for column in columns(metadata) if column.name == name), None)
    if found is None:
        raise Invalid(f"the table has no column {name!r}", field="cluster_columns")
    if found.physical in physical_partition_columns(metadata):
        raise Invalid(f"{name} is a partition column", field="cluster_columns")
    if found.type not in _SORTED and not (found.type or "").startswith("decimal("):
        raise Invalid(f"{name} has values that cannot be sorted", field="cluster_columns")
    return (found.physical,)


def _name(metadata: Metadata, path: list[str]) -> str:
    """A column as people call it; its parts below the first are called alike in tables without mapping."""
    if not mapped(metadata):
        return ".".join(path)
    fields: Any = msgspec.json.decode(metadata.schema_string)["fields"]
    names = []
    for part in path:
        key = "delta.columnMapping.physicalName"
        field = next((each for each in fields if (each.get("metadata") or {}).get(key) == part), None)
        if field is None:
            raise Invalid(f"the table has no column {'.'.join(path)}", field="cluster_columns")
        names.append(field["name"])
        fields = field["type"]["fields"] if isinstance(field["type"], dict) else []
    return ".".join(names)

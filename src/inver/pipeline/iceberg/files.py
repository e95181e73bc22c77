"""What lies in a table's folder, and what of it can only be the table's own."""

from __future__ import annotations

import asyncio
import re

from inver.pipeline.places import Place
from inver.ports import ObjectInfo

_ROOT = re.compile(r"(.+)/(?:_delta_log/.*|metadata/[^/]*\.metadata\.json|_versions/[^/]*\.manifest)")


def listed(place: Place) -> list[ObjectInfo]:
    async def collect() -> list[ObjectInfo]:
        return [found async for found in place.objects().list()]

    return asyncio.run(collect())


def own(files: list[ObjectInfo]) -> list[ObjectInfo]:
    """Without the folders of tables that somebody has put below this one, whatever their format.

    And without what is hidden, as Iceberg sees it: names with a dot or an underscore in front are those of
    file systems and other tools. A partition may be called so.
    """
    roots = tuple({f"{match[1]}/" for file in files if (match := _ROOT.fullmatch(file.path))})
    return [file for file in files if not (file.path.startswith(roots) or _is_hidden(file.path))]


def _is_hidden(path: str) -> bool:
    *folders, name = path.split("/")
    return name[0] in "._" or any(folder[:1] in (".", "_") and "=" not in folder for folder in folders)

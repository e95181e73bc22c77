"""When something is not found: which part of its name is not there.

Services say no more than that; whoever may see the catalog and the schema is told which it was.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from inver.errors import NotFound
from inver.services.catalogs import Catalogs
from inver.services.context import Caller


class Locating:
    def __init__(self, catalogs: Catalogs) -> None:
        self._catalogs = catalogs

    @asynccontextmanager
    async def inside(self, asks: Caller, catalog: str, schema: Sequence[str]) -> AsyncIterator[None]:
        """A missing table is told as the missing schema or catalog, where it is one of these."""
        try:
            yield
        except NotFound as error:
            if error.kind == "table":
                await self._catalogs.schema(asks, catalog, schema)
            elif error.kind == "schema":
                await self._catalogs.get(asks, catalog)
            raise

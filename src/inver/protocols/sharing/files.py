"""Files of shared tables in a local folder, by the URLs that this server signed."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from inver.errors import Unavailable
from inver.protocols.http import BadMessage, Request, Response, Route
from inver.services.sharing.files import Opened
from inver.services.sharing.services import SharingServices

_RANGE = re.compile(rb"bytes=([0-9]{0,18})-([0-9]{0,18})")
_CHUNK = 1 << 20
_TYPE = b"application/octet-stream"
_HEADERS = (
    (b"Accept-Ranges", b"bytes"),
    (b"Cache-Control", b"private, no-store"),
    (b"Referrer-Policy", b"no-referrer"),
    (b"X-Content-Type-Options", b"nosniff"),
    (b"Content-Disposition", b"attachment"),
)


class FileRoutes:
    def __init__(self, services: SharingServices) -> None:
        self._files = services.files
        self._visits = services.visits
        self.routes = [Route("GET", "/files/{grant}/{path}/{name}", self.file, public=True)]

    async def file(self, request: Request) -> Response:
        """The URL itself is the permission; a token would be sent to whoever the URL is given to."""
        query = request.query_string.decode("latin-1")
        grant, path, name = request.args
        opened = await self._files.opened(grant, path, name, query, request.client)
        await self._visits.read(opened)
        size, etag = opened.info.size, opened.info.etag
        headers = _HEADERS if etag is None else (*_HEADERS, (b"ETag", etag.encode()))
        wanted = _range(request.header(b"range"), size)
        if wanted is None:
            return Response(200, _read(opened, 0, size), _TYPE, headers, length=size)
        start, length = wanted
        place = b"bytes %d-%d/%d" % (start, start + length - 1, size)
        headers = (*headers, (b"Content-Range", place))
        return Response(206, _read(opened, start, length), _TYPE, headers, length=length)


def _range(header: bytes | None, size: int) -> tuple[int, int] | None:
    """Start and length of the one range that is asked for; several, or another unit, are the whole file."""
    found = None if header is None else _RANGE.fullmatch(header.strip())
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        start, end = max(0, size - int(found[2])), size - 1
    else:
        start, end = int(found[1]), min(int(found[2]) if found[2] else size - 1, size - 1)
    if found[1] and found[2] and int(found[2]) < int(found[1]):
        return None
    if start > end:
        raise BadMessage(f"the range is not satisfiable: the file has {size} bytes", status=416)
    return start, end - start + 1


async def _read(opened: Opened, start: int, length: int) -> AsyncIterator[bytes]:
    end = start + length
    while start < end:
        data = await opened.store.get_range(opened.info.path, start, min(_CHUNK, end - start))
        if not data:
            raise Unavailable("the file became shorter while it was read")
        start += len(data)
        yield data

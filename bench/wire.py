"""The bytes of one commit, as a client of the management API sends it."""

from __future__ import annotations

import uuid

COMMITS = "/api/management/v1/transactions"

# Both numbers have a fixed width, so that the length of the body never changes.
_BODY = (
    '{"operations":[{"op":"commit","table":{"id":"%s"},"version":%%20d,'
    '"token":"%%020d.%s.json","operation":"WRITE",'
    '"payload":{"file_size":4213,"file_modified_at":1794787200000,"timestamp":1794787200000,'
    '"engine":"bench","partitions":["date=2026-11-16"]},'
    '"counts":{"rows_added":1000,"files_added":1,"bytes_added":65536}}]}'
)


def template(path: str, bearer: str, table_id: str, client: int) -> bytes:
    """A whole request with two places for the version. A token is a client's own."""
    body = _BODY % (table_id, uuid.UUID(int=client, version=4))
    head = (
        f"POST {path} HTTP/1.1\r\n"
        "Host: 127.0.0.1\r\n"
        "User-Agent: inver-bench/1\r\n"
        "Accept: application/json\r\n"
        f"Authorization: Bearer {bearer}\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(body % (0, 0))}\r\n\r\n"
    )
    return head.replace("%", "%%").encode() + body.encode()

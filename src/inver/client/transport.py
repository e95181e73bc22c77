"""Requests over `http.client`: connections are kept and reused, one request at a time on each."""

from __future__ import annotations

import http.client
import select
import socket
from collections import deque
from dataclasses import dataclass
from functools import cached_property
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from inver.client.core import NoAnswer, Request, Response
from inver.errors import Invalid

if TYPE_CHECKING:
    import ssl

IDLE_S = 20.0
"""A connection unused for longer is not used again: the server may be about to close it."""


@dataclass(frozen=True)
class Address:
    """Where a server is: `http://host:port/prefix`."""

    secure: bool
    host: str
    port: int
    prefix: str

    @classmethod
    def parse(cls, url: str) -> Address:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
            parts = urlsplit("")
        if (
            parts.scheme not in ("http", "https")
            or not host
            or parts.query
            or parts.fragment
            or parts.username
        ):
            raise Invalid(f"{url!r} is not the URL of a server", field="url", fix="write http://host:port")
        secure = parts.scheme == "https"
        return cls(secure, host, port or (443 if secure else 80), parts.path.rstrip("/"))

    @property
    def authority(self) -> str:
        """The value of `Host`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"

    @cached_property
    def context(self) -> ssl.SSLContext | None:
        if not self.secure:
            return None
        import ssl

        return ssl.create_default_context()


class Transport:
    """May be used by several threads; each request has a connection to itself."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._idle: deque[tuple[http.client.HTTPConnection, float]] = deque()

    def send(self, request: Request) -> Response:
        connection = self._take(request.timeout)
        keep = False
        try:
            connection.request(
                request.method, self._address.prefix + request.target, request.body, request.headers
            )
            answer = connection.getresponse()
            body = answer.read()
            keep = not answer.will_close
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswer(_reason(error), sent=True) from error
        finally:
            if keep:
                self._idle.append((connection, monotonic()))
            else:
                connection.close()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        return Response(answer.status, headers, body)

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[0].close()

    def _take(self, timeout: float) -> http.client.HTTPConnection:
        while self._idle:
            try:
                connection, since = self._idle.pop()
            except IndexError:
                break
            if monotonic() - since < IDLE_S and not _ended(connection.sock):
                connection.sock.settimeout(timeout)
                return connection
            connection.close()
        return self._connect(timeout)

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        address = self._address
        connection: http.client.HTTPConnection
        if address.secure:
            connection = http.client.HTTPSConnection(
                address.host, address.port, timeout=timeout, context=address.context
            )
        else:
            connection = http.client.HTTPConnection(address.host, address.port, timeout=timeout)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise NoAnswer(_reason(error), sent=False) from error
        return connection


def _ended(sock: socket.socket) -> bool:
    """Nothing is due on an idle connection, so whatever can be read is its end."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it took too long"
    return str(getattr(error, "strerror", None) or error) or type(error).__name__

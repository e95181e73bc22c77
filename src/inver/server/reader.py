"""Bytes in, complete requests out: the reading half of one HTTP/1.1 connection.

Every client built on the JDK's HttpClient asks on each cleartext request to switch to `h2c`.
The parser takes such a request for the last HTTP/1.1 one and does not read its body. Switching
is the server's choice, and this one never does: the body is read here by its length, and the
connection goes on as if nobody had asked.

Clients send the same head again and again. One that says nothing but who asks for what, and how
long the body is, is parsed once: the same bytes in the same place mean the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from httptools import (
    HttpParserCallbackError,
    HttpParserError,
    HttpParserUpgrade,
    HttpRequestParser,
    parse_url,
)

from inver.errors import InverError
from inver.protocols.http import BadMessage, Request
from inver.server.forwarded import Proxies
from inver.server.limits import Inflater, Limits, check_head, inflater, too_large

IDLE, HEAD, BODY = 0, 1, 2

# Request, whether the connection outlives it, whether it speaks HTTP/1.0, and why it is refused.
Message = tuple[Request, bool, bool, InverError | None]

_NOTED = frozenset(
    b"connection content-encoding content-length expect host transfer-encoding "
    b"x-forwarded-for x-request-id".split()
)
_PLAIN = frozenset((b"connection", b"content-length", b"host"))
_SLASH = ord("/")
_END = b"\r\n\r\n"
_SWITCHING = frozenset((b"upgrade", b"http2-settings"))


class Heads:
    """The plain heads that were read lately: method, path, query, headers, and the length of the body."""

    MOST, LONGEST = 1_024, 2_048

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[str, bytes, bytes, list[tuple[bytes, bytes]], int]] = {}
        self.find = self._known.get

    def keep(self, head: bytes, request: Request, length: int) -> None:
        if len(head) > self.LONGEST:
            return
        if len(self._known) >= self.MOST:
            self._known.clear()
        self._known[head] = request.method, request.raw_path, request.query_string, request.headers, length


class Reader:
    """The parser's callbacks. `messages` holds what is ready, in the order it came.

    After a refusal or a request that ends the connection, `closed` is set and nothing more may be fed.
    `expects` is set while a client waits for permission to send its body. `proxies` are given
    where the peer is one of them. `heads` may be shared by readers with the same limits.
    """

    def __init__(
        self,
        limits: Limits,
        identify: Callable[[bytes | None], str],
        client: str,
        proxies: Proxies | None,
        heads: Heads,
    ) -> None:
        self._limits = limits
        self._heads = heads
        self._digits = len(str(limits.body))
        self._identify = identify
        self._client = client
        self._proxies = proxies
        self._parser = HttpRequestParser(self)
        # The message that is being read.
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._noted: dict[bytes, bytes] = {}
        self._request: Request | None = None
        self._keep = True
        self._legacy = False
        self._plain = False
        self._switching = False
        self._inflater: Inflater | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._remaining = 0
        # The chunk it comes in, and bounds on how much of the message is not yet accounted for.
        self._now = 0.0
        self._chunk = 0
        self._overcount = 0
        self._undercount = 0
        self.messages: deque[Message] = deque()
        self.phase = IDLE
        self.begun = 0.0
        self.expects = False
        self.closed = False

    def feed(self, data: bytes, now: float) -> None:
        size = len(data)
        end, head = 0, b""
        if self.phase:
            self._overcount += size
            self._undercount += size
        elif self._proxies is None:
            end = data.find(_END) + 4
            head = data[:end]
            known = self._heads.find(head)
            if known is not None and size == end + known[4]:
                method, path, query, headers, _ = known
                body, client = data[end:], self._client
                request = Request(method, path, query, headers, body, client, self._identify(None))
                self.messages.append((request, True, False, None))
                return
        self._now = now
        self._chunk = size
        self._plain = False
        try:
            while data:
                try:
                    if self._remaining:
                        data = self._counted(data)
                        continue
                    self._parser.feed_data(data)
                    if head and self._plain and not self.phase:
                        self._remember(head, size - end)
                    break
                except HttpParserUpgrade as switch:
                    data = self._stay(data[switch.args[0] :])
        except HttpParserCallbackError as error:
            cause = error.__context__
            if not isinstance(cause, InverError):
                raise
            self.refuse(cause)
        except HttpParserError as error:
            # Bytes behind a request that asked to end the connection are nobody's request.
            if not self.closed:
                self.refuse(BadMessage(f"the request is not valid HTTP/1.1: {error}"))
        except InverError as error:
            self.refuse(error)
        if self.phase and self._undercount > self._limits.head:
            self._refuse_endless_head()

    def _remember(self, head: bytes, length: int) -> None:
        """All that was fed is one request, if its body is as long as what came behind the head."""
        if length == int(self._noted.get(b"content-length", b"0")):
            self._heads.keep(head, self.messages[-1][0], length)

    def refuse(self, error: InverError) -> None:
        self.messages.append((self._known(), False, False, error))
        self._stop()

    # What the parser calls.

    def on_message_begin(self) -> None:
        self.phase = HEAD
        self.begun = self._now
        self._url = b""
        self._headers = []
        self._noted = {}
        # Where in the chunk the message began is not known, so the size of its head is kept as two
        # bounds: beyond the upper one it is counted exactly, beyond the lower one it is too large.
        self._overcount = self._chunk
        self._undercount = 0

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.phase == BODY:
            return  # a trailer; nothing that comes after the body may change what the head said
        name = name.lower()
        self._headers.append((name, value))
        if name in _NOTED:
            noted = self._noted
            if name in noted:
                if name == b"host":
                    raise BadMessage("the request has more than one Host header", field="host")
                value = b"%b, %b" % (noted[name], value)
            noted[name] = value

    def on_headers_complete(self) -> None:
        url, noted, limits = self._url, self._noted, self._limits
        self.phase = BODY
        request = self._request = self._begin()
        if self._overcount > limits.head or len(self._headers) > limits.headers or len(url) > limits.url:
            check_head(len(url), self._headers, limits)
        if url[0] != _SLASH or url.find(b"#") >= 0:
            _set_target(request, url)
        self._keep = self._parser.should_keep_alive()
        self._legacy = False
        self._inflater = None
        host, length = noted.get(b"host"), noted.get(b"content-length")
        self._plain = host is not None and self._keep and len(noted) <= (1 if length is None else 2)
        if not self._plain:
            self._examine()
            self._plain = self._keep and not (self._legacy or self._switching) and noted.keys() <= _PLAIN
        # With fewer digits than the limit has, it is below.
        if length is not None and len(length) >= self._digits and int(length) > limits.body:
            raise too_large(limits)

    def on_body(self, data: bytes) -> None:
        self._size += len(data)
        self._undercount = 0
        if self._size > self._limits.body:
            raise too_large(self._limits)
        if self._inflater is not None:
            self._inflater.feed(data)
        else:
            self._parts.append(data)

    def on_message_complete(self) -> None:
        request = self._request
        if request is None or self._switching:
            return
        if self._size:
            if self._inflater is not None:
                request.body = self._inflater.finish()
            else:
                parts = self._parts
                request.body = parts[0] if len(parts) == 1 else b"".join(parts)
                self._parts = []
            self._size = 0
        self.messages.append((request, self._keep, self._legacy, None))
        self.phase = IDLE
        self.expects = False
        self._request = None
        if not self._keep:
            self._stop()

    # Requests that ask to switch protocols.

    def _stay(self, rest: bytes) -> bytes:
        """Go on in HTTP/1.1 behind the head of such a request; returns what is to be read next."""
        self._switching = False
        if b"transfer-encoding" not in self._noted:
            self._remaining = int(self._noted.get(b"content-length", b"0"))
            if not self._remaining:
                self.on_message_complete()
            return rest
        # Only the parser knows where chunks end, so it reads the head again without the question.
        head = self._head_without_switching()
        self._parser = HttpRequestParser(self)
        self._chunk = len(rest)
        return head + rest

    def _counted(self, data: bytes) -> bytes:
        part = data[: self._remaining]
        self._remaining -= len(part)
        self.on_body(part)
        if not self._remaining:
            self.on_message_complete()
        return data[len(part) :]

    def _head_without_switching(self) -> bytes:
        tokens = self._noted[b"connection"].lower().replace(b" ", b"").split(b",")
        connection = b", ".join(token for token in tokens if token not in _SWITCHING)
        dropped = (b"connection", *_SWITCHING)
        lines = [b"%b: %b" % header for header in self._headers if header[0] not in dropped]
        line = b"%b %b HTTP/1.1" % (self._parser.get_method(), self._url)
        return b"\r\n".join((line, *lines, b"Connection: %b" % connection, b"", b""))

    # Checks and helpers.

    def _examine(self) -> None:
        """What only some requests have: another version, more than a length to say of their body."""
        noted = self._noted
        if not self._keep or b"connection" in noted:
            version = self._parser.get_http_version()
            if version not in ("1.1", "1.0"):
                raise BadMessage(f"HTTP/{version} is not spoken here; HTTP/1.1 is", status=505)
            self._legacy = version == "1.0"
            self._switching = self._parser.should_upgrade()
        if b"host" not in noted and not self._legacy:
            raise BadMessage("the request has no Host header", field="host")
        if b"transfer-encoding" in noted:
            self._check_transfer_encoding(noted[b"transfer-encoding"])
        if b"content-encoding" in noted:
            self._inflater = inflater(noted[b"content-encoding"], self._limits)
        if not self._legacy and noted.get(b"expect", b"").lower() == b"100-continue":
            self.expects = True

    def _check_transfer_encoding(self, encoding: bytes) -> None:
        # A proxy may see another end of the message wherever these two are in doubt.
        if encoding.strip().lower() != b"chunked":
            raise BadMessage("the only transfer encoding is chunked", status=501, field="transfer-encoding")
        if self._legacy:
            raise BadMessage("HTTP/1.0 has no transfer encoding", field="transfer-encoding")

    def _refuse_endless_head(self) -> None:
        if self.phase == HEAD and not self._headers and len(self._url) > self._limits.url:
            self.refuse(BadMessage(f"the URL is longer than {self._limits.url} bytes", status=414))
        else:
            head = self._limits.head
            self.refuse(BadMessage(f"the request's headers are larger than {head} bytes", status=431))

    def _begin(self) -> Request:
        path, _, query = self._url.partition(b"?")
        noted, proxies, client = self._noted, self._proxies, self._client
        if proxies is not None:
            client = proxies.client(client, noted.get(b"x-forwarded-for", b""))
        return Request(
            self._parser.get_method().decode(),
            path,
            query,
            self._headers,
            b"",
            client,
            self._identify(noted.get(b"x-request-id")),
        )

    def _known(self) -> Request:
        """As much of the request as has arrived, for the face that answers for its path."""
        if self._request is not None:
            return self._request
        if self.phase == HEAD and self._url:
            return self._begin()
        return Request("", b"", client=self._client, request_id=self._identify(None))

    def _stop(self) -> None:
        self.closed = True
        self.expects = False
        self.phase = IDLE
        self._parts = []
        self._inflater = None


def _set_target(request: Request, url: bytes) -> None:
    """A request target that is not simply a path: absolute, as proxies send it, or `*`."""
    if b"#" in url:
        raise BadMessage("a request target has no fragment; write # as %23", field="url")
    if url == b"*":
        return
    try:
        parsed = parse_url(url)
    except HttpParserError:
        parsed = None
    if parsed is None or not parsed.host or b"://" not in url or url.startswith(b"//"):
        raise BadMessage("the request target is neither a path nor an absolute URL", field="url")
    request.raw_path = parsed.path or b"/"
    request.query_string = parsed.query or b""

"""A call from its first attempt to its outcome, without any I/O.

`exchange` is a generator: it yields a `Request` to send or a `Wait` to sleep, receives a `Response`,
or has `NoAnswer` thrown into it, and returns what the call is for. Both clients drive the same one.

A read is repeated when it may help. A change is repeated only under an idempotency key, so that
one whose answer was lost takes effect once.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from random import random
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

import msgspec

from inver import __version__
from inver.client.problems import Unreachable, error_of
from inver.client.types import Catalog, Schema, Table
from inver.errors import (
    Broken,
    Forbidden,
    Invalid,
    InverError,
    OutcomeUnknown,
    RateLimited,
    Unauthenticated,
    Unavailable,
)

T = TypeVar("T")

MOUNT = "/api/management/v1"
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"

_AGAIN = frozenset({502, 503, 504})
_VISIBLE = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes | None
    timeout: float


@dataclass(frozen=True, slots=True)
class Response:
    """Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Wait:
    seconds: float


class NoAnswer(Exception):
    """`sent` says whether the server may have seen the request."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.sent = sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """One operation of the API. `path` is below the mount and encoded; `read` makes the result.

    `keyed` changes are sent under an idempotency key: the one given, or a new one. Another `mount` is
    that of another protocol of the same server.
    """

    method: str
    path: str
    read: Callable[[Response], T]
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = JSON
    keyed: bool = False
    key: str | None = None
    if_match: str | None = None
    public: bool = False
    timeout: float = 60.0
    mount: str = MOUNT


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some items, and the call that brings the ones after them."""

    items: list[T]
    next: Call[Page[T]] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How often a call is tried, and how long it waits in between, in seconds."""

    attempts: int = 5
    first_wait: float = 0.1
    longest_wait: float = 5.0
    longest_retry_after: float = 30.0

    def pause(self, attempt: int) -> float:
        """Twice as long each time, and at random within the upper half, so that clients spread."""
        wait = min(self.longest_wait, self.first_wait * 2.0 ** (attempt - 1))
        return wait * (0.5 + random() / 2)


DEFAULT_POLICY = Policy()


def json_answer(kind: type[T]) -> Callable[[Response], T]:
    """The body as a value; the ETag joins it where the type has a place for one."""

    def read(response: Response) -> T:
        try:
            value = msgspec.json.decode(response.body, type=kind)
        except msgspec.DecodeError as error:
            raise Broken(f"the server's answer is not understood: {error}") from None
        if isinstance(value, Catalog | Schema | Table):
            value.etag = response.headers.get("etag")
        return value

    return read


def no_answer(response: Response) -> None:
    return None


def json_body(fields: Mapping[str, Any]) -> bytes:
    """The fields that are set; None is a value and stays."""
    return msgspec.json.encode({name: value for name, value in fields.items() if value is not msgspec.UNSET})


def query_of(**parameters: str | int | None) -> dict[str, str]:
    return {name: str(value) for name, value in parameters.items() if value is not None}


def check_token(token: str | None) -> str | None:
    """A token goes into a header, so it may hold nothing that ends one."""
    if token is not None and not _VISIBLE.fullmatch(token):
        raise Invalid("the token has white space or unprintable characters in it", field="token")
    return token


def exchange(
    call: Call[T], token: str | None = None, policy: Policy = DEFAULT_POLICY
) -> Generator[Request | Wait, Response | None, T]:
    key = call.key or (str(uuid.uuid4()) if call.keyed else None)
    request = _request(call, token, key)
    reads = call.method in ("GET", "HEAD")
    in_doubt = False
    attempt = 0
    while True:
        attempt += 1
        retry_after: float | None = None
        try:
            response = yield request
        except NoAnswer as failure:
            in_doubt = in_doubt or (failure.sent and not reads)
            error: InverError = Unreachable(f"the server gives no answer: {failure.reason}")
            error.fix = "check its address, and that it runs"
            again = True
        else:
            assert response is not None
            if 200 <= response.status < 300:
                return call.read(response)
            error = error_of(response.status, response.headers, response.body, reads=reads)
            again = response.status in _AGAIN or isinstance(error, OutcomeUnknown)
            in_doubt = in_doubt or isinstance(error, OutcomeUnknown)
            retry_after = getattr(error, "retry_after", None)
        again = again and (reads or key is not None) and attempt < policy.attempts
        if not again or (retry_after or 0) > policy.longest_retry_after:
            raise _final(error, in_doubt, key)
        yield Wait(max(policy.pause(attempt), retry_after or 0))


def _request(call: Call[Any], token: str | None, key: str | None) -> Request:
    headers = {"Accept": JSON, "User-Agent": f"inver-python/{__version__}"}
    if token is not None and not call.public:
        headers["Authorization"] = f"Bearer {token}"
    if call.body is not None:
        headers["Content-Type"] = call.content_type
    if key is not None:
        headers["Idempotency-Key"] = key
    if call.if_match is not None:
        headers["If-Match"] = call.if_match
    for name, value in headers.items():
        if not (value.isascii() and value.isprintable()):
            raise Invalid(f"{name} has unprintable characters in it", field=name)
    target = call.mount + call.path
    if call.query:
        target += "?" + urlencode(call.query)
    return Request(call.method, target, headers, call.body, call.timeout)


def _final(error: InverError, in_doubt: bool, key: str | None) -> InverError:
    """An answer that says nothing about an earlier, unanswered attempt leaves its outcome open."""
    silent = (Unavailable, Unauthenticated, Forbidden, RateLimited)
    if not in_doubt or not isinstance(error, silent):
        return error
    fix = "look whether it was applied before sending it again"
    if key is not None:
        fix = f"send it again with the same idempotency key, {key}"
    unknown = OutcomeUnknown(f"the change may or may not have been applied: {error.message}", fix=fix)
    unknown.__cause__ = error
    return unknown

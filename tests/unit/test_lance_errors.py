"""Every code of the Lance Namespace, with the status and the envelope it comes in."""

from __future__ import annotations

import msgspec
import pytest

from inver import errors
from inver.domain.lance import SchemaInvalid, WrongState
from inver.protocols.http import BadMessage, Request
from inver.protocols.lance.errors import render

CODES: dict[int, list[tuple[Exception, int]]] = {
    0: [
        (errors.Unsupported("not here"), 406),
        (errors.NotFound("no such route", kind="route"), 404),
        (errors.MethodNotAllowed("not by GET", ["POST"]), 405),
    ],
    1: [(errors.NotFound("none", kind=kind), 404) for kind in ("catalog", "schema")],
    2: [(errors.AlreadyExists("taken", kind=kind), 409) for kind in ("catalog", "schema")],
    3: [(errors.NotEmpty("it has tables"), 409)],
    4: [(errors.NotFound("none", kind=kind), 404) for kind in ("table", "view")],
    5: [(errors.AlreadyExists("taken", kind=kind), 409) for kind in ("table", "location")],
    6: [(errors.NotFound("none", kind="index"), 404)],
    7: [(errors.AlreadyExists("taken", kind="index"), 409)],
    8: [(errors.NotFound("none", kind="tag"), 404)],
    9: [(errors.AlreadyExists("taken", kind="tag"), 409)],
    10: [(errors.NotFound("none", kind="transaction"), 404)],
    11: [(errors.NotFound("none", kind="version"), 404)],
    12: [(errors.NotFound("none", kind="column"), 404)],
    13: [
        (errors.Invalid("wrong", field="version"), 400),
        (errors.TooLarge("too much"), 413),
        (BadMessage("no length", status=411), 411),
    ],
    14: [(errors.Conflict("lost"), 409), (errors.KeyReused("another request"), 409)],
    15: [(errors.Forbidden("no"), 403)],
    16: [(errors.Unauthenticated("who?"), 401), (errors.TokenExpired("too late"), 401)],
    17: [(errors.Unavailable("later"), 503), (errors.Overloaded("later"), 503), (errors.Stale(), 503)],
    18: [
        (errors.OutcomeUnknown("nobody knows"), 500),
        (errors.Broken("damaged"), 500),
        (RuntimeError("secret"), 500),
    ],
    19: [(WrongState("not now"), 409)],
    20: [(SchemaInvalid("does not fit", field="body"), 400)],
    21: [(errors.RateLimited("too often"), 429)],
    22: [(errors.NotFound("none", kind="branch"), 404)],
    23: [(errors.AlreadyExists("taken", kind="branch"), 409)],
}


def test_no_code_is_left_out():
    assert list(CODES) == list(range(24))


@pytest.mark.parametrize(
    ("code", "error", "status"),
    [(code, error, status) for code, given in CODES.items() for error, status in given],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_an_error_has_its_code_and_status(code: int, error: Exception, status: int):
    request = Request("POST", b"/lance/v1/table/a$b$c/describe", b"", [], b"", "127.0.0.1", "1")
    answer = render(error, request)
    assert isinstance(answer.body, bytes)
    body = msgspec.json.decode(answer.body)
    assert (answer.status, body["code"]) == (status, code)
    assert body["error"]
    assert body["instance"] == "/lance/v1/table/a$b$c/describe"
    assert "secret" not in answer.body.decode()

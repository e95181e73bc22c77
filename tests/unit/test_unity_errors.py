"""Every error of the tree in the envelopes of Unity's faces."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inver import errors
from inver.domain.ledger import ConflictDetail, Reason
from inver.protocols.http import BadMessage, Request, Response
from inver.protocols.unity.errors import UnsupportedFormat, render, render_scim, render_v1

BASE = b"/api/2.1/unity-catalog"


def lost(reason: Reason) -> errors.Conflict:
    detail = ConflictDetail(operation=0, subject="t", reason=reason, expected=1, current=2)
    return errors.Conflict("lost", [detail])


ERRORS = [
    (errors.Invalid("no", field="a.b"), 400, "INVALID_ARGUMENT", "InvalidParameterValueException"),
    (errors.TooLarge("no"), 413, "INVALID_ARGUMENT", "BadRequestException"),
    (BadMessage("no", status=415), 415, "INVALID_ARGUMENT", "BadRequestException"),
    (errors.Unauthenticated("no"), 401, "UNAUTHENTICATED", "NotAuthorizedException"),
    (errors.Forbidden("no"), 403, "PERMISSION_DENIED", "PermissionDeniedException"),
    (errors.NotFound("no", kind="catalog"), 404, "CATALOG_NOT_FOUND", "NoSuchCatalogException"),
    (errors.NotFound("no", kind="schema"), 404, "SCHEMA_NOT_FOUND", "NoSuchSchemaException"),
    (errors.NotFound("no", kind="table"), 404, "TABLE_NOT_FOUND", "NoSuchTableException"),
    (errors.NotFound("no", kind="principal"), 404, "NOT_FOUND", "NotFoundException"),
    (errors.MethodNotAllowed("no", ["GET"]), 405, "UNIMPLEMENTED", "BadRequestException"),
    (errors.NotEmpty("no"), 400, "FAILED_PRECONDITION", "BadRequestException"),
    (errors.Refused("no"), 400, "FAILED_PRECONDITION", "BadRequestException"),
    (errors.Unsupported("no"), 501, "UNIMPLEMENTED", "NotImplementedException"),
    (UnsupportedFormat("no"), 400, "UNSUPPORTED_TABLE_FORMAT", "UnsupportedTableFormatException"),
    (errors.RateLimited("no"), 429, "RESOURCE_EXHAUSTED", "TooManyRequestsException"),
    (errors.Overloaded("no"), 503, "UNAVAILABLE", "InternalServerErrorException"),
    (errors.OutcomeUnknown("no"), 500, "COMMIT_STATE_UNKNOWN", "CommitStateUnknownException"),
    (errors.Broken("no"), 500, "INTERNAL", "InternalServerErrorException"),
    (ValueError("secret"), 500, "INTERNAL", "InternalServerErrorException"),
    (lost(Reason.VERSION_TAKEN), 409, "COMMIT_VERSION_CONFLICT", "CommitVersionConflictException"),
    (lost(Reason.VERSION_GAP), 400, "INVALID_ARGUMENT", "InvalidParameterValueException"),
    (
        errors.PreconditionFailed("no"),
        409,
        "UPDATE_REQUIREMENT_CONFLICT",
        "UpdateRequirementConflictException",
    ),
    (lost(Reason.CURSOR_MOVED), 409, "ABORTED", "UpdateRequirementConflictException"),
    (errors.Conflict("no"), 409, "ABORTED", "UpdateRequirementConflictException"),
]


@pytest.mark.parametrize(("error", "status", "code", "kind"), ERRORS)
def test_each_error_has_its_name_in_each_envelope(
    error: Exception, status: int, code: str, kind: str
) -> None:
    answer = render(error, Request("GET", BASE + b"/catalogs"))
    body = decoded(answer)
    assert (answer.status, body["error_code"], body["details"][0]["reason"]) == (status, code, code)
    answer = render_v1(error, None)
    body = decoded(answer)["error"]
    assert (answer.status, body["code"], body["type"]) == (status, status, kind)
    assert "secret" not in body["message"]
    assert decoded(render_scim(error, None))["status"] == str(status)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("catalog", "CATALOG_ALREADY_EXISTS"),
        ("schema", "SCHEMA_ALREADY_EXISTS"),
        ("table", "TABLE_ALREADY_EXISTS"),
        ("location", "RESOURCE_ALREADY_EXISTS"),
    ],
)
def test_what_exists_is_400_in_one_dialect_and_409_in_the_other(kind: str, code: str) -> None:
    error = errors.AlreadyExists("no", kind=kind)
    answer = render(error, None)
    assert (answer.status, decoded(answer)["error_code"]) == (400, code)
    answer = render_v1(error, None)
    assert (answer.status, decoded(answer)["error"]["type"]) == (409, "AlreadyExistsException")


@pytest.mark.parametrize(
    "path",
    ["/tables", "/tables/a.b.c", "/staging-tables", "/delta/commit", "/delta/commits", "/delta/metrics"],
)
def test_the_routes_of_managed_tables_have_their_own_names(path: str) -> None:
    request = Request("POST", BASE + path.encode())

    def names(error: Exception) -> tuple[str, str]:
        body = decoded(render(error, request))
        return body["error_code"], body["details"][0]["reason"]

    assert names(errors.Invalid("no")) == ("INVALID_PARAMETER_VALUE", "INVALID_ARGUMENT")
    assert names(lost(Reason.VERSION_GAP)) == ("INVALID_PARAMETER_VALUE", "INVALID_ARGUMENT")
    assert names(lost(Reason.VERSION_TAKEN)) == ("ALREADY_EXISTS", "COMMIT_VERSION_CONFLICT")
    for kind in ("catalog", "schema", "table"):
        expected = (f"{kind.upper()}_DOES_NOT_EXIST", f"{kind.upper()}_NOT_FOUND")
        assert names(errors.NotFound("no", kind=kind)) == expected
    assert names(errors.Forbidden("no"))[0] == "PERMISSION_DENIED"
    assert names(errors.OutcomeUnknown("no"))[0] == "COMMIT_STATE_UNKNOWN"


@pytest.mark.parametrize("path", ["/delta/preview/commits", "/schemas", "/tablespaces", "/delta/committee"])
def test_other_routes_have_the_common_names(path: str) -> None:
    body = decoded(render(errors.Invalid("no"), Request("GET", BASE + path.encode())))
    assert body["error_code"] == "INVALID_ARGUMENT"


def test_a_message_says_where_and_what_to_do() -> None:
    body = decoded(render(errors.Invalid("must be text", field="a.b", fix="write it out"), None))
    assert body["message"] == "a.b: must be text (write it out)"
    body = decoded(render(errors.Invalid("a.b is required", field="a.b"), None))
    assert body["message"] == "a.b is required"


def test_a_refused_credential_is_asked_for() -> None:
    for draw in (render, render_v1, render_scim):
        assert draw(errors.Unauthenticated("no"), None).headers == ((b"WWW-Authenticate", b"Bearer"),)
        assert draw(errors.Forbidden("no"), None).headers == ()


def decoded(answer: Response) -> Any:
    assert isinstance(answer.body, bytes)
    return json.loads(answer.body)

"""Every error in the envelope of the Iceberg REST protocol: message, type, code.

Clients decide by these whether to retry and whether to delete the files of a commit, so a 4xx is
only ever sent for what is certainly not applied.
"""

from __future__ import annotations

import msgspec

from inver import errors
from inver.domain.iceberg import IllegalArgument
from inver.protocols.http import BadMessage, Request, Response


class Unprocessable(errors.Invalid):
    """The request is understood and contradicts itself."""


_MISSING = {
    "catalog": "NoSuchWarehouseException",
    "schema": "NoSuchNamespaceException",
    "table": "NoSuchTableException",
    "view": "NoSuchViewException",
    "function": "NoSuchFunctionException",
    "plan": "NoSuchPlanIdException",
    "plan-task": "NoSuchPlanTaskException",
}

# The first class that matches decides, so subclasses stand before their parents.
_STATUS: tuple[tuple[type[Exception], int, str], ...] = (
    (errors.TooLarge, 413, "BadRequestException"),
    (Unprocessable, 422, "UnprocessableEntityException"),
    (IllegalArgument, 400, "IllegalArgumentException"),
    (errors.Invalid, 400, "BadRequestException"),
    (errors.Unauthenticated, 401, "NotAuthorizedException"),
    (errors.Forbidden, 403, "ForbiddenException"),
    (errors.MethodNotAllowed, 405, "BadRequestException"),
    (errors.AlreadyExists, 409, "AlreadyExistsException"),
    (errors.NotEmpty, 409, "NamespaceNotEmptyException"),
    (errors.Conflict, 409, "CommitFailedException"),
    (errors.KeyReused, 422, "UnprocessableEntityException"),
    (errors.Unsupported, 406, "UnsupportedOperationException"),
    (errors.RateLimited, 429, "TooManyRequestsException"),
    (errors.Refused, 400, "BadRequestException"),
    (errors.Unavailable, 503, "ServiceUnavailableException"),
    (errors.OutcomeUnknown, 500, "CommitStateUnknownException"),
)


def status_of(error: Exception) -> tuple[int, str]:
    if isinstance(error, BadMessage):
        return error.status, "BadRequestException"
    if isinstance(error, errors.NotFound):
        return 404, _MISSING.get(error.kind, "NotFoundException")
    for kind, status, name in _STATUS:
        if isinstance(error, kind):
            return status, name
    return 500, "InternalServerError"


def render(error: Exception, request: Request | None, expired: int = 401) -> Response:
    """`expired` is the status that tells a client to fetch a new token."""
    status, name = status_of(error)
    if isinstance(error, errors.TokenExpired) and expired != status:
        status, name = expired, "AuthenticationTimeoutException"
    message = error.message if isinstance(error, errors.InverError) else "an unexpected error; see the log"
    field = getattr(error, "field", None)
    if field and field not in message and not isinstance(error, IllegalArgument):
        # The words of an IllegalArgument are those of Iceberg's own library.
        message = f"{message} ({field})"
    fix = getattr(error, "fix", None)
    body = {"error": {"message": f"{message} ({fix})" if fix else message, "type": name, "code": status}}
    return Response(status, msgspec.json.encode(body))

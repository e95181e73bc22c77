"""Every error in the two envelopes of Unity: its own, and that of delta/v1.

The routes of managed tables have their own names for some codes; both names are told.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from inver import errors
from inver.domain.ledger import Reason
from inver.protocols.http import BadMessage, Request, Response

MOUNT = "/api/2.1/unity-catalog"


class UnsupportedFormat(errors.Unsupported):
    """A table of another format, asked for where only Delta tables are spoken of."""


class Names(NamedTuple):
    """How one error is called: in Unity's dialect, on the routes of managed tables, in delta/v1."""

    status: int
    code: str
    managed: str
    v1_status: int
    v1: str


def _names(
    status: int, code: str, v1: str, *, managed: str | None = None, v1_status: int | None = None
) -> Names:
    return Names(status, code, managed or code, v1_status or status, v1)


_INVALID = _names(
    400, "INVALID_ARGUMENT", "InvalidParameterValueException", managed="INVALID_PARAMETER_VALUE"
)
_INTERNAL = _names(500, "INTERNAL", "InternalServerErrorException")
_UPDATE_CONFLICT = _names(
    409, "UPDATE_REQUIREMENT_CONFLICT", "UpdateRequirementConflictException", managed="ABORTED"
)

# The first class that matches decides, so subclasses stand before their parents.
_TABLE: tuple[tuple[type[Exception], Names], ...] = (
    (
        errors.TooLarge,
        _names(413, "INVALID_ARGUMENT", "BadRequestException", managed="INVALID_PARAMETER_VALUE"),
    ),
    (errors.Invalid, _INVALID),
    (errors.Unauthenticated, _names(401, "UNAUTHENTICATED", "NotAuthorizedException")),
    (errors.Forbidden, _names(403, "PERMISSION_DENIED", "PermissionDeniedException")),
    (errors.MethodNotAllowed, _names(405, "UNIMPLEMENTED", "BadRequestException")),
    (errors.NotEmpty, _names(400, "FAILED_PRECONDITION", "BadRequestException")),
    (UnsupportedFormat, _names(400, "UNSUPPORTED_TABLE_FORMAT", "UnsupportedTableFormatException")),
    (errors.Unsupported, _names(501, "UNIMPLEMENTED", "NotImplementedException")),
    (errors.RateLimited, _names(429, "RESOURCE_EXHAUSTED", "TooManyRequestsException")),
    (errors.Refused, _names(400, "FAILED_PRECONDITION", "BadRequestException")),
    (errors.Unavailable, _names(503, "UNAVAILABLE", "InternalServerErrorException")),
    (errors.OutcomeUnknown, _names(500, "COMMIT_STATE_UNKNOWN", "CommitStateUnknownException")),
)
_MISSING = {
    "catalog": _names(404, "CATALOG_NOT_FOUND", "NoSuchCatalogException", managed="CATALOG_DOES_NOT_EXIST"),
    "schema": _names(404, "SCHEMA_NOT_FOUND", "NoSuchSchemaException", managed="SCHEMA_DOES_NOT_EXIST"),
    "table": _names(404, "TABLE_NOT_FOUND", "NoSuchTableException", managed="TABLE_DOES_NOT_EXIST"),
}
_NOT_FOUND = _names(404, "NOT_FOUND", "NotFoundException")
_CONFLICTS = {
    Reason.VERSION_TAKEN: _names(
        409, "COMMIT_VERSION_CONFLICT", "CommitVersionConflictException", managed="ALREADY_EXISTS"
    ),
    Reason.VERSION_GAP: _INVALID,
}
_ABORTED = _names(409, "ABORTED", "UpdateRequirementConflictException")
# Services name fields in the words of the older dialects. By the first part of such a name: that of delta/v1.
_V1_FIELDS = {
    "commit_info": "commit",
    "commit_version": "report.commit-report.file-size-histogram.commit-version",
    "file_size_histogram": "report.commit-report.file-size-histogram",
    "latest_published_version": "latest-published-version",
    "storage_location": "location",
    "to": "new-name",
    "uniform": "uniform",
    "url": "location",
}
_CHALLENGE = ((b"WWW-Authenticate", b"Bearer"),)


def names_of(error: Exception) -> Names:
    if isinstance(error, BadMessage):
        return _INVALID._replace(status=error.status, v1_status=error.status, v1="BadRequestException")
    if isinstance(error, errors.NotFound):
        return _MISSING.get(error.kind, _NOT_FOUND)
    if isinstance(error, errors.AlreadyExists):
        kind = error.kind.upper() if error.kind in _MISSING else "RESOURCE"
        return _names(400, f"{kind}_ALREADY_EXISTS", "AlreadyExistsException", v1_status=409)
    if isinstance(error, errors.PreconditionFailed):
        return _UPDATE_CONFLICT
    if isinstance(error, errors.Conflict):
        reason = error.conflicts[0].reason if error.conflicts else None
        return _ABORTED if reason is None else _CONFLICTS.get(reason, _ABORTED)
    for kind_of_error, names in _TABLE:
        if isinstance(error, kind_of_error):
            return names
    return _INTERNAL


def message_of(error: Exception, *, v1: bool = False) -> str:
    if not isinstance(error, errors.InverError):
        return "an unexpected error; see the log"
    text = error.message
    field = getattr(error, "field", None)
    if field and v1:
        named = _v1_field(field)
        text = named + text[len(field) :] if text.startswith(field + " ") else text
        field = named
    if field and field not in text:
        text = f"{field}: {text}"
    return f"{text} ({error.fix})" if error.fix else text


def _v1_field(field: str) -> str:
    first, dot, rest = field.partition(".")
    named = _V1_FIELDS.get(first)
    return field if named is None else named + dot + rest.replace("_", "-")


def render(error: Exception, request: Request | None) -> Response:
    """Unity's own envelope."""
    names = names_of(error)
    managed = request is not None and _is_managed(request.raw_path)
    body = {
        "error_code": names.managed if managed else names.code,
        "message": message_of(error),
        "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": names.code}],
    }
    return Response(names.status, msgspec.json.encode(body), headers=_headers(names.status))


def render_v1(error: Exception, request: Request | None) -> Response:
    """The envelope of delta/v1."""
    names = names_of(error)
    body = {"error": {"message": message_of(error, v1=True), "type": names.v1, "code": names.v1_status}}
    return Response(names.v1_status, msgspec.json.encode(body), headers=_headers(names.v1_status))


def render_scim(error: Exception, request: Request | None) -> Response:
    """RFC 7644, section 3.12."""
    status = names_of(error).status
    body = {
        "schemas": ["urn:ietf:params:scim:api:messages:2.0:Error"],
        "status": str(status),
        "detail": message_of(error),
    }
    return Response(status, msgspec.json.encode(body), b"application/scim+json", _headers(status))


def _headers(status: int) -> tuple[tuple[bytes, bytes], ...]:
    return _CHALLENGE if status == 401 else ()


def _is_managed(raw_path: bytes) -> bool:
    """The routes by which managed tables are made, found and committed to."""
    first, _, rest = raw_path.removeprefix(MOUNT.encode()).strip(b"/").partition(b"/")
    return first in (b"tables", b"staging-tables") or (
        first == b"delta" and rest in (b"commit", b"commits", b"metrics")
    )

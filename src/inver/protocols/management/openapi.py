"""The management API as an OpenAPI 3.1 document.

Everything in it comes from the endpoints and from the very types that their handlers decode and
encode; `words` adds what types cannot say. The same endpoints give the same bytes.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import msgspec

from inver import __version__
from inver.domain.principals import Scope
from inver.protocols.management import words
from inver.protocols.management.change_wire import Problem
from inver.protocols.management.endpoint import Endpoint, Param
from inver.protocols.management.errors import CONTENT_TYPE
from inver.protocols.management.routes import MOUNT

Json = dict[str, Any]

_SCHEMAS = "#/components/schemas/"
_JSON = "application/json"
_FORM = "application/x-www-form-urlencoded"
_PROBLEM = CONTENT_TYPE.decode()
_PARAMETER = re.compile(r"([a-z]+)/\{([a-z_]+)\}")
_UUID = {"type": "string", "format": "uuid"}
_PATH_SCHEMAS: dict[str, Json] = {
    "tables/{id}": _UUID,
    "runs/{id}": _UUID,
    "transactions/{id}": {"type": "string", "pattern": "^[0-9]{1,19}$"},
}

# An operation that names something in its body or query can miss it.
_NAMING = frozenset({"principal", "securable", "operations", "catalog", "table"})


class TokenForm(msgspec.Struct, kw_only=True):
    """The form of RFC 6749, section 4.4."""

    grant_type: Literal["client_credentials"]
    client_id: str | msgspec.UnsetType = msgspec.UNSET
    client_secret: str | msgspec.UnsetType = msgspec.UNSET
    scope: Scope | msgspec.UnsetType = msgspec.UNSET


class TokenRefusal(msgspec.Struct):
    """The refusal of RFC 6749, section 5.2."""

    error: str
    error_description: str


# The one operation that speaks another standard's wire form.
_FORMS = {"/oauth/token": (TokenForm, TokenRefusal)}


def document(endpoints: Sequence[Endpoint]) -> Json:
    """`endpoints` in the order in which their tags are to be shown."""
    schemas = _Schemas(endpoints)
    paths: dict[str, Json] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Inver management API",
            "version": __version__,
            "description": words.ABOUT,
            "license": {"name": "Apache License 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": MOUNT, "description": "The server that this document comes from."}],
        "security": [{"bearer": []}],
        "tags": [_tag(name) for name in dict.fromkeys(endpoint.tag for endpoint in endpoints)],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "responses": {name: _problem(status, text) for status, (name, text) in words.PROBLEMS.items()},
            "headers": {
                "ETag": {
                    "description": "Changes with every change; to be given in `If-Match`.",
                    "schema": {"type": "string"},
                },
                "RetryAfter": {
                    "description": "Seconds after which to try again.",
                    "schema": {"type": "integer", "minimum": 0},
                },
            },
            "parameters": {
                "IdempotencyKey": {
                    "name": "Idempotency-Key",
                    "in": "header",
                    "description": "A fresh UUID for each new request, and the same one for its retries.",
                    "schema": _UUID,
                },
                "IfMatch": {
                    "name": "If-Match",
                    "in": "header",
                    "description": "Only if this is still its ETag.",
                    "schema": {"type": "string", "pattern": r'^(\*|(W/)?"[0-9]{1,18}")$'},
                },
            },
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def encode(endpoints: Sequence[Endpoint]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document(endpoints)), indent=2) + b"\n"


def operation_id(endpoint: Endpoint) -> str:
    name: str = getattr(endpoint.handler, "__name__", "")
    return words.IDS.get((endpoint.tag, name), name)


class _Schemas:
    """The types of all endpoints as components, each under its own name."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        endpoints = tuple(endpoints)
        forms = [kind for form, refusal in _FORMS.values() for kind in (form, refusal)]
        used = [kind for endpoint in endpoints for kind in (endpoint.body, endpoint.returns) if kind]
        kinds = list(dict.fromkeys([*used, *forms, Problem]))
        shown, components = msgspec.json.schema_components(kinds, ref_template=_SCHEMAS + "{name}")
        self._refs: dict[Any, Json] = dict(zip(kinds, shown, strict=True))
        self.components = {name: _worded(name, components[name]) for name in sorted(components)}
        # What an If-Match is taken for has an ETag wherever it is shown.
        self._tagged = {endpoint.returns for endpoint in endpoints if endpoint.etag and endpoint.returns}

    def of(self, kind: Any) -> Json:
        return self._refs[kind]

    def has_etag(self, kind: Any) -> bool:
        return kind in self._tagged


def _worded(name: str, schema: Json) -> Json:
    if "description" in schema:
        schema["description"] = inspect.cleandoc(schema["description"])
    for field, described in schema.get("properties", {}).items():
        text = words.FIELDS.get(f"{name}.{field}") or words.FIELDS.get(field)
        if text is not None:
            described.setdefault("description", text)
    return schema


def _tag(name: str) -> Json:
    return {"name": name, "description": words.TAGS[name]} if name in words.TAGS else {"name": name}


def _operation(endpoint: Endpoint, schemas: _Schemas) -> Json:
    name = operation_id(endpoint)
    operation: Json = {"operationId": name, "tags": [endpoint.tag], "summary": endpoint.summary}
    if name in words.OPERATIONS:
        operation["description"] = words.OPERATIONS[name]
    if endpoint.public:
        operation["security"] = []
    parameters = [*_path_parameters(endpoint.path), *map(_query_parameter, endpoint.params)]
    if endpoint.keyed:
        parameters.append({"$ref": "#/components/parameters/IdempotencyKey"})
    if endpoint.etag:
        parameters.append({"$ref": "#/components/parameters/IfMatch"})
    if parameters:
        operation["parameters"] = parameters
    body = _body(endpoint, schemas)
    if body is not None:
        operation["requestBody"] = body
    operation["responses"] = _responses(endpoint, schemas)
    return operation


def _path_parameters(path: str) -> Iterator[Json]:
    for match in _PARAMETER.finditer(path):
        about, example = words.PATH_PARAMETERS.get(match[0], (f"The {match[2]} of {match[1]}.", match[2]))
        yield {
            "name": match[2],
            "in": "path",
            "required": True,
            "description": about,
            "schema": _PATH_SCHEMAS.get(match[0], {"type": "string", "minLength": 1}),
            "example": example,
        }


def _query_parameter(param: Param) -> Json:
    schema: Json = {"type": param.kind}
    if param.least is not None:
        schema["minimum"] = param.least
    if param.most is not None:
        schema["maximum"] = param.most
    if param.choices:
        schema["enum"] = [str(choice) for choice in param.choices]
    shown: Json = {"name": param.name, "in": "query", "description": param.about, "schema": schema}
    if param.required:
        shown["required"] = True
    if param.name in words.QUERY_EXAMPLES:
        shown["example"] = words.QUERY_EXAMPLES[param.name]
    return shown


def _body(endpoint: Endpoint, schemas: _Schemas) -> Json | None:
    content_type, kind = _JSON, endpoint.body
    if endpoint.path in _FORMS:
        content_type, kind = _FORM, _FORMS[endpoint.path][0]
    if kind is None:
        return None
    media: Json = {"schema": schemas.of(kind)}
    if kind.__name__ in words.EXAMPLES:
        media["example"] = words.EXAMPLES[kind.__name__]
    return {"required": True, "content": {content_type: media}}


def _responses(endpoint: Endpoint, schemas: _Schemas) -> Json:
    success: Json = {"description": "Done."}
    if endpoint.returns is not None:
        success["description"] = "The answer."
        success["content"] = {_JSON: {"schema": schemas.of(endpoint.returns)}}
        if schemas.has_etag(endpoint.returns):
            success["headers"] = {"ETag": {"$ref": "#/components/headers/ETag"}}
    responses = {str(endpoint.status): success}
    for status in _refusals(endpoint):
        responses[str(status)] = {"$ref": f"#/components/responses/{words.PROBLEMS[status][0]}"}
    if endpoint.path in _FORMS:
        refusal = _FORMS[endpoint.path][1]
        for status in words.TOKEN_REFUSALS:
            also = {_JSON: {"schema": schemas.of(refusal)}, **_problem_content()}
            responses[str(status)] = {"description": words.TOKEN_REFUSALS[status], "content": also}
    return responses


def _refusals(endpoint: Endpoint) -> Iterator[int]:
    """What this operation can be refused with, beside what HTTP itself asks for."""
    has_body = endpoint.body is not None or endpoint.path in _FORMS
    changes = endpoint.method != "GET" and endpoint.path not in (*_FORMS, "/grants/explain")
    yield 400
    yield 401
    if not endpoint.public:
        yield 403
    if "{" in endpoint.path or _names_something(endpoint):
        yield 404
    if changes:
        yield 409
    if endpoint.etag:
        yield 412
    if has_body:
        yield from (413, 415)
    if endpoint.keyed:
        yield 422
    yield from (429, 500, 503)


def _names_something(endpoint: Endpoint) -> bool:
    named = {param.name for param in endpoint.params}
    if endpoint.body is not None:
        named.update(field.name for field in msgspec.structs.fields(endpoint.body))
    return not named.isdisjoint(_NAMING)


def _problem(status: int, text: str) -> Json:
    shown: Json = {"description": text}
    if status in (429, 503):
        shown["headers"] = {"Retry-After": {"$ref": "#/components/headers/RetryAfter"}}
    return {**shown, "content": _problem_content()}


def _problem_content() -> Json:
    return {_PROBLEM: {"schema": {"$ref": _SCHEMAS + "Problem"}}}

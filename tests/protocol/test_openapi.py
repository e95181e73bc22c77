"""The API's document is valid and complete."""

from __future__ import annotations

import asyncio
import re

import msgspec
import openapi_spec_validator
import pytest

from inver.config import Settings
from inver.protocols.http import Face, Route
from inver.protocols.management import words
from inver.protocols.management.endpoint import Endpoint
from inver.protocols.management.routes import MOUNT, Management
from inver.server.app import build
from scripts.openapi import TARGET, document
from tests.fixtures.openapi import Document, parameters, walk


@pytest.fixture(scope="module")
def written() -> bytes:
    return asyncio.run(document())


@pytest.fixture(scope="module")
def api(written: bytes) -> Document:
    return Document(msgspec.json.decode(written))


@pytest.fixture(scope="module")
def routes(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Face, str, Route]]:
    async def read() -> list[tuple[Face, str, Route]]:
        app = await build(Settings(home=tmp_path_factory.mktemp("routes")))
        await app.store.close()
        return list(app.public.router.routes())

    return asyncio.run(read())


async def test_committed_document_is_the_one_that_is_served(written):
    assert TARGET.read_bytes() == written, "run .venv/bin/python scripts/openapi.py"
    assert await document() == written


def test_document_is_valid_openapi(api):
    openapi_spec_validator.validate(api.content)
    assert api.content["openapi"].startswith("3.1.")


def test_every_route_is_documented_and_nothing_else(api, routes):
    served = {(route.method, route.template) for _, mount, route in routes if mount == MOUNT}
    documented = {(method.upper(), path) for method, path, _ in walk(api.content)}
    assert documented == served
    assert api.content["servers"][0]["url"] == MOUNT


def test_operations_have_readable_unique_names_and_known_tags(api):
    names = [operation["operationId"] for _, _, operation in walk(api.content)]
    assert len(set(names)) == len(names)
    assert [name for name in names if not re.fullmatch(r"[a-z]+(_[a-z]+)*", name)] == []
    tags = {tag["name"] for tag in api.content["tags"] if tag["description"]}
    assert {tag for _, _, operation in walk(api.content) for tag in operation["tags"]} == tags


def test_path_parameters_are_described(api):
    for _, path, operation in walk(api.content):
        given = [api.resolve(each) for each in operation.get("parameters", ())]
        assert [each["name"] for each in given if each["in"] == "path"] == parameters(path)
        assert all(each["description"] for each in given)
    pieces = {match for path in api.content["paths"] for match in re.findall(r"[a-z]+/\{[a-z_]+\}", path)}
    assert pieces == words.PATH_PARAMETERS.keys()


def test_every_field_is_described_and_no_word_is_left_over(api):
    fields = {
        f"{name}.{field}": described
        for name, schema in api.content["components"]["schemas"].items()
        for field, described in schema.get("properties", {}).items()
    }
    assert [name for name, described in fields.items() if not described.get("description")] == []
    used = {*fields, *(name.partition(".")[2] for name in fields)}
    assert words.FIELDS.keys() <= used


def test_what_a_request_may_contain_is_closed(api):
    for _, _, operation in walk(api.content):
        for content_type, media in operation.get("requestBody", {}).get("content", {}).items():
            schema = api.resolve(media["schema"])
            assert schema.get("additionalProperties", True) is (content_type != "application/json")


def test_examples_are_valid(api):
    for _, _, operation in walk(api.content):
        for media in operation.get("requestBody", {}).get("content", {}).values():
            assert api.errors(media["schema"], media["example"]) == []
        for given in operation.get("parameters", ()):
            parameter = api.resolve(given)
            if "example" in parameter:
                assert api.errors(parameter["schema"], parameter["example"]) == []


def test_only_the_token_route_is_public(api):
    public = [name for name, (_, _, operation) in api.operations.items() if operation.get("security") == []]
    assert public == ["oauth_token"]


def test_endpoints_say_what_they_take(api, routes):
    management = next(face for face, _, _ in routes if isinstance(face, Management))
    for endpoint in management.endpoints:
        operation = api.content["paths"][endpoint.path][endpoint.method.lower()]
        headers = {
            parameter["name"]
            for parameter in map(api.resolve, operation.get("parameters", ()))
            if parameter["in"] == "header"
        }
        assert headers == _headers_of(endpoint)
        assert str(endpoint.status) in operation["responses"]


def _headers_of(endpoint: Endpoint) -> set[str]:
    return {
        name for name, takes in (("Idempotency-Key", endpoint.keyed), ("If-Match", endpoint.etag)) if takes
    }

"""Requests made up from the API's document, good and bad: each answer is a documented one, and none is a 5xx.

Every operation is asked for things that are there and for things that are not, as the administrator.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from scripts.openapi import TARGET
from tests.fixtures.server import API, InverServer, running_inver

pytestmark = pytest.mark.slow

EXAMPLES = 8
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]


def _schema() -> Any:
    content = json.loads(TARGET.read_bytes())
    # Who asks is not made up, and nobody waits for events.
    del content["security"], content["components"]["securitySchemes"]
    feed = content["paths"]["/events"]["get"]
    feed["parameters"] = [each for each in feed["parameters"] if each["name"] != "wait"]
    return schemathesis.openapi.from_dict(content)


OPERATIONS = {
    result.ok().definition.raw["operationId"]: result.ok() for result in _schema().get_all_operations()
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InverServer]:
    with running_inver(tmp_path_factory.mktemp("fuzz") / "home") as server:
        yield server


@pytest.fixture
def there(server: InverServer) -> dict[str, str]:
    """Something of each kind, made anew where an operation took it away."""
    with server.client() as client:
        client.post("/catalogs", json={"name": "main"})
        client.post("/catalogs/main/schemas", json={"path": ["sales"]})
        table = {"name": "orders", "format": "DELTA", "columns": [{"name": "id"}]}
        client.post("/catalogs/main/schemas/sales/tables", json=table)
        client.post("/principals", json={"name": "etl", "kind": "service"})
        client.post("/principals", json={"name": "analysts", "kind": "group"})
        move = {"op": "move-cursor", "cursor": "here", "expect": None, "value": "1"}
        client.post("/transactions", json={"operations": [move]})
        client.post("/shares", json={"name": "out"})
        client.post("/shares/out/items", json={"table": ["main", "sales", "orders"]})
        client.post("/recipients", json={"name": "partner"})
        found = client.get("/catalogs/main/schemas/sales/tables/orders").raise_for_status().json()
        token = client.post("/tokens", json={"principal": "etl"}).raise_for_status().json()
    return {
        "catalog": "main",
        "schema": "sales",
        "table": "orders",
        "name": "etl",
        "group": "analysts",
        "principal": "etl",
        "share": "out",
        "recipient": "partner",
        "cursor": "here",
        "tables": found["id"],
        "tokens": token["id"],
        "transactions": "1",
        "secrets": found["id"],
        "runs": found["id"],
    }


def _ways() -> Iterator[Any]:
    """Each operation with names that are there and with others; and wrongly, where there is a way to be."""
    for name, operation in OPERATIONS.items():
        for known in (True, False) if "{" in operation.path else (False,):
            where = "there" if known else "made-up"
            yield pytest.param(name, known, GenerationMode.POSITIVE, id=f"{name}-{where}-right")
            if operation.query or operation.body or operation.headers:
                yield pytest.param(name, known, GenerationMode.NEGATIVE, id=f"{name}-{where}-wrong")


@pytest.mark.parametrize(("name", "known", "mode"), list(_ways()))
def test_answers_are_documented(name, known, mode, there, server):
    operation = OPERATIONS[name]
    fixed = _fixed(operation.path, there) if known else None

    @given(operation.as_strategy(generation_mode=mode, path_parameters=fixed))
    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def ask(case: Case[Any]) -> None:
        response = case.call(base_url=server.url + API, headers=server.headers)
        case.validate_response(response, checks=CHECKS)

    ask()


def _fixed(path: str, there: dict[str, str]) -> dict[str, str]:
    segments = path.split("/")
    fixed = {}
    for before, segment in pairwise(segments):
        if segment.startswith("{"):
            name = segment.strip("{}")
            fixed[name] = there[before if name == "id" else name]
    return fixed

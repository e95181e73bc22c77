"""Iceberg REST through real HTTP: habits of clients, such as renewing tokens, paging and sending again."""

from __future__ import annotations

import itertools
import uuid
from typing import Any

import httpx
import pytest

from tests.fixtures.iceberg import SCHEMA, Lake, error, kind

EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
BAD = (400, "BadRequestException")
_numbers = itertools.count(1)


class Service:
    """A client with a secret, as Spark has one in `credential`."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.name = f"habits{next(_numbers)}-{lake.catalog}"
        lake.management("POST", "/principals", {"name": self.name, "kind": "service"})
        self.secret = lake.management("POST", f"/principals/{self.name}/secrets", {})["client_secret"]

    def ask(self, form: dict[str, str], **options: Any) -> httpx.Response:
        return httpx.post(f"{self.lake.base}/oauth/tokens", data=form, **options)

    def token(self, **form: str) -> str:
        secret = {"client_id": self.name, "client_secret": self.secret}
        answer = self.ask({"grant_type": "client_credentials", "scope": "catalog", **secret, **form})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["access_token"])


@pytest.fixture
def service(lake: Lake) -> Service:
    return Service(lake)


def exchange(token: str, **more: str) -> dict[str, str]:
    """What Iceberg's Java library sends shortly before its token expires."""
    return {
        "grant_type": EXCHANGE,
        "scope": "catalog",
        "subject_token": token,
        "subject_token_type": ACCESS_TOKEN,
        **more,
    }


def refused(answer: httpx.Response) -> tuple[int, str]:
    """In OAuth's own words; no token is named in them."""
    assert set(answer.json()) == {"error", "error_description"}
    assert answer.headers["cache-control"] == "no-store"
    return answer.status_code, answer.json()["error"]


def test_a_token_is_renewed_by_exchange(lake: Lake, service: Service) -> None:
    token = service.token()
    answer = service.ask(exchange(token), headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert (told["token_type"], told["issued_token_type"]) == ("bearer", ACCESS_TOKEN)
    assert told["expires_in"] > 0
    assert answer.headers["cache-control"] == "no-store"
    assert told["access_token"] != token
    me = httpx.get(f"{lake.base}/config", headers={"Authorization": f"Bearer {told['access_token']}"})
    assert me.status_code == 400, "it is somebody who is known, and who sees no catalog"


def test_a_client_whose_token_has_ended_proves_itself(lake: Lake, service: Service) -> None:
    """With its secret, beside the token that is no longer good."""
    token = service.token()
    told = lake.management("GET", f"/tokens?principal={service.name}")
    for each in told["tokens"]:
        lake.management("DELETE", f"/tokens/{each['id']}")
    ended = service.ask(exchange(token), headers={"Authorization": f"Bearer {token}"})
    assert refused(ended) == (400, "invalid_grant")
    answer = service.ask(exchange(token), auth=(service.name, service.secret))
    assert answer.status_code == 200, answer.text
    assert refused(service.ask(exchange(token), auth=(service.name, "no"))) == (401, "invalid_client")


def test_exchanges_that_are_refused(service: Service) -> None:
    token = service.token()
    without = {name: value for name, value in exchange(token).items() if name != "subject_token"}
    assert refused(service.ask(without)) == (400, "invalid_request")
    other = exchange(token, subject_token_type="urn:ietf:params:oauth:token-type:id_token")
    assert refused(service.ask(other)) == (400, "invalid_request")
    assert refused(service.ask(exchange("eyJhbGciOiJub25lIn0.e30."))) == (400, "invalid_grant")
    assert refused(service.ask({"grant_type": "password"})) == (400, "unsupported_grant_type")
    # A token that may only read makes none; its client has the secret for that.
    reads = service.token(scope="read")
    assert refused(service.ask(exchange(reads))) == (400, "unauthorized_client")


@pytest.mark.parametrize("what", ["/namespaces", "/namespaces/ns/tables", "/namespaces/ns/functions"])
def test_pages_of_any_size(lake: Lake, what: str) -> None:
    lake.table("t")
    whole = lake.get(what)
    for size in ("2147483647", "9223372036854775807"):
        assert lake.get(what, params={"pageSize": size}) == whole
    for size in ("0", "-1", "", "x", "1.5", "9" * 30):
        assert kind(lake.admin.get(what, params={"pageSize": size})) == BAD


@pytest.mark.parametrize("what", ["/namespaces", "/namespaces/ns/tables", "/namespaces/ns/views"])
@pytest.mark.parametrize("token", ["!!!", "AA", "A", "*dDA*", "é", "dDA dDA"])
def test_tokens_of_pages_that_nobody_gave(lake: Lake, what: str, token: str) -> None:
    """Whoever is sent back to the first page by one would never come to an end."""
    assert kind(lake.admin.get(what, params={"pageToken": token})) == BAD


def test_registering_over_what_is_no_iceberg_table(lake: Lake) -> None:
    place = lake.table("t").load()["metadata-location"]
    lake.view("v")
    body = {"name": "v", "metadata-location": place, "overwrite": True}
    answer = lake.admin.post("/namespaces/ns/register", json=body)
    assert error(answer) == (
        409,
        "AlreadyExistsException",
        "View with same name already exists: ns.v",
    )


def test_staging_takes_keys_that_are_keys(lake: Lake) -> None:
    body = {"name": "s", "schema": SCHEMA, "stage-create": True}
    key = {"Idempotency-Key": str(uuid.uuid4())}
    for _ in range(2):
        lake.post("/namespaces/ns/tables", body, headers=key)
    bad = lake.admin.post("/namespaces/ns/tables", json=body, headers={"Idempotency-Key": "x"})
    assert kind(bad) == BAD


def test_a_namespace_that_was_made_is_not_denied_when_it_is_gone(lake: Lake) -> None:
    key = {"Idempotency-Key": str(uuid.uuid4())}
    body = {"namespace": ["brief"]}
    lake.post("/namespaces", body, headers=key)
    lake.send("DELETE", "/namespaces/brief")
    again = lake.admin.post("/namespaces", json=body, headers=key)
    assert kind(again) == (500, "CommitStateUnknownException")


def test_a_table_that_could_never_be_committed_to_is_not_made(lake: Lake) -> None:
    name = "write.metadata.previous-versions-max"
    body = {"name": "t", "schema": SCHEMA, "properties": {name: "many"}}
    answer = lake.admin.post("/namespaces/ns/tables", json=body)
    assert error(answer)[:2] == (400, "IllegalArgumentException")
    assert name in error(answer)[2]
    assert lake.get("/namespaces/ns/tables")["identifiers"] == []


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/namespaces", {"namespace": [1]}, "namespace[0]"),
        ("/namespaces/ns/properties", {"updates": {"a": 1}}, "updates"),
        ("/namespaces/ns/register", {"name": "", "metadata-location": "x"}, "name"),
        ("/namespaces/ns/views", {"name": 5}, "name"),
        ("/tables/rename", {"source": 1}, "source"),
        ("/namespaces/ns/properties", [], "body"),
        ("/namespaces/ns/tables/t/metrics", {"report-type": "x"}, "report-type"),
    ],
)
def test_refusals_name_the_field(lake: Lake, path: str, body: Any, field: str) -> None:
    """The envelope has no other place for it than the message."""
    status, name, message = error(lake.admin.post(path, json=body))
    assert (status, name) == (400, "BadRequestException")
    assert field in message

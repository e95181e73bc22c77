"""Keys to the folder of a table in Azure, made with the account's own: through sharing, Unity and Lance."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl
from uuid import uuid4

import httpx
import pytest

from tests.fixtures.lance import Namespace
from tests.fixtures.server import InverServer, running_inver
from tests.fixtures.sharing import Guest, Provider

KEY = base64.b64encode(b"the key of the account, never told").decode()
ROOT = "abfss://data@acct.dfs.core.windows.net/lake"
UNITY = "/api/2.1/unity-catalog"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InverServer]:
    env = {"INVER_STORAGE__EXTERNAL_ROOTS": ROOT, "INVER_STORAGE__AZURE_KEY": KEY}
    with running_inver(tmp_path_factory.mktemp("azure") / "home", env=env) as started:
        yield started
        assert "sig=" not in started.output
        assert KEY not in started.output


@pytest.fixture(scope="module")
def provider(server: InverServer) -> Provider:
    return Provider(server)


@pytest.fixture(scope="module")
def table_id(provider: Provider) -> str:
    body = {"name": "orders", "format": "DELTA", "kind": "EXTERNAL", "location": f"{ROOT}/the orders"}
    made = provider.ok("POST", f"/catalogs/{provider.catalog}/schemas/sales/tables", json=body)
    return str(made["id"])


@pytest.fixture(scope="module")
def guest(provider: Provider, table_id: str) -> tuple[Guest, str]:
    share = provider.share({"orders": {}})
    return provider.recipient(share), share


def checked(token: str, folder: str, permissions: str) -> dict[str, str]:
    """What a signature is for, after it was made again from what Azure says it is made of."""
    told = dict(parse_qsl(token, strict_parsing=True))
    assert (told["sr"], told["sp"], told["sdd"]) == ("d", permissions, str(folder.count("/") + 1))
    resource = f"/blob/acct/data/{folder}"
    rest = ["", "", "", told["sv"], told["sr"], "", "", "", "", "", "", ""]
    text = "\n".join([told["sp"], told["st"], told["se"], resource, *rest])
    signature = hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)
    assert base64.b64decode(told["sig"]) == signature
    return told


def soon(expires_ms: int) -> bool:
    return 3_500_000 < expires_ms - time.time() * 1000 <= 3_600_000


def unity(server: InverServer, path: str, **body: Any) -> httpx.Response:
    return httpx.post(server.url + UNITY + path, headers=server.headers, json=body)


def test_a_recipient_gets_keys_to_read_the_table(guest: tuple[Guest, str]) -> None:
    who, share = guest
    path = f"{share}.sales.orders/temporary-table-credentials"
    for body in ({}, {"location": f"{ROOT}/the orders"}):
        told = who.good("POST", path, json=body).json()["credentials"]
        assert told["location"] == f"{ROOT}/the orders"
        assert soon(told["expirationTime"])
        checked(told["azureUserDelegationSas"]["sasToken"], "lake/the orders", "rl")
    who.refused(400, "POST", path, json={"location": f"{ROOT}/the orders2"})


@pytest.mark.parametrize(
    "options", [{"history": False}, {"start_version": 1}], ids=["without history", "from a version on"]
)
def test_c9_who_gets_a_part_gets_no_keys_to_all_of_it(
    provider: Provider, table_id: str, options: dict[str, Any]
) -> None:
    share = provider.share({"orders": options})
    who = provider.recipient(share)
    told = who.refused(400, "POST", f"{share}.sales.orders/temporary-table-credentials", json={})
    assert told["errorCode"] == "UNSUPPORTED_OPERATION"


def test_c17_who_was_revoked_gets_no_keys(provider: Provider, table_id: str) -> None:
    share = provider.share({"orders": {}})
    who = provider.recipient(share)
    path = f"{share}.sales.orders/temporary-table-credentials"
    who.good("POST", path, json={})
    provider.ok("DELETE", f"/shares/{share}/recipients/{who.name}")
    assert who.ask("POST", path, json={}).status_code in (403, 404)


def test_unity_tells_keys_to_a_table_and_to_a_path(server: InverServer, table_id: str) -> None:
    for operation, permissions in (("READ", "rl"), ("READ_WRITE", "racwdlm")):
        told = unity(server, "/temporary-table-credentials", table_id=table_id, operation=operation)
        assert told.status_code == 200, told.text
        assert soon(told.json()["expiration_time"])
        checked(told.json()["azure_user_delegation_sas"]["sas_token"], "lake/the orders", permissions)
    new = f"{ROOT}/new/{uuid4()}"
    told = unity(server, "/temporary-path-credentials", url=new, operation="PATH_CREATE_TABLE")
    sas = told.json()["azure_user_delegation_sas"]["sas_token"]
    checked(sas, new.partition(".net/")[2], "racwdlm")


def test_c14_there_are_no_keys_to_what_lies_above_a_table(server: InverServer, table_id: str) -> None:
    for url in (ROOT, "abfss://data@acct.dfs.core.windows.net/"):
        assert unity(server, "/temporary-path-credentials", url=url, operation="PATH_READ").status_code == 403


def test_lance_tells_keys_with_a_table_that_was_declared(server: InverServer) -> None:
    space = Namespace(server)
    try:
        body = {"location": f"{ROOT}/vectors", "vend_credentials": True}
        told = space.of("vectors", "declare", body)["storage_options"]
        checked(told["azure_storage_sas_token"], "lake/vectors", "racwdlm")
        assert soon(int(told["expires_at_millis"]))
    finally:
        space.close()

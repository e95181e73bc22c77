"""What a recipient finds: shares, schemas, tables, in pages, under canonical names and stable ids."""

from __future__ import annotations

import pytest

from tests.fixtures.delta_log import add
from tests.fixtures.sharing import Guest, Provider, provider

__all__ = ["provider"]


@pytest.fixture
def shop(provider: Provider) -> tuple[Provider, str, Guest]:
    for name in ("orders", "returns", "visits"):
        provider.table(name, add("a.parquet"))
    share = provider.share(
        {"orders": {}, "returns": {"as": ["Sales", "Returns"]}, "visits": {"as": ["web", "v"]}}
    )
    return provider, share, provider.recipient(share)


def names(answer) -> list[str]:
    return [item["name"] for item in answer.json()["items"]]


def test_shares_schemas_and_tables(shop):
    _, share, guest = shop
    told = guest.good("GET", "/shares").json()
    assert [item["name"] for item in told["items"]] == [share]
    assert "nextPageToken" not in told
    one = guest.good("GET", f"/shares/{share}").json()["share"]
    assert one == told["items"][0]
    assert names(guest.good("GET", f"/shares/{share}/schemas")) == ["sales", "web"]
    tables = guest.good("GET", f"/shares/{share}/schemas/sales/tables").json()["items"]
    assert [(t["name"], t["schema"], t["share"], t["shareId"]) for t in tables] == [
        ("orders", "sales", share, one["id"]),
        ("Returns", "sales", share, one["id"]),
    ]
    everything = guest.good("GET", f"/shares/{share}/all-tables").json()["items"]
    assert everything == [*tables, everything[-1]]
    assert (everything[-1]["schema"], everything[-1]["name"]) == ("web", "v")


def test_names_are_compared_without_case_and_told_as_they_are(shop):
    _, share, guest = shop
    shouted = guest.good("GET", f"/shares/{share.upper()}/schemas/SALES/tables").json()["items"]
    assert shouted == guest.good("GET", f"/shares/{share}/schemas/sales/tables").json()["items"]
    found = guest.good("GET", f"{share.upper()}.SALES.returns").json()
    assert (found["share"], found["schema"], found["name"], found["format"]) == (
        share,
        "sales",
        "Returns",
        "delta",
    )


def test_ids_stay_when_the_table_is_renamed(shop):
    provider, share, guest = shop
    before = guest.good("GET", f"/shares/{share}/all-tables").json()["items"]
    provider.ok(
        "POST",
        f"/catalogs/{provider.catalog}/schemas/sales/tables/orders/rename",
        json={"to": [provider.catalog, "sales", "sold"]},
    )
    assert guest.good("GET", f"/shares/{share}/all-tables").json()["items"] == before


def test_pages(shop):
    _, share, guest = shop
    path, found, token, pages = f"/shares/{share}/all-tables", [], None, 0
    while True:
        options: dict[str, str] = {} if token is None else {"pageToken": token}
        told = guest.good("GET", path, params={"maxResults": 1, **options}).json()
        found += [item["name"] for item in told["items"]]
        pages += 1
        token = told.get("nextPageToken")
        if token is None:
            break
    assert (found, pages) == (["orders", "Returns", "v"], 3)
    assert guest.good("GET", path, params={"maxResults": 0}).json()["items"] == []
    for wrong in ("-1", "501", "x", "1.5"):
        told = guest.refused(400, "GET", path, params={"maxResults": wrong})
        assert told["errorCode"] == "INVALID_PARAMETER_VALUE"
    assert "page token" in guest.refused(400, "GET", path, params={"pageToken": "%%%"})["message"]


def test_a_whole_schema_has_the_tables_of_the_moment(provider: Provider):
    provider.table("orders", add("a.parquet"))
    share = provider.share({})
    body = {"kind": "schema", "name": [provider.catalog, "sales"], "as": ["all"]}
    provider.ok("POST", f"/shares/{share}/items", json=body)
    guest = provider.recipient(share)
    assert names(guest.good("GET", f"/shares/{share}/schemas/all/tables")) == ["orders"]
    provider.table("returns", add("b.parquet"))
    assert names(guest.good("GET", f"/shares/{share}/schemas/all/tables")) == ["orders", "returns"]
    assert guest.good("GET", f"{share}.all.returns/version").headers["delta-table-version"] == "0"
    provider.ok("DELETE", f"/catalogs/{provider.catalog}/schemas/sales/tables/returns")
    assert names(guest.good("GET", f"/shares/{share}/schemas/all/tables")) == ["orders"]
    guest.refused(404, "GET", f"{share}.all.returns/version")


def test_a_table_shared_by_itself_goes_before_one_of_a_schema(provider: Provider):
    provider.table("orders", add("a.parquet"))
    other = provider.table("other", add("b.parquet"), add("c.parquet"))
    share = provider.share({"other": {"as": ["all", "orders"]}})
    body = {"kind": "schema", "name": [provider.catalog, "sales"], "as": ["all"]}
    provider.ok("POST", f"/shares/{share}/items", json=body)
    guest = provider.recipient(share)
    assert names(guest.good("GET", f"/shares/{share}/all-tables")) == ["orders", "other"]
    assert len(guest.lines("POST", f"{share}.all.orders/query", json={})) == 4
    assert other.folder.exists()


def test_answers_say_what_they_are(shop):
    _, share, guest = shop
    assert guest.good("GET", "/shares").headers["content-type"] == "application/json; charset=utf-8"
    query = guest.good("POST", f"{share}.sales.orders/query", json={})
    assert query.headers["content-type"] == "application/x-ndjson; charset=utf-8"
    assert query.headers["delta-sharing-capabilities"] == "responseformat=parquet"
    head = guest.good("HEAD", f"{share}.sales.orders")
    assert (head.headers["delta-table-version"], head.content) == ("0", b"")
    assert guest.ask("HEAD", f"{share}.sales.none").content == b""


def test_what_is_not_there_is_told_in_the_envelope(shop):
    _, share, guest = shop
    for path in (
        "/shares/none",
        "/shares/none/schemas",
        f"/shares/{share}/schemas/none/tables",
        "/shares/none/all-tables",
        f"{share}.sales.none/version",
        f"{share}.none.orders/metadata",
        "none.sales.orders/changes?startingVersion=0",
        "/nothing",
    ):
        assert guest.refused(404, "GET", path)["errorCode"] == "RESOURCE_DOES_NOT_EXIST"
    assert guest.refused(405, "DELETE", "/shares")["errorCode"] == "UNSUPPORTED_OPERATION"


def test_a_table_without_a_log_is_a_lasting_refusal(provider: Provider):
    (provider.lake / "empty").mkdir(parents=True)
    provider.register("empty", provider.lake / "empty")
    share = provider.share({"empty": {}})
    guest = provider.recipient(share)
    told = guest.refused(400, "GET", f"{share}.sales.empty/version")
    assert told["errorCode"] == "RESOURCE_DOES_NOT_EXIST"


@pytest.mark.parametrize("format", ["ICEBERG", "LANCE"])
def test_tables_of_other_formats_are_refused_with_the_reason(provider: Provider, format: str):
    body = {"name": "other", "format": format}
    provider.ok("POST", f"/catalogs/{provider.catalog}/schemas/sales/tables", json=body)
    share = provider.share({"other": {}})
    guest = provider.recipient(share)
    assert guest.good("GET", f"{share}.sales.other").json()["format"] == format.lower()
    told = guest.refused(400, "POST", f"{share}.sales.other/query", json={})
    assert told["errorCode"] == "UNSUPPORTED_OPERATION"
    assert format.title() in told["message"]

"""The page at `/api/docs`: complete, safe whatever the document says, and sufficient to itself."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any

import httpx
import pytest

from inver.protocols.docs.page import STYLE, render
from inver.protocols.docs.routes import Docs
from inver.protocols.http import Request, Response
from scripts.openapi import TARGET
from tests.fixtures.openapi import Document, walk
from tests.fixtures.server import InverServer, running_inver

HOSTILE = """</code></pre></style><script>alert('1')</script><img src=x onerror="alert(2)">&amp;"'"""
LOADING = frozenset({"script", "link", "img", "iframe", "object", "embed", "form"})
RAW = "/api/docs/openapi.json"


class Page(HTMLParser):
    """A parsed page: its elements with their attributes, and the text of each element that has an id."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.articles: dict[str, str] = {}
        self.text = ""
        self._article: str | None = None
        self._quiet = False
        self.feed(content)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.elements.append((tag, attributes))
        self._quiet = tag == "style"
        if tag == "article":
            self._article = attributes["id"]
            self.articles[self._article] = ""

    def handle_endtag(self, tag: str) -> None:
        self._quiet = False
        self.handle_data(" ")
        if tag == "article":
            self._article = None

    def handle_data(self, data: str) -> None:
        if not self._quiet:
            self.text += data
            if self._article is not None:
                self.articles[self._article] += data

    def values(self, attribute: str) -> list[str]:
        return [attributes[attribute] for _, attributes in self.elements if attribute in attributes]


@pytest.fixture(scope="module")
def document() -> Any:
    return json.loads(TARGET.read_bytes())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InverServer]:
    with running_inver(tmp_path_factory.mktemp("docs") / "home") as server:
        yield server


@pytest.fixture(scope="module")
def answer(server: InverServer) -> httpx.Response:
    return httpx.get(server.url + "/api/docs")


def test_page_is_open_to_everybody_and_forbids_itself_everything(answer):
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy == {
        "default-src": "'none'",
        "style-src": f"'sha256-{b64encode(sha256(STYLE.encode()).digest()).decode()}'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    assert f"<style>{STYLE}</style>" in answer.text


def test_document_is_served_beside_the_page(server):
    answer = httpx.get(server.url + RAW)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.content == TARGET.read_bytes()


def test_page_shows_every_operation_whole(answer, document):
    page = Page(answer.text)
    schemas = Document(document)
    assert page.articles.keys() == schemas.operations.keys()
    for method, path, operation in walk(document):
        shown = page.articles[operation["operationId"]]
        for text in (method.upper(), path, operation["summary"], "curl", *operation["responses"]):
            assert text in shown, operation["operationId"]
        for parameter in map(schemas.resolve, operation.get("parameters", ())):
            assert parameter["name"] in shown
        bodies = [operation.get("requestBody", {}), *map(schemas.resolve, operation["responses"].values())]
        for body in bodies[:2]:
            for media in body.get("content", {}).values():
                for field in schemas.resolve(media["schema"])["properties"]:
                    assert field in shown


def test_nested_types_are_expanded(answer):
    page = Page(answer.text)
    words = set(re.findall(r"\w+", page.articles["transact"]))
    assert {"CommitOp", "MoveCursorOp", "rows_added", "replayed"} <= words
    assert "storage_root" in page.articles["list_catalogs"]


def test_links_lead_somewhere_on_the_page(answer):
    page = Page(answer.text)
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    targets = set(page.values("href")) - {RAW}
    assert {target.removeprefix("#") for target in targets} <= set(ids)
    assert all(target.startswith("#") for target in targets)


def test_page_loads_nothing_and_runs_nothing(answer):
    page = Page(answer.text)
    assert LOADING.isdisjoint(tag for tag, _ in page.elements)
    attributes = {name for _, given in page.elements for name in given}
    assert [name for name in attributes if name.startswith("on") or name in ("style", "src", "srcset")] == []
    assert "://" not in answer.text
    assert "url(" not in STYLE
    assert "@import" not in STYLE


def test_page_is_kept_until_it_changes(server, answer):
    again = httpx.get(server.url + "/api/docs", headers={"If-None-Match": answer.headers["etag"]})
    assert again.status_code == 304
    assert again.content == b""
    assert httpx.get(server.url + "/api/docs").content == answer.content
    head = httpx.head(server.url + "/api/docs")
    assert head.headers["content-length"] == str(len(answer.content))


def test_errors_are_plain_text(server):
    missing = httpx.get(server.url + "/api/docs/<b>x")
    assert missing.status_code == 404
    assert missing.headers["content-type"] == "text/plain; charset=utf-8"
    assert missing.headers["x-content-type-options"] == "nosniff"
    assert httpx.post(server.url + "/api/docs").status_code == 405


def test_hostile_text_stays_text(document):
    """Every string of the document is followed by markup, names included."""
    page = Page(render(_poisoned(document), RAW).decode())
    known = Page(render(document, RAW).decode())
    assert {tag for tag, _ in page.elements} == {tag for tag, _ in known.elements}
    assert {name for _, given in page.elements for name in given} == {
        name for _, given in known.elements for name in given
    }
    assert "<script>alert('1')</script>" in page.text


def _poisoned(document: Any) -> Any:
    def poison(node: Any, key: str = "") -> Any:
        if isinstance(node, dict):
            # Field names, parameters, headers and content types are text of the document, too.
            spoilt = key in ("properties", "headers", "content")
            return {name + HOSTILE if spoilt else name: poison(value, name) for name, value in node.items()}
        if isinstance(node, list):
            return [poison(each, key) for each in node]
        spared = key in ("$ref", "type", "in", "operationId", "tags")
        return node + HOSTILE if isinstance(node, str) and not spared else node

    whole = poison(document)
    whole["components"] = {**document["components"], "schemas": poison(document["components"]["schemas"])}
    whole["paths"] = {path + HOSTILE: item for path, item in whole["paths"].items()}
    return whole


def test_document_is_made_once_and_only_when_asked_for():
    calls = []

    def document() -> bytes:
        calls.append(1)
        return TARGET.read_bytes()

    docs = Docs(document)
    assert calls == []

    async def ask() -> list[Response]:
        found = [route.handler(Request("GET", b"/api/docs")) for route in docs.routes * 2]
        assert all(isinstance(each, Response) for each in found)
        return found  # type: ignore[return-value]

    answers = asyncio.run(ask())
    assert [each.status for each in answers] == [200] * 4
    assert calls == [1]


PASTED = """
    create_catalog create_schema create_table transact get_table alter_table table_history get_cursor
    list_events create_principal create_token create_secret list_tokens grant explain search revoke
    alter_principal delete_principal rename_table whoami server_info
"""
UUIDGEN = "uuidgen() { python3 -c 'import uuid; print(uuid.uuid4())'; }"


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_examples_run_as_they_are_shown(server, answer):
    """What a new user would paste, in an order that makes sense."""
    page = Page(answer.text)
    environment = {**os.environ, "INVER_URL": server.url, "INVER_TOKEN": server.token}
    for name in PASTED.split():
        shown = page.articles[name].split("curl ", 1)[1]
        command = f"{UUIDGEN}\ncurl -sS --fail-with-body {shown}"
        result = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True)
        assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"

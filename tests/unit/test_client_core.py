"""The client without a network: names, calls, retries, errors, and where the server is found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inver import errors
from inver.client import Unreachable, dotted, locate, securable
from inver.client.core import MOUNT, Call, NoAnswer, Policy, Request, Response, Wait, check_token, exchange
from inver.client.methods import Listing, Method, Operations
from inver.client.naming import parse, parts_of
from inver.client.operations import care, containers, feed, identity, privileges, relations, sharing
from inver.client.problems import ConflictInfo, Winner, error_of
from inver.client.threads import Client
from inver.client.transport import Address

CATALOG = {
    "id": "1",
    "name": "main",
    "owner": "o",
    "created_at": 1,
    "created_by": "o",
    "updated_at": 1,
    "updated_by": "o",
    "later": "a field that this client does not know",
}


def answer(status: int = 200, body: Any = None, **headers: str) -> Response:
    content = b"" if body is None else json.dumps(body).encode()
    return Response(status, {name.replace("_", "-"): value for name, value in headers.items()}, content)


def problem(name: str, status: int, **fields: Any) -> Response:
    return answer(status, {"type": f"urn:inver:problem:{name}", "status": status, "detail": name, **fields})


class Run:
    """An exchange played against a script of answers; what it sends and waits for is kept."""

    def __init__(self, call: Call[Any], *script: Response | NoAnswer, policy: Policy | None = None) -> None:
        self.requests: list[Request] = []
        self.waits: list[float] = []
        self.result: Any = None
        self.error: errors.InverError | None = None
        self.left = list(script)
        steps = exchange(call, "secret", policy or Policy())
        try:
            step = next(steps)
            while True:
                if isinstance(step, Wait):
                    self.waits.append(step.seconds)
                    step = next(steps)
                    continue
                self.requests.append(step)
                outcome = self.left.pop(0)
                step = steps.throw(outcome) if isinstance(outcome, NoAnswer) else steps.send(outcome)
        except StopIteration as done:
            self.result = done.value
        except errors.InverError as error:
            self.error = error

    @property
    def keys(self) -> set[str | None]:
        return {request.headers.get("Idempotency-Key") for request in self.requests}


LOST = NoAnswer("reset", sent=True)
REFUSED = NoAnswer("refused", sent=False)
BUSY = problem("unavailable", 503)
TABLE = {
    **CATALOG,
    "catalog_id": "c",
    "schema_id": "s",
    "format": "DELTA",
    "kind": "MANAGED",
    "state": "live",
    "location": "/x",
    "version": 0,
}


# --- names ---


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("main", ("main",)),
        ("main.sales.orders", ("main", "sales", "orders")),
        ("main.`a.b`.c", ("main", "a.b", "c")),
        ("`a``b`", ("a`b",)),
        ("`.`.`..`", (".", "..")),
        ("with space.x", ("with space", "x")),
    ],
)
def test_names_are_parsed(text, parts):
    assert parse(text) == parts


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "`a", "`a`b", "``", "`a`.`"])
def test_bad_names_are_refused(text):
    with pytest.raises(errors.Invalid) as caught:
        parse(text)
    assert caught.value.fix is not None


@given(st.lists(st.text(min_size=1), min_size=1, max_size=5))
def test_dotted_names_are_read_back(parts):
    assert parse(dotted(parts)) == tuple(parts)


def test_names_have_the_parts_of_their_kind():
    assert parts_of(["a.b", "c", "d"], least=3) == ("a.b", "c", "d")
    with pytest.raises(errors.Invalid, match="not the name of a table"):
        parts_of("main.sales", least=3, what="table")
    with pytest.raises(errors.Invalid):
        containers.catalog("main.sales")


def test_paths_hold_names_encoded_once():
    call = relations.table("main.`a/b`.`c%d`.t+u v")
    assert call.path == "/catalogs/main/schemas/a%2Fb%1Fc%25d/tables/t%2Bu%20v"
    assert containers.schemas("main.a.b").query == {"parent": "a\x1fb"}


# --- one exchange ---


def test_a_read():
    run = Run(containers.catalog("main"), answer(200, CATALOG, etag='"3"'))
    assert run.result.name == "main"
    assert run.result.etag == '"3"'
    (request,) = run.requests
    assert (request.method, request.target) == ("GET", MOUNT + "/catalogs/main")
    assert request.headers["Authorization"] == "Bearer secret"
    assert "Idempotency-Key" not in request.headers
    assert request.body is None


def test_a_change_sends_what_is_set_and_nothing_else():
    run = Run(containers.alter_catalog("main", comment=None, if_match='"3"'), answer(200, CATALOG))
    assert run.requests[0].body == b'{"comment":null}'
    assert run.requests[0].headers["If-Match"] == '"3"'
    assert run.requests[0].headers["Content-Type"] == "application/json"


def test_public_calls_carry_no_token():
    run = Run(identity.access_token("id", "a&b"), answer(200, {"access_token": "x", "token_type": "bearer"}))
    assert "Authorization" not in run.requests[0].headers
    assert run.requests[0].body == b"grant_type=client_credentials&client_id=id&client_secret=a%26b"


@pytest.mark.parametrize("failure", [LOST, REFUSED, BUSY, answer(502), answer(504)])
def test_reads_are_repeated(failure):
    run = Run(containers.catalog("main"), failure, failure, answer(200, CATALOG))
    assert run.result.name == "main"
    assert len(run.requests) == 3
    assert len(set(map(repr, run.requests))) == 1


def test_keyed_changes_are_repeated_under_one_key():
    run = Run(relations.create_table("a.b.c", "delta"), LOST, BUSY, REFUSED, answer(201, TABLE))
    assert run.result.name == "main"
    assert len(run.requests) == 4
    assert len(run.keys) == 1
    assert None not in run.keys
    other = Run(relations.create_table("a.b.c", "delta"), answer(201, TABLE))
    assert other.keys != run.keys


def test_a_given_key_is_used():
    assert Run(relations.transact([], key="k"), BUSY, problem("invalid", 400)).keys == {"k"}


@pytest.mark.parametrize("failure", [LOST, BUSY, answer(502)])
def test_changes_without_a_key_are_sent_once(failure):
    run = Run(containers.create_catalog("main"), failure)
    assert len(run.requests) == 1
    assert run.keys == {None}
    assert isinstance(run.error, errors.Unavailable | errors.OutcomeUnknown)


def test_refusals_are_not_repeated():
    run = Run(containers.catalog("main"), problem("not-found", 404))
    assert isinstance(run.error, errors.NotFound)
    assert len(run.requests) == 1


def test_attempts_are_bounded_and_ever_further_apart():
    run = Run(containers.catalog("main"), *[REFUSED] * 5)
    assert isinstance(run.error, Unreachable)
    assert len(run.requests) == 5
    assert all(0.05 * 2**n <= wait <= 0.1 * 2**n for n, wait in enumerate(run.waits))
    assert Policy().pause(30) <= 5.0


def test_pauses_differ():
    assert len({Policy().pause(3) for _ in range(20)}) > 10


def test_retry_after_is_obeyed():
    busy = Response(503, {"retry-after": "7"}, b"")
    run = Run(containers.catalog("main"), busy, answer(200, CATALOG))
    assert run.waits == [7]


def test_a_server_that_wants_to_be_left_alone_for_long_is():
    run = Run(containers.catalog("main"), Response(503, {"retry-after": "3600"}, b""))
    assert isinstance(run.error, errors.Unavailable)
    assert run.error.retry_after == 3600
    assert run.waits == []


# --- outcomes in doubt ---


def test_a_lost_answer_leaves_the_outcome_open():
    run = Run(containers.create_catalog("main"), LOST)
    assert isinstance(run.error, errors.OutcomeUnknown)
    assert run.error.fix == "look whether it was applied before sending it again"


def test_a_request_that_never_left_is_certainly_not_applied():
    run = Run(relations.drop_table("a.b.c"), *[REFUSED] * 5)
    assert isinstance(run.error, Unreachable)


@pytest.mark.parametrize(
    "later",
    [REFUSED, BUSY, problem("unauthenticated", 401), problem("forbidden", 403), problem("rate-limited", 429)],
)
def test_doubt_stays_when_later_answers_do_not_resolve_it(later):
    run = Run(relations.drop_table("a.b.c"), LOST, *[later] * 4)
    assert isinstance(run.error, errors.OutcomeUnknown)
    assert str(next(iter(run.keys))) in str(run.error.fix)


@pytest.mark.parametrize("name", ["conflict", "not-found", "invalid"])
def test_doubt_ends_with_a_certain_answer(name):
    run = Run(relations.drop_table("a.b.c"), LOST, problem(name, 400))
    assert isinstance(run.error, errors.Refused)


def test_an_unknown_outcome_is_asked_for_again_under_the_key():
    unknown = problem("outcome-unknown", 500)
    run = Run(relations.drop_table("a.b.c"), unknown, answer(204))
    assert run.error is None
    assert len(run.requests) == 2


# --- errors ---


@pytest.mark.parametrize(
    ("name", "status", "kind"),
    [
        ("too-large", 413, errors.TooLarge),
        ("invalid", 400, errors.Invalid),
        ("unauthenticated", 401, errors.Unauthenticated),
        ("forbidden", 403, errors.Forbidden),
        ("not-found", 404, errors.NotFound),
        ("method-not-allowed", 405, errors.MethodNotAllowed),
        ("already-exists", 409, errors.AlreadyExists),
        ("not-empty", 409, errors.NotEmpty),
        ("conflict", 409, errors.Conflict),
        ("precondition-failed", 412, errors.PreconditionFailed),
        ("idempotency-key-reused", 422, errors.KeyReused),
        ("unsupported", 406, errors.Unsupported),
        ("rate-limited", 429, errors.RateLimited),
        ("refused", 409, errors.Refused),
        ("unavailable", 503, errors.Unavailable),
        ("outcome-unknown", 500, errors.OutcomeUnknown),
    ],
)
def test_every_problem_becomes_its_error(name, status, kind):
    sent = problem(name, status, fix="do this", field="here", request_id="r-1")
    error = error_of(sent.status, sent.headers, sent.body, reads=True)
    assert type(error) is kind
    assert (error.message, error.fix) == (name, "do this")
    assert (getattr(error, "field", None), getattr(error, "request_id", None)) == ("here", "r-1")


def test_conflicts_say_who_won():
    winner = {"version": 3, "transaction": "17", "at": 5, "by": "ana"}
    conflict = {"operation": 0, "subject": "t", "reason": "version-taken", "expected": 2, "current": 3}
    sent = problem("conflict", 409, conflicts=[{**conflict, "winner": winner}])
    error = error_of(sent.status, {}, sent.body, reads=False)
    assert isinstance(error, errors.Conflict)
    expected = ConflictInfo(0, "t", "version-taken", 2, 3, Winner(3, "17", 5, "ana"))
    assert list[object](error.conflicts) == [expected]


@pytest.mark.parametrize(
    ("status", "reads", "kind"),
    [
        (404, True, errors.NotFound),
        (418, True, errors.Refused),
        (500, True, errors.Broken),
        (500, False, errors.OutcomeUnknown),
        (502, True, errors.Unavailable),
        (504, False, errors.OutcomeUnknown),
        (503, False, errors.Unavailable),
    ],
)
def test_answers_of_others_are_understood_by_their_status(status, reads, kind):
    error = error_of(status, {}, b"<html>gateway</html>", reads=reads)
    assert type(error) is kind
    assert str(status) in error.message


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"\xff"])
def test_answers_that_are_not_understood(body):
    run = Run(containers.catalog("main"), Response(200, {}, body))
    assert isinstance(run.error, errors.Broken)
    run = Run(containers.catalogs(), Response(200, {}, body))
    assert isinstance(run.error, errors.Broken)


# --- pages and events ---


def test_pages_lead_to_each_other():
    call = containers.catalogs(page_size=1)
    assert call.query == {"max_results": "1"}
    page = call.read(answer(200, {"catalogs": [CATALOG], "next_page_token": "main"}))
    assert [item.name for item in page.items] == ["main"]
    assert page.next is not None
    assert page.next.query == {"max_results": "1", "page_token": "main"}
    last = page.next.read(answer(200, {"catalogs": [], "next_page_token": None}))
    assert last.next is None


def events(numbers: Sequence[int], following: int) -> Response:
    event = {"specversion": "1.0", "source": "s", "type": "t", "subject": "x", "time": "now"}
    found = [{**event, "id": str(n), "invertransaction": str(n)} for n in numbers]
    return answer(200, {"events": found, "next": str(following)})


def test_the_feed_ends_when_nothing_is_left():
    call = feed.events(4)
    assert call.query == {"after": "4"}
    page = call.read(events([5, 6], 6))
    assert [event.transaction for event in page.items] == ["5", "6"]
    assert page.next is not None
    assert page.next.query == {"after": "6"}
    assert page.next.read(events([], 6)).next is None


def test_the_feed_is_followed_without_an_end():
    call = feed.events(4, follow=True)
    page = call.read(events([], 4))
    assert page.next is not None
    assert page.next.query == {"after": "4", "wait": "30"}
    page = page.next.read(events([5], 5))
    assert page.next is not None
    assert page.next.query == {"after": "5"}
    assert call.timeout > 30


# --- the rest ---


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ((), None, ("metastore", [])),
        ("main", None, ("catalog", ["main"])),
        ("main.sales", None, ("schema", ["main", "sales"])),
        ("main.sales.orders", None, ("table", ["main", "sales", "orders"])),
        ("main.sales.emea", "schema", ("schema", ["main", "sales", "emea"])),
    ],
)
def test_securables(name, kind, expected):
    found = securable(name, kind)
    assert (found.kind, found.name) == expected


def test_grants_are_asked_for_by_kind_and_name():
    assert privileges.grants(securable("a.b"), principal="p").query == {
        "kind": "schema",
        "name": "a\x1fb",
        "principal": "p",
    }


@pytest.mark.parametrize("token", ["a b", "a\r\nX: y", "", "é"])
def test_tokens_that_would_break_a_header_are_refused(token):
    with pytest.raises(errors.Invalid):
        check_token(token)


def test_keys_that_would_break_a_header_are_refused():
    with pytest.raises(errors.Invalid):
        next(exchange(relations.transact([], key="a\r\nX: y")))


@pytest.mark.parametrize(
    "url",
    ["", "localhost:8181", "ftp://x", "http://", "http://u:p@h", "http://h?q", "http://h:x", "http://[::1"],
)
def test_urls_that_are_none(url):
    with pytest.raises(errors.Invalid):
        Client(url)


def test_addresses():
    assert Address.parse("http://[::1]:81/p/") == Address(False, "::1", 81, "/p")
    assert Address.parse("http://[::1]:81").authority == "[::1]:81"
    assert Address.parse("https://host").authority == "host"
    assert Address.parse("https://host").port == 443


def test_every_operation_is_a_method_of_both_clients():
    modules = (containers, relations, feed, identity, privileges, sharing, care)
    made = {
        name
        for module in modules
        for name, value in vars(module).items()
        if getattr(value, "__module__", "") == module.__name__ and not name.startswith("_")
    }
    offered = {name for name, value in vars(Operations).items() if isinstance(value, Method | Listing)}
    helpers = {"schema_path", "table_path", "securable"}
    assert made - helpers == offered


# --- where the server is ---


def home_folder(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    (home / "server.json").write_bytes(msgspec.json.encode({"url": "http://home", "pid": 1}))
    (home / "admin.token").write_text("inver_pat_home\n")
    return home


def with_profiles(tmp_path: Path, text: str) -> dict[str, str]:
    folder = tmp_path / "config" / "inver"
    folder.mkdir(parents=True)
    (folder / "profiles.toml").write_text(text)
    return {"XDG_CONFIG_HOME": str(tmp_path / "config")}


def test_arguments_win(tmp_path):
    environ = {"INVER_URL": "http://env", "INVER_TOKEN": "env"}
    target = locate("http://arg", "arg", environ=environ)
    assert (target.url, target.token) == ("http://arg", "arg")
    assert locate("http://arg", environ=environ).token == "env"


def test_the_environment(tmp_path):
    target = locate(environ={"INVER_URL": "http://env", "INVER_TOKEN": "env"})
    assert (target.url, target.token) == ("http://env", "env")


def test_a_home_folder(tmp_path):
    home = home_folder(tmp_path)
    target = locate(home=home, environ={})
    assert (target.url, target.token) == ("http://home", "inver_pat_home")
    assert locate(home=home, environ={"INVER_TOKEN": "env"}).token == "env"
    environ = {"INVER_SERVER__HOME": str(home), "XDG_CONFIG_HOME": str(tmp_path)}
    assert locate(environ=environ).url == "http://home"


def test_a_home_folder_without_a_readable_token(tmp_path):
    home = home_folder(tmp_path)
    (home / "admin.token").unlink()
    assert locate(home=home, environ={}).token is None


def test_no_server_runs(tmp_path):
    with pytest.raises(Unreachable, match="no server runs") as caught:
        locate(home=tmp_path, environ={})
    assert "inver serve" in str(caught.value.fix)


def test_profiles(tmp_path):
    (tmp_path / "token").write_text("from-file\n")
    environ = with_profiles(
        tmp_path,
        f"""
        [default]
        url = "http://default"
        token = "d"
        [prod]
        url = "https://prod"
        token_file = "{tmp_path}/token"
        """,
    )
    assert locate(environ=environ).url == "http://default"
    target = locate(profile="prod", environ={**environ, "INVER_TOKEN": "env"})
    assert (target.url, target.token) == ("https://prod", "from-file")
    assert locate(environ={**environ, "INVER_PROFILE": "prod"}).url == "https://prod"
    with pytest.raises(errors.NotFound, match="there is no profile 'test'"):
        locate(profile="test", environ=environ)


@pytest.mark.parametrize("text", ["[p", "p = 1", "[p]\nurl = 1", "[p]\nurl = 'x'\nuri = 'y'"])
def test_damaged_profiles(tmp_path, text):
    with pytest.raises(errors.Invalid, match="is not valid"):
        locate(profile="p", environ=with_profiles(tmp_path, text))


def test_targets_hide_their_token():
    assert "secret" not in repr(locate("http://x", "secret", environ={}))

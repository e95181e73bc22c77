"""Tokens and secrets under attack, named by their id in the attack list."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fixtures.crowd import refusal, without_request_id
from tests.fixtures.proxy import through_proxy
from tests.fixtures.server import API, InverServer, migrate, running_inver
from tests.simulation.clients import commits
from tests.simulation.history import Write

WAIT_S = 30


# --- C15: secrets ---


def secret_of(token: str) -> str:
    """The part of a token that proves who holds it."""
    return token.rpartition("_")[2] if token.count("_") == 3 else token[token.index("_", 10) + 1 :]


def whole_run(server: InverServer, token: str) -> str:
    """All sorts of requests, with the token also where it does not belong; what they were answered."""
    told: list[str] = []

    def send(method: str, path: str, **options: Any) -> httpx.Response:
        headers = {**server.headers, **options.pop("headers", {})}
        answer = httpx.request(method, server.url + API + path, headers=headers, timeout=WAIT_S, **options)
        told.append(f"{answer.headers}{answer.text}")
        return answer

    name = f"run-{uuid.uuid4()}"
    send("POST", "/catalogs", json={"name": name}).raise_for_status()
    send("POST", f"/catalogs/{name}/schemas", json={"path": ["s"]}).raise_for_status()
    made = send("POST", f"/catalogs/{name}/schemas/s/tables", json={"name": "t", "format": "DELTA"})
    table = made.raise_for_status().json()["id"]
    send("POST", "/transactions", json=commits([Write(table, 1, "x")])).raise_for_status()
    send("POST", "/transactions", json=commits([Write(table, 1, "y")]))
    send("POST", "/transactions", content=b"{")
    send("GET", "/info", headers={"Authorization": "Bearer " + token[:-1]})
    send("GET", "/info", headers={"Authorization": "Bearer " + token + "x"})
    send("GET", "/info", headers={"Authorization": "Basic " + token})
    send("GET", "/info", headers={"Authorization": token})
    send("GET", "/info", headers={"Idempotency-Key": token, "If-Match": token})
    send("DELETE", f"/catalogs/{name}", headers={"If-Match": token})
    send("POST", "/transactions", json=commits([Write(table, 2, "z")]), headers={"Idempotency-Key": token})
    send("GET", "/metrics")
    send("PUT", "/info")
    send("GET", f"/events?after=0&limit=1000&access_token={token}")
    send("GET", "/events?after=0&limit=1000")
    told.append(httpx.get(server.management_url + "/metrics").text)
    return "\n".join(told)


def test_c15_no_secret_in_output_events_or_answers(inver: InverServer):
    token = inver.token
    assert inver.stdout.count(token) == 1, "shown once, to whoever started it"
    inver.stop()
    shown = len(inver.stdout)
    inver.start()
    answers = whole_run(inver, token)
    other = inver.call("POST", "/tokens", json={"label": "second"})
    assert other.status_code == 201, other.text
    second = other.json()["token"]
    events = inver.call("GET", "/events?after=0&limit=1000").text
    listed = inver.call("GET", "/tokens").text
    inver.stop()
    printed = inver.stdout[shown:] + inver.stderr
    for secret in (secret_of(token), secret_of(second)):
        assert len(secret) >= 40
        assert secret not in printed
        assert secret not in answers
        assert secret not in events
        assert secret not in listed
    if inver.database is None:
        kept = b"".join(path.read_bytes() for path in inver.home.glob("inver.db*"))
        assert secret_of(token).encode() not in kept
        with closing(sqlite3.connect(inver.home / "inver.db")) as connection:
            hashes = [row[0] for row in connection.execute("SELECT hash FROM tokens")]
        assert len(hashes) == 2
        assert not [hashed for hashed in hashes if hashed in events + listed + printed + answers]


@pytest.mark.postgres
def test_c15_no_database_password_in_output_or_answers(postgres_url: str, tmp_path: Path):
    """Also when the database goes away, which is when drivers begin to talk."""
    password = "correct-horse-battery-staple"
    url = postgres_url.replace("://inver@", f"://inver:{password}@")
    assert password in url
    migrate(url)
    with through_proxy(url) as (proxy, database), running_inver(tmp_path / "home", database) as server:
        answers = [whole_run(server, server.token)]
        proxy.cut()
        for method, path, body in (
            ("GET", "/readyz", None),
            ("GET", API + "/info", None),
            ("POST", API + "/catalogs", {"name": "x"}),
            ("GET", API + "/events", None),
        ):
            answer = httpx.request(
                method, server.url + path, json=body, headers=server.headers, timeout=WAIT_S
            )
            assert answer.status_code in (500, 503)
            answers.append(answer.text)
        proxy.join()
        server.stop()
        assert password not in server.output
        assert password not in "".join(answers)


# --- C16: tokens ---


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InverServer]:
    """A server that forgives many wrong tokens."""
    home = tmp_path_factory.mktemp("door") / "home"
    with running_inver(home, env={"INVER_AUTH__FAILURES": "100000"}) as server:
        yield server


def knock(server: InverServer, *authorization: bytes) -> httpx.Response:
    headers = [(b"Authorization", value) for value in authorization]
    return httpx.get(server.url + API + "/info", headers=headers)


def other_end(token: str) -> str:
    return token[:-1] + ("A" if token[-1] != "A" else "B")


WRONG: dict[str, Callable[[str], str]] = {
    "wrong secret": lambda token: f"Bearer {other_end(token)}",
    "no secret": lambda token: "Bearer " + token[: len(token) - len(secret_of(token))],
    "only the id": lambda token: "Bearer " + token[: len(token) - len(secret_of(token)) - 1],
    "truncated": lambda token: f"Bearer {token[:-1]}",
    "longer": lambda token: f"Bearer {token}A",
    "only the secret": lambda token: f"Bearer {secret_of(token)}",
    "without its prefix": lambda token: f"Bearer {token.removeprefix('inver_pat_')}",
    "another prefix": lambda token: f"Bearer {token.replace('inver_pat_', 'inver_tok_')}",
    "another id": lambda token: "Bearer inver_pat_" + "0" * 32 + "_" + secret_of(token),
    "capital letters": lambda token: f"Bearer {token.upper()}",
    "the id in capitals": lambda token: (
        f"Bearer inver_pat_{token[10:].partition('_')[0].upper()}_{secret_of(token)}"
    ),
    "twice": lambda token: f"Bearer {token} {token}",
    "a list": lambda token: f"Bearer {token}, Bearer {token}",
    "in quotes": lambda token: f'Bearer "{token}"',
    "nothing": lambda token: "Bearer x",
    "SQL": lambda token: "Bearer inver_pat_' OR 1=1 --_" + secret_of(token),
    "a pattern": lambda token: "Bearer inver_pat_%_" + secret_of(token),
    "no ASCII": lambda token: f"Bearer {token}é",
    "very long": lambda token: "Bearer inver_pat_" + "a" * 30_000 + "_" + secret_of(token),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_c16_a_wrong_token_is_told_nothing(door: InverServer, wrong: str):
    """Whatever is wrong with it, the answer is the same, so that it cannot be found out step by step."""
    answer = knock(door, WRONG[wrong](door.token).encode())
    known = knock(door, b"Bearer inver_pat_" + b"0" * 32 + b"_" + b"0" * 43)
    for each in (answer, known):
        assert refusal(each, 401)["title"] == "unauthenticated"
        assert each.headers["www-authenticate"] == "Bearer"
    assert without_request_id(answer) == without_request_id(known)
    assert knock(door, f"Bearer {door.token}".encode()).status_code == 200


@pytest.mark.parametrize(
    "scheme", ["Basic", "Token", "Digest", "Negotiate", "AWS4-HMAC-SHA256", "Bear", "Bearerer"]
)
def test_c16_another_scheme_is_refused_whatever_comes_with_it(door: InverServer, scheme: str):
    right = knock(door, f"{scheme} {door.token}".encode())
    wrong = knock(door, f"{scheme} x".encode())
    assert without_request_id(right) == without_request_id(wrong)
    assert refusal(right, 401)["title"] == "unauthenticated"


def test_c16_no_scheme_and_no_header_are_refused(door: InverServer):
    for values in (
        (),
        (door.token.encode(),),
        (b"",),
        (b"Bearer",),
        (f"Bearer{door.token}".encode(),),
    ):
        assert refusal(knock(door, *values), 401)["title"] == "unauthenticated"


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bEaReR"])
def test_c16_the_scheme_is_read_without_case(door: InverServer, scheme: str):
    assert knock(door, f"{scheme} {door.token}".encode()).status_code == 200


def test_c16_two_tokens_are_not_tried_one_after_the_other(door: InverServer):
    good, bad = f"Bearer {door.token}".encode(), f"Bearer {other_end(door.token)}".encode()
    refusal(knock(door, bad, good), 400, 401)


def test_c16_guessing_is_slowed_down(tmp_path: Path):
    env = {"INVER_AUTH__FAILURES": "5", "INVER_AUTH__FAILURE_INTERVAL": "3600"}
    with running_inver(tmp_path / "home", env=env) as server, server.client() as holder:
        assert holder.get("/info").status_code == 200
        answers = [knock(server, f"Bearer {other_end(server.token)}".encode()) for _ in range(8)]
        # A forgiven fraction of a failure may let one more through.
        statuses = [answer.status_code for answer in answers]
        assert statuses in ([401] * 5 + [429] * 3, [401] * 6 + [429] * 2)
        for answer in answers[6:]:
            assert refusal(answer, 429)["title"] == "rate limited"
            assert int(answer.headers["retry-after"]) >= 1
        assert holder.get("/info").status_code == 200, "who is known goes on"

"""Unmodified pylance, two versions of it, on tables whose versions the catalog decides."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from tests.engines.conftest import _client
from tests.fixtures.clients import RUN_SECONDS, Client
from tests.fixtures.lance import Namespace
from tests.fixtures.lines import Lines
from tests.fixtures.lossy import Loss, lossy
from tests.fixtures.s3 import S3Server
from tests.fixtures.server import InverServer, running_inver
from tests.fixtures.waiting import eventually

VERSIONS = {"lance": 14, "lance7": 7}
TRIES = 5
"""Of a client, before what it would do next is known: the same, after ever longer waits."""


class Pylance(NamedTuple):
    version: int
    client: Client
    lines: Lines
    """A process that goes on, for all that needs none of its own."""


@pytest.fixture(scope="module", params=VERSIONS)
def pylance(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pylance]:
    client = _client(request.param)
    errors = tmp_path_factory.mktemp("pylance") / "stderr"
    with client.session("pylance_client.py", {}, errors) as lines:
        yield Pylance(VERSIONS[request.param], client, lines)


@pytest.fixture
def space(server: InverServer) -> Iterator[Namespace]:
    space = Namespace(server)
    yield space
    space.close()


def asked(space: Namespace, name: str, *steps: list[Any], url: str | None = None) -> Any:
    server = space.server
    return {"url": url or server.url, "token": server.token, "id": space.id(name), "steps": steps}


def run(pylance: Pylance, space: Namespace, name: str, *steps: list[Any]) -> Any:
    """What the steps answer."""
    return pylance.lines.ask(asked(space, name, *steps), RUN_SECONDS)


def run_in_trouble(
    pylance: Pylance, space: Namespace, name: str, step: list[Any], loss: Loss | None = None
) -> Any:
    """What the step answers. A client that has tried often enough, and would for minutes, has failed."""
    with lossy(space.server.url) as line:
        if loss is not None:
            line.lose("/version/create", loss)
        running = pylance.client.start("pylance_client.py", asked(space, name, step, url=line.url))
        process = running.process
        eventually(lambda: process.poll() is not None or line.count("/version/create") >= TRIES)
        if process.poll() is None:
            process.kill()
            process.communicate()
            return {"error": "it goes on trying"}
        [answer] = running.result()
        return answer


def folder(space: Namespace, name: str) -> Path:
    return Path(urlsplit(space.of(name, "describe")["location"]).path)


def test_everything_that_changes_a_table(pylance: Pylance, space: Namespace):
    answers = run(
        pylance,
        space,
        "t",
        ["create", 0, 10],
        ["append", 10, 10],
        ["delete", "id = 3"],
        ["update", "id < 2"],
        ["merge", 15, 10],
        ["add_column", "twice", "id * 2"],
        ["scalar_index"],
        ["vector_index"],
        ["compact"],
        ["schema"],
        ["indices"],
        ["near", 7.0],
        ["tag", "first", 1],
        ["tagged", "first"],
        ["at", 2],
        ["restore", 2],
        ["overwrite", 0, 3],
        ["versions"],
    )
    assert [each for each in answers if isinstance(each, dict) and "error" in each] == []
    rows = [each["rows"] for each in answers if isinstance(each, dict)]
    assert rows == [10, 20, 19, 19, 24, 24, 24, 24, 24, 24, 10, 20, 20, 3]
    assert answers[9] == ["id", "word", "vector", "twice"]
    assert answers[10] == ["id_idx", "vector_idx"]
    assert answers[11] == [7]
    last = answers[16]["version"]
    assert space.versions("t") == answers[17] == list(range(1, last + 1))
    described = space.of("t", "describe")
    assert described["version"] == last
    assert [field["name"] for field in described["schema"]["fields"]] == ["id", "word", "vector"]
    assert described["schema"]["fields"][2]["type"] == {
        "type": "fixed_size_list",
        "fields": [{"name": "item", "type": {"type": "float"}, "nullable": True}],
        "length": 4,
    }
    older = space.of("t", "describe", {"version": 6})
    assert [field["name"] for field in older["schema"]["fields"]] == ["id", "word", "vector", "twice"]
    assert space.of("t", "describe", {"tag": "first"})["version"] == 1
    # What clients staged is deleted in the background.
    versions = folder(space, "t") / "_versions"
    eventually(lambda: not any(".manifest-" in path.name for path in versions.iterdir()))


def test_counts_of_each_commit_are_those_of_the_data(pylance: Pylance, space: Namespace):
    run(
        pylance,
        space,
        "t",
        ["create", 0, 10],
        ["append", 10, 10],
        ["delete", "id = 3"],
        ["update", "id < 2"],
        ["overwrite", 0, 3],
    )
    counts = [each["counts"] for each in reversed(space.commits("t"))]
    changed = [(each["rows_added"], each["rows_removed"]) for each in counts]
    assert changed == [(10, 0), (10, 0), (0, 1), (2, 2), (3, 19)]
    assert [each["files_added"] for each in counts] == [1, 1, 0, 1, 1]
    assert counts[4]["files_removed"] == 3
    assert (
        sum(each["bytes_added"] - each["bytes_removed"] for each in counts)
        == sum(path.stat().st_size for path in (folder(space, "t") / "data").iterdir())
        - counts[4]["bytes_removed"]
    )
    assert space.of("t", "stats")["num_rows"] == 3


def test_eight_writers_lose_nothing(pylance: Pylance, space: Namespace):
    made, crowd = run(pylance, space, "t", ["create", 0, 1], ["crowd", 8, 10])
    assert made == {"version": 1, "rows": 1}
    assert crowd == {"version": 81, "rows": 81, "failures": []}
    assert space.versions("t") == list(range(1, 82))


def test_a_stale_handle_rebases_on_what_others_did(pylance: Pylance, space: Namespace):
    answers = run(
        pylance, space, "t", ["create", 0, 1], ["hold"], ["append", 1, 1], ["held_append", 2, 1], ["ids"]
    )
    assert answers[3] == {"version": 3, "rows": 3}
    assert answers[4] == [0, 1, 2]


@pytest.mark.parametrize("loss", Loss)
def test_a_lost_answer_never_doubles_an_append(pylance: Pylance, space: Namespace, loss: Loss):
    run(pylance, space, "t", ["create", 0, 1])
    appended = run_in_trouble(pylance, space, "t", ["append", 1, 1], loss)
    ids, after, last = run(pylance, space, "t", ["ids"], ["append", 2, 1], ["ids"])
    assert ids in ([0], [0, 1]), "an append is there once or not at all"
    if "error" not in appended:
        assert ids == [0, 1], "who was told of success finds the rows"
    if pylance.version >= 14 and loss is not Loss.REQUEST:
        assert appended == {"version": 2, "rows": 2}, "newer clients find out that they have won"
    assert last == [*ids, 2]
    assert after["version"] == len(ids) + 1
    assert space.versions("t") == list(range(1, len(ids) + 2))


def test_killed_between_decision_and_final_name(pylance: Pylance, tmp_path: Path):
    with running_inver(tmp_path / "home") as server:
        space = Namespace(server)
        run(pylance, space, "t", ["create", 0, 1])
        server.stop()
        server.start({"INVER_CRASH_AT": "lance_decided_before_finalize"})
        run_in_trouble(pylance, space, "t", ["append", 1, 1])
        server.await_end()
        names = {path.name for path in next((tmp_path / "home" / "warehouse").iterdir()).glob("_versions/*")}
        assert f"{2**64 - 3:020}.manifest" not in names
        server.start()
        assert run(pylance, space, "t", ["rows"], ["ids"]) == [{"version": 2, "rows": 2}, [0, 1]]
        space.close()


def test_branches(pylance: Pylance, space: Namespace):
    """Older clients name no branch to a catalog, and make branches by themselves; they are found later."""
    how = "branch" if pylance.version >= 14 else "branch_by_path"
    answers = run(
        pylance, space, "t", ["create", 0, 5], ["append", 5, 5], [how, "dev/x", 1, 100, 3], ["append", 10, 1]
    )
    assert answers[2] == {"version": 2, "rows": 8}
    assert answers[3] == {"version": 3, "rows": 11}
    assert space.versions("t", branch="dev/x") == [1, 2]
    assert space.versions("t") == [1, 2, 3]
    branches = space.post(f"{space.path('t')}/branches/list")["branches"]
    assert branches["dev/x"]["parentVersion"] == 1
    assert space.of("t", "describe", {"branch": "dev/x"})["version"] == 2


@pytest.mark.parametrize("pylance", ["lance"], indirect=True, scope="module")
def test_a_branch_that_its_client_deleted_can_be_made_anew(pylance: Pylance, space: Namespace):
    answers = run(
        pylance,
        space,
        "t",
        ["create", 0, 5],
        ["branch", "dev", 1, 100, 3],
        ["drop_branch", "dev"],
        ["branch", "dev", 1, 200, 4],
    )
    assert answers[1] == {"version": 2, "rows": 8}
    assert answers[3] == {"version": 2, "rows": 9}
    assert space.versions("t", branch="dev") == [1, 2]


def test_what_a_client_cleans_up_leaves_the_list(pylance: Pylance, space: Namespace):
    run(pylance, space, "t", ["create", 0, 1], ["append", 1, 1], ["append", 2, 1], ["tag", "kept", 2])
    assert space.versions("t") == [1, 2, 3]
    assert run(pylance, space, "t", ["cleanup"]) == [{"version": 3, "rows": 3}]
    gone = space.ask("POST", f"{space.path('t')}/version/describe", {"version": 1})
    assert (gone.status_code, gone.json()["code"]) == (404, 11)
    assert space.versions("t") == [2, 3]
    assert run(pylance, space, "t", ["append", 3, 1]) == [{"version": 4, "rows": 4}]


def test_registered_tables_bring_their_versions(pylance: Pylance, space: Namespace, external: Path):
    place = external / f"{space.catalog}-{pylance.version}"
    made = run(pylance, space, "first", ["create", 0, 2], ["append", 2, 2], ["branch_by_path", "b", 1, 9, 1])
    assert [each["rows"] for each in made] == [2, 4, 3]
    folder(space, "first").rename(place)
    space.of("t", "register", {"location": str(place)})
    assert space.versions("t") == [1, 2]
    assert space.versions("t", branch="b") == [1, 2]
    answers = run(pylance, space, "t", ["at", 1], ["append", 4, 1], ["ids"])
    assert answers == [{"version": 1, "rows": 2}, {"version": 3, "rows": 5}, [0, 1, 2, 3, 4]]


def test_a_manifest_past_the_catalog_is_put_aside(pylance: Pylance, space: Namespace):
    run(pylance, space, "t", ["create", 0, 1])
    assert run(pylance, space, "t", ["by_path", 50, 1]) == [{"version": 2, "rows": 2}]
    # What was built on the phantom cannot be a version; who starts from the catalog's state goes on.
    assert "error" in run_in_trouble(pylance, space, "t", ["append", 1, 1])
    assert list((folder(space, "t") / "_quarantine").iterdir())
    assert run(pylance, space, "t", ["append", 2, 1], ["ids"]) == [{"version": 2, "rows": 2}, [0, 2]]


def test_a_manifest_past_the_catalog_is_adopted_where_that_is_the_policy(pylance: Pylance, tmp_path: Path):
    with running_inver(tmp_path / "home") as server:
        server.stop()
        server.start({"INVER_LANCE__ADOPT_PHANTOMS": "true"})
        space = Namespace(server)
        run(pylance, space, "t", ["create", 0, 1], ["by_path", 50, 1])
        answers = run(pylance, space, "t", ["append", 1, 1], ["ids"])
        assert answers == [{"version": 3, "rows": 3}, [0, 1, 50]]
        assert space.versions("t") == [1, 2, 3]
        space.close()


@pytest.mark.s3
def test_tables_on_an_object_store(pylance: Pylance, tmp_path: Path, s3_server: S3Server):
    """The catalog tells where the store is; the keys are the client's own."""
    keys = {"AWS_ACCESS_KEY_ID": s3_server.access_key, "AWS_SECRET_ACCESS_KEY": s3_server.secret_key}
    env = {"INVER_STORAGE__WAREHOUSE": f"s3://{s3_server.create_bucket()}/wh", **s3_server.settings}
    with running_inver(tmp_path / "home", env=env) as server:
        space = Namespace(server)
        steps: list[list[Any]] = [
            ["create", 0, 10],
            ["append", 10, 5],
            ["delete", "id = 3"],
            ["at", 1],
            ["crowd", 4, 3],
        ]
        answers = pylance.client.run("pylance_client.py", asked(space, "t", *steps), env=keys)
        assert [each["rows"] for each in answers] == [10, 15, 14, 10, 26], answers
        assert answers[4]["failures"] == []
        assert space.versions("t") == list(range(1, 16))
        told = space.of("t", "describe")
        assert told["storage_options"]["aws_endpoint"] == s3_server.endpoint
        assert s3_server.secret_key not in str(told)
        space.close()

"""What the README shows is run as it stands, against a real server."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.clients import Client, ClientMissing, client
from tests.fixtures.delta_writers import Writer, new_table
from tests.fixtures.iceberg_clients import make_catalog
from tests.fixtures.jvm import JvmMissing, jars
from tests.fixtures.lines import Failed
from tests.fixtures.server import InverServer, running_inver
from tests.fixtures.spark import CONNECTOR, DELTA, connector, spark_session
from tests.fixtures.unity import Place

README = Path(__file__).parents[2] / "README.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS: list[tuple[str, str]] = BLOCK.findall(README.read_text())

# Delta's own default of 50 tasks per snapshot takes minutes on two cores.
SMALL_TABLES = {"spark.databricks.delta.snapshotPartitions": "2"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InverServer]:
    """A server in `./.inver` of some folder, as the README describes it."""
    with running_inver(tmp_path_factory.mktemp("readme") / ".inver") as started:
        yield started


def run(server: InverServer, command: list[str]) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("INVER_")}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    environment |= {"INVER_URL": server.url, "INVER_TOKEN": server.token}
    done = subprocess.run(
        command, cwd=server.home.parent, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def client_or_skip(name: str) -> Client:
    try:
        return client(name)
    except ClientMissing as missing:
        pytest.skip(str(missing))


def shell(text: str) -> list[str]:
    return ["bash", "-euo", "pipefail", "-c", text]


def block(*words: str) -> str:
    """The one block that contains all these words."""
    [found] = [text for _, text in BLOCKS if all(word in text for word in words)]
    return found


def test_every_block_is_of_a_kind_that_is_run() -> None:
    assert [language for language, _ in BLOCKS] == [
        *("sh", "python", "sh"),
        *("properties", "sh", "sql", "python", "properties", "python"),
        *("sh", "python"),
        "sh",
    ]


def test_the_blocks_in_their_order(server: InverServer) -> None:
    commands, program, request = (text for _, text in BLOCKS[:3])
    assert "inver_pat_" in run(server, shell(commands))
    assert "orders DELTA 0" in run(server, [sys.executable, "-c", program])
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    events = json.loads(run(server, shell(request.replace("curl", "curl -sf", 1))))["events"]
    assert "io.inver.table.committed.v1" in {event["type"] for event in events}


def program(client: Client, text: str, path: Path) -> list[str]:
    path.write_text(text)
    return client.command(path)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InverServer]:
    """A server with the catalog and the schema that the first blocks make."""
    with running_inver(tmp_path_factory.mktemp("lake") / ".inver") as started:
        make_catalog(started, "main")
        made = started.call("POST", "/catalogs/main/schemas", json={"path": ["sales"]})
        assert made.status_code == 201, made.text
        yield started


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_pyiceberg(lake: InverServer, tmp_path: Path) -> None:
    command = program(client_or_skip("pyiceberg"), block("load_catalog"), tmp_path / "block.py")
    assert run(lake, command).split()[-2:] == ["2", "rows"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_pylance(lake: InverServer, tmp_path: Path) -> None:
    command = program(client_or_skip("lance"), block("lance_namespace"), tmp_path / "block.py")
    assert run(lake, command).split()[-2:] == ["2", "rows"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_duckdb(lake: InverServer, tmp_path: Path) -> None:
    """As it stands, but for the address and the token; the extensions are wheels and not installed."""
    run(lake, shell(block("inver table create main.sales.clicks")))
    text = block("TYPE unity_catalog")
    assert "http://127.0.0.1:8181" in text
    text = text.replace("http://127.0.0.1:8181", lake.url).replace("inver_pat_...", lake.token)
    install, load, *statements = text.splitlines()
    assert install == load.replace("LOAD", "INSTALL")
    with client_or_skip("duckdb").session("duckdb_client.py", {}, tmp_path / "stderr") as lines:
        lines.answer()
        answers = [lines.ask({"sql": statement}) for statement in statements]
    assert answers[-1] == [[2]]


def spark_settings(text: str, lake: InverServer, token: str) -> dict[str, str]:
    """As they stand, but for the address and the token."""
    assert "http://127.0.0.1:8181" in text
    for shown, real in (
        ("http://127.0.0.1:8181", lake.url),
        ("inver_pat_...", token),
        ("inver_secret_...", token),
    ):
        text = text.replace(shown, real)
    return dict(line.split(maxsplit=1) for line in text.splitlines())


def as_a_service(lake: InverServer) -> dict[str, str]:
    """What the page on Unity Catalog shows for a service; it may read here, and not write."""
    (_, commands), (_, settings) = BLOCK.findall((README.parent / "docs" / "unity.md").read_text())
    create, secret = commands.splitlines()
    run(lake, shell(create))
    made = json.loads(run(lake, shell(f"{secret} -o json")))
    for privilege, place in (("USE CATALOG", "main"), ("USE SCHEMA", "main.sales"), ("SELECT", "main.sales")):
        run(lake, ["inver", "grant", "add", "etl", privilege, place])
    return spark_settings(settings, lake, made["client_secret"])


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_spark_with_delta(lake: InverServer, tmp_path: Path) -> None:
    settings = spark_settings(block("UCSingleCatalog"), lake, lake.token) | SMALL_TABLES
    assert settings.pop("spark.jars.packages").split(",") == [DELTA[0], CONNECTOR]
    try:
        files = [*connector(), *sorted(jars("delta-spark", DELTA, transitive=False).glob("*.jar"))]
        with spark_session(client_or_skip("spark"), tmp_path / "spark", files, settings) as spark:
            spark.sql("CREATE TABLE main.sales.trips (id BIGINT) USING delta")
            spark.sql("INSERT INTO main.sales.trips VALUES (1)")
            assert spark.values("SELECT * FROM main.sales.trips") == [(1,)]
        del settings["spark.sql.catalog.main.token"]
        settings |= as_a_service(lake)
        with spark_session(client_or_skip("spark"), tmp_path / "etl", files, settings) as etl:
            assert etl.values("SELECT * FROM main.sales.trips") == [(1,)]
            with pytest.raises(Failed, match="PERMISSION_DENIED"):
                etl.sql("CREATE SCHEMA main.others")
    except JvmMissing as missing:
        pytest.skip(str(missing))


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_spark(lake: InverServer, tmp_path: Path) -> None:
    """The jar is looked for where tests do."""
    settings = spark_settings(block("IcebergSparkSessionExtensions"), lake, lake.token)
    packages = settings.pop("spark.jars.packages").split(",")
    try:
        files = sorted(jars("iceberg-spark", packages, transitive=False).glob("*.jar"))
        with spark_session(client_or_skip("spark"), tmp_path / "spark", files, settings) as spark:
            spark.sql("CREATE TABLE inver.sales.travels AS SELECT 1 AS id, 'Oban' AS city")
            assert spark.values("SELECT * FROM inver.sales.travels") == [(1, "Oban")]
    except JvmMissing as missing:
        pytest.skip(str(missing))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_sharing(tmp_path: Path) -> None:
    sharing = client_or_skip("delta_sharing")
    lake = tmp_path / "lake"
    with running_inver(tmp_path / ".inver", arguments=["--external-root", str(lake)]) as started:
        make_catalog(started, "main")
        started.call("POST", "/catalogs/main/schemas", json={"path": ["sales"]}).raise_for_status()
        options = "configuration={'delta.enableChangeDataFeed': 'true'}"
        rows = "rows = pa.table({'id': [1, 2]})"
        write = (
            f"import pyarrow as pa, deltalake as d; {rows}; d.write_deltalake('lake/logs', rows, {options})"
        )
        run(started, program(sharing, write, tmp_path / "write.py"))
        assert "granted partners to acme" in run(started, shell(block("inver share create")))
        read = program(sharing, block("delta_sharing"), tmp_path / "read.py")
        assert run(started, read).split() == ["2", "rows,", "2", "changes"]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_care(tmp_path: Path) -> None:
    with running_inver(tmp_path / ".inver") as started:
        place = Place(started)
        writer = Writer(new_table(place))
        for number in range(200):
            writer.refresh()
            writer.append([number])
        told = run(started, shell(block("inver care status").replace("main.sales.clicks", writer.table.name)))
        assert "compact done" in " ".join(told.split())
        assert writer.rows() == dict.fromkeys(range(200), 0)
        assert len(writer.files) == 1
        place.close()

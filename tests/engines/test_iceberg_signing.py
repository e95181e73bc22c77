"""PyIceberg on S3 without any keys: the catalog signs its requests, those to a staged table too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.conftest import _client
from tests.fixtures.iceberg_clients import PyIceberg, make_catalog, running_pyiceberg
from tests.fixtures.lines import Failed
from tests.fixtures.s3 import S3Server
from tests.fixtures.server import running_inver

pytestmark = [pytest.mark.slow, pytest.mark.s3, pytest.mark.timeout(300)]

SIGNED = {"header.X-Iceberg-Access-Delegation": "remote-signing"}
ROWS = [[1, "a"], [2, "b"]]


@pytest.fixture(scope="module")
def catalog(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    env = {"INVER_STORAGE__WAREHOUSE": f"s3://{s3_server.create_bucket()}/wh", **s3_server.settings}
    with running_inver(tmp_path_factory.mktemp("signing") / "home", env=env) as server:
        yield {**make_catalog(server), "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"}


@pytest.fixture(scope="module")
def ice(catalog: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[PyIceberg]:
    home = tmp_path_factory.mktemp("client")
    with running_pyiceberg(_client("pyiceberg_s3"), home, catalog | SIGNED) as ice:
        ice("create_namespace", ["ns"])
        yield ice


def test_rows_are_written_and_read(ice: PyIceberg) -> None:
    """One file, since PyIceberg's threads take away each other's signer for a moment when they begin."""
    ice("create", ["ns", "t"])
    ice("append", ["ns", "t"], rows=ROWS)
    assert ice("scan", ["ns", "t"]) == ROWS


def test_a_table_and_its_rows_at_once(ice: PyIceberg) -> None:
    ice("create_in_transaction", ["ns", "staged"], rows=ROWS)
    assert ice("scan", ["ns", "staged"]) == ROWS


def test_nothing_is_reached_without_a_signature(
    ice: PyIceberg, catalog: dict[str, str], tmp_path: Path
) -> None:
    ice("create", ["ns", "bare"])
    ice("append", ["ns", "bare"], rows=ROWS)
    with (
        running_pyiceberg(_client("pyiceberg_s3"), tmp_path, catalog | {"s3.anonymous": "true"}) as bare,
        pytest.raises(Failed, match=r"Forbidden|Access Denied"),
    ):
        bare("scan", ["ns", "bare"])

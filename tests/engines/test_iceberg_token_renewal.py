"""Iceberg's Java library renews its token by exchange; a session lives no longer than that works."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.fixtures.iceberg_clients import make_catalog
from tests.fixtures.iceberg_java import java
from tests.fixtures.jvm import QUICK, JvmMissing
from tests.fixtures.server import running_inver

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]


def test_a_java_session_outlives_its_first_token(tmp_path: Path) -> None:
    with running_inver(tmp_path / "home") as server:
        catalog = make_catalog(server)
        for path, body in (
            ("/principals", {"name": "spark", "kind": "service"}),
            (
                "/grants",
                {
                    "principal": "spark",
                    "privileges": ["USE CATALOG"],
                    "securable": {"kind": "catalog", "name": [catalog["warehouse"]]},
                },
            ),
        ):
            assert server.call("POST", path, json=body).is_success
        secret = server.call("POST", "/principals/spark/secrets", json={}).json()["client_secret"]
        arguments = (catalog["uri"], catalog["warehouse"], f"spark:{secret}")
        try:
            command = java("TokenRenewal.java", *arguments, options=QUICK)
        except JvmMissing as missing:
            pytest.skip(str(missing))
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ran.stdout.strip() == "renewed for 3600 SECONDS", f"{ran.stdout}{ran.stderr}"

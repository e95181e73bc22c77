"""Fixtures of the tests that speak to a server from outside."""

from tests.fixtures.cli import cli_server, shell, user
from tests.fixtures.iceberg import lake
from tests.fixtures.unity import place

__all__ = ["cli_server", "lake", "place", "shell", "user"]

"""Fixtures of the tests that speak to a server from outside."""

from tests.fixtures.cli import cli_server, shell, user
from tests.fixtures.iceberg import lake

__all__ = ["cli_server", "lake", "shell", "user"]

"""Fixtures of the tests that speak to a server from outside."""

from tests.fixtures.cli import cli_server, shell

__all__ = ["cli_server", "shell"]

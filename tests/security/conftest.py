"""Fixtures of the tests that attack a server."""

from tests.fixtures.iceberg import lake

__all__ = ["lake"]

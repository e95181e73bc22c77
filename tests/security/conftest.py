"""Fixtures of the tests that attack a server."""

from tests.fixtures.iceberg import lake
from tests.fixtures.unity import place

__all__ = ["lake", "place"]

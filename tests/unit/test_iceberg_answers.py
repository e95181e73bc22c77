"""The tag of an answer covers all that a client is told with the metadata."""

from __future__ import annotations

from typing import Any

import pytest

from inver.protocols.iceberg.answers import SIGNING, Keys, etag

HERE = {"s3.endpoint": "https://here", "client.region": "eu"}


def tag(location: str = "s3://bucket/t", storage: Any = HERE, **more: Any) -> bytes:
    asked = {"delegation": (SIGNING,), "vended": None, "url": "v1/c/namespaces/n/tables/t", **more}
    return etag("id", 1, "all", Keys(location, storage=storage, **asked))


def test_the_same_answer_has_the_same_tag() -> None:
    assert tag() == tag()
    assert tag(signs=True) == tag(signs=True)


@pytest.mark.parametrize(
    "other",
    [
        {"storage": HERE | {"s3.endpoint": "https://there"}},
        {"storage": {"s3.endpoint": "https://here"}},
        {"signs": True},
        {"delegation": ()},
    ],
)
def test_other_settings_of_the_server_make_another_answer(other: dict[str, Any]) -> None:
    assert tag(**other) != tag()


def test_settings_that_are_not_told_do_not_matter() -> None:
    """Folders are reached without them."""
    assert tag("file:///t") == tag("file:///t", {"s3.endpoint": "https://there"})

"""Where a table's files are, as a value that travels to tasks."""

from __future__ import annotations

import pickle

from inver.pipeline.places import Place
from inver.secrets import Secret
from inver.storage.options import StorageOptions


def test_a_place_takes_its_keys_along():
    options = StorageOptions(
        endpoint="https://store.example", access_key="a", secret_key=Secret("s"), session_token=Secret("t")
    )
    place = Place("s3://bucket/table", options)
    arrived = pickle.loads(pickle.dumps(place))  # noqa: S301
    assert arrived == place
    assert arrived.options.secret_key.reveal() == "s"


def test_and_does_not_show_them():
    place = Place("s3://bucket/table", StorageOptions(access_key="a", secret_key=Secret("topsecret")))
    assert "topsecret" not in repr(place)

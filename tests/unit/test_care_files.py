"""Which files in the folder of an Iceberg table can only be its own."""

from __future__ import annotations

import pytest

from inver.pipeline.iceberg.files import own
from inver.ports import ObjectInfo

OWN = ["data/a.parquet", "data/_day=1/b.parquet", "metadata/1.metadata.json", "metadata/snap-1.avro"]


def kept(*paths: str) -> list[str]:
    return [file.path for file in own([ObjectInfo(path, 1, 0) for path in paths])]


def test_the_tables_own():
    assert kept(*OWN) == OWN


@pytest.mark.parametrize(
    "mark", ["_delta_log/00000000000000000000.json", "metadata/1.metadata.json", "_versions/1.manifest"]
)
def test_folders_of_other_tables(mark: str):
    assert kept(*OWN, f"data/other/{mark}", "data/other/x.parquet", "data/other/deep/y.parquet") == OWN
    assert kept("data/other2/x.parquet", f"data/other/{mark}") == ["data/other2/x.parquet"]


def test_what_is_hidden():
    assert kept(*OWN, "data/.a.parquet.crc", "_SUCCESS", "_temporary/0/x.parquet", ".git/config") == OWN

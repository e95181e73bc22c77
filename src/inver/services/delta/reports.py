"""What a client reports of its commits is numbers that can be, or it is refused."""

from __future__ import annotations

from itertools import pairwise

from inver.domain.tables import Table, is_managed_delta
from inver.errors import Invalid
from inver.services.delta.types import CommitReport

MAX_BINS = 1_000
"""Ten times as many as Delta itself draws."""


def check_report(table: Table, report: CommitReport) -> None:
    for name in report.__struct_fields__:
        value = getattr(report, name)
        if isinstance(value, int) and value < 0:
            raise Invalid(f"{name} must not be negative", field=name)
    # Of the tables of others the catalog does not know which versions there are.
    known = is_managed_delta(table)
    if known and report.version is not None and report.version > table.version:
        raise Invalid(f"version {report.version} does not exist", field="commit_version")
    histogram = report.histogram
    if histogram is None:
        return
    boundaries = histogram.boundaries
    if not boundaries or boundaries[0] != 0:
        raise Invalid("the first boundary must be 0", field="file_size_histogram.sorted_bin_boundaries")
    if len(boundaries) > MAX_BINS:
        raise Invalid(
            f"a histogram has at most {MAX_BINS} bins", field="file_size_histogram.sorted_bin_boundaries"
        )
    if any(low >= high for low, high in pairwise(boundaries)):
        raise Invalid("boundaries must rise", field="file_size_histogram.sorted_bin_boundaries")
    for name in ("file_counts", "total_bytes"):
        values = getattr(histogram, name)
        if len(values) != len(boundaries):
            raise Invalid("one value is needed per boundary", field=f"file_size_histogram.{name}")
        if any(value < 0 for value in values):
            raise Invalid("no value may be negative", field=f"file_size_histogram.{name}")

"""Which manifests and files may have rows that a filter wants, by what is known of them.

The answer is no only if it is certain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inver.domain.iceberg.content import ContentFile, FieldSummary
from inver.domain.iceberg.expressions import Expression, Predicate, Term, holds
from inver.domain.iceberg.transforming import function, preserves_order
from inver.domain.iceberg.values import from_binary

MANY = 200
"""Sets larger than this are not compared with bounds: that would take longer than it saves."""
_FLOATS = ("float", "double")


def summaries_match(projection: Expression, summaries: Sequence[FieldSummary] | None) -> bool:
    """Whether a manifest may list files of the partitions that the projection wants."""
    if summaries is None:
        return True
    return holds(projection, lambda predicate: _in_summary(predicate, summaries[predicate.term.field_id]))


def metrics_match(expression: Expression, file: ContentFile) -> bool:
    """Whether a file may have rows that the filter wants."""
    if file.record_count == 0:
        return False
    return holds(expression, lambda predicate: _in_columns(predicate, file))


def _in_summary(predicate: Predicate, summary: FieldSummary) -> bool:
    floats = predicate.term.type in _FLOATS
    all_null = (
        summary.contains_null and summary.lower is None and (not floats or summary.contains_nan is False)
    )
    match predicate.op:
        case "is-null":
            return summary.contains_null
        case "not-null":
            return not all_null
        case "is-nan":
            return summary.contains_nan is not False and not all_null
        case "not-nan":
            return not (summary.contains_nan and not summary.contains_null and summary.lower is None)
    if summary.lower is None or summary.upper is None:
        # Bounds are left out only where there is nothing but null and NaN.
        return not all_null or predicate.op.startswith("not-")
    type_ = predicate.term.type
    single = not summary.contains_null and (not floats or summary.contains_nan is False)
    return _between(predicate, from_binary(type_, summary.lower), from_binary(type_, summary.upper), single)


def _in_columns(predicate: Predicate, file: ContentFile) -> bool:
    metrics, term = file.metrics, predicate.term
    values = (metrics.value_counts or {}).get(term.field_id)
    nulls = (metrics.null_counts or {}).get(term.field_id)
    nans = (metrics.nan_counts or {}).get(term.field_id)
    all_null = values is not None and nulls == values
    match predicate.op:
        case "is-null":
            return nulls != 0 or not _keeps_values(term)
        case "not-null":
            return not all_null
        case "is-nan":
            return not all_null and nans != 0
        case "not-nan":
            return values is None or nans != values
        case "not-eq" | "not-in" | "not-starts-with":
            if all_null:
                return True
        case _:
            if all_null or (values is not None and nans == values):
                return False
    if not _keeps_values(term):
        return True
    single = nulls == 0 and (term.source not in _FLOATS or nans == 0)
    return _between(predicate, _bound(term, metrics.lower), _bound(term, metrics.upper), single)


def _keeps_values(term: Term) -> bool:
    """Whether what comes out of the term is ordered as what goes in, and null only where that is."""
    return term.transform is None or preserves_order(term.transform)


def _bound(term: Term, bounds: Any) -> Any:
    data = None if bounds is None else bounds.get(term.field_id)
    value = None if data is None else from_binary(term.source, data)
    if value is None or value != value:
        # NaN as a bound is what writers leave that could not compare.
        return None
    return value if term.transform is None else function(term.transform, term.source)(value)


def _between(predicate: Predicate, lower: Any, upper: Any, single: bool) -> bool:
    """`single` says that there is neither null nor NaN, so that equal bounds are the only value."""
    op, values = predicate.op, predicate.values
    above = lower is not None and lower == lower
    below = upper is not None and upper == upper
    match op:
        case "in":
            if len(values) > MANY:
                return True
            return any((not above or lower <= each) and (not below or upper >= each) for each in values)
        case "not-in":
            return not (single and above and lower == upper and lower in values)
    literal = values[0]
    match op:
        case "lt":
            return not above or lower < literal
        case "lt-eq":
            return not above or lower <= literal
        case "gt":
            return not below or upper > literal
        case "gt-eq":
            return not below or upper >= literal
        case "eq":
            return (not above or lower <= literal) and (not below or upper >= literal)
        case "not-eq":
            return not (single and above and lower == upper == literal)
        case "starts-with":
            size = len(literal)
            return (not above or lower[:size] <= literal) and (not below or upper[:size] >= literal)
    return not (single and above and below and lower.startswith(literal) and upper.startswith(literal))

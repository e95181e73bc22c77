"""Filters of scans: read from the protocol's JSON, bound to a schema, and written back.

A bound expression has no `not`: it is pushed down to the predicates when the filter is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NoReturn, TypeAlias

import msgspec

from inver.domain.iceberg.failures import IllegalArgument
from inver.domain.iceberg.nodes import shown
from inver.domain.iceberg.schemas import Schema, StructType
from inver.domain.iceberg.transforming import is_known, result_type
from inver.domain.iceberg.transforms import VOID, applies, canonical_transform
from inver.domain.iceberg.values import ABOVE, BELOW, from_json, to_json
from inver.errors import Invalid

MAX_DEPTH = 100
"""How often `and`, `or` and `not` may alternate; chains of one of them have any length."""
FILTER: Final = "filter"

_NEGATED = {
    "is-null": "not-null",
    "is-nan": "not-nan",
    "lt": "gt-eq",
    "gt": "lt-eq",
    "eq": "not-eq",
    "in": "not-in",
    "starts-with": "not-starts-with",
}
_NEGATED |= {negative: positive for positive, negative in _NEGATED.items()}
_TURNED = {"lt": "gt", "gt": "lt", "lt-eq": "gt-eq", "gt-eq": "lt-eq", "eq": "eq", "not-eq": "not-eq"}
_UNARY = frozenset(["is-null", "not-null", "is-nan", "not-nan"])
_SETS = frozenset(["in", "not-in"])
_ALWAYS = {"true": True, "false": False}


class Term(msgspec.Struct, frozen=True):
    """A column, or a transform of it. `type` is that of its values, `source` that of the column."""

    field_id: int
    name: str
    source: str
    type: str
    optional: bool = True
    transform: str | None = None

    def __str__(self) -> str:
        return self.name if self.transform is None else f"{self.transform}({self.name})"


class Always(msgspec.Struct, frozen=True):
    value: bool


class Predicate(msgspec.Struct, frozen=True):
    """`values` is empty for tests of null and NaN, one value for comparisons, any number for sets."""

    op: str
    term: Term
    values: tuple[Any, ...] = ()


class And(msgspec.Struct, frozen=True):
    children: tuple[Expression, ...]


class Or(msgspec.Struct, frozen=True):
    children: tuple[Expression, ...]


Expression: TypeAlias = Always | Predicate | And | Or

TRUE: Final = Always(True)
FALSE: Final = Always(False)


def bind(node: Any, schema: Schema, case_sensitive: bool = True) -> Expression:
    """The filter that decoded JSON stands for. Invalid, with the place, if it is not one for this schema."""
    return _Binder(schema, case_sensitive).expression(node, False, FILTER, 0)


def both(children: Sequence[Expression]) -> Expression:
    return _joined(children, And, FALSE, TRUE)


def either(children: Sequence[Expression]) -> Expression:
    return _joined(children, Or, TRUE, FALSE)


def holds(expression: Expression, leaf: Callable[[Predicate], bool]) -> bool:
    """The truth of an expression, given that of its predicates."""
    match expression:
        case Predicate():
            return leaf(expression)
        case Always():
            return expression.value
        case And():
            return all(holds(child, leaf) for child in expression.children)
    return any(holds(child, leaf) for child in expression.children)


def replaced(expression: Expression, leaf: Callable[[Predicate], Expression]) -> Expression:
    """The expression with others in the place of its predicates."""
    match expression:
        case Predicate():
            return leaf(expression)
        case Always():
            return expression
        case And():
            return both([replaced(child, leaf) for child in expression.children])
    return either([replaced(child, leaf) for child in expression.children])


def written(expression: Expression) -> Any:
    """As the protocol writes it, ready to be encoded."""
    match expression:
        case Always():
            return expression.value
        case And():
            return _nested("and", [written(child) for child in expression.children])
        case Or():
            return _nested("or", [written(child) for child in expression.children])
    term = expression.term
    node: dict[str, Any] = {"type": expression.op, "term": term.name}
    if term.transform is not None:
        node["term"] = {"type": "transform", "transform": term.transform, "term": term.name}
    values = [to_json(term.type, value) for value in expression.values]
    if expression.op in _SETS:
        node["values"] = values
    elif values:
        node["value"] = values[0]
    return node


def find(schema: Schema, name: str, case_sensitive: bool, field: str) -> int:
    """The id of the column with this name."""
    found = schema.ids.get(name)
    if found is None and not case_sensitive:
        lower = name.lower()
        ids = {id_ for known, id_ in schema.ids.items() if known.lower() == lower}
        if len(ids) > 1:
            raise Invalid(f"{field}: several columns are named {name!r} without regard to case", field=field)
        found = ids.pop() if ids else None
    if found is None:
        raise Invalid(f"{field}: the table has no column {name[:200]!r}", field=field)
    return found


class _Binder:
    def __init__(self, schema: Schema, case_sensitive: bool) -> None:
        self._schema = schema
        self._case_sensitive = case_sensitive
        self._terms: dict[tuple[str, str | None], Term] = {}

    def expression(self, node: Any, negated: bool, place: str, depth: int) -> Expression:
        if isinstance(node, bool):
            return Always(node is not negated)
        if depth > MAX_DEPTH:
            _refuse(place, "the filter is nested too deeply")
        if not isinstance(node, dict) or not isinstance(node.get("type"), str):
            _refuse(place, f"{shown(node)} is not an expression")
        kind = node["type"].lower().replace("_", "-")
        match kind:
            case "true" | "false":
                return Always(_ALWAYS[kind] is not negated)
            case "literal":
                return self.expression(node.get("value"), negated, f"{place}.value", depth + 1)
            case "not":
                return self.expression(node.get("child"), not negated, f"{place}.child", depth + 1)
            case "and" | "or":
                parts = [
                    self.expression(child, negated, path, depth + 1)
                    for child, path in _operands(node, kind, place)
                ]
                return both(parts) if (kind == "and") is not negated else either(parts)
        if kind not in _NEGATED:
            _refuse(f"{place}.type", f"{node['type'][:50]!r} is not a known operation")
        return self._predicate(kind, node, negated, place)

    def _predicate(self, op: str, node: dict[str, Any], negated: bool, place: str) -> Expression:
        if op in _UNARY:
            term = self._operand(node, ("child", "term"), place)
            _only(node, ("type", "child", "term"), op, place)
            return _test(_NEGATED[op] if negated else op, term, place)
        if op in _SETS:
            term = self._operand(node, ("child", "term"), place)
            _only(node, ("type", "child", "term", "values"), op, place)
            values = _literals(node.get("values"), f"{place}.values")
            return _set(_NEGATED[op] if negated else op, term, values)
        _only(node, ("type", "term", "value", "left", "right"), op, place)
        side, other = ("left", "right") if "left" in node else ("term", "value")
        if other not in node:
            _refuse(f"{place}.{other}", "is missing")
        if side == "left" and not _is_reference(node["left"]) and op in _TURNED:
            side, other, op = other, side, _TURNED[op]
        term = self._operand(node, (side,), place)
        value = _literal(node[other], f"{place}.{other}")
        return _comparison(_NEGATED[op] if negated else op, term, value, f"{place}.{other}")

    def _operand(self, node: dict[str, Any], names: tuple[str, ...], place: str) -> Term:
        for name in names:
            if name in node:
                return self._term(node[name], f"{place}.{name}")
        _refuse(f"{place}.{names[0]}", "is missing")

    def _term(self, node: Any, place: str, transform: str | None = None) -> Term:
        if isinstance(node, dict):
            match node.get("type"):
                case "reference" if isinstance(node.get("id"), int):
                    name = self._schema.names.get(node["id"])
                    if name is None:
                        _refuse(place, f"the table has no column with the id {node['id']}")
                    return self._term(name, place, transform)
                case "reference":
                    return self._term(node.get("name", node.get("term")), place, transform)
                case "transform" if transform is None and isinstance(node.get("transform"), str):
                    inner = _transform(node["transform"], f"{place}.transform")
                    return self._term(node.get("term"), f"{place}.term", inner)
        if not isinstance(node, str):
            _refuse(place, f"{shown(node)} is neither a column nor a transform of one")
        key = (node, transform)
        if key not in self._terms:
            self._terms[key] = self._found(node, transform, place)
        return self._terms[key]

    def _found(self, name: str, transform: str | None, place: str) -> Term:
        schema = self._schema
        field_id = find(schema, name, self._case_sensitive, place)
        field = schema.fields[field_id]
        optional, parent = not field.required, schema.parents.get(field_id)
        while parent is not None:
            holder = schema.fields[parent]
            if not isinstance(holder.type, StructType):
                _refuse(place, f"{name[:200]!r} is inside of a list or map")
            optional, parent = optional or not holder.required, schema.parents.get(parent)
        source = field.type if isinstance(field.type, str) else "struct"
        if transform in (None, "identity"):
            return Term(field_id, schema.names[field_id], source, source, optional)
        assert transform is not None
        if not isinstance(field.type, str) or not applies(transform, field.type):
            _refuse(place, f"{transform} does not apply to {field.type}")
        return Term(
            field_id, schema.names[field_id], source, result_type(transform, source), optional, transform
        )


def _test(op: str, term: Term, place: str) -> Expression:
    if op in ("is-nan", "not-nan") and term.type not in ("float", "double"):
        _refuse(place, f"{op} cannot be asked of {term}, which is of type {term.type}")
    if op in ("is-null", "not-null") and not term.optional:
        return Always(op == "not-null")
    return Predicate(op, term)


def _comparison(op: str, term: Term, node: Any, place: str) -> Expression:
    if op in ("starts-with", "not-starts-with") and term.type != "string":
        _refuse(place, f"{op} cannot be asked of {term}, which is of type {term.type}")
    value = from_json(term.type, node, place)
    if value is ABOVE or value is BELOW:
        if op == "not-eq":
            return TRUE
        smaller = op in ("lt", "lt-eq")
        return _test("not-null", term, place) if op != "eq" and smaller is (value is ABOVE) else FALSE
    return Predicate(op, term, (value,))


def _set(op: str, term: Term, nodes: list[tuple[Any, str]]) -> Expression:
    values = dict.fromkeys(from_json(term.type, node, place) for node, place in nodes)
    reachable = tuple(value for value in values if value is not ABOVE and value is not BELOW)
    if not reachable:
        return Always(op == "not-in")
    if len(reachable) == 1:
        return Predicate("eq" if op == "in" else "not-eq", term, reachable)
    return Predicate(op, term, reachable)


def _operands(node: dict[str, Any], kind: str, place: str) -> Iterator[tuple[Any, str]]:
    """Both sides; where one of them is of the same kind, its sides, and so on."""
    waiting: list[tuple[Any, str]] = [(node, place)]
    while waiting:
        each, path = waiting.pop()
        if isinstance(each, dict) and str(each.get("type")).lower() == kind:
            for side in ("right", "left"):
                if side not in each:
                    _refuse(f"{path}.{side}", "is missing")
                waiting.append((each[side], path if len(path) > 200 else f"{path}.{side}"))
        else:
            yield each, path


def _literal(node: Any, place: str) -> Any:
    if not isinstance(node, dict):
        return node
    if node.get("type") != "literal" or "value" not in node:
        _refuse(place, f"{shown(node)} is not a literal")
    return node["value"]


def _literals(node: Any, place: str) -> list[tuple[Any, str]]:
    if isinstance(node, dict) and node.get("type") == "literals":
        node = node.get("values")
    if not isinstance(node, list):
        _refuse(place, "must be an array of literals")
    return [(_literal(each, f"{place}[{at}]"), f"{place}[{at}]") for at, each in enumerate(node)]


def _is_reference(node: Any) -> bool:
    return isinstance(node, dict) and node.get("type") in ("reference", "transform")


def _only(node: dict[str, Any], names: tuple[str, ...], op: str, place: str) -> None:
    for name in node:
        if name not in names:
            _refuse(f"{place}.{name[:50]}", f"is not a part of {op}")


def _transform(name: str, place: str) -> str:
    try:
        transform = canonical_transform(name)
    except IllegalArgument as error:
        _refuse(place, error.message)
    if not is_known(transform) or transform == VOID:
        _refuse(place, f"{name[:50]!r} is not a known transform")
    return transform


def _joined(
    children: Sequence[Expression], kind: type[And] | type[Or], decides: Always, neutral: Always
) -> Expression:
    parts: dict[Expression, None] = {}
    for child in children:
        if child == decides:
            return decides
        if isinstance(child, kind):
            parts.update(dict.fromkeys(child.children))
        elif child != neutral:
            parts[child] = None
    if len(parts) < 2:
        return next(iter(parts), neutral)
    return kind(tuple(parts))


def _nested(kind: str, nodes: list[Any]) -> Any:
    """In halves, so that many of them make no deep tree."""
    if len(nodes) == 1:
        return nodes[0]
    half = len(nodes) // 2
    return {"type": kind, "left": _nested(kind, nodes[:half]), "right": _nested(kind, nodes[half:])}


def _refuse(place: str, problem: str) -> NoReturn:
    raise Invalid(f"{place}: {problem}", field=place)

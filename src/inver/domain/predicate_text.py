"""Predicates as recipients write them: a tree in JSON, or a little SQL."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from inver.domain.delta_actions import Metadata
from inver.domain.predicates import Both, ColumnRef, Compare, Either, Filter, IsNull, Literal, Not, Predicate
from inver.errors import Invalid

MAX_BYTES = 1 << 20
MAX_DEPTH = 100

_JSON_OPS = {
    "equal": "=",
    "lessThan": "<",
    "lessThanOrEqual": "<=",
    "greaterThan": ">",
    "greaterThanOrEqual": ">=",
}
_JSON_TYPES = {
    "bool": "boolean",
    "int": "integer",
    "long": "long",
    "string": "string",
    "date": "date",
    "float": "float",
    "double": "double",
    "timestamp": "timestamp",
}


def hint(json_hint: str | None, sql_hints: Sequence[str], metadata: Metadata) -> Filter | None:
    """What a query's hints leave in. One that cannot be understood leaves everything in."""
    found: list[Predicate] = []
    for parse, texts in ((parse_json, [json_hint] if json_hint else []), (parse_sql, sql_hints)):
        for text in texts:
            try:
                found.append(parse(text))
            except Invalid:
                continue
    return Filter(Both(tuple(found)), metadata) if found else None


def partition_filter(text: str, metadata: Metadata) -> Filter:
    """A filter that decides what somebody may see: all of it must be understood, and be decided by
    partition values alone."""
    made = Filter(parse_sql(text), metadata)
    if made.unknown_columns:
        raise Invalid(f"the table has no column {made.unknown_columns[0]!a}", field="partition_filter")
    if not made.partitions_only:
        raise Invalid("a partition filter may name partition columns only", field="partition_filter")
    return made


def parse_json(text: str) -> Predicate:
    if len(text) > MAX_BYTES:
        raise _wrong("it is too large")
    try:
        return _node(msgspec.json.decode(text), 0)
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise _wrong(str(error)) from None


def _node(node: dict[str, Any], depth: int) -> Predicate:
    if depth > MAX_DEPTH:
        raise _wrong("it is too deep")
    op = node["op"]
    if op == "column":
        return ColumnRef(str(node["name"]))
    if op == "literal":
        value = node.get("value")
        kind = _JSON_TYPES[node["valueType"]]
        # Spark's connector writes no more of a timestamp than its milliseconds.
        return Literal(None if value is None else str(value), kind, cut=kind == "timestamp")
    children = tuple(_node(child, depth + 1) for child in node["children"])
    if op in ("and", "or") and len(children) > 1:
        return Both(children) if op == "and" else Either(children)
    if op == "not":
        (child,) = children
        return Not(child)
    if op == "isNull":
        (child,) = children
        return IsNull(child)
    left, right = children
    return Compare(_JSON_OPS[op], left, right)


_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^'\\]|\\.|'')*')|(?P<quoted>`(?:[^`]|``)+`)"
    r"|(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<op><=>|<=|>=|<>|!=|==|=|<|>|\(|\)|,)|(?P<word>[A-Za-z_][A-Za-z_0-9]*))"
)
_SQL_OPS = {"=": "=", "==": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_TYPES = {"int": "integer", "bigint": "long", "tinyint": "byte", "smallint": "short"}
_KEYWORDS = frozenset(
    {"and", "or", "not", "is", "null", "in", "between", "true", "false", "cast", "as", "date", "timestamp"}
)


def parse_sql(text: str) -> Predicate:
    """Comparisons of columns with literals, IS NULL, IN and BETWEEN, joined by AND, OR and NOT."""
    if len(text) > MAX_BYTES:
        raise _wrong("it is too large")
    parser = _Sql(_tokens(text))
    found = parser.either(0)
    parser.end()
    return found


def _tokens(text: str) -> list[tuple[str, str]]:
    found = []
    text = text.rstrip()
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _wrong(f"{text[at : at + 20]!a} is not understood")
        kind = match.lastgroup or ""
        word = match[kind]
        is_keyword = kind == "word" and word.lower() in _KEYWORDS
        found.append(("keyword", word.lower()) if is_keyword else (kind, word))
        at = match.end()
    return found


class _Sql:
    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._at = 0

    def either(self, depth: int) -> Predicate:
        if depth > MAX_DEPTH:
            raise _wrong("it is too deep")
        parts = [self._both(depth)]
        while self._take("keyword", "or"):
            parts.append(self._both(depth))
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def end(self) -> None:
        if self._at < len(self._tokens):
            raise _wrong(f"{self._tokens[self._at][1]!a} is not understood")

    def _both(self, depth: int) -> Predicate:
        parts = [self._negated(depth)]
        while self._take("keyword", "and"):
            parts.append(self._negated(depth))
        return parts[0] if len(parts) == 1 else Both(tuple(parts))

    def _negated(self, depth: int) -> Predicate:
        if depth > MAX_DEPTH:
            raise _wrong("it is too deep")
        if self._take("keyword", "not"):
            return Not(self._negated(depth + 1))
        if self._take("op", "("):
            inner = self.either(depth + 1)
            self._need("op", ")")
            return inner
        return self._comparison()

    def _comparison(self) -> Predicate:
        left = self._operand()
        kind, word = self._peek()
        if kind == "op" and word in _SQL_OPS:
            self._at += 1
            return Compare(_SQL_OPS[word], left, self._operand())
        if self._take("keyword", "is"):
            negated = self._take("keyword", "not")
            self._need("keyword", "null")
            return Not(IsNull(left)) if negated else IsNull(left)
        negated = self._take("keyword", "not")
        if self._take("keyword", "in"):
            self._need("op", "(")
            values = [self._operand()]
            while self._take("op", ","):
                values.append(self._operand())
            self._need("op", ")")
            found: Predicate = Either(tuple(Compare("=", left, value) for value in values))
        elif self._take("keyword", "between"):
            low = self._operand()
            self._need("keyword", "and")
            found = Both((Compare(">=", left, low), Compare("<=", left, self._operand())))
        elif negated:
            raise _wrong("NOT is not followed by IN or BETWEEN")
        else:
            return left
        return Not(found) if negated else found

    def _operand(self) -> Predicate:
        kind, word = self._peek()
        self._at += 1
        if kind == "text":
            return Literal(_unquoted(word))
        if kind == "number":
            return Literal(word, "double" if set(word) & set(".eE") else "long")
        if kind == "quoted":
            return ColumnRef(word[1:-1].replace("``", "`"))
        if kind == "word":
            return ColumnRef(word)
        if word in ("true", "false"):
            return Literal(word, "boolean")
        if word == "null":
            return Literal(None)
        if word == "cast":
            return self._cast()
        if word in ("date", "timestamp"):
            next_kind, text = self._peek()
            if next_kind != "text":
                return ColumnRef(word)
            self._at += 1
            return Literal(_unquoted(text), word)
        raise _wrong(f"{word!a} is not understood")

    def _cast(self) -> Predicate:
        self._need("op", "(")
        inner = self._operand()
        self._need("keyword", "as")
        _, kind = self._peek()
        self._at += 1
        self._need("op", ")")
        if not isinstance(inner, Literal):
            raise _wrong("only a literal can be cast")
        return Literal(inner.text, _TYPES.get(kind.lower(), kind.lower()))

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "its end")

    def _take(self, kind: str, word: str) -> bool:
        taken = self._peek() == (kind, word)
        self._at += taken
        return taken

    def _need(self, kind: str, word: str) -> None:
        if not self._take(kind, word):
            raise _wrong(f"{word!a} is missing before {self._peek()[1]!a}")


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)|''", lambda found: found[1] or "'", text[1:-1], flags=re.DOTALL)


def _wrong(problem: str) -> Invalid:
    return Invalid(f"the predicate is not understood: {problem}", field="predicate")

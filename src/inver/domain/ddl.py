"""Spark's DDL text of a data type or of columns, read into the form of schema JSON."""

from __future__ import annotations

import re
from typing import Any

from inver.domain.datatypes import MAX_DEPTH, DataType, read_fields, read_type
from inver.errors import Invalid

MAX_TEXT = 100_000

_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)+`|'(?:[^']|'')*')|([^\W\d]\w*|[0-9]+)|([<>(),:]))", re.UNICODE)
_SYNONYMS = {
    "bool": "boolean",
    "tinyint": "byte",
    "smallint": "short",
    "int": "integer",
    "bigint": "long",
    "real": "float",
    "timestamp_ltz": "timestamp",
    "null": "void",
    "dec": "decimal",
    "numeric": "decimal",
    "character": "char",
}
_WITH_NUMBERS = frozenset({"decimal", "char", "varchar"})


def parse_ddl(text: str, path: str) -> DataType:
    """`array<struct<a:int,b:decimal(10,2)>>` and the like."""
    if len(text) > MAX_TEXT:
        raise Invalid(f"{path} is longer than {MAX_TEXT} characters", field=path)
    parser = _Parser(text, path, "a type of Spark's DDL")
    found = parser.type(0)
    parser.end()
    return read_type(found, path)


def parse_columns(text: str, path: str) -> list[dict[str, Any]]:
    """The fields of `id bigint not null comment 'the key', city string` and the like."""
    if len(text) > MAX_TEXT:
        raise Invalid(f"{path} is longer than {MAX_TEXT} characters", field=path)
    parser = _Parser(text, path, "a list of columns as in CREATE TABLE")
    fields = parser.columns()
    parser.end()
    return read_fields({"fields": fields}, path)


class _Parser:
    def __init__(self, text: str, path: str, wanted: str) -> None:
        self._text = text
        self._path = path
        self._wanted = wanted
        self._tokens: list[str] = []
        at = 0
        stop = len(text.rstrip())
        while at < stop:
            match = _TOKEN.match(text, at)
            if match is None:
                raise self._refusal()
            self._tokens.append(match[1] or match[2] or match[3])
            at = match.end()
        self._at = 0

    def type(self, depth: int) -> DataType:
        if depth > MAX_DEPTH:
            raise Invalid(f"{self._path} is nested deeper than {MAX_DEPTH} levels", field=self._path)
        word = self._word().lower()
        if word == "array":
            self._expect("<")
            element = self.type(depth + 1)
            self._expect(">")
            return {"type": "array", "elementType": element, "containsNull": True}
        if word == "map":
            self._expect("<")
            key = self.type(depth + 1)
            self._expect(",")
            value = self.type(depth + 1)
            self._expect(">")
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
        if word == "struct":
            return {"type": "struct", "fields": self._fields(depth)}
        if word == "interval":
            return self._interval()
        name = _SYNONYMS.get(word, word)
        return name + self._numbers(name) if name in _WITH_NUMBERS else name

    def columns(self) -> list[dict[str, Any]]:
        fields = [self._column(0)]
        while self._peek() == ",":
            self._expect(",")
            fields.append(self._column(0))
        return fields

    def end(self) -> None:
        if self._at < len(self._tokens):
            raise self._refusal()

    def _fields(self, depth: int) -> list[dict[str, Any]]:
        self._expect("<")
        fields: list[dict[str, Any]] = []
        while self._peek() != ">":
            if fields:
                self._expect(",")
            fields.append(self._column(depth + 1))
        self._expect(">")
        return fields

    def _column(self, depth: int) -> dict[str, Any]:
        name = self._word()
        if self._peek() == ":":
            self._expect(":")
        kind = self.type(depth)
        nullable, metadata = True, {}
        if self._peek().lower() == "not":
            self._word()
            if self._word().lower() != "null":
                raise self._refusal()
            nullable = False
        if self._peek().lower() == "comment":
            self._word()
            metadata["comment"] = self._text_token()
        return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}

    def _interval(self) -> str:
        words = ["interval"]
        while self._peek() and (self._peek()[0].isalpha() and self._peek().lower() not in ("not", "comment")):
            words.append(self._word().lower())
        return " ".join(words)

    def _numbers(self, name: str) -> str:
        if self._peek() != "(":
            return ""
        self._expect("(")
        numbers = [self._word()]
        while self._peek() == ",":
            self._expect(",")
            numbers.append(self._word())
        self._expect(")")
        if name == "decimal" and len(numbers) == 1:
            numbers.append("0")
        return f"({','.join(numbers)})"

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _word(self) -> str:
        token = self._peek()
        if not token or token in "<>(),:" or token[0] == "'":
            raise self._refusal()
        self._at += 1
        return token[1:-1].replace("``", "`") if token[0] == "`" else token

    def _text_token(self) -> str:
        token = self._peek()
        if not token.startswith("'"):
            raise self._refusal()
        self._at += 1
        return token[1:-1].replace("''", "'")

    def _expect(self, token: str) -> None:
        if self._peek() != token:
            raise self._refusal()
        self._at += 1

    def _refusal(self) -> Invalid:
        return Invalid(f"{self._path}: {self._text[:100]!r} is not {self._wanted}", field=self._path)

"""Queries for words, in pylance's own.

Like the operations that use it, this module is imported only where pylance is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module as library
from typing import Any

from inver.errors import Invalid


def text_query(asked: Mapping[str, Any], defaults: Callable[[], Sequence[str]]) -> Any:
    """One text, or a tree of matches; `defaults` are the columns where it names none."""
    words = library("lance.query")
    if "text" in asked:
        columns = asked.get("columns")
        if not columns:
            return asked["text"]
        if len(columns) == 1:
            return words.MatchQuery(asked["text"], columns[0])
        return words.MultiMatchQuery(asked["text"], list(columns))
    return Tree(words, defaults).read(asked["tree"])


class Tree:
    """Of nodes that were checked at the edge: one kind in each, and every value of its type."""

    def __init__(self, words: Any, defaults: Callable[[], Sequence[str]]) -> None:
        self._words = words
        self._defaults = defaults

    def read(self, node: Mapping[str, Any]) -> Any:
        words = self._words
        [(kind, given)] = node.items()
        if kind == "match":
            return self._in_columns(given, self._match)
        if kind == "phrase":
            return self._in_columns(given, self._phrase)
        if kind == "boost":
            positive, negative = self.read(given["positive"]), self.read(given["negative"])
            return words.BoostQuery(positive, negative, negative_boost=given["negative_boost"])
        if kind == "multi_match":
            return self._any([self._in_columns(each, self._match) for each in given["match_queries"]])
        occurs = {"must": words.Occur.MUST, "should": words.Occur.SHOULD, "must_not": words.Occur.MUST_NOT}
        return words.BooleanQuery(
            [(occur, self.read(each)) for name, occur in occurs.items() for each in given[name]]
        )

    def _in_columns(self, given: Mapping[str, Any], make: Callable[[Mapping[str, Any], str], Any]) -> Any:
        columns = self._defaults() if given["column"] is None else [given["column"]]
        if not columns:
            raise Invalid("no column has an index for words", field="full_text_query")
        return self._any([make(given, column) for column in columns])

    def _any(self, queries: Sequence[Any]) -> Any:
        if len(queries) == 1:
            return queries[0]
        return self._words.BooleanQuery([(self._words.Occur.SHOULD, each) for each in queries])

    def _match(self, given: Mapping[str, Any], column: str) -> Any:
        return self._words.MatchQuery(
            given["terms"],
            column,
            boost=given["boost"],
            fuzziness=given["fuzziness"],
            max_expansions=given["max_expansions"],
            operator=self._words.FullTextOperator[given["operator"]],
            prefix_length=given["prefix_length"],
        )

    def _phrase(self, given: Mapping[str, Any], column: str) -> Any:
        return self._words.PhraseQuery(given["terms"], column, slop=given["slop"])

"""Queries for words, in the words of the specification. A node of such a tree is of exactly one kind."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from inver.errors import Invalid

Text = Annotated[str, Meta(min_length=1)]
Small = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class Match(msgspec.Struct, frozen=True, kw_only=True):
    terms: str
    column: Text | None = None
    boost: float | None = None
    fuzziness: Small | None = None
    max_expansions: Small | None = None
    operator: str | None = None
    prefix_length: Small | None = None

    def plain(self) -> dict[str, Any]:
        operator = (self.operator or "or").upper()
        if operator not in ("AND", "OR"):
            raise Invalid("operator is And or Or", field="full_text_query.operator")
        return {
            "terms": self.terms,
            "column": self.column,
            "boost": 1.0 if self.boost is None else self.boost,
            "fuzziness": self.fuzziness or 0,
            "max_expansions": 50 if self.max_expansions is None else self.max_expansions,
            "operator": operator,
            "prefix_length": self.prefix_length or 0,
        }


class Phrase(msgspec.Struct, frozen=True, kw_only=True):
    terms: str
    column: Text | None = None
    slop: Small | None = None

    def plain(self) -> dict[str, Any]:
        return {"terms": self.terms, "column": self.column, "slop": self.slop or 0}


class MultiMatch(msgspec.Struct, frozen=True, kw_only=True):
    """Matches one by one, or as LanceDB's own client has it: one text, and the columns to look for it in."""

    match_queries: Annotated[list[Match], Meta(min_length=1)] | None = None
    query: str | None = None
    columns: Annotated[list[Text], Meta(min_length=1)] | None = None
    boost: list[float] | None = None

    def plain(self) -> dict[str, Any]:
        matches = self.match_queries
        if matches is None:
            if self.query is None or self.columns is None:
                raise Invalid("multi_match needs match_queries", field="full_text_query.multi_match")
            boosts = [1.0] * len(self.columns) if self.boost is None else self.boost
            if len(boosts) != len(self.columns):
                raise Invalid("multi_match has a boost for each column", field="full_text_query.multi_match")
            matches = [
                Match(terms=self.query, column=column, boost=boost)
                for column, boost in zip(self.columns, boosts, strict=True)
            ]
        return {"match_queries": [each.plain() for each in matches]}


class Boost(msgspec.Struct, frozen=True, kw_only=True):
    positive: Node
    negative: Node
    negative_boost: float | None = None

    def plain(self) -> dict[str, Any]:
        weight = 0.5 if self.negative_boost is None else self.negative_boost
        return {
            "positive": self.positive.plain(),
            "negative": self.negative.plain(),
            "negative_boost": weight,
        }


class Boolean(msgspec.Struct, frozen=True, kw_only=True):
    must: list[Node] | None = None
    should: list[Node] | None = None
    must_not: list[Node] | None = None

    def plain(self) -> dict[str, Any]:
        parts = {"must": self.must, "should": self.should, "must_not": self.must_not}
        return {name: [each.plain() for each in given or ()] for name, given in parts.items()}


class Node(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    match: Match | None = None
    phrase: Phrase | None = None
    boost: Boost | None = None
    multi_match: MultiMatch | None = None
    boolean: Boolean | None = None

    def plain(self) -> dict[str, Any]:
        """The one kind by its name, with nothing left out."""
        kinds = {name: getattr(self, name) for name in self.__struct_fields__}
        given = {name: value for name, value in kinds.items() if value is not None}
        if len(given) != 1:
            raise Invalid(f"a structured query is exactly one of {', '.join(kinds)}", field="full_text_query")
        return {name: value.plain() for name, value in given.items()}


def structured(query: dict[str, Any]) -> dict[str, Any]:
    try:
        return msgspec.convert(query, Node).plain()
    except msgspec.ValidationError as error:
        raise Invalid(f"full_text_query: {error}", field="full_text_query") from None
    except RecursionError:
        raise Invalid("full_text_query is nested too deeply", field="full_text_query") from None

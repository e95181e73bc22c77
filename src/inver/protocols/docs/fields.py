"""The fields of a JSON schema as rows of a table, with the fields of nested types below their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

Json = dict[str, Any]


class Row(msgspec.Struct, frozen=True):
    """`variant` rows have no field of their own: they say which of several types the rows below describe."""

    name: str
    depth: int
    kind: str = ""
    required: bool = False
    about: str = ""
    variant: bool = False


class Schemas:
    """Schemas of one document, whose references lead into the document itself."""

    def __init__(self, document: Json) -> None:
        self._document = document

    def resolve(self, schema: Json) -> Json:
        """What a reference stands for, with what is written beside the reference kept."""
        while "$ref" in schema:
            found: Any = self._document
            for key in schema["$ref"].removeprefix("#/").split("/"):
                found = found[key]
            schema = {**found, **{key: value for key, value in schema.items() if key != "$ref"}}
        return schema

    def rows(self, schema: Json, depth: int = 0, within: tuple[str, ...] = ()) -> Iterator[Row]:
        schema = self.resolve(schema)
        title = schema.get("title", "")
        if title in within:
            return
        required = schema.get("required", ())
        for name, field in schema.get("properties", {}).items():
            about = " ".join(filter(None, (field.get("description", ""), limits(field))))
            yield Row(name, depth, self.kind(field), name in required, about)
            yield from self._nested(field, depth + 1, (*within, title))

    def kind(self, schema: Json) -> str:
        """The type in words, as short as it stays clear."""
        if "$ref" in schema:
            target = self.resolve(schema)
            return self.kind(target) if "enum" in target else str(target.get("title", "object"))
        if "enum" in schema:
            return " | ".join(f"`{value}`" for value in schema["enum"])
        if "anyOf" in schema:
            kinds = dict.fromkeys(self.kind(option) for option in schema["anyOf"])
            return " or ".join(kinds) if len(kinds) < 4 else "one of the types below"
        match schema.get("type"):
            case "array":
                return f"array of {self.kind(schema.get('items', {}))}"
            case "object" if isinstance(schema.get("additionalProperties"), dict):
                return f"object of {self.kind(schema['additionalProperties'])}"
            case None:
                return "any JSON"
            case kind:
                shown = schema.get("format")
                return f"{kind} ({shown})" if shown else str(kind)

    def _nested(self, field: Json, depth: int, within: tuple[str, ...]) -> Iterator[Row]:
        """The rows of the objects that a field holds, directly or in a list."""
        field = self.resolve(field)
        if field.get("type") == "array":
            field = self.resolve(field.get("items", {}))
        options = [self.resolve(option) for option in field.get("anyOf", ())]
        objects = [option for option in options if "properties" in option]
        if len(objects) > 1:
            for option in objects:
                yield Row(option.get("title", ""), depth, about=option.get("description", ""), variant=True)
                yield from self.rows(option, depth + 1, within)
        else:
            yield from self.rows(objects[0] if objects else field, depth, within)


def limits(schema: Json) -> str:
    """Bounds and default in words."""
    parts = []
    for option in (schema, *schema.get("anyOf", ())):
        for least, most, unit in (
            ("minimum", "maximum", ""),
            ("minLength", "maxLength", " characters"),
            ("minItems", "maxItems", " items"),
            ("minProperties", "maxProperties", " entries"),
        ):
            parts.append(_between(option.get(least), option.get(most), unit))
    default = schema.get("default")
    if default not in (None, "", [], {}):
        parts.append(f"`{default}` by default.")
    return " ".join(filter(None, parts))


def _between(least: int | None, most: int | None, unit: str) -> str:
    # The largest number of a 64-bit field says nothing to a reader.
    if most is not None and most >= 2**63 - 1:
        most = None
    if least is not None and most is not None:
        return f"{least} to {most}{unit}." if least != most else f"{least}{unit}."
    if most is not None:
        return f"At most {most}{unit}."
    return f"At least {least}{unit}." if least else ""

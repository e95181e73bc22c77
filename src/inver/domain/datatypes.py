"""Data types of Delta columns, in the three spellings in which clients send and expect them.

A type is a name (`long`, `decimal(10,2)`) or an object of Delta's schema JSON:

    schema JSON, and `type_json`    {"type": "array", "elementType": "long", "containsNull": true}
    the `columns` of delta/v1       {"type": "array", "element-type": "long", "contains-null": true}
    `type_text`                     array<bigint>

Inside, types have the first form. Reading takes the first two alike.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias

from inver.errors import Invalid

DataType: TypeAlias = "str | dict[str, Any]"

MAX_DEPTH = 64
MAX_NAME = 255

# Name in schema JSON: name in Unity's enumeration, text in Spark's DDL.
_SIMPLE = {
    "boolean": ("BOOLEAN", "boolean"),
    "byte": ("BYTE", "tinyint"),
    "short": ("SHORT", "smallint"),
    "integer": ("INT", "int"),
    "long": ("LONG", "bigint"),
    "float": ("FLOAT", "float"),
    "double": ("DOUBLE", "double"),
    "date": ("DATE", "date"),
    "timestamp": ("TIMESTAMP", "timestamp"),
    "timestamp_ntz": ("TIMESTAMP_NTZ", "timestamp_ntz"),
    "string": ("STRING", "string"),
    "binary": ("BINARY", "binary"),
    "variant": ("VARIANT", "variant"),
    "void": ("NULL", "void"),
    "interval": ("INTERVAL", "interval"),
}
_COMPLEX = {"array": "ARRAY", "map": "MAP", "struct": "STRUCT"}
TYPE_NAMES = frozenset(
    {name for name, _ in _SIMPLE.values()}
    | set(_COMPLEX.values())
    | {"DECIMAL", "CHAR", "USER_DEFINED_TYPE", "TABLE_TYPE"}
)
BY_TYPE_NAME = {name: simple for simple, (name, _) in _SIMPLE.items()}

_DECIMAL = re.compile(r"decimal\(\s*([0-9]{1,3})\s*,\s*(-?[0-9]{1,3})\s*\)")
_CHARACTERS = re.compile(r"(?:var)?char\(\s*[0-9]{1,9}\s*\)")
_UNIT = "(?:year|month|day|hour|minute|second)"
_INTERVAL = re.compile(f"interval {_UNIT}(?: to {_UNIT})?")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def read_type(given: Any, path: str, *, complete: bool = False, depth: int = 0) -> DataType:
    """The type in its inner form, or Invalid with the path to what is wrong.

    `complete` asks for every key that the schema of delta/v1 calls required; otherwise what is
    left out, or null, may be null and has no metadata.
    """
    if depth > MAX_DEPTH:
        raise Invalid(f"{path} is nested deeper than {MAX_DEPTH} levels", field=path)
    if isinstance(given, str):
        return _read_name(given, path)
    if not isinstance(given, dict):
        raise Invalid(f"{path} must be the name of a type or an object", field=path)
    kind = given.get("type")
    if kind == "array":
        return {
            "type": "array",
            "elementType": read_type(
                _part(given, "elementType", "element-type", path),
                f"{path}.element-type",
                complete=complete,
                depth=depth + 1,
            ),
            "containsNull": _flag(given, "containsNull", "contains-null", path, complete),
        }
    if kind == "map":
        key = _part(given, "keyType", "key-type", path)
        value = _part(given, "valueType", "value-type", path)
        return {
            "type": "map",
            "keyType": read_type(key, f"{path}.key-type", complete=complete, depth=depth + 1),
            "valueType": read_type(value, f"{path}.value-type", complete=complete, depth=depth + 1),
            "valueContainsNull": _flag(given, "valueContainsNull", "value-contains-null", path, complete),
        }
    if kind == "struct":
        return {"type": "struct", "fields": read_fields(given, path, complete=complete, depth=depth)}
    raise Invalid(f"{path}: {kind!r} is not array, map or struct", field=path)


def read_fields(struct: Any, path: str, *, complete: bool = False, depth: int = 0) -> list[dict[str, Any]]:
    """The fields of a struct; their names are unique whatever their case."""
    fields = struct.get("fields") if isinstance(struct, dict) else None
    if not isinstance(fields, list):
        raise Invalid(f"{path}.fields must be a list", field=f"{path}.fields")
    found = []
    names: set[str] = set()
    for index, given in enumerate(fields):
        place = f"{path}.fields[{index}]"
        field = read_field(given, place, complete=complete, depth=depth + 1)
        if field["name"].lower() in names:
            raise Invalid(
                f"{place}.name: {field['name']!r} is there twice, letter case aside", field=f"{place}.name"
            )
        names.add(field["name"].lower())
        found.append(field)
    return found


def read_field(given: Any, path: str, *, complete: bool = False, depth: int = 0) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise Invalid(f"{path} must be an object", field=path)
    name = check_column_name(given.get("name"), f"{path}.name")
    if "type" not in given:
        raise Invalid(f"{path}.type is required", field=f"{path}.type")
    metadata = given.get("metadata")
    if metadata is None and not complete:
        metadata = {}
    if not isinstance(metadata, dict):
        raise Invalid(f"{path}.metadata must be an object", field=f"{path}.metadata")
    return {
        "name": name,
        "type": read_type(given["type"], f"{path}.type", complete=complete, depth=depth),
        "nullable": _flag(given, "nullable", "nullable", path, complete),
        "metadata": metadata,
    }


def check_column_name(name: Any, path: str) -> str:
    if not isinstance(name, str) or not name:
        raise Invalid(f"{path} is required", field=path)
    if len(name) > MAX_NAME:
        raise Invalid(f"{path} is longer than {MAX_NAME} characters", field=path)
    if "\x00" in name:
        raise Invalid(f"{path} contains NUL", field=path)
    return name


def kebab(given: DataType) -> DataType:
    """As delta/v1 spells it."""
    if isinstance(given, str):
        return given
    if given["type"] == "array":
        return {
            "type": "array",
            "element-type": kebab(given["elementType"]),
            "contains-null": given["containsNull"],
        }
    if given["type"] == "map":
        return {
            "type": "map",
            "key-type": kebab(given["keyType"]),
            "value-type": kebab(given["valueType"]),
            "value-contains-null": given["valueContainsNull"],
        }
    return {
        "type": "struct",
        "fields": [{**field, "type": kebab(field["type"])} for field in given["fields"]],
    }


def ddl(given: DataType) -> str:
    """As Spark's parser reads it back; names that it would not take bare are quoted."""
    if isinstance(given, str):
        return _SIMPLE[given][1] if given in _SIMPLE else given
    if given["type"] == "array":
        return f"array<{ddl(given['elementType'])}>"
    if given["type"] == "map":
        return f"map<{ddl(given['keyType'])},{ddl(given['valueType'])}>"
    fields = ",".join(f"{_quoted(field['name'])}:{ddl(field['type'])}" for field in given["fields"])
    return f"struct<{fields}>"


def type_name(given: DataType) -> str:
    if isinstance(given, dict):
        return _COMPLEX[given["type"]]
    if given in _SIMPLE:
        return _SIMPLE[given][0]
    if given.startswith("decimal"):
        return "DECIMAL"
    if given.startswith("char"):
        return "CHAR"
    return "STRING" if given.startswith("varchar") else "INTERVAL"


def precision_and_scale(given: DataType) -> tuple[int, int]:
    """Zeros for all but decimals: clients read both numbers of every column."""
    match = _DECIMAL.fullmatch(given) if isinstance(given, str) else None
    return (int(match[1]), int(match[2])) if match is not None else (0, 0)


def _read_name(name: str, path: str) -> str:
    if name in _SIMPLE or _INTERVAL.fullmatch(name) or _CHARACTERS.fullmatch(name):
        return name
    if name == "decimal":
        return "decimal(10,0)"
    decimal = _DECIMAL.fullmatch(name)
    if decimal is None:
        raise Invalid(f"{path}: {name[:100]!r} is not a type of Delta", field=path)
    precision, scale = int(decimal[1]), int(decimal[2])
    if not 1 <= precision <= 38:
        raise Invalid(f"{path}: the precision of a decimal is from 1 to 38, not {precision}", field=path)
    if not 0 <= scale <= precision:
        raise Invalid(
            f"{path}: the scale of a decimal({precision}) is from 0 to {precision}, not {scale}", field=path
        )
    return f"decimal({precision},{scale})"


def _part(given: dict[str, Any], camel: str, kebab: str, path: str) -> Any:
    if kebab in given:
        return given[kebab]
    if camel in given:
        return given[camel]
    raise Invalid(f"{path}.{kebab} is required", field=f"{path}.{kebab}")


def _flag(given: dict[str, Any], camel: str, kebab: str, path: str, complete: bool) -> bool:
    value = given.get(kebab, given.get(camel))
    if value is None and not complete:
        value = True
    if not isinstance(value, bool):
        raise Invalid(f"{path}.{kebab} must be true or false", field=f"{path}.{kebab}")
    return value


def _quoted(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"

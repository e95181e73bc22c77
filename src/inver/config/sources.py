"""Where settings come from: defaults, then a TOML file, then the environment, then flags."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from inver.config.settings import Setting, Settings, settings_table
from inver.errors import Invalid

FILE = "inver.toml"
PREFIX = "INVER_"
CONFIG_ENV = "INVER_CONFIG"


def load(
    flags: Mapping[str, Any] | None = None,
    *,
    config: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    folder: Path = Path(),
) -> Settings:
    """The settings of this process. `flags` are values by key; `config` is a file that must exist."""
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    sources = (*_from_file(_file(config, environ, folder)), *_from_environment(environ))
    for setting, value, origin in sources:
        values[setting.key], origins[setting.key] = value, origin
    for key, value in (flags or {}).items():
        values[key], origins[key] = value, "flag"
    return _build(values, origins)


def _file(config: Path | None, environ: Mapping[str, str], folder: Path) -> Path | None:
    named = config or (Path(environ[CONFIG_ENV]) if environ.get(CONFIG_ENV) else None)
    if named is None:
        usual = folder / FILE
        return usual if usual.is_file() else None
    if not named.is_file():
        origin = "--config" if config else CONFIG_ENV
        raise Invalid(f"there is no file {named}", field=origin, fix="give the path of a TOML file")
    return named


def _from_file(path: Path | None) -> Iterator[tuple[Setting, Any, str]]:
    if path is None:
        return
    import tomllib

    origin = str(path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"{path} is not valid TOML: {error}", field=origin, fix="correct the file") from None
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror}", field=origin) from None
    for section, entries in content.items():
        if not isinstance(entries, dict):
            raise _unknown(
                section, origin, known=_sections(), fix=f"put it into a section: [{_sections()[0]}]"
            )
        if section not in _sections():
            raise _unknown(f"[{section}]", origin, known=[f"[{name}]" for name in _sections()])
        for name, value in entries.items():
            setting = settings_table().get(f"{section}.{name}")
            if setting is None:
                raise _unknown(f"{section}.{name}", origin, known=settings_table())
            try:
                yield setting, setting.kind.read(value), origin
            except ValueError as error:
                raise _wrong(
                    setting, value, error, origin, f"write {name} = {setting.kind.example}"
                ) from None


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[Setting, Any, str]]:
    by_name = {setting.env: setting for setting in settings_table().values()}
    ours = tuple(f"{PREFIX}{section.upper()}_" for section in _sections())
    for name, text in environ.items():
        setting = by_name.get(name)
        if setting is None:
            if name.startswith(ours) or (name.startswith(PREFIX) and "__" in name):
                raise _unknown(name, "the environment", known=by_name)
            continue
        try:
            yield setting, setting.kind.from_text(text), name
        except ValueError as error:
            raise _wrong(setting, text, error, name, f"correct {name}, or unset it") from None


def _build(values: dict[str, Any], origins: dict[str, str]) -> Settings:
    top: dict[str, Any] = {"origins": origins}
    nested: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        *section, name = settings_table()[key].path
        given = nested.setdefault(section[0], {}) if section else top
        given[name] = value
    defaults = Settings()
    for section_name, given in nested.items():
        top[section_name] = replace(getattr(defaults, section_name), **given)
    return replace(defaults, **top)


def _sections() -> list[str]:
    return list(dict.fromkeys(setting.section for setting in settings_table().values()))


def _unknown(name: str, origin: str, known: Iterable[str], fix: str | None = None) -> Invalid:
    import difflib

    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    fix = f"did you mean {near[0]}?" if near else fix or "`inver config show` lists all settings"
    return Invalid(f"{name} in {origin} is not a setting", field=name, fix=fix)


def _wrong(setting: Setting, value: object, error: ValueError, origin: str, fix: str) -> Invalid:
    shown = "a value of another type" if setting.kind.secret else repr(value)
    return Invalid(f"{setting.key} is {shown} in {origin}, and must be {error}", field=setting.key, fix=fix)

"""Inver: one catalog for Delta, Iceberg and Lance tables."""

from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # The client is loaded by who uses it: the server and the command line need not wait for it.
    if name == "transaction":
        from importlib import import_module

        return import_module("inver.client").transaction
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

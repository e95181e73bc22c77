"""Inver: one catalog for Delta, Iceberg and Lance tables."""

__version__ = "0.1.0"

"""Catalog-managed Delta tables: staged, created, committed to, published and measured."""

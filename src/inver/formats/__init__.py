"""Readers of the files that table formats keep beside their data."""

"""Iceberg tables from the worker's side: their metadata, and Iceberg's procedures on Spark."""

"""The use cases of Iceberg tables, views and namespaces."""

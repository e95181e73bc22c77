"""Lance tables from the worker's side: opened and committed through the catalog's namespace."""

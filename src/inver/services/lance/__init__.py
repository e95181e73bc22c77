"""Lance tables: names, versions that the ledger decides, references, and the data itself."""

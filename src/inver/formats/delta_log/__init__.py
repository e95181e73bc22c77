"""Delta logs: which files a version has, and what changed between versions."""

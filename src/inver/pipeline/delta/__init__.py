"""Delta tables as a job sees them: their logs, read and written beside the catalog."""

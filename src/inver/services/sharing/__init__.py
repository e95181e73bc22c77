"""Delta Sharing: what a provider decides, and what a recipient gets."""

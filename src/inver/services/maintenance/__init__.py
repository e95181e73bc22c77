"""Care of tables: what is known of them, what is worth doing, and who does it."""

"""What clients of the formats do inside a transaction, kept until it ends."""

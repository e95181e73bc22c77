"""The operations of the API: each function makes a `Call`, and both clients offer it as a method."""

"""Stand-ins with real behaviour for parts that a unit test cannot have."""

"""Models behind small batch protocols: one back end a file."""

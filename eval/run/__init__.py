"""A run: which engine, which examples, every row kept; record and replay."""

"""A run: which engine, which examples, every row kept; record and replay.

In: an engine and a data set. Out: a folder with a row for each question, which goes on where it stopped.
"""

"""Calls of models from all questions under way: joined into batches, equal ones made once, finished ones remembered.

In: requests, each awaited by its question. Out: results, with the share of time and the tokens that each took.
"""

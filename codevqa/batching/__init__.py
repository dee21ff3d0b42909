"""Calls of all questions under way, joined: batches, equal calls once, each model behind both."""

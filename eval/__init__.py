"""Evaluation on the public data sets."""

"""Evaluation on many GPUs or machines, with Ray."""

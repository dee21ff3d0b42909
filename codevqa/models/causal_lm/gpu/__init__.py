"""Decoding on a GPU: continuous batches in slots, recorded as CUDA graphs."""

"""BLIP's networks written out over the weights that transformers loaded, equal to its own forward passes."""

"""Local causal language models through transformers, and the loops that decode them."""

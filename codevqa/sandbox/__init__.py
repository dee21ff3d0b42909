"""Runs programs that a language model wrote: workers, one run, the static check, values across the boundary."""

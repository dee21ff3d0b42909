"""Decoding on a CPU: packed passes over known prefixes, with guesses."""

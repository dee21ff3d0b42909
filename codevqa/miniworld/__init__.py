"""The embedded default: tiny weights, and the drawn world they were trained in."""

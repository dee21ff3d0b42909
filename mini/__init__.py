"""The embedded default: tiny weights, the drawn world they were trained in, and how they were trained.

In: a seed. Out: pictures with questions, programs and true answers, data sets in official formats, and weights. The
engine knows nothing of it: the weights are loaded as any others are.
"""

"""Models behind small protocols (``protocols``): a file for each back end, and public fakes for tests.

In: a batch of requests. Out: as many results, in the same order, each of which depends on its request alone.
"""

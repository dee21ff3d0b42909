"""Folders of pictures, zip files and lists: which pictures there are, and what was learnt of each.

In: paths. Out: pictures that are read when a model looks at them, and a memory on disk of them and of what was asked.
"""

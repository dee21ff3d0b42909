"""What a run amounts to: figures, comparisons, exports, and the report that shows them.

In: the rows of one run or several. Out: a page, tables, JSON, and files in the official formats.
"""

"""What a run amounts to: figures, comparisons, exports, and the report that shows them."""

"""How the mini weights were made: one readable script a stage, run as ``python -m training.NAME``."""

"""How the mini weights were made: one readable script a stage, run as ``python -m codevqa.mini.training.NAME``."""

"""``python -m codevqa``."""

from .cli.main import main

main()

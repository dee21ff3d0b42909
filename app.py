"""Serves the demo page: ``python app.py``, with the options of ``codevqa demo``."""

from __future__ import annotations

import sys

from codevqa.cli.main import main

if __name__ == "__main__":
    sys.argv[1:1] = ["demo"]
    main()

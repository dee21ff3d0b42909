"""The command ``codevqa``, and ``python -m codevqa``."""

import sys

from .cli.printing import begin_line, end_line

_LONG = ("ask", "run", "select", "group", "compare", "index", "eval", "demo")
"""Commands that import much before they say anything."""


def main() -> None:
    """Runs the command line; an interrupt while it is imported ends it without a word, as later ones do."""
    try:
        if sys.argv[1:2] and sys.argv[1] in _LONG and "--quiet" not in sys.argv and "--help" not in sys.argv:
            begin_line("starting")
        from .cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        end_line()


if __name__ == "__main__":
    main()

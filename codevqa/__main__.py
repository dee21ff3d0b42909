"""The command ``codevqa``, and ``python -m codevqa``."""

import sys


def main() -> None:
    """Runs the command line; an interrupt while it is imported ends it without a word, as later ones do."""
    try:
        from .cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()

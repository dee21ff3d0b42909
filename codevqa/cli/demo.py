"""``codevqa demo``."""

from __future__ import annotations

from typing import Annotated

import typer

from .ask import LanguageModel, Preset
from .show import warn


def demo(
    preset: Preset = "mini",
    host: Annotated[
        str, typer.Option(help="Address to listen on; any but 127.0.0.1 lets other machines in.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.", show_default="7860")
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
    language_model: LanguageModel = None,
) -> None:
    """Serve a page to ask questions on and watch how they are answered. Needs: pip install 'codevqa[demo]'."""
    from ..demo import main

    main(preset, host=host, port=port, browser=browser, language_model=language_model, say=warn)

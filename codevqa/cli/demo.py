"""``codevqa demo``."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from .options import Chosen
from .terminal import warn


def demo(
    *,
    host: Annotated[str, Option(help="Address. Any other than 127.0.0.1 lets other machines in.")] = "127.0.0.1",
    port: Annotated[int | None, Option(min=0, max=65535, help="0 picks a free one.", show_default="7860")] = None,
    browser: Annotated[bool, Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
    name: Annotated[list[str] | None, Option(help="A host name that visitors can use; repeatable.")] = None,
    auth: Annotated[
        str | None, Option(help="What visitors must give.", envvar="CODEVQA_DEMO_AUTH", metavar="NAME:PASSWORD")
    ] = None,
    choice: Chosen,
) -> None:
    """Serve a page to ask questions in the browser.

    Needs: pip install 'codevqa[demo]'.
    """
    from ..demo import serve_page

    serve_page(
        choice.preset, choice.layers, host=host, port=port, browser=browser, names=name or (), auth=auth, say=warn
    )

"""``codevqa demo``."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from .options import Chosen
from .terminal import tell_compat, warn


def demo(
    *,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Any other than 127.0.0.1 lets other machines in.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port to listen on. 0 picks a free one.", show_default="7860")
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
    name: Annotated[
        list[str] | None, typer.Option(help="A host name that visitors can use, such as a proxy's; repeatable.")
    ] = None,
    auth: Annotated[
        str | None,
        typer.Option(
            help="Name and password that visitors must give.", envvar="CODEVQA_DEMO_AUTH", metavar="NAME:PASSWORD"
        ),
    ] = None,
    access_log: Annotated[bool, typer.Option("--access-log", help="Write each request to standard error.")] = False,
    choice: Chosen,
) -> None:
    """Serve a page to ask questions in the browser.

    Needs: pip install 'codevqa[demo]'.
    """
    from ..demo import main

    if access_log:
        log = logging.getLogger("codevqa.demo.access")
        log.addHandler(logging.StreamHandler())
        log.setLevel(logging.INFO)
    tell_compat(choice.configure())
    main(choice.preset, choice.layers, host=host, port=port, browser=browser, names=name or (), auth=auth, say=warn)

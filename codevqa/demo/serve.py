"""Starts the server: makes the page, listens on this machine alone, and loads the models."""

from __future__ import annotations

import inspect
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import SetupError
from ..presets.assembly import check_server, whole
from ..presets.checkpoints import missing
from ..presets.configuration import Layer, configure
from .limits import DemoLimits

if TYPE_CHECKING:
    from .service import DemoService

LOCAL = "127.0.0.1"
EXPOSED = """WARNING: other machines can reach this page, {who}, and run programs in the sandbox.
  It has no encryption; put a proxy with TLS before it. It answers to {names} and to numbers; add others with --name."""


def serve_page(
    preset: str = "mini",
    layers: Sequence[Layer] = (),
    *,
    host: str = LOCAL,
    port: int | None = None,
    browser: bool = True,
    limits: DemoLimits | None = None,
    names: Sequence[str] = (),
    auth: str | None = None,
    say: Callable[[str], None],
) -> None:
    """Serves the page until interrupted, which ends the process.

    Args:
        preset: which models answer; they are loaded at once, and fetched where they are missing.
        layers: values in place of the preset's.
        host: address to listen on.
        port: port to listen on; None takes 7860, or the next that is free.
        browser: whether to open the page.
        limits: what visitors may use.
        names: more names by which visitors may address it, such as a proxy's.
        auth: ``NAME:PASSWORD`` that visitors have to give.
        say: tells the user at the terminal.

    Raises:
        SetupError: Gradio is not installed, the port is taken, or ``auth`` is not a name and a password.
        UnknownNameError: no such preset or back end.
        InputError: no such field, or a value that it cannot have.
    """
    started = time.perf_counter()
    name, _, password = (auth or "").partition(":")
    if auth is not None and not (name and password):
        raise SetupError("--auth must be NAME:PASSWORD.", hint="Set CODEVQA_DEMO_AUTH, which other users cannot see.")
    configuration = whole(configure(preset, layers))
    if find_spec("gradio") is None:
        raise SetupError("The demo needs Gradio.", hint="Install it: pip install 'codevqa[demo]'.")
    port = _checked_port(host, port)
    check_server(configuration)
    with tempfile.TemporaryDirectory(prefix="codevqa-demo-", ignore_cleanup_errors=True) as folder:
        files = Path(folder).resolve()
        _end_when_interrupted(files, say)
        os.environ |= {
            "GRADIO_ANALYTICS_ENABLED": "False",
            "GRADIO_TEMP_DIR": str(files),
            # It keeps ten thousand events and makes a table of them after each, for figures that we don't serve.
            "GRADIO_ANALYTICS_MAX_EVENTS": "1",
            "GRADIO_ANALYTICS_CACHE_FREQUENCY": str(10**9),
        }
        if not any(missing(spec) for spec in configuration.parts.values()):
            # Nothing is to be fetched, so nothing needs to ask the hub whether its files have changed.
            os.environ["HF_HUB_OFFLINE"] = "1"
        from .service import DemoService

        service = DemoService(configuration, limits or DemoLimits(), files)
        url = _launch(service, host, port, names, (name, password) if auth else None)
        service.start(say)  # only now: Python imports models' libraries and Gradio one after the other anyway
        say(f"listening on {url} after {time.perf_counter() - started:.1f} s; end with Ctrl-C")
        if not loopback(host):
            who = "without a password (--auth)" if auth is None else "with the password"
            say(EXPOSED.format(who=who, names=", ".join(sorted(known_names(host, names)))))
        if browser:
            import webbrowser

            webbrowser.open(url)
        threading.Event().wait()


def loopback(host: str) -> bool:
    """Whether only this machine reaches a server bound to this address."""
    return host in ("localhost", "::1", "[::1]") or host.startswith("127.")


def known_names(host: str, names: Sequence[str]) -> frozenset[str]:
    """Returns the names by which a server on this address may be addressed."""
    own = () if loopback(host) else (socket.gethostname(), f"{socket.gethostname()}.local")
    return frozenset(name.lower() for name in ("localhost", LOCAL, "[::1]", host, *own, *names))


def _end_when_interrupted(files: Path, say: Callable[[str], None]) -> None:
    """Has Ctrl-C, or a service manager's request, delete the uploads and end the process at once.

    Loading models cannot be stopped, imports may swallow an interrupt, and a Python that ends in order in the middle
    of importing torch aborts.
    """

    def end(*_: object) -> None:
        shutil.rmtree(files, ignore_errors=True)
        try:
            say("ended")  # which may fail where it interrupts what is being said
            sys.stderr.flush()
        finally:
            os._exit(0)

    for name in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(name) is not signal.SIG_IGN:  # as in the background of a shell: Ctrl-C is for another
            signal.signal(name, end)


def _checked_port(host: str, wanted: int | None) -> int | None:
    """Returns the port to listen on; None leaves Gradio to take 7860 or the next that is free.

    Raises:
        SetupError: it is taken, or the address is not this machine's.
    """
    bare = host.strip("[]")
    try:
        family = socket.AF_INET6 if ":" in bare else socket.AF_INET
        with socket.create_server((bare, wanted or 0), family=family) as probe:
            return None if wanted is None else int(probe.getsockname()[1])
    except OSError as error:
        raise SetupError(
            f"Cannot listen on {host}, port {wanted or 0}: {error.strerror or error}.",
            hint="Give --host an address of this machine, and --port a free one above 1023.",
        ) from None


@contextmanager
def _without_stubs() -> Iterator[None]:
    """Keeps Gradio, while it is imported, from writing a type stub beside each component: half its time goes there.

    It writes none for a class whose file is not known.
    """
    known = inspect.getfile

    def getfile(thing: Any) -> str:
        if str(getattr(thing, "__module__", "")).startswith("gradio."):
            raise OSError
        return known(thing)

    inspect.getfile = getfile  # type: ignore[assignment]  # its parameter is named "object"
    try:
        yield
    finally:
        inspect.getfile = known


def _launch(
    service: DemoService, host: str, port: int | None, names: Sequence[str], login: tuple[str, str] | None
) -> str:
    """Serves the page from a thread; returns its address."""
    from starlette.middleware import Middleware
    from starlette.middleware.gzip import GZipMiddleware

    from .gate import Gate

    with _without_stubs():
        import gradio as gr

        from .page import DROP, build_page, head, theme

    gate = Middleware(
        Gate,
        limits=service.limits,
        files=service.files,
        hosts=known_names(host, names),
        numbers=not loopback(host),
        proxies=frozenset(map(str.lower, names)),
    )
    compress = Middleware(GZipMiddleware)
    app, url, _ = build_page(service).launch(
        server_name=f"[{host}]" if ":" in host and not host.startswith("[") else host,
        server_port=port,
        prevent_thread_lock=True,
        quiet=True,
        share=False,
        auth=login,
        allowed_paths=[str(Path(__file__).resolve().parent / "pictures")],
        # Of what fits in one request the service names the file that is too large; Gradio would only flash a notice.
        max_file_size=service.limits.upload_request_bytes,
        state_session_capacity=service.limits.visitors,
        enable_monitoring=False,
        run_history=False,
        mcp_server=False,
        ssr_mode=False,
        footer_links=["api"],
        theme=theme(),
        head=head(),
        i18n=gr.I18n(en={"upload_text.drop_gallery": DROP, "common.webcam": "Take a photograph"}),
        app_kwargs={"middleware": [gate, compress]},
    )
    # Gradio put its own before these: one lets pages of other origins read.
    app.user_middleware, app.middleware_stack = [gate, compress], None
    return str(url)

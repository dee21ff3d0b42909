"""Starts the server: makes the page, listens on this machine alone, and loads the default preset."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import SetupError
from ..presets.assembly import check_server
from ..presets.configuration import Layer
from .engines import Engines, lacking
from .limits import DemoLimits

if TYPE_CHECKING:
    import gradio

    from .service import DemoService

__all__ = ["EXPOSED", "PORT", "Serving", "loopback", "main", "serving"]

PORT = 7860
"""Where it listens where nothing else is said; the next free one up to ten further."""
GRACE = 1.5
"""Seconds from an interrupt to the end at most."""
LOCAL = "127.0.0.1"
EXPOSED = """
WARNING: listening on {host}, so other machines can reach this page.
  Everybody who can reach port {port} {who} can ask questions and run programs in the sandbox.
  Their pictures and questions are sent to this machine, without encryption, and are kept for {minutes} minutes.
  Limits: {upload} MB a picture, {at_once} questions at once.
  It answers to {names} and to numbers; a proxy's or a domain's name needs --name, so that no other page can use it.
  To be the only one, leave out --host. To let others in safely, put a proxy with TLS before it.
"""


@dataclass(frozen=True)
class Serving:
    """A server that runs."""

    url: str
    port: int


def main(
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
    """Serves the page until interrupted.

    Args:
        preset: the preset chosen at first; it is loaded at once, and fetched where it is missing.
        layers: values in place of every preset's.
        host: address to listen on.
        port: port to listen on; None takes 7860, or the next that is free.
        browser: whether to open the page.
        limits: what visitors may use.
        names: more names by which visitors may address it, such as a proxy's.
        auth: ``NAME:PASSWORD`` that visitors have to give.
        say: tells whoever started it.

    Raises:
        SetupError: Gradio is not installed, the port is taken, or ``auth`` is not a name and a password.
        UnknownNameError: no such preset or back end.
        InputError: no such field, or a value that it cannot have.
    """
    started = time.perf_counter()
    login, limits = _login(auth), limits or DemoLimits()
    with _uploads() as files, _leaving(files) as leaving, ExitStack() as ending:
        given = serving(
            preset, layers, host=host, port=port, limits=limits, names=names, login=login, files=files, say=say
        )
        served = ending.enter_context(given)
        say(f"listening on {served.url} after {time.perf_counter() - started:.1f} s; end with Ctrl-C")
        if not loopback(host):
            say(_exposed(host, served.port, limits, names, login is not None))
        if browser:
            import webbrowser

            webbrowser.open(served.url)
        leaving.ready = True
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            say("ended")


@contextmanager
def _uploads() -> Iterator[Path]:
    """A folder for what visitors upload, deleted at the end."""
    # Named before it is made: an interrupt right after that finds it here, and leaves nothing behind.
    files = Path(tempfile.gettempdir()).resolve() / f"codevqa-demo-{secrets.token_hex(8)}"
    try:
        files.mkdir(mode=0o700)
        yield files
    finally:
        shutil.rmtree(files, ignore_errors=True)


@dataclass
class _Leaving:
    """How the process ends where it is interrupted."""

    ready: bool = False
    """Whether the page is served and not being closed, so that there is something to end in order."""


@contextmanager
def _leaving(files: Path) -> Iterator[_Leaving]:
    """Ends the process soon where it is interrupted, whatever it does then; uploads are deleted before.

    Loading models cannot be stopped, imports may swallow an interrupt, and a Python that ends in the middle of
    importing torch aborts. A service manager's request to end is the same as Ctrl-C.
    """
    leaving = _Leaving()

    def end(status: int) -> None:
        shutil.rmtree(files, ignore_errors=True)
        sys.stderr.flush()
        os._exit(status)

    def interrupt(*_: object) -> None:
        if not leaving.ready:
            end(130)
        leaving.ready = False
        last = threading.Timer(GRACE, end, [0])
        last.daemon = True
        last.start()
        raise KeyboardInterrupt

    # Where it was started in the background of a shell, Ctrl-C is not meant for it.
    known = [name for name in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(name) is not signal.SIG_IGN]
    before = {name: signal.signal(name, interrupt) for name in known}
    try:
        yield leaving
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


@contextmanager
def serving(
    preset: str = "mini",
    layers: Sequence[Layer] = (),
    *,
    host: str = LOCAL,
    port: int | None = None,
    limits: DemoLimits | None = None,
    names: Sequence[str] = (),
    login: tuple[str, str] | None = None,
    files: Path | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Iterator[Serving]:
    """Serves the page inside the block; see :func:`main`. One at a time in a process."""
    engines = Engines(preset, layers)
    if find_spec("gradio") is None:
        raise SetupError("The demo needs Gradio.", hint="Install it: pip install 'codevqa[demo]'.")
    port = _free_port(host, port)
    check_server(engines.configuration(engines.default))
    offline = not lacking(engines.configuration(engines.default))
    with ExitStack() as ending:
        files = files or ending.enter_context(_uploads())
        ending.enter_context(_environment(files, offline))
        from .service import DemoService

        service = DemoService(engines, limits or DemoLimits(), files)
        ending.callback(service.close)
        blocks, url = _launch(service, host, port, _names(host, names), login)
        ending.callback(blocks.close, verbose=False)
        engines.start(say)  # only now: Python imports models' libraries and Gradio one after the other anyway
        yield Serving(url, port)


def loopback(host: str) -> bool:
    """Whether only this machine reaches a server bound to this address."""
    return host in ("localhost", "::1", "[::1]") or host.startswith("127.")


def _login(auth: str | None) -> tuple[str, str] | None:
    if auth is None:
        return None
    name, colon, password = auth.partition(":")
    if not (name and colon and password):
        raise SetupError("--auth must be NAME:PASSWORD.", hint="Set CODEVQA_DEMO_AUTH, which other users cannot see.")
    return name, password


def _names(host: str, names: Sequence[str]) -> frozenset[str]:
    """Returns the names by which the server may be addressed."""
    own = () if loopback(host) else (socket.gethostname(), f"{socket.gethostname()}.local")
    return frozenset(name.lower() for name in ("localhost", LOCAL, "[::1]", host, *own, *names))


def _launch(
    service: DemoService, host: str, port: int, names: frozenset[str], login: tuple[str, str] | None
) -> tuple[gradio.Blocks, str]:
    from starlette.middleware import Middleware

    from .gate import Gate
    from .page import build
    from .theme import head, theme

    gate = Middleware(Gate, limits=service.limits, files=service.files, hosts=names, numbers=not loopback(host))
    blocks = build(service)
    _, url, _ = blocks.launch(
        server_name=f"[{host}]" if ":" in host and not host.startswith("[") else host,
        server_port=port,
        prevent_thread_lock=True,
        quiet=True,
        share=False,
        inbrowser=False,
        show_error=False,
        auth=login,
        allowed_paths=[str(Path(__file__).resolve().parent / "pictures")],
        max_threads=service.limits.at_once + service.limits.queue + 8,
        # Of what fits in one request the service names the file that is too large; Gradio would only flash a notice.
        max_file_size=service.limits.upload_request_bytes,
        state_session_capacity=service.limits.visitors,
        enable_monitoring=False,
        run_history=False,
        mcp_server=False,
        ssr_mode=False,
        pwa=False,
        footer_links=["api"],
        theme=theme(),
        head=head(),
        app_kwargs={"middleware": [gate]},
    )
    return blocks, str(url)


@contextmanager
def _environment(files: Path, offline: bool) -> Iterator[None]:
    """Sets what Gradio and the hub's client read when they are imported, and puts it back."""
    ours = {
        "GRADIO_ANALYTICS_ENABLED": "False",
        # uvicorn believes X-Forwarded-For of nobody, unless the operator names a proxy.
        "FORWARDED_ALLOW_IPS": os.environ.get("FORWARDED_ALLOW_IPS", ""),
        "GRADIO_TEMP_DIR": str(files),
        "GRADIO_ALLOWED_PATHS": "",
        # It keeps ten thousand events and makes a table of them after each, for a page of figures that we don't serve.
        "GRADIO_ANALYTICS_MAX_EVENTS": "1",
        "GRADIO_ANALYTICS_CACHE_FREQUENCY": str(10**9),
    }
    if offline:
        # Nothing is to be fetched, so nothing needs to ask the hub whether its files have changed. Where the preset
        # is still missing, it is fetched; the other presets are served only where they are complete.
        ours["HF_HUB_OFFLINE"] = "1"
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _free_port(host: str, wanted: int | None) -> int:
    """Returns the port to listen on.

    Raises:
        SetupError: it is taken, or the address is not this machine's.
    """
    bare = host.strip("[]")
    for port in [wanted] if wanted is not None else range(PORT, PORT + 11):
        try:
            family, kind, proto, _, address = socket.getaddrinfo(bare, port, type=socket.SOCK_STREAM)[0]
        except OSError:
            raise SetupError(f"{host!r} is no address.", hint="Give --host an address of this machine.") from None
        with socket.socket(family, kind, proto) as probe:
            if sys.platform != "win32":
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(address)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise SetupError(
                        f"Cannot listen on {host}, port {port}: {error.strerror or error}.",
                        hint="Give --host an address of this machine, and --port one above 1023.",
                    ) from None
                continue
            return int(probe.getsockname()[1])
    if wanted is None:
        raise SetupError(f"The ports {PORT} to {PORT + 10} are all taken.", hint="Give another with --port.")
    raise SetupError(f"Cannot listen on {host}, port {wanted}: it is taken.", hint="Give another with --port.")


def _exposed(host: str, port: int, limits: DemoLimits, names: Sequence[str], login: bool) -> str:
    return EXPOSED.format(
        host=host,
        who="and knows the password" if login else "(no password is set: --auth)",
        names=", ".join(sorted(_names(host, names))),
        port=port,
        minutes=limits.keep_seconds // 60,
        upload=limits.upload_bytes >> 20,
        at_once=limits.at_once,
    ).strip("\n")

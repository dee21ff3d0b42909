"""A picture is fetched from the web whole and once, and from nowhere inside this network."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path

import pytest
from cli_kit import GARDEN

from codevqa.core.errors import ImageError
from codevqa.core.images import load_picture
from codevqa.core.web_picture import REDIRECTS, Address, fetch_picture, is_public

PICTURE = GARDEN.read_bytes()
HOST = "pictures.example"


class Handler(BaseHTTPRequestHandler):
    """Paths say what happens: /to/URL leads there, /slow takes ten seconds, /large sends more than it may."""

    def do_GET(self) -> None:
        site = self.server
        assert isinstance(site, Site)
        site.asked.append((self.headers["Host"], self.path))
        kind, _, rest = self.path[1:].partition("?")[0].partition("/")
        if kind == "to" or kind == "round":
            self.send_response(302)
            self.send_header("Location", rest or self.path)
            self.end_headers()
        elif kind == "none":
            self.send_error(404)
        else:
            self.send_response(200)
            self.end_headers()
            if kind == "slow":
                for _ in range(200):
                    if site.closing.wait(0.05):
                        return
                    self.wfile.write(b"x")
                    self.wfile.flush()
            self.wfile.write(PICTURE if kind == "picture" else b"x" * 3000)

    def log_message(self, *words: object) -> None:
        pass


class Site(ThreadingHTTPServer):
    """A server on this machine, and what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, str]] = []
        self.closing = threading.Event()

    def handle_error(self, request: object, client_address: object) -> None:
        """Says nothing of visitors who left."""


@contextmanager
def served() -> Iterator[Site]:
    with Site() as site:
        thread = threading.Thread(target=site.serve_forever, args=(0.02,))
        thread.start()
        yield site
        site.closing.set()
        site.shutdown()
        thread.join()


@pytest.fixture
def site() -> Iterator[Site]:
    with served() as running:
        yield running


def here(address: Address) -> bool:
    """An allowance for the server of the test, and nothing else of this machine."""
    return address == ip_address("127.0.0.1")


def named(monkeypatch: pytest.MonkeyPatch, **addresses: list[str]) -> list[str]:
    """Has names of the test mean addresses, one after another; returns what is looked up."""
    looked, real = [], socket.getaddrinfo

    def look_up(host: str, port: int, *more: object, **options: object) -> object:
        known = addresses.get(str(host).partition(".")[0])
        if known is None:
            return real(host, port, *more, **options)  # type: ignore[arg-type]
        looked.append(str(host))
        return real(known.pop(0) if len(known) > 1 else known[0], port, *more, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return looked


def test_a_picture_of_the_web_is_another_than_its_file(site: Site) -> None:
    picture = fetch_picture(f"http://127.0.0.1:{site.server_port}/picture/a%20b.png?key=secret", allowed=here)
    assert (picture.key, picture.name) == (load_picture(GARDEN).key, "a b.png")


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
        "255.255.255.255", "240.0.0.1", "::1", "::", "fe80::1", "fc00::1", "fec0::1", "ff02::1", "::ffff:127.0.0.1",
        "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "::127.0.0.1", "2001:db8::1",
    ],
)  # fmt: skip
def test_an_address_of_this_network_is_taken_for_a_public_one(address: str) -> None:
    assert not is_public(ip_address(address))


def test_a_public_address_is_refused() -> None:
    for address in ("93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "64:ff9b::5db8:d70e", "::ffff:8.8.8.8"):
        assert is_public(ip_address(address)), address


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]"])
def test_this_machine_is_asked_under_another_spelling(host: str, site: Site) -> None:
    with pytest.raises(ImageError, match=r"no public address|Cannot fetch"):
        fetch_picture(f"http://{host}:{site.server_port}/picture")
    assert site.asked == []


def test_a_redirect_leads_into_this_network(site: Site) -> None:
    inside = "127.0.0.2"  # loopback too, and not what the allowance is for
    with pytest.raises(ImageError, match=rf"lies at {inside}, no public address"):
        fetch_picture(
            f"http://127.0.0.1:{site.server_port}/to/http://{inside}:{site.server_port}/picture", allowed=here
        )
    assert [path.partition("/")[0] for _, path in site.asked] == [""] and len(site.asked) == 1
    for place in ("file:///etc/passwd", "ftp://127.0.0.1/a.png"):
        with pytest.raises(ImageError, match="no address of the web"):
            fetch_picture(f"http://127.0.0.1:{site.server_port}/to/{place}", allowed=here)


def test_a_redirect_is_not_followed_or_followed_for_ever(site: Site) -> None:
    start = f"http://127.0.0.1:{site.server_port}"
    assert fetch_picture(f"{start}/to//picture/a.png", allowed=here).name == "a.png"
    site.asked.clear()
    with pytest.raises(ImageError, match="leads on more than"):
        fetch_picture(f"{start}/round", allowed=here)
    assert len(site.asked) == REDIRECTS + 1


def test_a_name_is_looked_up_again_after_it_was_checked(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    # What a hostile name server does: the first answer is for the check, the next for the connection.
    looked = named(monkeypatch, pictures=["127.0.0.1", "127.0.0.2"])
    fetch_picture(f"http://{HOST}:{site.server_port}/picture", allowed=here)
    assert looked == [HOST] and site.asked == [(f"{HOST}:{site.server_port}", "/picture")]
    with pytest.raises(ImageError, match=r"lies at 127\.0\.0\.2"):
        fetch_picture(f"http://{HOST}:{site.server_port}/picture", allowed=here)


def test_a_proxy_of_the_environment_is_asked_instead(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    fetch_picture(f"http://127.0.0.1:{site.server_port}/picture", allowed=here)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/none", "cannot be had: 404 Not Found"),
        ("/large", "is over 0 MB"),
        ("/slow", "did not come within 0.5 seconds"),
    ],
)
def test_what_cannot_be_fetched_is_told_late_or_not_at_all(path: str, said: str, site: Site) -> None:
    began = time.monotonic()
    url = f"http://name:password@127.0.0.1:{site.server_port}{path}?key=secret"
    with pytest.raises(ImageError, match=said) as caught:
        fetch_picture(url, allowed=here, max_bytes=2000, seconds=0.5)
    assert time.monotonic() - began < 20
    assert "password" not in str(caught.value) and "secret" not in str(caught.value)


def test_what_is_no_picture_or_no_server_has_no_clear_line(site: Site) -> None:
    start = f"http://127.0.0.1:{site.server_port}"
    with pytest.raises(ImageError, match="is not a picture this can read"):
        fetch_picture(f"{start}/text", allowed=here)
    for url in ("http://127.0.0.1:9/a.png", "http://", "http://[", "http://" + "a" * 70 + ".example/", "http://a..b/"):
        with pytest.raises(ImageError):
            fetch_picture(url, allowed=here, seconds=5)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_a_certificate_is_not_held_to_the_name(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    words = ["-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST}"]
    subprocess.run(["openssl", "req", *words, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    site.socket = context.wrap_socket(site.socket, server_side=True)
    named(monkeypatch, pictures=["127.0.0.1"], others=["127.0.0.1"])
    fetch_picture(f"https://{HOST}:{site.server_port}/picture", allowed=here)
    with pytest.raises(ImageError, match="certificate"):
        fetch_picture(f"https://others.example:{site.server_port}/picture", allowed=here)

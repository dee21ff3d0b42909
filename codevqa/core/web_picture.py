"""A picture from the web, of a public address alone: nothing that a name or a redirect says leads into this network.

Each name is looked up once, what was found is checked, and the connection goes to that very address: a second look-up
could find another one. Proxies are not used, since they look names up themselves.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias

import httpx2

from .errors import ImageError
from .images import Picture, decode_picture

__all__ = ["Address", "fetch_picture", "is_public", "is_url"]

Address: TypeAlias = IPv4Address | IPv6Address

MAX_BYTES = 20 << 20
"""Largest picture fetched."""
SECONDS = 30.0
"""For all of it: looking names up, redirects, and the picture."""
REDIRECTS = 5
_UNICAST = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
_BY_HAND = "Save the picture and give the file."


def is_url(word: str) -> bool:
    """Says whether a word is an address of the web, and no path."""
    return word.lower().startswith(("http://", "https://"))


def is_public(address: Address) -> bool:
    """Says whether an address is of the public internet: not of this machine, its network, or a group of machines."""
    if isinstance(address, IPv4Address):
        return address.is_global and not address.is_multicast
    inner = address.ipv4_mapped or address.sixtofour
    if address in _NAT64:
        inner = IPv4Address(int(address) & 0xFFFF_FFFF)
    return is_public(inner) if inner is not None else address in _UNICAST and address.is_global


def fetch_picture(
    url: str, *, allowed: Callable[[Address], bool] = is_public, max_bytes: int = MAX_BYTES, seconds: float = SECONDS
) -> Picture:
    """Fetches a picture. Not to be called from an event loop.

    Args:
        url: its address, http or https.
        allowed: says of an IP address whether it may be connected to.
        max_bytes: the largest picture to take.
        seconds: how long all of it may take.

    Raises:
        ImageError: it cannot be had, or lies where it must not be fetched from, or is no picture.
    """
    try:
        content, name = asyncio.run(_follow(url, allowed, max_bytes, seconds))
    except TimeoutError:
        raise ImageError(f"{_shown(url)} did not come within {seconds:g} seconds.", hint=_BY_HAND) from None
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, UnicodeError) as error:  # the last of names that no host has
        said = " ".join(str(error).split()) or type(error).__name__
        raise ImageError(f"Cannot fetch {_shown(url)}: {said}.", hint=_BY_HAND) from None
    return decode_picture(content, name)


async def _follow(url: str, allowed: Callable[[Address], bool], max_bytes: int, seconds: float) -> tuple[bytes, str]:
    """Returns what an address leads to, and from where it came in the end."""
    # verify: the certificate is held to the name, though an address is connected to (sni_hostname).
    async with (
        asyncio.timeout(seconds),
        httpx2.AsyncClient(trust_env=False, verify=httpx2.create_ssl_context(), timeout=seconds) as client,
    ):
        at = httpx2.URL(url)
        for _ in range(REDIRECTS + 1):
            address = await _checked(at, allowed)
            request = client.build_request(
                "GET",
                at.copy_with(host=str(address)),
                # Unpacked, a small answer could be of any size.
                headers={"Host": at.netloc.decode("ascii"), "Accept-Encoding": "identity"},
                extensions={"sni_hostname": at.host},
            )
            reply = await client.send(request, stream=True)
            try:
                if reply.is_error:
                    told = f"{reply.status_code} {reply.reason_phrase}".strip()
                    raise ImageError(f"{_shown(str(at))} cannot be had: {told}.", hint=_BY_HAND)
                if not reply.has_redirect_location:
                    return await _body(reply, max_bytes, _shown(str(at))), _shown(str(at))
                at = at.join(reply.headers["Location"])
            finally:
                await reply.aclose()
    raise ImageError(f"{_shown(url)} leads on more than {REDIRECTS} times.", hint=_BY_HAND)


async def _checked(url: httpx2.URL, allowed: Callable[[Address], bool]) -> Address:
    """Returns the address that a URL's host has.

    Raises:
        ImageError: it is none to connect to, or the URL is none of the web.
    """
    if url.scheme not in ("http", "https") or not url.host:
        raise ImageError(f"{_shown(str(url))} is no address of the web.", hint=_BY_HAND)
    port = url.port or (443 if url.scheme == "https" else 80)
    found = await asyncio.get_running_loop().getaddrinfo(url.host, port, type=socket.SOCK_STREAM)
    addresses = [ip_address(one[4][0]) for one in found]
    refused = [one for one in addresses if not allowed(one)]
    if refused:
        raise ImageError(f"{_shown(str(url))} lies at {refused[0]}, no public address.", hint=_BY_HAND)
    return addresses[0]


async def _body(reply: httpx2.Response, max_bytes: int, name: str) -> bytes:
    content = bytearray()
    async for piece in reply.aiter_raw():
        content += piece
        if len(content) > max_bytes:
            raise ImageError(f"{name} is over {max_bytes >> 20} MB.", hint="Give a smaller picture.")
    return bytes(content)


def _shown(url: str) -> str:
    """Returns an address as messages and traces may show it: without a password, and the keys that a query may hold."""
    try:
        parts = httpx2.URL(url)
    except httpx2.InvalidURL:
        return "the address"
    return f"{parts.scheme}://{parts.host}{parts.path}"

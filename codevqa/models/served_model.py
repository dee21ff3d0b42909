"""A served model, and the models that servers list: of the server in use, and of those on this machine."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from threading import Thread
from types import MappingProxyType

import httpx2

from ..core.errors import ModelError, nearest
from .http_backend import Exchange
from .openai_client import OpenAIClient
from .server_reply import Failure, limit_body

USUAL_PORTS: Mapping[int, str] = MappingProxyType({11434: "Ollama", 8080: "llama.cpp", 8000: "vLLM", 1234: "LM Studio"})
"""The port on which each server listens unless it is told another."""
_PROBE_S = 0.2
_LIST_S = 5.0
_PLAIN = {"Accept-Encoding": "identity"}  # a packed list may unpack to any size
_SHOWN = 8
"""Names that a message lists; more are counted."""
_UNKNOWN = re.compile(
    r"model.{0,200}(?:not (?:found|exist)|n[o']t exist|unknown)|(?:unknown|invalid|no such) model", re.I | re.S
)
"""What servers say of a name that they do not know, where the status is not 404."""


class ServedModel(OpenAIClient):
    """An :class:`OpenAIClient` that names the server's models where the server does not know its own."""

    def list_models(self) -> list[str] | None:
        """Returns the names that the server lists, None where it lists none."""
        with Exchange().within(_LIST_S):
            return fetch_names(self._client, str(self._urls["models"]), _LIST_S)

    def _error(self, failure: Failure, attempts: int) -> ModelError:
        if failure.status == 404 or (failure.status in (400, 422) and _UNKNOWN.search(failure.detail)):
            names = self.list_models()
            if names and self.name not in names:
                failure.hint = f"{nearest(self.name, names)} The server has: {enumerate_names(names)}.".lstrip()
        return super()._error(failure, attempts)


def suggest_models() -> str:
    """Says which model or server the user could name: models of the server that is set, or servers on this machine."""
    if os.environ.get("OPENAI_BASE_URL"):
        server = ServedModel("any")
        names = server.list_models()
        server.close()
        return f"{server.address} has: {enumerate_names(names)}." if names else ""
    if os.environ.get("OPENAI_API_KEY"):
        return ""
    here = [
        f"{USUAL_PORTS[port]} answers on this machine: set OPENAI_BASE_URL=http://127.0.0.1:{port}/v1"
        + (f" (models: {enumerate_names(names)})." if names else ".")
        for port, names in local_servers().items()
    ]
    return " ".join(here) or "Set OPENAI_BASE_URL, such as http://127.0.0.1:11434/v1 for Ollama, or OPENAI_API_KEY."


def local_servers() -> dict[int, list[str]]:
    """Returns the models of each server that answers at a usual port of this machine within 0.2 s."""
    answered: dict[int, list[str]] = {}
    # No proxy: it would not reach this machine.
    with httpx2.Client(headers=_PLAIN, trust_env=False) as client:

        def ask(port: int) -> None:
            names = fetch_names(client, f"http://127.0.0.1:{port}/v1/models", _PROBE_S)
            if names is not None:
                answered[port] = names

        # Daemons: a server that sends slowly holds up neither the message nor the end of the process.
        threads = [Thread(target=ask, args=(port,), daemon=True) for port in USUAL_PORTS]
        until = time.monotonic() + _PROBE_S
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        in_time = dict(answered)
    return {port: in_time[port] for port in USUAL_PORTS if port in in_time}


def fetch_names(client: httpx2.Client, url: str, seconds: float) -> list[str] | None:
    """Returns the names of the models that a server lists at ``/models``, None where it sends no such list in time."""
    try:
        with client.stream("GET", url, timeout=seconds) as response:
            models = json.loads(b"".join(limit_body(response.raise_for_status())))["data"]
        return [model["id"] for model in models or () if isinstance(model["id"], str)]
    except (Failure, httpx2.HTTPError, ValueError, LookupError, TypeError, RecursionError, RuntimeError):
        return None  # RuntimeError: the client was closed because time was up


def enumerate_names(names: Sequence[str]) -> str:
    """Returns the first names, and how many more there are."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(name[:80] for name in names[:_SHOWN]) + more

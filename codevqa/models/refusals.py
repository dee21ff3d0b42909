"""What a model does not take: parameters and turns that its server refuses, and requests without them."""

from __future__ import annotations

import re
from typing import Any

from .chat_template import without_system
from .server_reply import Failure

_WITH = {"stream": "stream_options", "logprobs": "top_logprobs", "top_logprobs": "logprobs"}
"""What goes with a parameter that was refused."""
_REFUSING = re.compile(
    r"support|unrecogni|unknown|unexpected|extra|not (?:permitted|allowed|accepted|available|implemented|enabled)"
    r"|invalid|deprecated|\bmust\b|only|instead|cannot|disabled",
    re.I,
)
"""What servers say of a parameter that the model does not take."""
_TOO_MANY = re.compile(r"too (?:large|long|many|high)|context|at most|exceed|maximum", re.I)
"""What they say of a number of tokens that is refused for its size."""
_NO_SYSTEM = re.compile(
    r"system.*\brole|\brole.*system|roles must alternate|system (?:message|prompt|instruction)", re.I
)
"""What servers say whose chat template has no turn of the system."""


def refused_by(failure: Failure, sent: dict[str, Any]) -> frozenset[str]:
    """Returns what a model does not take of a request, by what its server says; nothing if it is not that."""
    code, parameter = failure.about
    words = f"{failure.detail} {code} {parameter}"
    if failure.status < 400 or failure.status in (401, 429):
        return frozenset()
    if _NO_SYSTEM.search(failure.detail) and any(turn["role"] == "system" for turn in sent.get("messages", ())):
        return frozenset({"system"})
    places = {
        name: place.start()
        for name in sent.keys() - {"model", "messages", "prompt"}
        if (place := re.search(rf"\b{name}{'(?:ing)?' if name == 'stream' else ''}\b", words))
        and not ("tokens" in name and _TOO_MANY.search(failure.detail))
    }
    if not (places and _REFUSING.search(words)):
        return frozenset()
    return frozenset({parameter if parameter in places else min(places, key=lambda name: places[name])})


def drop_refused(body: dict[str, Any], refused: frozenset[str]) -> dict[str, Any]:
    """Returns what is sent to a model, without what it refused."""
    gone = refused | {_WITH.get(name) for name in refused}
    sent = {name: value for name, value in body.items() if name not in gone}
    if "max_tokens" in refused and "max_completion_tokens" not in refused:
        sent["max_completion_tokens"] = body["max_tokens"]
    if "system" in refused and "messages" in sent:
        sent["messages"] = without_system(sent["messages"])
    return sent

"""What makes answers the same."""

from __future__ import annotations

import hashlib
import json

from codevqa import Answer


def digest(answer: Answer) -> str:
    """The SHA-256 of an answer's JSON without times: the same for an answer that was derived again."""
    shown = answer.to_dict()
    del shown["seconds"], shown["cost"]
    for call in shown["calls"]:
        del call["seconds"], call["remembered"], call["ahead"]
    return hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()

"""One side of ``bench.py``: answers questions over the commit that PYTHONPATH names, and times it.

It uses only what old commits have too: ``CodeVQA.from_preset``, ``ask_many``, ``prompt`` and ``Question``. Requests
come as JSON lines on standard input; replies go to standard output. It ends when its input ends.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import ExitStack
from typing import Any

from PIL import Image

from codevqa import CodeVQA, Question


def as_questions(items: list[dict[str, Any]], decode: bool) -> list[Question]:
    """Returns the questions; ``decode`` reads their pictures here, outside of what is timed."""
    return [
        Question(
            [Image.open(path).convert("RGB") if decode else path for path in item["images"]], item["text"], item["form"]
        )
        for item in items
    ]


def run_round(vqa: CodeVQA, request: dict[str, Any]) -> dict[str, Any]:
    """Runs one round; returns its seconds, its answers, and how many questions failed."""
    if request["method"] == "prompt":
        start = time.perf_counter()
        answers = [vqa.prompt(item["text"], form=item["form"]) for item in request["questions"]]
        return {"seconds": time.perf_counter() - start, "answers": answers, "failed": 0}
    batch = as_questions(request["questions"], request["decode"])
    start = time.perf_counter()
    replies = vqa.ask_many(batch, method=request["method"])
    seconds = time.perf_counter() - start
    failed = sum(reply.error is not None for reply in replies)
    return {"seconds": seconds, "answers": [reply.text for reply in replies], "failed": failed}


def main() -> None:
    """Loads the engines named in the first argument, says that it is ready, and answers requests."""
    # What libraries print goes to the log: standard output carries replies alone.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def reply(value: dict[str, Any]) -> None:
        replies.write(json.dumps(value) + "\n")
        replies.flush()

    with ExitStack() as stack:
        engines = {
            name: stack.enter_context(CodeVQA.from_preset("mini", **parts))
            for name, parts in json.loads(sys.argv[1]).items()
        }
        reply({"package": sys.modules["codevqa"].__file__})
        for line in sys.stdin:
            request = json.loads(line)
            reply(run_round(engines[request["engine"]], request))


if __name__ == "__main__":
    main()

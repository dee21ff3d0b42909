"""Small runs with chosen answers to report on, read as one who does not trust them."""

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Sequence
from html import unescape
from pathlib import Path
from typing import Any

from pages_kit import Read

from codevqa.eval import Store
from codevqa.eval.report.report import write_report
from codevqa.eval.run.run_info import RunInfo
from codevqa.eval.task import DatasetPicture, Example, Row

DATA = re.compile(r'\n<script type="text/plain" id="data">([A-Za-z0-9+/=]*)</script>')


def assert_safe(html: str) -> Read:
    """One page that asks for nothing and runs nothing but its own script, which the policy names."""
    script = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    assert len(script) == 1 and digest(script[0]) in policy_of(html)
    page = Read(DATA.sub("", html).replace(f"<script>{script[0]}</script>", ""))
    for element in page.elements:
        assert element.tag not in ("script", "iframe", "object", "embed", "link", "form", "base")
        for name, value in element.attributes.items():
            assert not name.startswith("on"), (element.tag, name)
            start = {"a": "#", "img": "data:image/webp;base64,"}.get(element.tag)
            assert name not in ("src", "href", "srcset") or (start and value.startswith(start)), name
            assert name != "style" or re.fullmatch("[-a-z0-9:;.%]*", value), value
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL)
    assert style and "url(" not in style[1] and "@import" not in style[1]
    return page


def read(*runs: Path, **options: Any) -> Read:
    """The report on runs, as its reader sees it above the list."""
    return assert_safe(write_report(runs, **options).page.read_text(encoding="utf-8"))


def listed(page: Path) -> dict[str, Any]:
    """What a page lists."""
    match = DATA.search(page.read_text(encoding="utf-8"))
    assert match is not None
    data: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(match[1])))
    return data


def digest(script: str) -> str:
    return f"script-src 'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}';"


def policy_of(html: str) -> str:
    (content,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    policy = unescape(content)
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-")
    return policy


def example(number: int, **other: Any) -> Example:
    defaults: dict[str, Any] = {
        "question": f"Is thing {number} red?",
        "images": (DatasetPicture(Path(f"/nowhere/{number}.jpg")),),
        "form": "image",
        "gold": ("yes",),
        "groups": {"structural": "verify" if number % 2 else "query", "spatial": "yes" if number % 3 else "no"},
        "cluster": str(number // 2),
    }
    return Example(f"{number:04}", **{**defaults, **other})


def make(
    path: Path,
    answers: Sequence[tuple[str, str]],
    *,
    info: dict[str, Any] | None = None,
    program: str = 'answer = query(img, "x")',
    alone: bool = False,
) -> Path:
    """A run with these answers of both methods, two questions a cluster or each alone; an empty one is a fallback."""
    defaults: dict[str, Any] = {
        "dataset": "gqa",
        "split": "val",
        "data_hash": "1",
        "prompts": "gqa",
        "prompt_hash": "ab",
    }
    failed: dict[str, Any]
    with Store.create(path, RunInfo(**{"methods": ("codevqa", "pnpvqa"), **defaults, **(info or {})})) as store:
        for number, (ours, theirs) in enumerate(answers):
            question = example(number, **({"cluster": str(number)} if alone else {}))
            call = {"name": "query", "arguments": {"img": {"image": 1}, "question": "x"}, "value": ours, "error": None}
            failed = {"fallback": True, "error": "ProgramTypeError", "message": "line 1: no"} if not ours else {}
            row = Row(question.id, "codevqa", 0, ours or theirs, program=program, trace={"calls": [call]}, **failed)
            store.add(question, [row, Row(question.id, "pnpvqa", 0, theirs)])
    return path


RIGHT, BETTER, WORSE, WRONG, FAILED = ("yes", "yes"), ("yes", "no"), ("no", "yes"), ("no", "no"), ("", "no")

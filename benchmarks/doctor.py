"""How often the chart finds what a model server does wrong, and how often it blames one that does nothing wrong.

    python benchmarks/doctor.py [--seeds 20] [--faultless 100] [--only FAULT ...]

A server on loopback answers the chart's requests over HTTP. It knows what is drawn on each card, and looks at it
through one fault at a time. A fault is found where the chart is not ``ok`` at its test; a false alarm is any test of a
server without faults that is not ``ok``.
"""

import argparse
import hashlib
import json
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from codevqa.core.images import Picture
from codevqa.engine import chart_cards
from codevqa.engine.chart import Examination, Finding
from codevqa.engine.chart_cards import ARROWS, COLORS, SHAPES
from codevqa.models.openai_eyes import OpenAIEyes, _encode_picture

LEGIBLE = 7.0
"""Pixels of a number's height that the server can read."""


@dataclass(frozen=True)
class Drawn:
    """What the server knows of a card."""

    marks: tuple[Any, ...]
    side: int
    turn: int


@dataclass(frozen=True)
class Fault:
    """Something that a server does wrong."""

    test: str
    """The test that should find it."""
    pictures: Callable[[list[Drawn]], list[Drawn]] = lambda pictures: pictures
    """What the server looks at in place of what it was sent."""
    reply: Callable[[str, str, bool], str] = lambda text, question, repeated: text
    """What it says in place of its answer."""
    pixels: int = 1 << 20
    """Longest side that it sees."""
    prompt: int = 1 << 30
    """Characters of a prompt that it reads, from its end."""
    chances: str = "told"
    """Log-probabilities: ``told``, ``none`` or ``empty``."""


def _guess(question: str, salt: str) -> str:
    chance = random.Random(f"{question}{salt}")
    if question.startswith("Is "):
        return str(chance.choice(("yes", "no")))
    if named := re.search(r"the (\w+) or the (\w+)\?", question):
        return str(chance.choice(named.groups()))
    words = COLORS if "color" in question else SHAPES if "shape" in question else ARROWS if "arrow" in question else ()
    if words:
        return str(chance.choice([*words]))
    if "How many" in question:
        return str(chance.randint(1, 12))
    return ", ".join(str(chance.randint(100, 999)) for _ in range(chance.randint(1, 10)))


def _think(mark: str) -> Callable[[str, str, bool], str]:
    return lambda text, question, repeated: mark.format("Let me look. It may be 123, red or left. Wait, no.") + text


def _waver(text: str, question: str, repeated: bool) -> str:
    if "Describe" in question:
        return f"{text} I see it in {random.randint(1000, 9999)} ways."
    return _guess(question, str(random.random())) if random.random() < 0.2 else text


def _cap(text: str, question: str, repeated: bool) -> str:
    return str(min(int(text), 3)) if "How many" in question else text


def _mirror(text: str, question: str, repeated: bool) -> str:
    if names := re.search(r"the (\w+) or the (\w+)\?", question):
        return names[2] if text == names[1] else names[1]
    return text


def _shuffle(pictures: list[Drawn]) -> list[Drawn]:
    return random.sample(pictures, len(pictures))


FAULTS: dict[str, Fault] = {
    "the first picture alone": Fault("pictures", lambda pictures: pictures[:1]),
    "the last picture alone": Fault("pictures", lambda pictures: pictures[-1:]),
    "one picture of ten dropped": Fault("pictures", lambda shown: shown[:4] + shown[5:] if len(shown) > 9 else shown),
    "five pictures at most": Fault("pictures", lambda pictures: pictures[:5]),
    "order reversed": Fault("pictures", lambda pictures: pictures[::-1]),
    "order lost": Fault("pictures", _shuffle),
    "shrunk to 64 pixels": Fault("smallest size", pixels=64),
    "blind, and silent about it": Fault("sees", lambda pictures: []),
    "yes to everything": Fault("yes and no", reply=lambda text, q, _: "yes" if text in ("yes", "no") else text),
    "random at temperature 0": Fault("same twice", reply=_waver),
    "log-probabilities missing": Fault("probabilities", chances="none"),
    "log-probabilities empty": Fault("probabilities", chances="empty"),
    "left and right swapped": Fault("left and right", reply=_mirror),
    "counts to three": Fault("counts", reply=_cap),
    "prompts cut at 2,000 tokens": Fault("longest prompt", prompt=6_800),
    **{
        f"thoughts in {mark.partition('{')[0].strip()}": Fault("thoughts", reply=_think(mark))
        for mark in (
            "<think>{}</think>",
            "<Thinking>{}</Thinking>\n",
            "[THINK]{}[/THINK]",
            "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>",
            "◁think▷{}◁/think▷",
            "<|channel>thought\n{}<channel|>",
            "<ponder>{} I am not sure what a shape is.</ponder> So I say: ",
        )
    },
}


@dataclass
class Refusal(Exception):
    """What a server says in place of an answer."""

    status: int
    words: str
    headers: dict[str, str]


class Server(ThreadingHTTPServer):
    """Looks at cards through a fault."""

    daemon_threads = True

    def __init__(self, fault: Fault, seconds: float = 0.0) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.fault, self.seconds = fault, seconds
        self.drawn: dict[str, Drawn] = {}
        self.asked: set[str] = set()
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def answer(self, body: dict[str, Any]) -> str:
        """Returns what it says to a request."""
        *shown, text = body["messages"][0]["content"]
        prompt = text["text"][-self.fault.prompt :]
        question, repeated = prompt.partition("\n")[0], json.dumps(body) in self.asked
        self.asked.add(json.dumps(body))
        pictures = self.fault.pictures([self.drawn[_digest(part["image_url"]["url"])] for part in shown])
        unseen = _guess(question, "".join(_digest(part["image_url"]["url"]) for part in shown))
        said = _look(pictures, question, self.fault.pixels) if pictures else _read(prompt) or unseen
        return self.fault.reply(said, question, repeated)


def _read(prompt: str) -> str:
    if "number of this text" not in prompt:
        return ""
    known = re.search(r"The number of this text is (\d+)", prompt)
    return known[1] if known else "I do not know."


def _look(pictures: list[Drawn], question: str, pixels: int) -> str:
    """Returns a right answer, as far as a side of so many pixels lets it be seen."""
    first = pictures[0]
    numbers = [mark[0] for picture in pictures for mark in picture.marks if _is_legible(mark, picture, pixels)]
    color = first.marks[0][3] if first.marks and len(first.marks[0]) > 3 else "white"
    shape = first.marks[0][0] if first.marks else "none"
    if question.startswith("Read"):
        colors = [picture.marks[0][3] for picture in pictures if len(picture.marks[0]) > 3]
        return ", ".join(colors if "colors" in question else numbers) or "none"
    if question.startswith("What number"):
        return numbers[0] if numbers else "none"
    if question.startswith("What color"):
        return color
    if asked := re.match(r"Is the \w+ (\w+)", question):
        return "yes" if asked[1] == color else "no"
    if side := re.match(r"Which is on the (left|right)", question):
        return str(first.marks[side[1] == "right"][0])
    if question.startswith("What is the shape"):
        return str(shape)
    if question.startswith("Where"):
        return next(name for name, turn in ARROWS.items() if turn == first.turn) if first.marks else "nowhere"
    if question.startswith("How many"):
        return str(len(first.marks))
    return f"A white card with {len(first.marks)} marks. One is {shape}."


def _is_legible(mark: tuple[Any, ...], picture: Drawn, pixels: int) -> bool:
    return str(mark[0]).isdigit() and mark[2] * min(1.0, pixels / picture.side) >= LEGIBLE


def _digest(uri: str) -> str:
    return hashlib.sha256(uri.encode()).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # one packet a reply

    def do_GET(self) -> None:
        self._send(404, {"error": {"message": "no such page"}}, {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(self.server.seconds)
        try:
            text = self.server.answer(body)
        except Refusal as refusal:
            self._send(refusal.status, {"error": {"message": refusal.words}}, refusal.headers)
            return
        message = {"role": "assistant", "content": text}
        choice: dict[str, Any] = {"index": 0, "finish_reason": "stop", "message": message}
        if "logprobs" in body and self.server.fault.chances != "none":
            other = "no" if text == "yes" else "yes"
            top = [{"token": text, "logprob": -0.01}, {"token": other, "logprob": -4.6}]
            told = self.server.fault.chances == "told"
            choice["logprobs"] = {"content": [{"token": text, "logprob": -0.01, "top_logprobs": top}] if told else []}
        usage = {"prompt_tokens": 20, "completion_tokens": max(1, len(text) // 4)}
        self._send(200, {"choices": [choice], "usage": usage}, {})

    def _send(self, status: int, reply: Any, headers: dict[str, str]) -> None:
        data = json.dumps(reply).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(fault: Fault, seconds: float = 0.0) -> Iterator[Server]:
    """Runs a server that is told what each card shows as it is drawn."""
    server, draw = Server(fault, seconds), chart_cards.draw_card

    def draw_and_tell(*marks: Any, side: int = chart_cards.SIDE, turn: int = 0) -> Picture:
        picture = draw(*marks, side=side, turn=turn)
        server.drawn[_digest(_encode_picture(picture, 1024))] = Drawn(marks, side, turn)
        return picture

    chart_cards.draw_card = draw_and_tell
    try:
        yield server
    finally:
        chart_cards.draw_card = draw
        server.shutdown()
        server.server_close()


def examine(fault: Fault, seed: int, seconds: float = 0.0) -> tuple[list[Finding], int]:
    """Returns what a chart finds of a server with a fault, and its requests."""
    with serving(fault, seconds) as server:
        eyes = OpenAIEyes("served", base_url=server.url)
        exam = Examination(eyes, seed=seed)
        findings = list(exam.findings())
        eyes.close()
    return findings, exam.requests


def main() -> None:
    """Prints how often each fault is found, and the false alarms."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=20)
    options.add_argument("--faultless", type=int, default=100)
    options.add_argument("--only", nargs="*", default=[*FAULTS])
    chosen = options.parse_args()
    random.seed(0)
    for name in chosen.only:
        fault, caught, shown = FAULTS[name], 0, ""
        for seed in range(chosen.seeds):
            findings, _ = examine(fault, seed)
            finding = next(finding for finding in findings if finding.test == fault.test)
            caught += finding.verdict != "ok"
            shown = f"{finding.test} {finding.verdict}: {finding.measured}"
        print(f"{name:<34}  {caught:>3} of {chosen.seeds}   {shown}", flush=True)
    alarms, most = 0, 0
    for seed in range(chosen.faultless):
        findings, requests = examine(Fault(""), 1000 + seed)
        bad = [finding for finding in findings if finding.verdict != "ok"]
        alarms, most = alarms + bool(bad), max(most, requests)
        for finding in bad:
            print(f"false alarm, seed {1000 + seed}: {finding}")
    print(f"false alarms: {alarms} of {chosen.faultless}; requests of a chart: at most {most}")
    began = time.monotonic()
    examine(Fault(""), 0, seconds=1.0)
    print(f"a server that takes a second a request: {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()

"""Runs what a page shows as it stands: lines of a shell, Python, sessions, and files that the text names.

Commands of ours run in this process, over engines that stay open. Any other line goes to a shell.
"""

import base64
import io
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from doctest import ELLIPSIS, OutputChecker
from pathlib import Path
from typing import Any

from cli_kit import ROOT, CommandLine, Done, environment
from openai_kit import Reply, turn
from PIL import Image

from codevqa.presets.configuration import configure

FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
OURS = re.compile(r"((?:[A-Z_]+=\S+ )*)(?:\.venv/bin/)?codevqa (.*)")
"""A command of ours after its variables; what a pipe sends it stands before."""
WRITTEN = ("--out", "--trace", "--page", "--junit", "--save")
"""Options that name a file or folder to write."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, by its kind and place; with the text before it."""

    page: str
    number: int
    kind: str
    text: str
    before: str

    @property
    def name(self) -> str:
        return f"{self.page} {self.number}"

    @property
    def lines(self) -> list[str]:
        """What a shell is to run, without what is only said of it."""
        lines = [re.split("(?:^|  +)#", line)[0] for line in self.text.splitlines()]
        return [line for line in lines if line] if self.kind in ("", "sh") else []

    def has(self, beginnings: tuple[str, ...]) -> bool:
        """Whether a line of it begins so."""
        return any(line.startswith(beginnings) for line in self.lines)

    @property
    def sessions(self) -> list[tuple[str, str]]:
        """Commands and what each prints."""
        parts = re.split(r"^\$ (.*)\n", self.text, flags=re.MULTILINE) if self.kind == "text" else []
        return list(zip(parts[1::2], parts[2::2], strict=True))


def read(page: str) -> str:
    """Returns the text of a page by its path in the checkout."""
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str) -> list[Block]:
    """Returns the blocks of a page in order."""
    text = read(page)
    return [
        Block(page, number, found[1], found[2], text[: found.start()])
        for number, found in enumerate(FENCED.finditer(text), 1)
    ]


def inline_commands(page: str) -> list[str]:
    """Returns the commands of ours that stand within the text."""
    return re.findall(r"`((?:[A-Z_]+=\S+ )*codevqa [a-z][^`]*)`", FENCED.sub("", read(page)))


def expect(block: Block | str, shown: str, output: str) -> None:
    """Fails where the output is not what is shown; ``...`` stands for anything."""
    assert OutputChecker().check_output(shown, output, ELLIPSIS), f"{block}\nshows\n{shown}\nand prints\n{output}"


def run_python(block: Block) -> str:
    """Runs a program and returns what it prints.

    What is said beside a ``print`` has to come in this order, alone on a line, but for words beside a colon. Files that
    it saves have to be there.
    """
    saved = [Path(name) for name in re.findall(r'\.save\w*\("([^"]+)"\)', block.text)]
    for path in saved:
        path.unlink(missing_ok=True)
    output = io.StringIO()
    with redirect_stdout(output):
        exec(compile(block.text, block.name, "exec"), {"__name__": "__main__"})
    lines = iter(output.getvalue().splitlines())
    for said in re.findall(r"^ *print\(.*\)  # (.*)", block.text, re.MULTILINE):
        assert any(line in said.split(": ") for line in lines), f"{block.name}: {said}\n{output.getvalue()}"
    assert [path for path in saved if not path.exists()] == [], block.name
    return output.getvalue()


class Reader:
    """Somebody who types what a page shows, in one folder."""

    def __init__(
        self,
        folder: Path,
        codevqa: CommandLine,
        variables: Callable[[str], dict[str, str]],
        before: dict[str, Callable[[], object]],
        says: dict[str, str],
    ) -> None:
        """Makes a reader.

        ``variables`` gives the environment of a line. Where a line begins so, ``before`` is done first, and what it
        prints holds the words of ``says``.
        """
        self.folder, self.codevqa, self.variables = folder, codevqa, variables
        self.before, self.says = before, says
        self.printed = ""
        """Output of the last Python block."""

    def follow(self, block: Block, leave_out: tuple[str, ...] = ()) -> None:
        """Does what a block shows, but for lines that begin so."""
        for line in block.lines:
            if not line.startswith(leave_out or "\0"):
                self.run(line)
        for line, output in block.sessions:
            done = self.run(line, check=False)
            expect(block.name, output, done.stdout + done.stderr)
        if block.kind == "python":
            self.printed = run_python(block)
        elif block.kind == "text" and not block.sessions:
            expect(block.name, block.text, self.printed)
        elif block.kind == "toml":
            name = "rules.toml" if "[[rule]]" in block.text else "my.toml"
            (self.folder / name).write_text(block.text, encoding="utf-8")
            if name == "rules.toml":
                tomllib.loads(block.text)
            else:
                configure(str(self.folder / name))
        elif block.kind == "json":
            (*_, named) = re.findall(r"`([\w/.]+\.jsonl?)`", block.before)
            assert (self.folder / named).read_text("utf-8").startswith(block.text), block.name
        assert block.kind in ("", "sh", "text", "python", "toml", "json"), f"{block.name}: nobody knows how to run it"

    def run(self, line: str, *, check: bool = True) -> Done:
        """Runs a line. It has to succeed, to print something, and to write the files that it names."""
        for begin, do in self.before.items():
            if line.startswith(begin):
                do()
        piped, _, last = line.rpartition(" | ")
        ours = OURS.fullmatch(last)
        done = (
            self._ours(ours[1], f"codevqa {ours[2]}", piped)
            if ours and not ours[2].startswith("demo")
            else self._shell(line)
        )
        if check:
            words = [*map(self._at, line.split())]
            files = [path for option, path in zip(line.split(), words[1:], strict=False) if option in WRITTEN]
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            assert [path for path in files if not path.exists()] == [], line
            assert done.stdout or files or not ours, f"{line}\n{done.stderr}"
            words_said = [said for begin, said in self.says.items() if line.startswith(begin)]
            assert all(said in done.stdout + done.stderr for said in words_said), (line, words_said, done)
        return done

    def _at(self, word: str) -> Path:
        return self.folder / word

    def _ours(self, variables: str, line: str, piped: str) -> Done:
        line, _, standard = line.partition(" <")
        words = [
            name
            for word in shlex.split(line)[1:]
            for name in (sorted(map(str, Path().glob(word))) if re.fullmatch(r"[\w/]*\*[\w.]*", word) else []) or [word]
        ]
        sent: str | bytes = "What color is the house?\n:trace talk.html\n"
        if standard or piped:
            sent = self._at(standard).read_bytes() if standard else self._shell(piped).stdout
        own = dict(pair.split("=", 1) for pair in variables.split())
        return self.codevqa(*words, stdin=sent, **{**own, **self.variables(line)})

    def _shell(self, line: str) -> Done:
        """Runs a line with this environment's programs. Nothing is downloaded; ``make`` takes what is installed."""
        tools = self.folder / "tools"
        tools.mkdir(exist_ok=True)
        (tools / "codevqa").write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m codevqa "$@"\n')
        (tools / "codevqa").chmod(0o755)
        paths = os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]])
        pip = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_QUIET": "1"}
        pip |= {"PIP_DRY_RUN": "1"} if "'." in line else {"PIP_NO_DEPS": "1", "PIP_TARGET": str(self.folder / "pip")}
        installed = f"make VENV={sys.prefix} -o {sys.prefix}/.installed "
        checkout = line.startswith("make ") or "'." in line
        process = subprocess.Popen(
            ["bash", "-c", re.sub("^make ", installed, line)],
            cwd=ROOT if checkout else self.folder,
            env={**environment(), **pip, "PATH": paths, "PYTHONPATH": str(ROOT), "BROWSER": "true"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if "demo" in line else subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        begun = ""
        if line.startswith("codevqa demo"):  # serves until it is told to end
            assert process.stdout is not None
            while "http://127.0.0.1:" not in begun:
                printed = process.stdout.readline()
                assert printed, begun
                begun += printed
            os.killpg(process.pid, signal.SIGTERM)  # SIGINT is ignored in the background of a shell
        output, errors = process.communicate(timeout=300)
        return Done(process.returncode, begun + output, errors or "")


ANIMALS = ("dog", "cat", "horse")
"""What the photographs show, by the channel of their color."""


def draw_photographs(folder: Path) -> None:
    """Draws nine pictures that ``answer_for_photographs`` knows for photographs, three of each animal."""
    folder.mkdir()
    for number in range(9):
        pixels = bytes(200 if channel == number % 3 else number for channel in range(3))
        Image.frombytes("RGB", (1, 1), pixels).resize((64, 48)).save(folder / f"{number}.png")


def answer_for_photographs(path: str, body: dict[str, Any], number: int) -> Reply:
    """Answers as a vision-language model on a server does: a program for a prompt, a word for a picture."""
    *examples, last = body["messages"]
    if isinstance(content := last["content"], str):
        question = content.removeprefix("# Question: ").partition("\n")[0]
        thing = question.removeprefix("How many ").removeprefix("pictures ").removeprefix("show ")
        if "images" in examples[-1]["content"]:
            asked = f"query(img, 'Is there {thing}') == 'yes'"
            return turn(f"count = 0\nfor img in images:\n    if {asked}:\n        count += 1\nanswer = count")
        return turn(f"answer = query(img, {question!r})")
    *shown, text = content
    url = shown[0]["image_url"]["url"].partition(",")[2]
    color = Image.open(io.BytesIO(base64.b64decode(url))).resize((1, 1)).getpixel((0, 0))
    assert isinstance(color, tuple)
    animal = ANIMALS[color.index(max(color))]
    words = {"How many": "2", "What animal": animal, "What": "sunny"}
    said = next((word for begin, word in words.items() if text["text"].startswith(begin)), "yes")
    chances = [{"token": said, "logprob": -0.01}, {"token": "no", "logprob": -4.6}]
    return turn(said, logprobs={"content": [{"token": said, "logprob": -0.01, "top_logprobs": chances}]})

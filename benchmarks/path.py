"""How much of this code one warm question runs through: files, functions and calls.

    python benchmarks/path.py [--calls N]     N functions that are called most

The engine is warm: it has answered another question about another picture. Questions and pictures are shipped.
"""

import argparse
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import codevqa
from codevqa import CodeVQA

ROOT = Path(__file__).parent.parent
WARM = (
    "examples/pictures/garden.png",
    ("Is there a red house?", "What color is the house?", "Is the car to the left of the house?"),
)
QUESTIONS = {
    "positions": ("examples/pictures/harbor.png", "Is the flag to the left of the boat?"),
    "captions": ("examples/pictures/harbor.png", "What color is the flag?"),
}
PARTS = [str(Path(codevqa.__file__).parent), str(ROOT / "eval"), str(ROOT / "prompts")]


def walk(picture: str, question: str) -> Counter[tuple[str, str]]:
    """Returns the functions of this project that a warm question calls, by file and name, and how often."""
    calls: Counter[tuple[str, str]] = Counter()
    files: dict[str, str] = {}
    counting = False

    def count(frame: FrameType, event: str, _: object) -> Callable[..., object] | None:
        if counting and event == "call":
            name = frame.f_code.co_filename
            if name not in files:
                files[name] = str(Path(name).resolve()) if name.startswith(tuple(PARTS)) else ""
            if files[name]:
                calls[files[name], frame.f_code.co_qualname] += 1
        return None

    threading.setprofile(count)
    sys.setprofile(count)
    try:
        with CodeVQA.from_preset("mini") as engine:
            for other in WARM[1]:
                engine.ask(ROOT / WARM[0], other)
            counting = True
            engine.ask(ROOT / picture, question)
            counting = False
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return calls


def main() -> None:
    """Prints a line for each question, and its files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=0, metavar="N")
    options = parser.parse_args()
    for name, (picture, question) in QUESTIONS.items():
        calls = walk(picture, question)
        files: Counter[str] = Counter()
        for (file, _), count in calls.items():
            files[file] += count
        print(f"{name}: {len(files)} files, {len(calls)} functions, {calls.total():,} calls: {question}")
        for file, count in files.most_common():
            functions = sum(file == other for other, _ in calls)
            print(f"  {count:5} {functions:3} {Path(file).relative_to(ROOT.resolve())}")
        for (file, function), count in calls.most_common(options.calls):
            print(f"  {count:5} {Path(file).relative_to(ROOT.resolve())} {function}")


if __name__ == "__main__":
    main()

"""Programs as language models write them give what CPython gives, call by call; those that cannot say what to write."""

# ruff: noqa: E501 -- a program reads best on one line

from pathlib import Path
from typing import Any

import pytest
from beside_cpython import IMAGES, Maker, compare, in_cpython, in_sandbox
from sandbox_kit import Kit, answering

from codevqa.core.errors import ProgramError

FILE = Path(__file__).parent / "data" / "programs_beside_cpython.txt"
PROGRAMS = [f"img = images[0]\n{source}" for source in FILE.read_text("utf-8").split("\n---\n")]


def test_programs_give_what_cpython_gives(kit: Kit) -> None:
    assert len(PROGRAMS) >= 220
    differ = []
    for source in PROGRAMS:
        ours, theirs = in_sandbox(kit, source), in_cpython(source)
        if ours != theirs:
            differ.append(f"{source}\n-> {ours}\nnot {theirs}")
    assert not differ, "\n\n".join([f"{len(differ)} of {len(PROGRAMS)}", *differ])


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the clock rings in any code
def test_programs_at_random_are_the_same_or_refused(kit: Kit) -> None:
    sources = [Maker(seed).program() for seed in range(60)]
    assert not [source for source in sources if compare(kit, source) == "different"]


LEFT_OUT = {
    "class Thing(dict):\n    pass\nanswer = 1": "Write functions, and raise ValueError for an error of your own.",
    "class Thing:\n    @property\n    def name(self):\n        return 'cat'\nanswer = 1": "Write plain functions and methods.",
    "def f():\n    x = yield 1\nanswer = list(f())": "Append to a list and return it.",
    "class Thing:\n    def parts(self):\n        yield 1\nanswer = list(Thing().parts())": "Append to a list and return it.",
    "class A:\n    pass\na = A()\na.x = 1\ndel a.x\nanswer = 2": "Write x.pop(key), or give the name another value.",
    "from math import *\nanswer = sqrt(4)": "Import each name that you use.",
    "import re\nanswer = re.sub('a', lambda m: 'b', 'aa')": "Join what re.split returns, or use str.replace.",
    "from collections import defaultdict\nd = defaultdict(lambda: query(images[0], 'a'))\nanswer = d['b']": "Call it before",
    "import statistics\nanswer = statistics.mean([1, 2])": "Write sum(xs) / len(xs)",
    "from statistics import mode\nanswer = mode('aab')": "max(xs, key=xs.count)",
    "import operator\nanswer = max([(1, 2)], key=operator.itemgetter(1))": "Write a lambda.",
    "import string\nanswer = string.digits": "Write the characters",
    "g = (query(im, 'is it?') for im in images)\nanswer = list(g)": "Write a list: [...]",
    "for said in (query(im, 'is it?') for im in images):\n    answer = said": "Write a list: [...]",
    "m = map(int, ['1', '2'])\nanswer = [sum(m), sum(m)]": "or list(...)",
    "answer = [w for w in map(lambda im: query(im, 'is it?'), images)]": "or list(...)",
    "pairs = zip('ab', [1, 2])\nanswer = list(pairs)": "or list(...)",
    "answer = 'yes' in (query(im, 'is it?') for im in images)": "Write a list: [...]",
    "xs = [1, 2]\nfor i, x in enumerate(xs):\n    if i < 2:\n        xs.append(x)\nanswer = xs": "Loop over a copy",
    "class A:\n    def __bool__(self):\n        return False\nanswer = 1 if A() else 2": "Write plain functions and methods.",
    "class A:\n    def __len__(self):\n        return 0\nanswer = 1 if A() else 2": "Write plain functions and methods.",
    "class A:\n    def __iadd__(self, o):\n        return self\na = A()\na += 1\nanswer = 1": "Write plain functions and methods.",
    "try:\n    raise ValueError('a', 3)\nexcept ValueError as e:\n    answer = str(e)": "Raise ValueError(f'...').",
    "a = 'cat'\nanswer = a is f'{a}'": "Write ==.",
    "f = lambda ims: any((hit := im).width > 1 for im in ims)\nanswer = f(images)": "Write a function with a for loop.",
    "answer = {im: 1 for im in images}": "Use texts or numbers as keys.",
}
"""Programs that CPython runs and the sandbox does not, and what the error says to write instead."""


@pytest.mark.parametrize("source", LEFT_OUT)
def test_programs_that_cannot_run_are_told_what_to_write(kit: Kit, source: str) -> None:
    assert not str(in_cpython(source)[0]).startswith("fails")
    calls = []

    async def host(*call: Any) -> object:
        calls.append(call)
        return await answering(*call)

    with pytest.raises(ProgramError) as caught:
        kit.runner.run(kit.box.run(source, host, images=IMAGES))
    assert not calls
    assert LEFT_OUT[source] in str(caught.value)

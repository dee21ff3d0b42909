"""What the sandbox must withstand: each probe is one program and one property of how it ends.

The probes follow the public record of escapes from sandboxes that run model-written Python. Most are *contained*: the
program ends with a typed error or a harmless answer, and nothing of the host shows in either.
"""

# ruff: noqa: E501 -- a probe reads best on one line

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Any

import pytest
from sandbox_kit import IMAGES, PRIMITIVES, Kit, answering

from codevqa.core.errors import ProgramError
from codevqa.sandbox import Sandbox

SECRET = "sk-secret-of-the-host-7f3a"
Args = tuple[Any, ...]

REFUSED = {
    # names and imports
    "import os.system": "import os\nanswer = os.system('id')",
    "listdir": "import os\nanswer = os.listdir('/')",
    "environ": "import os\nanswer = dict(os.environ)",
    "getenv": "import os\nanswer = os.getenv('CODEVQA_SECRET', 'x') + ''",
    "from os import *": "from os import *\nanswer = listdir('/')",
    "__import__": "answer = __import__('os').getcwd()",
    "importlib": "import importlib\nanswer = importlib.import_module('os')",
    "builtins": "import builtins\nanswer = builtins.open",
    "__builtins__": "answer = __builtins__['open']",
    "sys.modules": "import sys\nanswer = list(sys.modules)",
    "sys._getframe": "import sys\nanswer = sys._getframe(1).f_globals",
    "subprocess": "import subprocess\nanswer = subprocess.run(['id'])",
    "socket": "import socket\nanswer = socket.socket()",
    "urllib": "import urllib.request\nanswer = urllib.request.urlopen('http://127.0.0.1')",
    "ctypes": "import ctypes\nanswer = 1",
    "_ctypes": "import _ctypes\nanswer = 1",
    "cffi": "import cffi\nanswer = 1",
    "mmap": "import mmap\nanswer = 1",
    "pickle": "import pickle\nanswer = pickle.dumps(1)",
    "threading": "import threading\nanswer = 1",
    "multiprocessing": "import multiprocessing\nanswer = 1",
    "open": "answer = open('/etc/passwd').read()",
    "open for writing": "open('/tmp/codevqa-probe', 'w').write('x')\nanswer = 1",
    "open fd": "answer = open(0).read()",
    "proc": "answer = open('/proc/self/environ').read()",
    "pathlib": "from pathlib import Path\nanswer = Path('/etc/passwd').read_text()",
    "pathlib write": "from pathlib import Path\nPath('/tmp/codevqa-probe').write_text('x')\nanswer = 1",
    "input": "answer = input()",
    "compile": "answer = compile('1', '', 'eval')",
    "globals": "answer = list(globals())",
    "vars": "answer = vars(images[0])",
    "dir": "answer = dir()",
    "breakpoint": "breakpoint()\nanswer = 1",
    "help": "help()\nanswer = 1",
    "exit": "exit()\nanswer = 1",
    "quit": "quit()\nanswer = 1",
    "memoryview": "answer = memoryview(b'a')",
    "host names": "answer = SECRET",
    "host modules": "answer = codevqa.sandbox.sandbox",
    "import codevqa": "import codevqa\nanswer = codevqa.__file__",
    "import host dependency": "import pydantic_monty\nanswer = pydantic_monty.__file__",
    "random._os": "import random\nanswer = random._os",
    "json internals": "import json\nanswer = json.codecs.builtins",
    "typing.sys": "import typing\nanswer = typing.sys.modules",
    "exec of an import": "exec('import subprocess')\nanswer = 1",
    "eval of open": "answer = eval(\"open('/etc/passwd').read()\")",
    "NFKC import": "answer = __ｉmport__('os').listdir('/')",
    "NFKC open": "answer = ｏpen('/etc/passwd').read()",
    # attribute walks
    "tuple class walk": "answer = ().__class__.__base__.__subclasses__()",
    "list class walk": "answer = [].__class__.__mro__[1].__subclasses__()",
    "str class walk": "answer = ''.__class__.__bases__[0].__subclasses__()",
    "int class walk": "answer = (1).__class__.__base__.__subclasses__()",
    "primitive class walk": "answer = query.__class__.__base__.__subclasses__()",
    "image class walk": "answer = images[0].__class__.__base__.__subclasses__()",
    "image type walk": "answer = type(images[0]).__mro__[-1].__subclasses__()",
    "Image class walk": "answer = Image.__subclasses__()",
    "image picture": "answer = images[0].picture.name",
    "image __dict__": "answer = images[0].__dict__['picture']",
    "image __reduce__": "answer = images[0].__reduce__()",
    "image __init__ globals": "answer = images[0].__init__.__globals__",
    "image method": "answer = images[0].__getattribute__('picture')",
    "image construct": "answer = type(images[0])('/etc/passwd')",
    "__globals__": "answer = query.__globals__",
    "__closure__": "answer = query.__closure__",
    "__code__": "answer = query.__code__",
    "__self__": "answer = query.__self__",
    "__wrapped__": "answer = query.__wrapped__",
    "__defaults__": "answer = query.__defaults__",
    "own function globals": "def f():\n    pass\nanswer = f.__globals__",
    "lambda code": "answer = (lambda: 1).__code__.co_consts",
    "class init globals": "class A:\n    def __init__(self):\n        pass\nanswer = A.__init__.__globals__",
    "type dict": "answer = type.__dict__['__subclasses__'](object)",
    "object subclasses": "answer = object.__subclasses__()",
    "getattr literal": "answer = getattr((), '__class__').__base__.__subclasses__()",
    "getattr computed": "answer = getattr(query, '__glo' + 'bals__')",
    "getattr chr": "answer = getattr(query, chr(95) * 2 + 'globals' + chr(95) * 2)",
    "setattr on a primitive": "setattr(query, '__code__', 1)\nanswer = 1",
    "getattr by map": "answer = list(map(getattr, [query], ['__globals__']))",
    "getattr by partial": "import functools\nanswer = functools.partial(getattr, query)('__globals__')",
    "getattr as key": "answer = sorted([query], key=lambda f: getattr(f, '__globals__'))",
    "operator": "import operator\nanswer = operator.attrgetter('__globals__')(query)",
    "NFKC attribute": "answer = query.__ｇlobals__",
    # each syntactic path to an attribute
    "assign": "query.__code__ = 1\nanswer = 1",
    "augmented assign": "query.__globals__ += 1\nanswer = 1",
    "delete": "del query.__globals__\nanswer = 1",
    "for target": "for query.__x__ in [1]:\n    pass\nanswer = query.__globals__",
    "for iterable": "for x in query.__globals__:\n    pass\nanswer = 1",
    "with target": "with open('/etc/passwd') as images[0].x:\n    pass\nanswer = 1",
    "star target": "*query.__globals__, x = [1, 2]\nanswer = query.__globals__",
    "match class": "match query:\n    case object(__globals__=g):\n        answer = g",
    "decorator": "@query.__globals__\ndef f():\n    pass\nanswer = 1",
    "default": "def f(x=query.__globals__):\n    return x\nanswer = f()",
    "comprehension": "answer = [x for x in query.__globals__]",
    "except as": "try:\n    1 / 0\nexcept query.__globals__ as e:\n    answer = 1",
    "except star": "try:\n    1 / 0\nexcept* ZeroDivisionError as e:\n    answer = 1",
    "metaclass": "class M(type):\n    pass\nclass A(metaclass=M):\n    pass\nanswer = 1",
    "type statement": "type X = int\nanswer = 1",
    "template string": "answer = t'{images}'",
    "yield": "def f():\n    yield 1\nanswer = f().gi_frame",
    "positional-only shadows": "def f(query, /, *, images=1, **Image):\n    return query.__globals__\nanswer = f(query)",
    # strings as code
    "format class": "answer = '{0.__class__.__base__}'.format(())",
    "format globals": "answer = '{0.__globals__}'.format(query)",
    "format picture": "answer = '{0.picture}'.format(images[0])",
    "format unbound": "answer = str.format('{0.__class__.__mro__}', 1)",
    "format_map": "answer = '{a.__class__.__mro__}'.format_map({'a': 1})",
    "f-string": "answer = f'{query.__globals__}'",
    "string.Formatter": "import string\nanswer = string.Formatter().format('{0.__class__}', 1)",
    # frames and exceptions
    "traceback frames": "try:\n    1 / 0\nexcept Exception as e:\n    answer = e.__traceback__.tb_frame.f_back.f_globals",
    "host error frames": "try:\n    query(1, 2)\nexcept Exception as e:\n    answer = e.__traceback__.tb_frame.f_globals",
    "gi_frame": "answer = (x for x in [1]).gi_frame.f_back",
    "cr_frame": "async def f():\n    pass\nanswer = f().cr_frame.f_globals",
    "AttributeError.obj": "try:\n    query.nothing\nexcept AttributeError as e:\n    answer = e.obj.__globals__",
    "exception context": "try:\n    query(1, 2)\nexcept Exception as e:\n    answer = e.__context__.__traceback__.tb_frame",
    "SystemExit": "raise SystemExit(0)",
    "KeyboardInterrupt": "raise KeyboardInterrupt",
    "GeneratorExit": "raise GeneratorExit",
}


@pytest.mark.parametrize("probe", REFUSED)
def test_refused(kit: Kit, probe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODEVQA_SECRET", SECRET)
    with pytest.raises(ProgramError) as caught:
        kit.value(REFUSED[probe])
    # Neither paths nor secrets of the host in the message.
    assert SECRET not in str(caught.value)
    assert str(Path(__file__).parents[1]) not in str(caught.value)
    assert "root:" not in str(caught.value)
    assert not Path("/tmp/codevqa-probe").exists()


HARMLESS = {
    # It runs, and what it sees is its own.
    "exec": ("exec('answer = 1 + 1')", 2),
    "eval": ("answer = eval('1 + 1')", 2),
    "cwd": ("import os\nanswer = os.getcwd()", "/"),
    "locals hold no host objects": ("answer = [k for k in locals() if k == 'SECRET']", []),
    "rebinding a builtin": ("len = lambda x: 7\nanswer = len([])", 7),
    "rebinding a primitive": ("query = lambda i, q: 'mine'\nanswer = query(images[0], 'a')", "mine"),
    "rebinding type": ("type = isinstance = len = str = lambda *a: 'x'\nanswer = 'fine'", "fine"),
    "rebinding the prelude": ("__answer__ = __order__ = __best__ = lambda *a: ''\nanswer = sorted([2, 1])", [1, 2]),
    "changing a handle": ("images[0].width = 10**6\nanswer = images[0].width", 10**6),
    "percent format": ("answer = '%s %d' % ('a', 1)", "a 1"),
    "except BaseException": ("try:\n    1 / 0\nexcept BaseException:\n    answer = 'caught'", "caught"),
    "bool": ("answer = True", True),
    "self-containing list in print": ("a = []\na.append(a)\nprint(a)\nanswer = 1", 1),
    "lying str methods": ("class S:\n    def __eq__(self, o):\n        return True\nanswer = [S() == 1]", [True]),
}


@pytest.mark.parametrize("probe", HARMLESS)
def test_harmless(kit: Kit, probe: str) -> None:
    source, expected = HARMLESS[probe]
    assert kit.value(source) == expected


def test_a_changed_handle_is_still_the_host_s_image(kit: Kit) -> None:
    seen: list[object] = []

    async def host(name: str, args: Args, kwargs: dict[str, Any], line: int | None) -> object:
        seen.append(args[0])
        return "a"

    kit.value("images[0].width = 10**6\nimages[0].index = 3\nanswer = query(images[0], 'a')", host)
    assert seen[0] is IMAGES[0]
    assert (IMAGES[0].width, IMAGES[0].index) == (8, 1)


# -- state, environment ------------------------------------------------------------------------------------------------

CARRIED = [
    ("x = 1\nanswer = 1", "answer = x"),
    ("sorted = 1\nanswer = 1", "answer = sorted([2, 1])[0] / 0"),
    ("import json\njson.dumps = 5\nanswer = 1", "import json\nanswer = json.dumps.nothing"),
    ("import math\nmath.pi = 3\nanswer = 1", "import math\nanswer = 1 / (math.pi == 3)"),
    ("def query(i, q):\n    return 'mine'\nanswer = 1", "answer = 1 / (query(images[0], 'a') == 'mine')"),
    ("Image.evil = 1\nanswer = 1", "answer = Image.evil"),
    ("images[0].evil = 1\nanswer = 1", "answer = images[0].evil"),
    ("__answer__ = lambda *a: 1 / 0\nanswer = 1", "answer = lambda: 1"),
]


@pytest.mark.parametrize(("first", "second"), CARRIED)
def test_no_state_is_carried_to_the_next_program(first: str, second: str) -> None:
    async def main() -> None:
        async with Sandbox(PRIMITIVES, workers=1) as box:
            for _ in range(3):
                with contextlib.suppress(ProgramError):
                    await box.run(first, answering, images=IMAGES)
                with pytest.raises(ProgramError):
                    await box.run(second, answering, images=IMAGES)

    asyncio.run(main())


def test_random_numbers_start_the_same_in_every_program(kit: Kit) -> None:
    source = "import random\nanswer = [random.random(), random.randint(0, 10**9)]"
    assert kit.value(source) == kit.value(source)


def test_the_workers_environment_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODEVQA_SECRET", SECRET)
    seen: list[bytes] = []

    async def host(name: str, args: Args, kwargs: dict[str, Any], line: int | None) -> object:
        me = os.getpid()
        for status in Path("/proc").glob("[0-9]*/stat"):
            try:
                parent = int(status.read_text().rsplit(")", 1)[1].split()[1])
                if parent == me and b"monty" in (status.parent / "cmdline").read_bytes():
                    seen.append((status.parent / "environ").read_bytes())
            except (OSError, ValueError):
                continue
        return "a"

    async def main() -> None:
        async with Sandbox(PRIMITIVES, workers=1) as box:
            await box.run("answer = query(images[0], 'a')", host, images=IMAGES)

    if not Path("/proc/self/stat").exists():
        pytest.skip("needs /proc")
    asyncio.run(main())
    assert seen
    assert all(not environ.strip(b"\0") for environ in seen)

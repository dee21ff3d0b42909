"""Answers to show, and a reader of pages that does not trust them."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

from browser_kit import Visitor
from PIL import Image

from codevqa.core.answer import Answer
from codevqa.core.errors import ErrorRecord
from codevqa.core.images import Picture, load_picture
from codevqa.core.trace import Call, Draft, Evidence, ImageRef, Program, Trace

if TYPE_CHECKING:
    from demo_kit import Server
    from playwright.sync_api import Browser

HOSTILE = '</script></style></title></textarea><img src=x onerror="alert(1)">\'"`{{7*7}}<!--<b>&amp;]]>'
SOURCE = """img = open_image("Image1.jpg")
for name in ["cat", "dog", "cow", "hen", "pig", "bee"]:
    there = query(img, f"Is there a {name}?")
x, y = get_pos(img, "cat")
answer = there
"""


def picture(width: int = 40, height: int = 30, color: str = "#3366cc", name: str = "") -> Picture:
    unnamed = load_picture(Image.new("RGB", (width, height), color))
    return Picture(unnamed.pixels, unnamed.key, name)


PICTURES = (picture(60, 40, name="first.png"), picture(40, 40, "red", "second.png"), picture(30, 50, "green"))


def peaked(rows: int, columns: int, row: int, column: int) -> tuple[tuple[float, ...], ...]:
    """A map with everything in one cell."""
    return tuple(tuple(float((r, c) == (row, column)) for c in range(columns)) for r in range(rows))


READ = Evidence(
    "pnpvqa",
    (ImageRef(1),),
    "Is there a cat?",
    captions=(("a red cat", "a cat on a mat"),),
    relevance=(peaked(16, 16, 2, 3),),
    patches=(((35, 36, 52), (0, 255)),),
    prompt="Context: A red cat.\nQ: Is there a cat?\nA:",
    completion=" Yes",
)
PLACED = Evidence(
    "gradcam",
    (ImageRef(1),),
    "cat",
    relevance=(peaked(24, 24, 5, 20),),
    scores=(3.25,),
    position=(20.5, 18.5),
)
MATCHED = Evidence("itc", (ImageRef(1), ImageRef(2), ImageRef(3)), "a picture of a cat", scores=(-0.1, 0.3, 0.3))


def asked(index: int, value: str = "yes", **fields: object) -> Call:
    arguments = {"img": ImageRef(1), "question": f"Is there a {index}?"}
    return Call(index, "query", arguments, value, 0.25, 3, (READ,), **fields)  # type: ignore[arg-type]


def answer(**fields: object) -> Answer:
    """An answer by a program with a loop, with all kinds of evidence."""
    calls = (
        Call(1, "open_image", {"path": "Image1.jpg"}, ImageRef(1), 0.0001, 1),
        *(asked(index, value) for index, value in enumerate(("yes", "no", "red", "two", "yes", "no"), 2)),
        Call(8, "get_pos", {"img": ImageRef(1), "object": "cat"}, (20.5, 18.5), 0.5, 4, (PLACED,)),
        Call(9, "find_matching_image", {"images": [ImageRef(1), ImageRef(2)]}, ImageRef(2), 0.1, None, (MATCHED,)),
    )
    program = Program(SOURCE, "Is it there?", "image", ("mini-7", "mini-3"), "THE PROMPT", "THE COMPLETION")
    defaults: dict[str, object] = {
        "question": "Is it there?",
        "text": "no",
        "program": program,
        "trace": Trace(calls, "it printed this\n", ((Program("x = (", completion="first try"), SYNTAX),)),
        "value": "no",
        "seconds": 3.5,
        "models": {"writer": "writing-model", "reader": "reading-model"},
        "tokens": 1234,
    }
    return Answer(**(defaults | fields))  # type: ignore[arg-type]


SYNTAX = ErrorRecord("ProgramSyntaxError", "line 1: '(' was never closed", 1)
TYPE = ErrorRecord("ProgramTypeError", "line 4: no name 'cat'", 4)


def hostile() -> tuple[Answer, tuple[Picture, ...]]:
    """An answer in which everything a user, a model or a file could say attacks the page."""
    bad = HOSTILE
    read = Evidence(
        bad,
        (ImageRef(1),),
        bad,
        ((bad,),),
        (peaked(4, 4, 0, 0),),
        (((1,),),),
        prompt=bad,
        completion=bad,
    )
    match = Evidence("itc", (ImageRef(1), ImageRef(2)), bad, scores=(0.5, 0.25))
    program = Program(f"# {bad}\nx = query(img, '''{bad}''')\n{bad}", bad, "set", (bad,), bad, bad)
    error = ErrorRecord(bad, bad, 2)
    calls = (
        Call(1, bad, {bad: bad, "more": {bad: [bad]}}, bad, 0.5, 2, (read, match)),
        Call(2, bad, {}, None, 0.5, 3, (), ErrorRecord(bad, bad)),
    )
    attempts = ((Program(bad, bad, prompt=bad, completion=bad), ErrorRecord(bad, bad)), (program, error))
    trace = Trace(calls, bad, attempts, (read,), (Draft(bad, (bad,), 0.5, 1, "fails", True),))
    answer = Answer(bad, bad, program, trace, bad, fallback=True, error=error, seconds=2.0, models={bad: bad})
    return answer, (picture(name=bad), picture(color="red", name=bad + ".png"))


@dataclass
class Element:
    """One element of a page."""

    tag: str
    attributes: dict[str, str]
    text: str = ""
    inside: list[Element] = field(default_factory=list)
    """Itself and the elements it stands in, the innermost last."""

    @property
    def classes(self) -> list[str]:
        return self.attributes.get("class", "").split()


class Read(HTMLParser):
    """A page as a browser's parser sees it: every element, with all text below it."""

    VOID = frozenset({"img", "meta", "br", "link", "input", "circle", "path", "base", "area", "hr"})

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[Element] = []
        self._open: list[Element] = []
        self._words: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open, [element.tag for element in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        element.inside = [*self._open, element]
        self.elements.append(element)
        if tag not in self.VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self._open and self._open[-1].tag == tag, (
                f"</{tag}> closes {[element.tag for element in self._open]}"
            )
            self._open.pop()

    @property
    def text(self) -> str:
        """All words, one space between them."""
        return " ".join(" ".join(self._words).split())

    def handle_data(self, data: str) -> None:
        self._words.append(data)
        for element in self._open:
            element.text += data

    def all(self, tag: str = "", **wanted: str) -> list[Element]:
        """Elements of a tag; ``cls`` names a class, other keywords attributes (``data_state``)."""
        cls = wanted.pop("cls", None)
        return [
            element
            for element in self.elements
            if (not tag or element.tag == tag)
            and (cls is None or cls in element.classes)
            and all(element.attributes.get(name.replace("_", "-")) == value for name, value in wanted.items())
        ]

    def element(self, tag: str = "", **wanted: str) -> Element:
        (element,) = self.all(tag, **wanted)
        return element


def opened(uri: str) -> Image.Image:
    """Returns the picture of a data URI."""
    head, data = uri.split(",", 1)
    assert head.startswith("data:image/") and head.endswith(";base64")
    return Image.open(io.BytesIO(base64.b64decode(data)))


@contextmanager
def visiting(browser: Browser, server: Server | None = None) -> Iterator[Callable[..., Visitor]]:
    """Opens the demo, or pages that are files.

    Afterwards none may have asked for anything else or complained, but for the guilty.
    """
    visitors: list[tuple[Visitor, str]] = []

    def visit(page: Path | None = None, *, state: str = "", innocent: bool = True, **options: Any) -> Visitor:
        visitor = Visitor(browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | options), server)
        url = page.as_uri() if page else visitor.open().page.url
        visitors.append((visitor, url if innocent else ""))
        if page:
            visitor.page.goto(f"{url}{state}")
        return visitor

    yield visit
    for visitor, url in visitors:
        visitor.context.close()
        asked = [request for request in visitor.requests if not request.startswith((url, "data:", "blob:"))]
        assert not url or (asked, visitor.complaints) == ([], []), (asked, visitor.complaints)

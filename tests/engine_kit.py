"""What tests of the engine share."""

import multiprocessing
import threading
from collections.abc import AsyncIterable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from PIL import Image as PILImage

from codevqa import CodeVQA, QuerySettings, Settings, WriterSettings
from codevqa.core.settings import Limits
from codevqa.core.trace import Form
from codevqa.models.fakes import FakeCaptioner, FakeDetector, FakeMatcher, ScriptedLM
from codevqa.models.protocols import GenerationRequest, LanguageModel, Models
from codevqa.primitives import Primitive
from codevqa.prompts import PromptSet, load_prompt_set
from codevqa.writing.writer import Writer

RED, GREEN, BLUE = (PILImage.new("RGB", (60, 40), color) for color in ("red", "green", "blue"))
NARROW = Settings(limits=Limits(seconds=1, wall_seconds=20, calls=50))


def reader(answers: dict[str, str] | None = None) -> ScriptedLM:
    """A reading model that gives each question its answer, or yes."""

    def read(request: GenerationRequest) -> str:
        question = str(request.prompt).rsplit("Q: ", 1)[1].removesuffix("\nA:")
        return (answers or {}).get(question, " yes\n")

    return ScriptedLM(read, name="reader")


def engine(
    programs: LanguageModel | str | Sequence[str] | Callable[[GenerationRequest], str] = "",
    read: LanguageModel | Callable[[GenerationRequest], str] | str | None = None,
    *,
    answers: dict[str, str] | None = None,
    settings: Settings | None = None,
    matcher: FakeMatcher | None = None,
    captioner: FakeCaptioner | None = None,
    detector: FakeDetector | None = None,
    models: Models | None = None,
    primitives: Sequence[Primitive] = (),
    prompts: Mapping[Form, PromptSet] | None = None,
    repairs: int = 1,
    fit: bool = True,
    **numbers: Any,
) -> CodeVQA:
    """An engine over fake models, or these.

    Args:
        programs: the writer, or what it writes.
        read: the reader, or what it reads; else it gives each question of ``answers`` its answer, or yes.
        numbers: settings in place of the kit's, where ``settings`` are not given.
    """
    written = WriterSettings(selection="fixed", repairs=repairs, fit=fit)
    built: Any = programs
    writer = Writer(
        built if hasattr(built, "generate") else ScriptedLM(built, name="writer"),
        prompts or {"image": load_prompt_set("gqa"), "set": load_prompt_set("covr")},
        settings=settings.writer if settings and settings.writer != WriterSettings() else written,
    )
    reads: Any = ScriptedLM(read, name="reader") if isinstance(read, str) or callable(read) else read
    captions = captioner or FakeCaptioner(lambda request: f"thing {request.seed}", grid=6)
    models = models or Models(reads or reader(answers), matcher or FakeMatcher(6), captions, detector)
    used = settings or Settings(**{"query": QuerySettings(captions=2, patches=5), "workers": 8, **numbers})
    return CodeVQA(writer, models, used, primitives=primitives)


class Gate:
    """A reading model that waits to be let through."""

    def __init__(self) -> None:
        self.entered, self.open = threading.Event(), threading.Event()
        self.questions: list[str] = []

    def __call__(self, request: GenerationRequest) -> str:
        self.questions.append(str(request.prompt).rsplit("Q: ", 1)[1].removesuffix("\nA:"))
        self.entered.set()
        assert self.open.wait(20), "nobody let it through"
        return " yes"


def children() -> set[str]:
    """Process ids of this process's children."""
    collected: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # a thread may end while they are listed
            collected.update((task / "children").read_text().split())
    return collected


def held() -> tuple[set[str], int, int]:
    """What this process holds: children, threads, descriptors."""
    return children(), threading.active_count(), sum(1 for _ in Path("/proc/self/fd").iterdir())


def forked(work: Callable[[], object]) -> str:
    """What work gives, or raises, in a child that was forked off."""
    context = multiprocessing.get_context("fork")
    reading, writing = context.Pipe(duplex=False)

    def child() -> None:
        try:
            writing.send(str(work()))
        except BaseException as error:  # noqa: BLE001 - it is told
            writing.send(f"{type(error).__name__}: {error}")

    process = context.Process(target=child)
    process.start()
    try:
        assert reading.poll(20), "it hangs"
        return str(reading.recv())
    finally:
        process.kill()
        process.join()
        reading.close()
        writing.close()


async def last_of(answers: AsyncIterable[object]) -> object:
    """Takes all that comes, and returns the last."""
    return [answer async for answer in answers][-1]

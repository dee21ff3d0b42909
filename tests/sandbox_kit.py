"""A small vocabulary and one shared pool of workers for the sandbox's tests."""

import asyncio
from typing import Any

from PIL import Image as PILImage

from codevqa.core.images import load_picture
from codevqa.primitives import Image, PrimitiveSet, primitive
from codevqa.sandbox import Host, Limits, Outcome, Sandbox


@primitive
async def query(img: Image, question: str) -> str:
    """Answers a question about the picture."""
    return f"{question} {img.index}"


@primitive
async def get_pos(img: Image, object: str) -> tuple[float, float]:
    """Returns where the object is."""
    return (float(img.index), 24.0 - img.index)


@primitive
async def find_matching_image(images: list[Image], phrase: str) -> Image:
    """Returns the picture that fits the phrase: the last one."""
    return images[-1]


@primitive
async def maybe_image(images: list[Image]) -> Image | None:
    """Returns a picture, or None."""
    return images[0] if images else None


PRIMITIVES = PrimitiveSet([query, get_pos, find_matching_image, maybe_image])
IMAGES = [Image(number, load_picture(PILImage.new("RGB", (8, 6), (number, 0, 0)))) for number in (1, 2, 3)]
LIMITS = Limits(seconds=0.5, wall_seconds=20, calls=50)
Args = tuple[Any, ...]


async def answering(name: str, args: Args, kwargs: dict[str, Any], line: int | None) -> object:
    """Answers calls the way the engine does: bind, then run the implementation."""
    return await PRIMITIVES.get(name).call(None, PRIMITIVES.get(name).bind(args, kwargs))


def saying(reply: object) -> Host:
    """Answers every call with one value, or raises it where it is an error."""

    async def host(*_: object) -> object:
        if isinstance(reply, BaseException):
            raise reply
        return reply

    return host


class Kit:
    """One sandbox on a loop of its own, driven from plain tests."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.box = Sandbox(PRIMITIVES, LIMITS, workers=2)
        self.runner.run(self.box.__aenter__())

    def run(self, source: str, host: Host = answering) -> Outcome:
        """Runs a program over three pictures, without a check."""
        return self.runner.run(self.box.run(source, host, images=IMAGES))

    def value(self, source: str, host: Host = answering) -> Any:
        """Runs a program over three pictures and returns its answer."""
        return self.run(source, host).value

    def check(self, source: str) -> None:
        """Checks a program."""
        self.runner.run(self.box.check(source))

    def close(self) -> None:
        """Ends the workers and the loop."""
        self.runner.run(self.box.aclose())
        self.runner.close()

"""Picture files made to do harm: each is refused before it costs anything, by one clear line."""

import io
import os
import struct
from contextlib import nullcontext
from pathlib import Path

import pytest
from data_files import drawn, png
from PIL import Image, PngImagePlugin

from codevqa.core import images
from codevqa.core.errors import ImageError
from codevqa.core.images import load_picture


@pytest.mark.timeout(20)
def test_frames_are_not_counted() -> None:
    # A directory of four entries a frame, each pointing to the next: Pillow would look for each in all before it.
    frames, size = 40_000, 2 + 4 * 12 + 4
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, 1) for tag in (256, 257, 273, 279))
    places = (8 + size * number for number in range(1, frames + 1))
    data = b"II*\0\x08\0\0\0" + b"".join(struct.pack("<H", 4) + entries + struct.pack("<I", at) for at in places)
    with pytest.raises(ImageError, match="is animated"):
        load_picture(data)


@pytest.mark.parametrize("side", [9_000, 50_000])
def test_decompression_bomb_is_refused_before_it_is_decoded(side: int) -> None:
    # A real PNG header that claims side x side pixels, and no data behind it: decoding would say "damaged".
    header = io.BytesIO()
    PngImagePlugin.putchunk(header, b"IHDR", side.to_bytes(4, "big") * 2 + b"\x08\x02\x00\x00\x00")
    PngImagePlugin.putchunk(header, b"IDAT", b"")
    with pytest.raises(ImageError, match="too large"):
        load_picture(b"\x89PNG\r\n\x1a\n" + header.getvalue())


@pytest.mark.parametrize("kind", ["EPS", "PPM", "ICO", "PCX", "TGA", "SGI"])
def test_formats_nobody_asks_about_are_not_opened(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "photo.png"
    drawn().save(path, kind)
    with pytest.raises(ImageError, match="is not a picture this can read"):
        load_picture(path)
    with Image.open(path) as opened, pytest.raises(ImageError, match="Use PNG") if kind != "ICO" else nullcontext():
        load_picture(opened)


@pytest.mark.parametrize("size", [(1, images.MAX_SIDE + 1), (images.MAX_SIDE + 1, 1)])
def test_a_thread_of_pixels_is_refused_before_it_is_decoded(size: tuple[int, int]) -> None:
    data = png(Image.new("1", size))
    with pytest.raises(ImageError, match=r"too large .*32,768 a side"):
        load_picture(data)


def test_a_file_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.png"
    with path.open("wb") as handle:
        handle.write(png(drawn()))
        handle.truncate(images.MAX_BYTES + 1)
    with pytest.raises(ImageError, match="too large a file"):
        load_picture(path)
    monkeypatch.setattr(images, "MAX_BYTES", 10)
    with pytest.raises(ImageError, match="too large a file"):
        load_picture(png(drawn()))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.timeout(20)
def test_a_pipe_is_no_picture_and_nobody_waits_for_its_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(ImageError, match="is not a file"):
        load_picture(tmp_path / "a.png")

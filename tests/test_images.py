from __future__ import annotations

import io
import os
import random
import struct
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from codevqa.core import images
from codevqa.core.errors import ImageError
from codevqa.core.images import ImageSource, load_picture, load_pictures


def png(image: Image.Image, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", **options)
    return buffer.getvalue()


@pytest.fixture
def picture() -> Image.Image:
    return Image.fromarray(np.arange(30 * 20 * 3, dtype=np.uint8).reshape(20, 30, 3))


def test_path_bytes_and_pil_image_are_the_same_picture(tmp_path: Path, picture: Image.Image) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(png(picture))
    from_path, from_text = load_picture(path), load_picture(str(path))
    assert from_path.key == from_text.key == load_picture(png(picture)).key == load_picture(picture).key
    assert from_path.name == "a.png" and from_path.pixels.size == (30, 20)


def test_a_loaded_picture_passes_through(picture: Image.Image) -> None:
    loaded = load_picture(picture)
    assert load_pictures([loaded, loaded]) == (loaded, loaded)


def test_exif_rotation_is_applied(picture: Image.Image) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # shown rotated by a quarter turn
    assert load_picture(png(picture, exif=exif)).pixels.size == (20, 30)


@pytest.mark.parametrize("mode", ["L", "LA", "P", "RGBA", "CMYK", "1", "I;16"])
def test_every_mode_becomes_rgb(mode: str, picture: Image.Image, tmp_path: Path) -> None:
    if mode == "I;16":
        converted = Image.fromarray(np.full((4, 4), 40_000, np.uint16))
    else:
        converted = picture.convert("L").convert("LA") if mode == "LA" else picture.convert(mode)
    path = tmp_path / ("a.tif" if mode == "CMYK" else "a.png")
    converted.save(path)
    assert load_picture(path).pixels.mode == "RGB"


def test_transparent_pixels_are_white() -> None:
    clear = Image.new("RGBA", (2, 2), (255, 0, 0, 0))
    assert load_picture(clear).pixels.getpixel((0, 0)) == (255, 255, 255)


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"No picture at .*nothing\.png"):
        load_picture(tmp_path / "nothing.png")


def test_folder(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="is a folder"):
        load_picture(tmp_path)


def test_not_a_picture(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_text("hello")
    with pytest.raises(ImageError, match="is not a picture"):
        load_picture(path)


def test_truncated(picture: Image.Image) -> None:
    data = png(picture.resize((300, 200)))
    with pytest.raises(ImageError, match="damaged"):
        load_picture(data[: len(data) // 2])


def test_animated(picture: Image.Image) -> None:
    buffer = io.BytesIO()
    picture.save(buffer, "GIF", save_all=True, append_images=[picture.rotate(90).resize((30, 20))])
    with pytest.raises(ImageError, match="is animated"):
        load_picture(buffer.getvalue())


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


def test_limit_is_ours(monkeypatch: pytest.MonkeyPatch, picture: Image.Image) -> None:
    monkeypatch.setattr(images, "MAX_PIXELS", 599)
    with pytest.raises(ImageError, match="30x20"):
        load_picture(picture)


def test_no_picture_at_all() -> None:
    with pytest.raises(ImageError, match="No picture"):
        load_pictures([])


def test_nul_in_path() -> None:
    with pytest.raises(ImageError, match="Cannot read"):
        load_picture("a\0b.png")


def test_one_pixel() -> None:
    assert load_picture(Image.new("L", (1, 1))).pixels.size == (1, 1)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_exif_orientation_is_shown_upright(orientation: int) -> None:
    upright = np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3)
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.swapaxes(0, 1),
        6: np.rot90(upright),
        7: upright[::-1, ::-1].swapaxes(0, 1),
        8: np.rot90(upright, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    shown = load_picture(png(Image.fromarray(np.ascontiguousarray(stored)), exif=exif))
    assert np.array_equal(np.asarray(shown.pixels), upright)


def test_transparency_of_every_kind_is_white_paper() -> None:
    grey = Image.new("LA", (1, 1), (0, 0))
    palette = Image.new("P", (1, 1), 0)
    palette.putpalette([255, 0, 0])
    key = Image.new("RGB", (1, 1), (1, 2, 3))
    sources: list[ImageSource] = [png(grey), grey, png(palette, transparency=0), png(key, transparency=(1, 2, 3))]
    assert [load_picture(source).pixels.getpixel((0, 0)) for source in sources] == [(255, 255, 255)] * 4
    half = Image.new("RGBA", (1, 1), (0, 0, 0, 128))
    assert load_picture(half).pixels.getpixel((0, 0)) == (127, 127, 127)


def test_keys_tell_pictures_apart_by_pixels_and_shape() -> None:
    sizes = [(2, 8), (4, 4), (8, 2)]
    assert len({load_picture(Image.new("RGB", size)).key for size in sizes}) == 3
    assert load_picture(Image.new("RGB", (4, 4))).key != load_picture(Image.new("RGB", (4, 4), (0, 0, 1))).key
    assert load_picture(Image.new("L", (4, 4))).key == load_picture(Image.new("RGB", (4, 4))).key


def test_other_containers(picture: Image.Image, tmp_path: Path) -> None:
    data = png(picture)
    assert load_picture(bytearray(data)).key == load_picture(data).key  # type: ignore[arg-type]
    assert len(load_pictures((picture, data))) == 2
    path = tmp_path / "folder.png.d"
    path.mkdir()
    picture.save(path / "b.png")
    with Image.open(path / "b.png") as opened:
        assert load_picture(opened).name == "b.png"


def test_a_picture_of_just_the_limit_is_read(monkeypatch: pytest.MonkeyPatch, picture: Image.Image) -> None:
    monkeypatch.setattr(images, "MAX_PIXELS", 600)
    assert load_picture(picture).pixels.size == (30, 20)


@pytest.mark.parametrize("path", ["a" * 5000, "a" * 300 + ".png", "/dev/null/a.png"])
def test_paths_the_system_refuses(path: str) -> None:
    with pytest.raises(ImageError, match="Cannot read"):
        load_picture(path)


def test_an_empty_picture() -> None:
    with pytest.raises(ImageError, match="is empty"):
        load_picture(Image.new("RGB", (0, 5)))
    with pytest.raises(ImageError, match="not a picture"):
        load_picture(b"")


@pytest.mark.parametrize("kind", ["EPS", "PPM", "ICO", "PCX", "TGA", "SGI"])
def test_formats_nobody_asks_about_are_not_opened(kind: str, picture: Image.Image, tmp_path: Path) -> None:
    path = tmp_path / "photo.png"
    picture.save(path, kind)
    with pytest.raises(ImageError, match="is not a picture this can read"):
        load_picture(path)
    with Image.open(path) as opened, pytest.raises(ImageError, match="Use PNG") if kind != "ICO" else nullcontext():
        load_picture(opened)


@pytest.mark.parametrize("kind", ["JPEG", "WEBP", "GIF", "BMP", "TIFF", "MPO"])
def test_formats_people_have(kind: str, picture: Image.Image, tmp_path: Path) -> None:
    more = {"save_all": True, "append_images": [picture.resize((15, 10))]} if kind == "MPO" else {}
    picture.save(tmp_path / "photo", kind, **more)
    assert load_picture(tmp_path / "photo").pixels.size == (30, 20)
    with Image.open(tmp_path / "photo") as opened:
        assert load_picture(opened).pixels.size == (30, 20)


@pytest.mark.parametrize("size", [(1, images.MAX_SIDE + 1), (images.MAX_SIDE + 1, 1)])
def test_a_thread_of_pixels_is_refused_before_it_is_decoded(size: tuple[int, int]) -> None:
    data = png(Image.new("1", size))
    with pytest.raises(ImageError, match=r"too large .*32,768 a side"):
        load_picture(data)


def test_a_file_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, picture: Image.Image) -> None:
    path = tmp_path / "a.png"
    with path.open("wb") as handle:
        handle.write(png(picture))
        handle.truncate(images.MAX_BYTES + 1)
    with pytest.raises(ImageError, match="too large a file"):
        load_picture(path)
    monkeypatch.setattr(images, "MAX_BYTES", 10)
    with pytest.raises(ImageError, match="too large a file"):
        load_picture(png(picture))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.timeout(20)
def test_a_pipe_is_no_picture_and_nobody_waits_for_its_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(ImageError, match="is not a file"):
        load_picture(tmp_path / "a.png")


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_a_file_with_other_bytes_in_it_is_a_picture_or_an_error_of_ours(kind: str, picture: Image.Image) -> None:
    buffer = io.BytesIO()
    picture.save(buffer, kind)
    whole = buffer.getvalue()
    for seed in range(300):
        draw = random.Random(seed)
        data = bytearray(whole)
        for _ in range(draw.randint(1, 8)):
            at = draw.randrange(min(len(data), draw.choice((40, 200, 10_000))))
            data[at : at + draw.randint(0, 4)] = draw.randbytes(draw.randint(0, 4))
        try:
            load_picture(bytes(data))
        except ImageError as error:
            assert "\n" not in str(error) and len(str(error)) < 500, seed

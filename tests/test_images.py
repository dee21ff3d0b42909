"""Reading pictures: every source and format people have becomes one upright RGB picture, or one line of error."""

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_files import drawn, png
from PIL import Image

from codevqa.core.errors import ImageError
from codevqa.core.images import MAX_PICTURES, ImageSource, load_picture, load_pictures

PICTURE = drawn()


def test_all_sources_of_a_picture_give_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(png(PICTURE))
    first = load_picture(path)
    with Image.open(path) as opened:
        others: list[Any] = [str(path), png(PICTURE), bytearray(png(PICTURE)), PICTURE, np.asarray(PICTURE), opened]
        assert {load_picture(source).key for source in others} == {first.key}
        assert (first.name, load_picture(opened).name, first.pixels.size) == ("a.png", "a.png", (30, 20))
    assert load_pictures([first, first]) == (first, first)


@pytest.mark.parametrize("kind", ["JPEG", "WEBP", "GIF", "BMP", "TIFF", "MPO"])
def test_formats_people_have(kind: str, tmp_path: Path) -> None:
    more = {"save_all": True, "append_images": [PICTURE.resize((15, 10))]} if kind == "MPO" else {}
    PICTURE.save(tmp_path / "photo", kind, **more)
    assert load_picture(tmp_path / "photo").pixels.size == (30, 20)
    with Image.open(tmp_path / "photo") as opened:
        assert load_picture(opened).pixels.size == (30, 20)


@pytest.mark.parametrize("mode", ["L", "LA", "P", "RGBA", "CMYK", "1"])
def test_every_mode_becomes_rgb(mode: str, tmp_path: Path) -> None:
    converted = PICTURE.convert("L").convert("LA") if mode == "LA" else PICTURE.convert(mode)
    path = tmp_path / ("a.tif" if mode == "CMYK" else "a.png")
    converted.save(path)
    assert load_picture(path).pixels.mode == "RGB"


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_shades_of_sixteen_bits_keep_their_places(kind: str) -> None:
    shades, buffer = np.arange(256, dtype=np.uint8).reshape(16, 16), io.BytesIO()
    Image.fromarray(shades.astype(np.uint16) * 257).save(buffer, kind)
    assert np.array_equal(np.asarray(load_picture(buffer.getvalue()).pixels), np.stack([shades] * 3, -1))


@pytest.mark.parametrize("orientation", [3, 5, 6, 8])
def test_an_exif_orientation_is_shown_upright(orientation: int) -> None:
    upright = np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3)
    stored = {3: upright[::-1, ::-1], 5: upright.swapaxes(0, 1), 6: np.rot90(upright), 8: np.rot90(upright, -1)}
    exif = Image.Exif()
    exif[0x0112] = orientation
    shown = load_picture(png(Image.fromarray(np.ascontiguousarray(stored[orientation])), exif=exif))
    assert np.array_equal(np.asarray(shown.pixels), upright)


def test_what_is_transparent_is_white_paper() -> None:
    grey, key = Image.new("LA", (1, 1), (0, 0)), Image.new("RGB", (1, 1), (1, 2, 3))
    palette = Image.new("P", (1, 1), 0)
    palette.putpalette([255, 0, 0])
    sources: list[ImageSource] = [png(grey), grey, png(palette, transparency=0), png(key, transparency=(1, 2, 3))]
    assert [load_picture(source).pixels.getpixel((0, 0)) for source in sources] == [(255, 255, 255)] * 4
    half = Image.new("RGBA", (1, 1), (0, 0, 0, 128))
    assert load_picture(half).pixels.getpixel((0, 0)) == (127, 127, 127)
    deep = Image.fromarray(np.array([[0, 30_000], [40_000, 65_535]], np.uint16))
    shown = np.asarray(load_picture(png(deep, transparency=30_000)).pixels)
    assert shown[..., 0].tolist() == [[0, 255], [156, 255]]


def test_keys_tell_pictures_apart_by_pixels_and_shape() -> None:
    sizes = [(2, 8), (4, 4), (8, 2)]
    assert len({load_picture(Image.new("RGB", size)).key for size in sizes}) == 3
    assert load_picture(Image.new("RGB", (4, 4))).key != load_picture(Image.new("RGB", (4, 4), (0, 0, 1))).key
    assert load_picture(Image.new("L", (4, 4))).key == load_picture(Image.new("RGB", (4, 4))).key


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nothing.png", r"No picture at nothing\.png"),
        (".", "is a folder"),
        (b"", "is not a picture"),
        (b"hello", "is not a picture"),
        (png(PICTURE.resize((300, 200)))[:5000], "damaged"),
        (Image.new("RGB", (0, 5)), "is empty"),
        (3, "A picture is a path, bytes, a PIL image or a NumPy array, not int"),
        (Image.fromarray(np.full((2, 2), 0.5, np.float32)), "holds numbers of 32 bits"),
        (np.zeros((2, 2), np.float32), "An array of float32 and shape"),
        ("a\0b.png", "Cannot read"),
        ("a" * 5_000, r"^Cannot read a{100}\.\.\.a{50}: File name too long\.$"),
        ([], "No picture was given"),
        ([PICTURE] * 10_000, rf"^These are 10,000 pictures\. The limit is {MAX_PICTURES:,} a question"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 50 else "",
)
def test_what_cannot_be_a_picture_is_one_line(source: Any, message: str) -> None:
    with pytest.raises(ImageError, match=message):
        load_pictures(source)


def tiff(bits: int, photometric: int, data: bytes, width: int) -> bytes:
    """A grey TIFF of one row, written by hand."""
    tags = {256: width, 257: 1, 258: bits, 259: 1, 262: photometric, 273: 8, 277: 1, 278: 1, 279: len(data)}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    return b"II*\0" + struct.pack("<I", 8 + len(data)) + data + struct.pack("<H", len(tags)) + entries + bytes(4)


SIXTEEN, TWELVE = struct.pack("<2H", 0, 65_535), bytes((0x00, 0x0F, 0xFF))  # of twelve bits, 0 and 4,095
CASES = [(16, 1, SIXTEEN, (0, 255)), (16, 0, SIXTEEN, (255, 0)), (12, 1, TWELVE, (0, 255))]


def test_tiff_says_which_number_is_white() -> None:
    for bits, photometric, data, shades in CASES:
        pixels = load_picture(tiff(bits, photometric, data, 2)).pixels
        assert tuple(pixels.getpixel((x, 0)) for x in (0, 1)) == tuple((shade,) * 3 for shade in shades)


@pytest.mark.parametrize("mode", ["RGBa", "La"])
def test_premultiplied_pictures_lie_on_white(mode: str) -> None:
    clear = Image.new(mode.upper().replace("LA", "LA"), (1, 1), (0,) * len(mode)).convert(mode)
    assert load_picture(clear).pixels.getpixel((0, 0)) == (255, 255, 255)

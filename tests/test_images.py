from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from picture_kit import drawn, png
from PIL import Image

from codevqa.core.errors import ImageError
from codevqa.core.images import ImageSource, load_picture, load_pictures


@pytest.fixture
def picture() -> Image.Image:
    return drawn()


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


SHADES = np.arange(256, dtype=np.uint8).reshape(16, 16)


def wide(kind: str) -> Image.Image:
    """The 256 shades of grey in another mode."""
    if kind.startswith("I;16"):
        return Image.frombytes(kind, (16, 16), (SHADES.astype(">u2" if kind.endswith("B") else "<u2") * 257).tobytes())
    values = {"I 8": SHADES.astype(np.int32), "I 16": SHADES.astype(np.int32) * 257}
    values |= {"F 1": SHADES / 255, "F 8": SHADES * 1.0, "F 16": SHADES * 257.0}  # type: ignore[dict-item]
    return Image.fromarray(values[kind].astype(np.float32 if kind.startswith("F") else np.int32))


@pytest.mark.parametrize("kind", ["I;16", "I;16L", "I;16B", "I 8", "I 16", "F 1", "F 8", "F 16"])
@pytest.mark.parametrize("saved", [None, "PNG", "TIFF"])
def test_shades_of_more_than_eight_bits_keep_their_places(kind: str, saved: str | None) -> None:
    source: ImageSource = wide(kind)
    if saved is not None:
        if kind == "I;16L" or (saved == "PNG" and not kind.startswith("I;16")):
            pytest.skip("no such files")
        buffer = io.BytesIO()
        wide(kind).save(buffer, saved)
        source = buffer.getvalue()
    assert np.array_equal(np.asarray(load_picture(source).pixels), np.stack([SHADES] * 3, -1))


@pytest.mark.parametrize("value", [-1.0, 70_000.0, np.nan, np.inf])
def test_values_of_no_known_range_are_refused(value: float) -> None:
    with pytest.raises(ImageError, match=r"^The given picture holds values from .* Scale them to 0 to 255\.$"):
        load_picture(Image.fromarray(np.full((2, 2), value, np.float32)))


def test_a_transparent_shade_of_sixteen_bits_is_white_and_a_turned_picture_upright() -> None:
    values = np.array([[0, 30_000], [40_000, 65_535]], np.uint16)
    exif = Image.Exif()
    exif[0x0112] = 3
    shown = load_picture(png(Image.fromarray(values), transparency=30_000, exif=exif))
    assert np.asarray(shown.pixels)[..., 0].tolist() == [[255, 156], [255, 0]]


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


def test_no_picture_at_all() -> None:
    with pytest.raises(ImageError, match="No picture"):
        load_pictures([])


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


def test_an_empty_picture() -> None:
    with pytest.raises(ImageError, match="is empty"):
        load_picture(Image.new("RGB", (0, 5)))
    with pytest.raises(ImageError, match="not a picture"):
        load_picture(b"")


@pytest.mark.parametrize("kind", ["JPEG", "WEBP", "GIF", "BMP", "TIFF", "MPO"])
def test_formats_people_have(kind: str, picture: Image.Image, tmp_path: Path) -> None:
    more = {"save_all": True, "append_images": [picture.resize((15, 10))]} if kind == "MPO" else {}
    picture.save(tmp_path / "photo", kind, **more)
    assert load_picture(tmp_path / "photo").pixels.size == (30, 20)
    with Image.open(tmp_path / "photo") as opened:
        assert load_picture(opened).pixels.size == (30, 20)

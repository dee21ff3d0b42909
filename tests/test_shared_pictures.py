"""Pictures that questions under way have in common."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from eval_kit import Numbered
from PIL import Image

from codevqa.core.errors import ImageError
from codevqa.core.images import load_picture
from codevqa.eval.run import shared_pictures
from codevqa.eval.run.shared_pictures import SharedPictures
from codevqa.eval.task import Held, PictureFile


def test_a_picture_is_decoded_once_while_questions_are_about_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, again = next(iter(Numbered(tmp_path, 1))).images[0], threading.Semaphore(0)
    assert isinstance(file, PictureFile)
    decoded: list[object] = []

    def slow(source: Any) -> Any:
        decoded.append(source)
        again.acquire(timeout=60)
        return load_picture(source)

    monkeypatch.setattr(shared_pictures, "load_picture", slow)
    pictures = SharedPictures()
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(pictures.load, file) for _ in range(4)]
        again.release()
        held = {id(one.result()) for one in asked}
    assert len(held) == len(decoded) == 1
    shown = pictures.load(file)
    assert len(decoded) == 1 and shown is asked[0].result()
    del asked, shown
    gc.collect()
    again.release()
    pictures.load(file)
    assert len(decoded) == 2


def test_a_picture_that_cannot_be_read_is_tried_again(tmp_path: Path) -> None:
    file, pictures = PictureFile(tmp_path / "late.png"), SharedPictures()
    with pytest.raises(ImageError):
        pictures.load(file)
    Image.new("RGB", (8, 8)).save(file.path)
    assert pictures.load(file).pixels.size == (8, 8)


def test_pictures_in_memory_are_not_shared_by_their_name(tmp_path: Path) -> None:
    red, blue = (SharedPictures().load(Held("same", Image.new("RGB", (8, 8), color))) for color in ("red", "blue"))
    assert red.key != blue.key

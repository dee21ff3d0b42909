"""A collection finds pictures in whatever it is given, names what it leaves out, and keeps what it learnt."""

import io
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from data_files import drawn, png
from engine_kit import engine
from PIL import Image

from codevqa.collections import disk_memory
from codevqa.collections.collection import Collection, LeftOut, StoredPicture
from codevqa.collections.disk_memory import FILE, memory_at
from codevqa.collections.picture_files import PictureFile, recent
from codevqa.core.errors import ImageError, InputError
from codevqa.engine.many import Question, as_request

HERE = Path(__file__).parent


def picture(number: int) -> bytes:
    return png(drawn().rotate(90).crop((0, 0, 10 + number % 10, 10 + number // 10)))


def bmp(color: str) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (9, 9), color).save(buffer, "BMP")
    return buffer.getvalue()


def fill(folder: Path, count: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (folder / f"{number:03}.png").write_bytes(picture(number))
    return folder


def names(pictures: Sequence[StoredPicture]) -> list[str]:
    return [picture.name for picture in pictures]


@pytest.fixture
def open_(tmp_path: Path) -> Any:
    return lambda *sources, **options: Collection(
        list(sources) or tmp_path / "photos", index=tmp_path / "index", **options
    )


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are read, as they are."""
    met: list[str] = []
    load = PictureFile.load

    def noting(file: PictureFile) -> Any:
        met.append(file.name)
        return load(file)

    monkeypatch.setattr(PictureFile, "load", noting)
    recent.clear()
    return met


def test_folders_have_their_pictures_in_the_order_of_names_and_each_folder_once(tmp_path: Path, open_: Any) -> None:
    photos = fill(tmp_path / "photos", 2)
    fill(photos / "b", 1), fill(photos / ".hidden", 1)
    (photos / "notes.txt").write_text("none")
    (photos / ".000.png").write_bytes(picture(0))
    (photos / "b" / "back").symlink_to(photos)
    (photos / "b" / "self").symlink_to(photos / "b" / "self")
    (photos / "lost.png").symlink_to(tmp_path / "nowhere")
    os.mkfifo(photos / "pipe.png")
    flat, whole = open_(), open_(recursive=True)
    assert names(flat.open()) == ["000.png", "001.png"]
    assert flat.left_out == (
        LeftOut("lost.png", "No such file or directory."),
        LeftOut("pipe.png", f"{photos}/pipe.png is not a file. Give the picture files."),
    )
    assert names(whole.open()) == ["000.png", "001.png", "b/000.png"]
    both = open_(photos / "b", photos / "001.png", photos / "b" / "000.png")
    assert names(both.open()) == [f"{photos}/b/000.png", f"{photos}/001.png"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda at: at.mkdir(), "has no picture that can be read. Give a folder of pictures."),
        (lambda at: (at / "deep").mkdir(parents=True), "Look into its folders with --recursive."),
        (lambda at: None, "No picture or folder at"),
        (lambda at: fill(at, 1) and (at / "000.png").write_bytes(picture(0)[:60]), "000.png: .* is damaged"),
        (lambda at: at.write_bytes(b"no"), "is not a picture this can read"),
    ],
)
def test_where_there_is_no_picture_one_line_says_why(tmp_path: Path, open_: Any, make: Any, message: str) -> None:
    make(tmp_path / "photos")
    with pytest.raises(InputError, match=message):
        open_().open()
    asked = as_request(Question(open_(), "How many?"), "codevqa")
    assert isinstance(asked, InputError)


@pytest.mark.parametrize("source", [None, 7, [b"photos"], ["a\0b"], {"photos"}])
def test_what_is_no_path_is_one_line(source: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        Collection(source, index=tmp_path).open()


def test_many_files_cost_little_and_too_many_are_refused(
    tmp_path: Path, open_: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = fill(tmp_path / "photos", 3)
    for number in range(5_000):
        (photos / f"{number}.txt").touch()
    begun = time.process_time()
    assert len(open_()) == 3
    assert time.process_time() - begun < 1
    monkeypatch.setattr("codevqa.collections.collection.MAX_COLLECTION", 2)
    with pytest.raises(InputError, match=r"more than 2 pictures\. Give a part of them."):
        open_().open()


def test_names_that_are_no_text_can_be_shown_and_are_kept_apart(tmp_path: Path, open_: Any, loads: list[str]) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for number, name in enumerate((b"\xff.png", b"\xfe.png", b"a\n\x1b[31m.png")):
        Path(os.fsdecode(bytes(photos) + b"/" + name)).write_bytes(picture(number))
    opened = open_().open()
    assert len({stored.key for stored in opened}) == len(loads) == 3
    assert all(stored.name.isprintable() and stored.name.encode() for stored in opened)
    assert [stored.key for stored in open_().open()] == [stored.key for stored in opened] and len(loads) == 3


def test_zip_files_give_their_pictures_and_name_what_is_wrong(tmp_path: Path, open_: Any) -> None:
    packed = tmp_path / "photos.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("b/2.png", "1.PNG", "__MACOSX/b/._2.png", "b/.3.png", "read.me", "4.png", "5.png"):
            archive.writestr(name, picture(len(name)))
        archive.writestr("bomb.bmp", bytes(100 << 20))
        archive.writestr("large.bmp", b"x")
    content = bytearray(packed.read_bytes())
    with zipfile.ZipFile(packed) as archive:
        listed = content.index(b"PK\x01\x02")
        for name, place, value in (("4.png", 8, b"\x01"), ("large.bmp", 24, (1 << 30).to_bytes(4, "little"))):
            at = content.index(name.encode(), listed) - 46 + place  # encrypted, it says; a gigabyte, it says
            content[at : at + len(value)] = value
        content[archive.getinfo("5.png").header_offset + 40] ^= 255
    packed.write_bytes(content)
    opened = open_(packed)
    assert names(opened.open()) == ["1.PNG", "b/2.png"]
    assert opened.open()[1].member == "b/2.png" and opened.open()[1].pixels.size == (17, 10)
    wrong = {omission.name: omission.why for omission in opened.left_out}
    assert wrong.keys() == {"4.png", "5.png", "bomb.bmp", "large.bmp"}
    assert "encrypted" in wrong["4.png"] and wrong["5.png"].startswith("Cannot read 5.png: ")
    assert "grows too much" in wrong["bomb.bmp"] and "too large a file" in wrong["large.bmp"]
    for cut in (0, 30, len(content) // 2, len(content) - 30):
        packed.write_bytes(content[:cut])
        with pytest.raises(InputError, match="not a zip file that can be read"):
            open_(packed).open()


def test_a_damaged_zip_file_never_raises_anything_else(tmp_path: Path, open_: Any) -> None:
    packed = tmp_path / "photos.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("1.png", picture(1))
    content = packed.read_bytes()
    for place in range(len(content)):
        packed.write_bytes(content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :])
        try:
            assert len(open_(packed)) == 1
        except InputError as error:
            assert "\n" not in str(error)


def test_equal_pictures_all_count_and_are_looked_at_once(tmp_path: Path, open_: Any) -> None:
    photos = fill(tmp_path / "photos", 1)
    (photos / "copy.png").write_bytes(picture(0))
    first, second = open_().open()
    assert first.key == second.key
    looked: list[int] = []

    def score(pixels: Any) -> float:
        looked.append(1)
        return 2.5

    assert [first.measure("n", score), second.measure("n", score), len(looked)] == [2.5, 2.5, 1]
    first.memory.save()
    assert [each.measure("n", score) for each in open_().open()] == [2.5, 2.5] and len(looked) == 1


def test_only_what_is_new_is_read_and_a_part_forgets_nothing(tmp_path: Path, open_: Any, loads: list[str]) -> None:
    photos = fill(tmp_path / "photos", 3)
    fill(photos / "b", 1)
    flat = photos / "001.png"  # files of one length, whatever they show
    flat.write_bytes(bmp("red"))
    old = flat.stat()
    keys = [picture.key for picture in open_(recursive=True).open()]
    open_().open()
    assert [picture.key for picture in open_(recursive=True).open()] == keys and len(loads) == 4
    flat.write_bytes(bmp("blue"))
    os.utime(flat, ns=(old.st_atime_ns, old.st_mtime_ns))  # as some programs that copy do
    (photos / "002.png").unlink()
    again = open_(recursive=True)
    assert names(again.open()) == ["000.png", "001.png", "b/000.png"] and loads[4:] == ["001.png"]


def test_a_picture_that_changes_afterwards_is_named(tmp_path: Path, open_: Any, loads: list[str]) -> None:
    photos = fill(tmp_path / "photos", 3)
    opened = open_().open()
    (photos / "000.png").write_bytes(picture(50))
    (photos / "001.png").unlink()
    recent.clear()
    for stored, message in zip(opened, ("000.png changed after", "No picture at .*001.png"), strict=False):
        with pytest.raises(ImageError, match=message):
            stored.pixels  # noqa: B018
    assert opened[2].pixels.size == opened[2].size


def test_a_failing_disk_is_tried_again(tmp_path: Path, open_: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "photos", 2)
    with monkeypatch.context() as patched:
        fails = Mock(side_effect=OSError(5, "Input/output error"))
        patched.setattr("codevqa.core.images.open", fails, raising=False)
        with pytest.raises(InputError, match="Input/output error"):
            open_().open()
    assert len(open_()) == 2


@pytest.mark.parametrize("how", ["file", "folder", "pipe", "text", "truncated", "values"])
def test_an_index_that_cannot_be_used_costs_one_warning_at_most_and_no_answer(
    how: str, tmp_path: Path, open_: Any, caplog: pytest.LogCaptureFixture, loads: list[str]
) -> None:
    fill(tmp_path / "photos", 200)
    file = tmp_path / "index" / FILE
    if how == "file":
        (tmp_path / "index").write_text("in the way")
    elif how == "folder":
        file.mkdir(parents=True)
    elif how == "pipe":
        file.parent.mkdir()
        os.mkfifo(file)
    else:
        open_().open()
        memory_at(tmp_path / "index").close()
        if how == "values":  # by hand
            with sqlite3.connect(file) as db:
                db.execute("UPDATE files SET key = 'x'")
            db.close()
        else:
            file.write_bytes(b"[1]" if how == "text" else file.read_bytes()[:9000])
            for log in file.parent.glob("*.sqlite-*"):
                log.unlink()
        forget_memories()
    loads.clear()
    with caplog.at_level(logging.WARNING):
        assert len(open_()) == len(loads) == 200
    kept = how in ("text", "truncated", "values")
    assert len(caplog.records) == (how != "values")
    forget_memories()
    assert len(open_()) == 200 and len(loads) == (200 if kept else 400)


def forget_memories() -> None:
    """As a new process knows none."""
    disk_memory._memories.clear()


def test_collections_share_what_was_learnt_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loads: list[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    photos = fill(tmp_path / "photos", 3)
    fill(photos / "b", 1)
    assert len(Collection(photos, recursive=True)) == 4 == len(loads)
    assert len(Collection(photos / "b")) == len(Collection([photos / "000.png"])) == 1 and len(loads) == 4
    Collection(photos / "b").drop_index()
    assert len(Collection(photos)) == 3 and len(loads) == 4
    assert len(Collection(photos / "b")) == 1 and len(loads) == 5


def test_a_zip_file_that_was_replaced_is_read_anew(tmp_path: Path, open_: Any) -> None:
    def pack(name: str, color: str) -> Path:
        with zipfile.ZipFile(tmp_path / name, "w") as packed:
            packed.writestr("a.bmp", bmp(color))
        return tmp_path / name

    photos = pack("photos.zip", "red")
    before = photos.stat()
    (red,) = open_(photos).open()
    assert red.pixels.getpixel((0, 0)) == (255, 0, 0)
    pack("other.zip", "blue").replace(photos)
    os.utime(photos, ns=(before.st_atime_ns, before.st_mtime_ns))
    (blue,) = open_(photos).open()
    assert photos.stat().st_size == before.st_size
    assert blue.pixels.getpixel((0, 0)) == (0, 0, 255) and blue.key != red.key


@pytest.mark.parametrize("what", ["pipe", "device"])
def test_what_is_no_file_is_no_zip_file(what: str, tmp_path: Path, open_: Any) -> None:
    name = tmp_path / "photos.zip"
    os.mkfifo(name) if what == "pipe" else name.symlink_to("/dev/zero")
    with pytest.raises(InputError, match=r"Cannot read .*photos\.zip: It is not a regular file\.") as caught:
        open_(name).open()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("linked", [False, True])
def test_an_index_is_deleted_and_nothing_beside_it(linked: bool, tmp_path: Path, loads: list[str]) -> None:
    photos = fill(tmp_path / "photos", 2)
    (photos / "features").mkdir()
    opened = Collection(photos, index=photos)
    opened.open()
    if linked:  # to a larger disk
        (tmp_path / "disk").mkdir()
        (photos / disk_memory.FEATURES).symlink_to(tmp_path / "disk")
    opened.drop_index()
    left = [disk_memory.FEATURES] if linked else []
    assert sorted(path.name for path in photos.iterdir()) == ["000.png", "001.png", *left, "features"]
    assert len(Collection(photos, index=photos)) == 2 and len(loads) == 4


_OPENS = "import sys; from codevqa import Collection; print(len(Collection(sys.argv[1], index=sys.argv[2])))"


def test_killed_at_any_time_it_goes_on_and_counts_nothing_twice(tmp_path: Path, open_: Any, loads: list[str]) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    large = drawn().resize((500, 400))
    for number in range(400):
        large.putpixel((number, 0), (255, 0, 0))
        large.save(photos / f"{number:03}.png", compress_level=0)
    command = [sys.executable, "-c", _OPENS, str(photos), str(tmp_path / "index")]

    def kept() -> int:
        if not (tmp_path / "index" / FILE).exists():
            return 0
        forget_memories()
        return len(memory_at(tmp_path / "index").places_below([str(photos)]))

    with subprocess.Popen(command, cwd=HERE.parent, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None and kept() == 0:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    before = kept()
    assert process.returncode == -signal.SIGKILL and 128 <= before < 400
    both = [subprocess.Popen(command, cwd=HERE.parent, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [worker.communicate(timeout=120)[0].strip() for worker in both] == ["400", "400"]
    assert kept() == 400 and len({picture.key for picture in open_().open()}) == 400 and not loads


def test_a_file_that_changes_under_an_open_collection_is_not_answered_from_memory(tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    Image.new("RGB", (24, 24), "red").save(file)
    photos = Collection(tmp_path, index=tmp_path / "index")
    with engine('answer = query(img, "Is it red?")') as vqa:
        assert vqa.ask(photos, "Is it red?").text == "yes"
        Image.new("RGB", (24, 24), "blue").save(file)
        with pytest.raises(ImageError, match="changed after its collection was opened"):
            vqa.ask(photos, "Is it red?")


def test_a_file_that_was_touched_is_read_once_and_one_that_changed_each_time(
    tmp_path: Path, open_: Any, loads: list[str]
) -> None:
    photos = fill(tmp_path / "photos", 2)
    touched, changed = open_().open()
    loads.clear()
    os.utime(photos / "000.png", (1, 1))
    (photos / "001.png").write_bytes(picture(9))
    for _ in range(3):
        touched.check()
        with pytest.raises(ImageError, match=r"001\.png changed after"):
            changed.check()
    assert loads.count("000.png") == 1

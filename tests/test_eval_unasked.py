"""Questions that could not be asked: told before models load, counted, asked again, and never taken for answers."""

import dataclasses
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_kit import CommandLine
from eval_kit import Numbered, fake_engine
from PIL import Image

from codevqa import CodeVQA
from codevqa.core.errors import InputError, ModelError
from codevqa.eval import evaluate, open_dataset
from codevqa.eval.report.reading import summary_of
from codevqa.eval.task import Example, PictureFile
from codevqa.models.base import GenerationRequest


class Lost(Numbered):
    """Each question has a picture of its own; those of the odd ones were never unpacked."""

    def __init__(self, folder: Path, count: int) -> None:
        super().__init__(folder, count)
        for number in range(0, count, 2):
            Image.new("RGB", (8, 8), "red").save(folder / f"{number}.png")

    def __iter__(self) -> Iterator[Example]:
        for number, example in enumerate(super().__iter__()):
            yield dataclasses.replace(example, images=(PictureFile(self.folder / f"{number}.png"),))


def no_models() -> CodeVQA:
    raise AssertionError("models were loaded")


def test_pictures_that_are_missing_end_the_run_before_models_load(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^4 of 8 pictures are missing, first: .*1\.png\. .*--missing-pictures skip"):
        evaluate(no_models, Lost(tmp_path, 8), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_file_that_is_no_picture_is_found_in_folders_and_archives(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "good.png")
    (tmp_path / "text.png").write_text("no picture")
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for name in ("good.png", "text.png"):
            archive.write(tmp_path / name, name)
    packed = tmp_path / "all.zip"
    for name, wrong in (("good.png", ""), ("text.png", "unreadable"), ("x.png", "missing")):
        assert PictureFile(tmp_path / name).wrong == PictureFile(packed, name).wrong == wrong


def test_an_offset_past_the_end_and_a_limit_of_none_are_refused_before_models_load(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--offset 9 is past the end: val has 9 questions"):
        evaluate(no_models, Numbered(tmp_path, 9), tmp_path / "run", offset=9)
    with pytest.raises(InputError, match="has no questions"):
        evaluate(no_models, Numbered(tmp_path, 0), tmp_path / "run")
    with pytest.raises(InputError, match="Give --resume with --retry-errors"):
        evaluate(no_models, Numbered(tmp_path, 1), tmp_path / "run", retry_errors=True)


def test_retrying_asks_what_could_not_be_asked_and_nothing_else(tmp_path: Path) -> None:
    asked: list[str] = []

    def write(request: GenerationRequest) -> str:
        question = str(request.prompt)[-20:]
        asked.append(question)
        if "thing 1" in question and failing:
            raise ModelError("Out of memory.")
        return "answer = (" if "thing 4" in question else 'answer = query(img, "Is it red?")'

    failing = True
    data, out = Lost(tmp_path, 5), tmp_path / "run"
    Image.new("RGB", (8, 8), "red").save(tmp_path / "1.png")
    (tmp_path / "3.png").write_text("no picture")
    with fake_engine(write, workers=1) as vqa:
        evaluate(vqa, data, out, missing_pictures="skip").close()
        with evaluate(vqa, data, out, missing_pictures="skip", resume=True) as store:  # as it was
            errors = [row.error for row in store.rows("codevqa")]
            assert errors == [None, "ModelError", None, "ImageError", "ProgramSyntaxError"]
            assert summary_of(store).coverage.unasked == 2
        asked.clear()
        failing = False
        Image.new("RGB", (8, 8), "blue").save(tmp_path / "3.png")
        with evaluate(vqa, data, out, resume=True, retry_errors=True) as store:
            rows = list(store.rows("codevqa"))
            assert [row.error for row in rows] == [None, None, None, None, "ProgramSyntaxError"]
            assert summary_of(store).coverage.unasked == 0
    assert len(asked) == 2


@pytest.mark.slow
def test_a_run_with_too_many_questions_unasked_fails_and_says_so(tmp_path: Path, codevqa: CommandLine) -> None:
    data, out = tmp_path / "data", tmp_path / "run"
    assert codevqa("mini-data", data, "--images", 6, "--splits", "val").returncode == 0
    words = ("eval", "gqa", "--data", data, "--split", "val_balanced", "--method", "pnpvqa", "--limit", 4, "--out", out)
    first = next(iter(open_dataset("gqa", data, "val_balanced"))).images[0]
    assert isinstance(first, PictureFile)
    away = first.path.rename(tmp_path / "away.png")
    skipped = codevqa(*words, "--missing-pictures", "skip")
    assert skipped.returncode == 1, skipped.stderr
    assert re.search(r"\n[1-4] of 4 could not be asked \(ImageError [1-4]\)\n$", skipped.stdout)
    assert skipped.stderr.splitlines()[-1].endswith("--missing-pictures skip --resume --retry-errors")
    away.rename(first.path)
    mended = codevqa(*words, "--resume", "--retry-errors", "--max-failed", 0)
    assert mended.returncode == 0 and mended.stdout.endswith("\n0 of 4 could not be asked\n"), mended.stderr

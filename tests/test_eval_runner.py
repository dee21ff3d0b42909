"""Runs: both methods over fake models and a real sandbox, ended in every way a run can end, and gone on with."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from eval_kit import PROGRAM, Broken, Counted, Numbered, asked, fake_engine, timeless
from PIL import Image

from codevqa import CodeVQA
from codevqa.core.errors import InputError, ModelError, ServerError, SetupError
from codevqa.eval import Store, evaluate
from codevqa.eval.run.local import LocalAnswerer
from codevqa.eval.run.provenance import data_hash, engine_info, prompt_hash, run_info
from codevqa.eval.run.request import EvalRequest
from codevqa.eval.run.runner import open_run, stream
from codevqa.eval.run.session import Status, run
from codevqa.eval.task import DataSet, Example, Held, Job, Method, PictureFile, Row, _archive
from codevqa.models.base import GenerationRequest

HERE = Path(__file__).parent


@dataclasses.dataclass
class Pictures:
    """One question about each of some pictures."""

    files: list[PictureFile]
    name, split, prompts = "gqa", "val", "gqa"

    def __iter__(self) -> Iterator[Example]:
        """Yields the questions."""
        for number, file in enumerate(self.files):
            yield Example(f"{number}", f"Is thing {number} red?", (file,), "image", ("yes",))


def test_both_methods_on_the_same_questions(tmp_path: Path) -> None:
    seen: list[Status] = []
    with (
        fake_engine() as vqa,
        evaluate(
            vqa, Numbered(tmp_path, 9), tmp_path / "run", progress=lambda s: seen.append(dataclasses.replace(s))
        ) as store,
    ):
        assert store.counts() == {("codevqa", 0): 9, ("pnpvqa", 0): 9}
        assert [example.id for example in store.examples()] == [f"{n:06}" for n in range(9)]
        ours, theirs = store.row("000003", "codevqa"), store.row("000003", "pnpvqa")
        info = store.info
    assert ours is not None and theirs is not None
    assert (ours.prediction, ours.program, ours.error, ours.fallback) == ("yes", PROGRAM, None, False)
    assert (theirs.prediction, theirs.program) == ("yes", None)
    assert ours.seconds > 0 and ours.tokens > theirs.tokens > 20  # the reader's prompt and answer; ours a program more
    assert [call["name"] for call in ours.trace["calls"]] == ["open_image", "query"]
    (evidence,) = ours.trace["calls"][1]["evidence"]
    assert len(evidence["captions"][0]) == 2 and evidence["completion"] == " yes"
    assert not {"relevance", "prompt", "patches"} & evidence.keys() and "prompt" not in ours.trace["written"]
    assert theirs.trace["baseline"][0]["captions"]
    assert (seen[-1].examples, seen[-1].rows, seen[-1].total, seen[-1].errors) == (9, 18, 9, 0)
    assert (info.dataset, info.prompts, info.models["writer"]) == ("gqa", "image: gqa, set: covr", "writer")


def test_full_evidence_keeps_maps_and_prompts(tmp_path: Path) -> None:
    with fake_engine() as vqa, evaluate(vqa, Numbered(tmp_path, 1), tmp_path / "run", evidence="full") as store:
        (row,) = store.rows("codevqa")
    (evidence,) = row.trace["calls"][1]["evidence"]
    assert len(evidence["relevance"][0]) == 6 and evidence["prompt"].endswith("A:")
    assert row.trace["written"]["prompt"].endswith("Is thing 0 red?")


def test_a_program_that_fails_is_a_row_with_the_baseline_s_answer(tmp_path: Path) -> None:
    with fake_engine("answer = (") as vqa, evaluate(vqa, Numbered(tmp_path, 2), tmp_path / "run") as store:
        row = next(store.rows("codevqa"))
    assert (row.prediction, row.fallback, row.error) == ("yes", True, "ProgramSyntaxError")
    assert row.message.startswith("line 1: ") and row.program == "answer = ("
    assert len(row.trace["attempts"]) == 2 and row.trace["baseline"]


def test_seeds_repeat_the_sampling_of_captions(tmp_path: Path) -> None:
    def captions(store: Store, method: str, repeat: int) -> str:
        (row,) = store.rows(method, repeat)  # type: ignore[arg-type]
        return json.dumps([row.trace["baseline"], [call["evidence"] for call in row.trace["calls"]]])

    with fake_engine(seed=5) as vqa, evaluate(vqa, Numbered(tmp_path, 1), tmp_path / "run", seeds=3) as store:
        assert store.info.seeds == (5, 6, 7)
        assert store.counts() == {(method, repeat): 1 for method in ("codevqa", "pnpvqa") for repeat in range(3)}
        for method in ("codevqa", "pnpvqa"):
            assert len({captions(store, method, repeat) for repeat in range(3)}) == 3
        second = captions(store, "codevqa", 1)
    with fake_engine(seed=6) as vqa, evaluate(vqa, Numbered(tmp_path, 1), tmp_path / "other") as store:
        assert captions(store, "codevqa", 0) == second  # a repetition is a run with that seed


def test_what_cannot_be_asked_is_a_row_with_its_error(tmp_path: Path) -> None:
    with fake_engine() as vqa, evaluate(vqa, Broken(tmp_path, 6), tmp_path / "run", missing_pictures="skip") as store:
        for method in ("codevqa", "pnpvqa"):
            rows = list(store.rows(method))
            assert [row.error for row in rows] == [
                None,
                "ImageError",
                "ImageError",
                "QuestionError",
                "InputError",
                None,
            ]
            assert [row.prediction for row in rows] == ["yes", "", "", "", "", "yes"]
        assert "missing.png" in rows[1].message and "\n" not in rows[1].message


def test_a_server_that_goes_down_ends_the_run_and_resume_goes_on(tmp_path: Path) -> None:
    calls: list[str] = []

    def write(request: GenerationRequest) -> str:
        calls.append(str(request.prompt))
        if down and len(calls) > 10:
            raise ServerError("The server at 127.0.0.1 is down.", hint="Start it.")
        return PROGRAM

    down = True
    with (
        fake_engine(write) as vqa,
        pytest.raises(ServerError, match=r"is down\. Start it\. Stopped with \d+ rows kept; --r"),
    ):
        evaluate(vqa, Numbered(tmp_path, 40), tmp_path / "run")
    with Store.open(tmp_path / "run") as store:
        before = asked(store)
        assert 10 <= len(before) <= 20 and not any(row.error for row in store.rows("codevqa"))
    down, done = False, len(calls)
    with fake_engine(write) as vqa, evaluate(vqa, Numbered(tmp_path, 40), tmp_path / "run", resume=True) as store:
        after = asked(store)
        assert len(after) == len(set(after)) == 80 and set(before) < set(after)
        assert len(store.sessions()) == 2
    assert len(calls) - done == 40 - sum(method == "codevqa" for _, method, _ in before)


@pytest.mark.parametrize("packed", [False, True])
def test_a_run_does_not_go_on_with_other_pictures(packed: bool, tmp_path: Path) -> None:
    names = [f"{number}.png" for number in range(4)]

    def draw(colors: Sequence[str]) -> None:
        for name, color in zip(names, colors, strict=True):
            Image.new("RGB", (8, 8), color).save(tmp_path / name)
        with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
            for name in names:
                archive.write(tmp_path / name, name)
        _archive.cache_clear()

    def pictures() -> Pictures:
        files = [PictureFile(tmp_path / "all.zip", name) if packed else PictureFile(tmp_path / name) for name in names]
        return Pictures(files)

    colors = ["red", "green", "blue", "white"]
    draw(colors)
    with fake_engine() as vqa:
        evaluate(vqa, pictures(), tmp_path / "run", limit=3).close()
        draw([*colors[:3], "black"])  # the last was not asked about yet
        evaluate(vqa, pictures(), tmp_path / "run", limit=4, resume=True).close()
        draw(["red", "yellow", "blue", "black"])
        with pytest.raises(InputError, match=r"1\.png has changed since it was asked about"):
            evaluate(vqa, pictures(), tmp_path / "run", resume=True)
        (tmp_path / "1.png").unlink()  # what lies elsewhere now is not judged
        if not packed:
            evaluate(vqa, pictures(), tmp_path / "run", resume=True).close()


@pytest.mark.slow
def test_of_ten_thousand_questions_exactly_those_fail_whose_model_fails(tmp_path: Path) -> None:
    def number(request: GenerationRequest) -> str:
        return str(re.findall(r"Is thing (\d+) red", str(request.prompt))[-1])

    def fails(part: str, number: str) -> bool:
        return hashlib.sha256(f"{part} {number}".encode()).digest()[0] < 2  # one in 128

    def write(request: GenerationRequest) -> str:
        if fails("writer", number(request)):
            raise ModelError("Out of memory.")
        return f'img = open_image("Image3.jpg")\nanswer = query(img, "Is thing {number(request)} red?")'

    def read(request: GenerationRequest) -> str:
        if fails("reader", number(request)):
            raise ModelError("Out of memory.")
        return " yes\n"

    count = 10_000
    with (
        fake_engine(write, read, workers=32) as vqa,
        evaluate(vqa, Numbered(tmp_path, count), tmp_path / "run", methods=("codevqa",)) as store,
    ):
        rows = list(store.rows("codevqa"))
    failed = {row.id for row in rows if row.error is not None}
    assert len(rows) == count and all((row.prediction == "yes") is (row.id not in failed) for row in rows)
    assert failed == {f"{n:06}" for n in range(count) if fails("writer", str(n)) or fails("reader", str(n))}
    assert 100 < len(failed) < 250 and {row.error for row in rows if row.error} == {"ModelError"}


def test_a_model_that_fails_for_every_question_ends_the_run_without_rows(tmp_path: Path) -> None:
    for count in (1, 2000):
        reads: list[str] = []

        def read(request: GenerationRequest, reads: list[str] = reads) -> str:
            reads.append("")
            raise ModelError("Out of memory.")

        out = tmp_path / f"run{count}"
        with (
            fake_engine(read=read) as vqa,
            pytest.raises(ModelError, match=r"Out of memory\. Stopped with 0 rows kept"),
        ):
            evaluate(vqa, Numbered(tmp_path, count), out)
        assert len(reads) < 300
        with Store.open(out) as store:
            assert store.counts() == {}


def test_a_model_that_fails_for_one_question_is_that_question_s_row(tmp_path: Path) -> None:
    def read(request: GenerationRequest) -> str:
        if "Is thing 7 red?" in str(request.prompt):
            raise ModelError("Too long.")
        return "yes"

    with (
        fake_engine(read=read) as vqa,
        evaluate(vqa, Numbered(tmp_path, 8), tmp_path / "run", methods=["pnpvqa"]) as store,
    ):
        assert [row.error for row in store.rows("pnpvqa")] == [None] * 7 + ["ModelError"]


@pytest.mark.usefixtures("interruptible")
def test_interrupted_anywhere_the_rows_are_those_of_an_unbroken_run(tmp_path: Path) -> None:
    with fake_engine() as vqa, evaluate(vqa, Numbered(tmp_path, 30), tmp_path / "whole") as store:
        whole = timeless(store)

    def interrupt(status: Status) -> None:
        if status.examples - status.skipped == 7:
            os.kill(os.getpid(), signal.SIGINT)

    rounds = 0
    while True:
        rounds += 1
        try:
            with fake_engine() as vqa:
                store = evaluate(vqa, Numbered(tmp_path, 30), tmp_path / "run", resume=True, progress=interrupt)
        except KeyboardInterrupt:
            assert rounds < 10
            continue
        break
    with store:
        assert timeless(store) == whole
    assert rounds >= 2


def test_a_limit_may_grow_and_other_methods_and_seeds_may_follow(tmp_path: Path) -> None:
    data, out = Numbered(tmp_path, 12), tmp_path / "run"
    with fake_engine() as vqa:
        evaluate(vqa, data, out, methods=["codevqa"], limit=4, offset=2).close()
        with evaluate(vqa, data, out, methods=["codevqa"], limit=6, offset=2, resume=True) as store:
            assert [row.id for row in store.rows("codevqa")] == [f"{n:06}" for n in range(2, 8)]
            assert (store.info.limit, store.info.questions, store.info.ends) == (6, 6, False)
        seen: list[Status] = []
        with evaluate(vqa, data, out, limit=3, offset=2, seeds=2, resume=True, progress=seen.append) as store:
            assert store.counts() == {("codevqa", 0): 6, ("codevqa", 1): 3, ("pnpvqa", 0): 3, ("pnpvqa", 1): 3}
            assert (store.info.limit, store.info.seeds, store.info.methods) == (6, (0, 1), ("codevqa", "pnpvqa"))
            assert store.info.questions == 6


def test_other_settings_are_refused_with_their_names(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with fake_engine() as vqa:
        evaluate(vqa, Numbered(tmp_path, 3), out).close()
        with pytest.raises(InputError, match="is there already"):
            evaluate(vqa, Numbered(tmp_path, 3), out)
        with pytest.raises(InputError, match="offset was 0, now 1"):
            evaluate(vqa, Numbered(tmp_path, 3), out, offset=1, resume=True)
        with pytest.raises(InputError, match="data_hash was"):
            evaluate(vqa, Numbered(tmp_path, 3, "Is it {}?"), out, resume=True)
    with fake_engine(captions=1, name="other", seed=3) as vqa, pytest.raises(InputError) as caught:
        evaluate(vqa, Numbered(tmp_path, 3), out, resume=True)
    for words in ("models was", "settings.query.captions was 2, now 1", "settings.seed was 0, now 3", "seeds were [0]"):
        assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    with fake_engine(workers=1) as vqa, evaluate(vqa, Numbered(tmp_path, 3), out, resume=True) as store:
        assert len(store) == 3


def test_data_that_changed_behind_the_first_examples_are_refused(tmp_path: Path) -> None:
    class Changed(Numbered):
        def __iter__(self) -> Iterator[Example]:
            for example in super().__iter__():
                yield dataclasses.replace(example, question="Else?") if example.id == "000150" else example

    out = tmp_path / "run"
    with fake_engine() as vqa:
        evaluate(vqa, Numbered(tmp_path, 160), out, methods=["pnpvqa"]).close()
        with pytest.raises(
            InputError, match=r"000150 reads 'Else\?' in the data set and 'Is thing 150 red\?' in the run"
        ):
            evaluate(vqa, Changed(tmp_path, 170), out, methods=["pnpvqa"], resume=True)


def test_an_id_that_comes_twice_is_asked_once(tmp_path: Path) -> None:
    class Twice(Numbered):
        def __iter__(self) -> Iterator[Example]:
            for example in super().__iter__():
                yield example
                yield example

    seen: list[Status] = []
    for resume in (False, True):
        with (
            fake_engine() as vqa,
            evaluate(vqa, Twice(tmp_path, 5), tmp_path / "run", resume=resume, progress=seen.append) as store,
        ):
            assert store.counts() == {("codevqa", 0): 5, ("pnpvqa", 0): 5}
    assert seen[-1].repeated == 5


def test_a_data_set_that_breaks_off_keeps_what_came_before(tmp_path: Path) -> None:
    class Cut(Numbered):
        def __iter__(self) -> Iterator[Example]:
            yield from super().__iter__()
            raise InputError("Cannot read x.json beyond record 150.", hint="Download it again.")

    data = Cut(tmp_path, 150)
    with fake_engine() as vqa:
        with pytest.raises(InputError, match=r"beyond record 150\. Download it again\.$"):  # before it begins
            evaluate(vqa, data, tmp_path / "run", methods=["pnpvqa"])
        info = run_info(engine_info(vqa), data, EvalRequest(["pnpvqa"]))
        with pytest.raises(InputError, match=r"beyond record 150.*Stopped with 150 rows"):
            stream(tmp_path / "run", data, LocalAnswerer(vqa, (0,)), info, workers=4)


def test_pictures_in_memory_and_a_running_loop(tmp_path: Path) -> None:
    from PIL import Image

    class InMemory(Numbered):
        def __iter__(self) -> Iterator[Example]:
            for example in super().__iter__():
                yield dataclasses.replace(example, images=(Held("a row", Image.new("RGB", (9, 9))),))

    async def main() -> dict[tuple[Method, int], int]:
        with fake_engine() as vqa, evaluate(vqa, InMemory(tmp_path, 3), tmp_path / "run") as store:
            return dict(store.counts())

    assert asyncio.run(main()) == {("codevqa", 0): 3, ("pnpvqa", 0): 3}


def test_an_engine_that_is_made_here_is_closed_here(tmp_path: Path) -> None:
    made: list[CodeVQA] = []

    def make() -> CodeVQA:
        made.append(fake_engine())
        return made[0]

    evaluate(make, Numbered(tmp_path, 2), tmp_path / "run").close()
    with pytest.raises(RuntimeError, match="closed"):
        made[0].ask(Numbered(tmp_path, 1).picture, "A?")
    with pytest.raises(InputError, match="is there already"):
        evaluate(make, Numbered(tmp_path, 2), tmp_path / "run")
    assert len(made) == 1  # no model is loaded for a run that cannot begin


class Instant:
    """Answers at once, and counts how many examples are under way."""

    def __init__(self) -> None:
        self.now = self.most = self.total = 0

    async def __call__(self, example: Example, jobs: Sequence[Job]) -> list[Row]:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        self.total += 1
        return [Row(example.id, method, repeat, "yes", trace={"calls": []}) for method, repeat in jobs]


def test_the_window_bounds_what_is_under_way(tmp_path: Path) -> None:
    data, ask, ahead = Counted(tmp_path, 300), Instant(), []
    with fake_engine() as vqa:
        info = run_info(engine_info(vqa), data, EvalRequest(("codevqa",)))
    data.drawn = 0

    def progress(status: Status) -> None:
        ahead.append(data.drawn - status.examples)

    with open_run(tmp_path / "run", info) as store:
        status = run(store, data, ask, info, window=5, progress=progress)
    assert (status.examples, status.rows, ask.total, ask.most) == (300, 300, 300, 5)
    assert max(ahead) <= 5


def test_a_disk_that_fills_ends_the_run_with_one_clear_error(tmp_path: Path) -> None:
    code = """
import resource, sys
from pathlib import Path
from eval_kit import Numbered, fake_engine
from codevqa.core.errors import SetupError
from codevqa.eval import evaluate
folder = Path(sys.argv[1])
data = Numbered(folder, 100_000)
with fake_engine() as vqa:
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
    try:
        evaluate(vqa, data, folder / "run")
    except SetupError as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, env=environment()
    )
    assert done.stdout.startswith(f"Cannot write the run {tmp_path / 'run'}: ") and done.stdout.count("\n") == 1
    with Store.open(tmp_path / "run") as store:
        assert sum(store.counts().values()) >= 64


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(HERE), "HF_HUB_OFFLINE": "1"}


RUN = """
import sys
from pathlib import Path
from eval_kit import Numbered, fake_engine
from codevqa.eval import evaluate
folder = Path(sys.argv[1])
def say(status):
    print(status.examples, flush=True)
with fake_engine() as vqa:
    evaluate(vqa, Numbered(folder, 400), folder / "run", resume=True, progress=say).close()
print("end", flush=True)
"""


@pytest.mark.slow
def test_kill_9_in_the_middle_and_resume(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RUN, str(tmp_path)]
    counts: list[int] = []
    for stop in (80, 200):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if int(line) >= stop:
                    break
            process.send_signal(signal.SIGKILL)
            process.stdout.read()
        with Store.open(tmp_path / "run") as store:
            rows = asked(store)
        assert len(rows) == len(set(rows)) > (counts[-1] if counts else 0)
        assert len(rows) > 2 * stop - 2 * 64  # all but the last, uncommitted batch
        counts.append(len(rows))
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=500)
    assert done.stdout.endswith("end\n"), done.stderr
    first = int(done.stdout.split()[0])
    assert first == 1 and len(done.stdout.split()) == 401  # told of each example, those skipped included
    with Store.open(tmp_path / "run") as store, fake_engine() as vqa:
        rows = asked(store)
        assert len(rows) == len(set(rows)) == 800 and counts[-1] < 800
        killed = timeless(store)
        with evaluate(vqa, Numbered(tmp_path, 400), tmp_path / "whole") as whole:
            assert killed == timeless(whole)


MEMORY = """
import resource, sys
from pathlib import Path
from eval_kit import Numbered, fake_engine
from test_eval_runner import Instant, peaks
folder, count = Path(sys.argv[1]), int(sys.argv[2])
print(*peaks(folder, count))
"""


def peaks(folder: Path, count: int) -> tuple[int, int]:
    """Returns resident memory in KiB after a tenth of a run and at its end."""
    data = Numbered(folder, count)
    with fake_engine() as vqa:
        info = run_info(engine_info(vqa), data, EvalRequest())
    early = 0

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024

    def progress(status: Status) -> None:
        nonlocal early
        if status.examples == count // 10:
            early = resident()

    with open_run(folder / "run", info) as store:
        run(store, data, Instant(), info, window=32, progress=progress)
    return early, resident()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc to read resident memory")
def test_memory_does_not_grow_with_the_data_set(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MEMORY, str(tmp_path), "50000"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=500)
    early, late = map(int, done.stdout.split())
    # Kept, 45,000 examples and rows would take over 40,000.
    assert late - early < 16_000, f"{early} KiB after 5,000 examples, {late} KiB after 50,000"


def test_the_hash_of_the_prompts_covers_what_a_model_is_shown() -> None:
    with fake_engine() as vqa:
        first = prompt_hash(vqa)
        again = prompt_hash(vqa)
        prompts = dict(vqa.writer.prompts)
        changed = dataclasses.replace(prompts["image"], preamble=prompts["image"].preamble + " ")
        vqa.writer.prompts = {**prompts, "image": changed}
        preamble = prompt_hash(vqa)
        vqa.writer.prompts = {**prompts, "set": prompts["set"].with_bank(reading=prompts["set"].reading[1:])}
        bank = prompt_hash(vqa)
    assert first == again and len({first, preamble, bank}) == 3


def test_the_hash_of_the_data_is_of_their_content(tmp_path: Path) -> None:
    import zipfile

    from codevqa.eval.datasets.files import Located

    class Files(Numbered):
        sources: tuple[Located, ...] = ()

    (tmp_path / "a.json").write_text('{"a": 1}')
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.write(tmp_path / "a.json", "deep/a.json")
    plain, packed, none, other = Files(tmp_path, 1), Files(tmp_path, 1), Files(tmp_path, 1), Files(tmp_path, 2)
    plain.sources, packed.sources = (Located(tmp_path / "a.json"),), (Located(tmp_path / "a.zip", "deep/a.json"),)
    other.sources = plain.sources
    assert data_hash(plain) == data_hash(packed)
    assert len({data_hash(one) for one in (plain, none, other)}) == 3
    before = data_hash(plain)
    (tmp_path / "a.json").write_text('{"a": 2}')
    assert data_hash(plain) != before
    (tmp_path / "a.json").unlink()
    with pytest.raises(SetupError, match=r"Cannot read .*a\.json"):
        data_hash(plain)


@pytest.mark.parametrize("wrong", [{"methods": []}, {"seeds": 0}, {"seeds": ()}, {"offset": -1}, {"limit": -1}])
def test_what_makes_no_sense_is_refused(tmp_path: Path, wrong: dict[str, object]) -> None:
    data: DataSet = Numbered(tmp_path, 1)
    with pytest.raises(InputError):
        evaluate(fake_engine, data, tmp_path / "run", **wrong)  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()

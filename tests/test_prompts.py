"""Prompt sets and the paper release's layouts, and the examples nearest to a question."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import codevqa
from codevqa.batching.model_services import ModelServices
from codevqa.core.errors import InputError, ModelError, ModelNotFoundError
from codevqa.core.settings import WriterSettings
from codevqa.models.fakes import ScriptedLM
from codevqa.models.protocols import Models
from codevqa.models.retrieval import ExampleIndex, SentenceRetriever, StaticEmbedding, cache_folder
from codevqa.prompts import ProgramExample, load_prompt_set
from codevqa.writing.writer import Writer


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    return Path(shutil.copytree(Path(__file__).parents[1] / "prompts" / "gqa", tmp_path / "mine"))


def test_a_folder_loads_like_a_name(mine: Path) -> None:
    assert load_prompt_set(mine) == load_prompt_set("gqa") == load_prompt_set(str(mine))


@pytest.mark.parametrize(
    ("file", "line", "broken", "says"),
    [
        ("examples.jsonl", 2, '{"id": "x", "question": ', "examples.jsonl, line 2: not JSON"),
        ("examples.jsonl", 3, '["x"]', "examples.jsonl, line 3: expected a JSON object, found list"),
        ("examples.jsonl", 1, '{"id": "x", "question": "Why?"}', "examples.jsonl, line 1: program is missing"),
        ("reading.jsonl", 2, '{"id": "x", "question": "q", "captions": [], "answer": "a"}', "line 2: captions "),
        ("prompt.json", 4, '  "shots": "12",', "prompt.json: shots must be a valid integer, not '12'"),
        ("preamble.txt", 10, "{apis}", "preamble.txt: {api} must stand in it once, found 0 times"),
    ],
)
def test_malformed_files_say_where(mine: Path, file: str, line: int, broken: str, says: str) -> None:
    lines = (mine / file).read_text().split("\n")
    if file == "preamble.txt":
        line = lines.index("{api}") + 1
    lines[line - 1] = broken
    (mine / file).write_text("\n".join(lines))
    with pytest.raises(InputError, match=re.escape(says)):
        load_prompt_set(mine)


def test_line_separators_inside_a_question_end_no_line(mine: Path) -> None:
    line = {"id": "u", "question": "Is\u2028it?", "program": "answer = query(img, 'Is it?')"}
    with (mine / "examples.jsonl").open("a", encoding="utf-8") as handle:
        handle.write(json.dumps(line, ensure_ascii=False) + "\n")
    assert load_prompt_set(mine).examples[-1].question == "Is\u2028it?"


def pool(folder: Path, programs: object, reading: object = None, task: str = "gqa") -> Path:
    """Writes files in the release's layout."""
    path = folder / f"{task}_programs.json"
    path.write_text(programs if isinstance(programs, str) else json.dumps(programs))
    usual = [{"question_id": 1, "question": "Is it?", "answer": "yes", "captions": "a dog on a mat"}]
    (folder / f"{task}_examples50.json").write_text(json.dumps(reading or usual))
    return path


def test_release_programs_lose_the_lines_that_prompts_write_themselves(tmp_path: Path) -> None:
    bare = 'answer = query(img, "Are there images on the wall?")'
    headed = f'\n# Image 4: Are there images?\nimg = open_image("Image4.jpg")\n{bare}\n'
    broken = 'if x\n    answer = query(img, "Of images?")'
    asked = {"01": bare, "2": headed, "3": broken}
    examples = load_prompt_set(
        pool(tmp_path, {id: {"question": "Why?", "program": text} for id, text in asked.items()})
    ).examples
    assert examples == tuple(
        ProgramExample(id, "Why?", text) for id, text in zip(asked, (bare, bare, broken), strict=True)
    )
    loop = "count = 0\nfor image in images:\n    count += 1\nanswer = count"
    opened = f'images = open_images("ImageSet1.jpg")\n{loop}'
    listed = [{"question_id": 7, "question": "How many?", "program": opened}]
    assert load_prompt_set(pool(tmp_path, listed, task="covr")).examples == (
        ProgramExample("7", "How many?", loop, "set"),
    )


def test_release_reading_examples_are_cut_to_the_captions_that_are_read(tmp_path: Path) -> None:
    captions = [f"a picture of thing {number}" for number in range(100)]
    reading = [
        {"question_id": 1, "question": "One?", "answer": "yes", "captions": captions, "imageId": "5"},
        {"question_id": 2, "question": "Two?", "answer": "no", "captions": [captions, captions[:2]]},
        {"question_id": 3, "question": "Three?", "answer": "no", "captions": "a dog on a mat"},
    ]
    first, two, three = load_prompt_set(
        pool(tmp_path, {"1": {"question": "Q?", "program": "answer = 1"}}, reading)
    ).reading
    assert (first.form, two.form, three.form) == ("image", "set", "image")
    assert first.captions == tuple(captions[:7]) and two.by_image == (tuple(captions[:7]), tuple(captions[:2]))
    assert three.by_image == (("a dog on a mat",),)


def test_what_the_files_of_the_release_do_not_say_is_the_bank_s(tmp_path: Path) -> None:
    usual = {"1": {"question": "Is it true that a?", "program": "answer = query(images[0], 'a?')"}}
    actual, ours = load_prompt_set(pool(tmp_path, usual, task="covr")), load_prompt_set("covr")
    assert (actual.name, actual.form, actual.shots, actual.captions) == ("covr_programs", "set", 6, 3)
    assert (actual.wording, actual.reading_wording, actual.preamble) == ("release", "release", ours.preamble)
    (tmp_path / "covr_preamble.py").write_text("query\n\n")
    (tmp_path / "covr_preamble_find.py").write_text("query, find_object\n\n")
    (tmp_path / "gqa_preamble_simple.py").write_text("get_pos\n")
    programs = tmp_path / "covr_programs.json"
    assert load_prompt_set(programs).preamble == "query"
    assert load_prompt_set(str(programs.rename(tmp_path / "covr_programs_find.json"))).preamble == "query, find_object"


def test_nothing_of_ours_displaces_a_program_of_the_release(tmp_path: Path) -> None:
    usual = {
        str(k): {"question": f"Are there {k} cups?", "program": "answer = find_object(images[0], 'a')"}
        for k in range(6)
    }
    pool_set = load_prompt_set(pool(tmp_path, usual, task="covr"))
    serves = {*Writer(ScriptedLM([]), load_prompt_set("covr")).primitives.names, "find_object", "count", "crop"}
    settings = WriterSettings(selection="fixed")
    writer = Writer(ScriptedLM([]), pool_set, settings=settings, serves=serves)
    assert [example.id for example in writer.prompts["set"].examples] == [*usual]
    assert "find_object" in writer.preamble("set")
    ours = Writer(ScriptedLM([]), load_prompt_set("covr"), settings=settings, serves=serves).prompts["set"].examples
    assert "count-3" in [example.id for example in ours]  # where the prompts are ours, they show it
    release = WriterSettings(selection="fixed", wording="release")
    released = Writer(ScriptedLM([]), load_prompt_set("covr"), settings=release, serves=serves)
    assert released.prompts["set"].examples == load_prompt_set("covr").examples
    assert "count(" not in released.preamble("set")


def test_examples_are_chosen_among_the_first_of_a_bank() -> None:
    whole = load_prompt_set("covr")
    writer = Writer(ScriptedLM([]), whole, settings=WriterSettings(selection="fixed", bank=50))
    assert writer.prompts["set"].examples == whole.examples[:50] and len(whole.examples) > 50


def test_knowledge_examples_of_the_release_come_with_its_programs(tmp_path: Path) -> None:
    programs = {id: {"question": "Who?", "program": "answer = knowledge_query('Who?')"} for id in "78"}
    known = {"8": {"question": "Who is it?", "answer": "you"}, "7": [{"question": "Who am I?", "answer": "me"}]}
    (tmp_path / "okvqa_examples_knowledge50.json").write_text(json.dumps(known))
    prompts = load_prompt_set(pool(tmp_path, programs, task="okvqa"))
    assert {example.question for example in prompts.knowledge} == {"Who is it?", "Who am I?"}
    assert [example.answer for example in prompts.knowledge_of(["7"])] == ["me"]


def test_what_the_files_of_the_release_lack_is_named(tmp_path: Path) -> None:
    programs = pool(tmp_path, {"1": {"question": "Is it?", "program": "answer = 1"}}, task="covr")
    (tmp_path / "covr_examples50.json").unlink()
    with pytest.raises(InputError, match=r"covr_programs\.json has no reading examples beside it"):
        load_prompt_set(programs)
    with pytest.raises(InputError, match=r"mine_programs\.json is of no known prompt set"):
        load_prompt_set(programs.rename(tmp_path / "mine_programs.json"))


WORDS = ("[UNK]", "dog", "cat", "tree")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    tokenizer = Tokenizer(WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    weights = np.eye(len(WORDS), dtype=np.float32)
    weights[0] = 0  # an unknown word says nothing
    path = tmp_path_factory.mktemp("retriever")
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=weights)], device="cpu").save(str(path))
    return path


def test_nearest_first_and_ties_keep_the_bank_s_order(folder: Path) -> None:
    retriever = SentenceRetriever.from_pretrained(folder)
    index = ExampleIndex(retriever, ["cat", "tree", "dog dog cat", "dog"] + ["tree"] * 30)
    assert index.nearest("dog", 2) == (3, 2)
    assert index.nearest("cat", 3) == (0, 2, 1)
    assert index.nearest("zebra", 30) == tuple(range(30))
    many = ExampleIndex(retriever, ["tree", "dog", "cat"] * 40)
    assert many.nearest("dog", 40) == tuple(range(1, 120, 3))
    assert index.nearest("dog", 0) == ()
    assert len(index.nearest("dog", 99)) == 34


class Slow:
    """Embeds in a while, all but one word."""

    name = "slow"

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.begun, self.go = threading.Event(), threading.Event()

    def embed(self, sentences: Sequence[str]) -> npt.NDArray[np.float32]:
        self.asked.append(list(sentences))
        self.begun.set()
        assert self.go.wait(30)
        if "bad" in sentences:
            raise ValueError("no such word")
        return np.array([[len(sentence)] for sentence in sentences], np.float32)


def test_questions_are_embedded_together_each_once_and_one_that_cannot_be_fails_alone() -> None:
    retriever = Slow()
    index = ExampleIndex(retriever, ["a", "bbb"])

    async def ask() -> list[BaseException | None]:
        services = ModelServices(
            Models(ScriptedLM([])), ScriptedLM([]), max_batch=None, max_wait=0.003, retriever=retriever
        )
        embed = services.embed.many
        first = asyncio.create_task(index.prepare("c", embed))
        await asyncio.to_thread(retriever.begun.wait, 30)
        retriever.go.set()
        await first
        others = [index.prepare(question, embed) for question in ("good", "bad", "c", "good", "fine")]
        outcomes = await asyncio.gather(first, *others, return_exceptions=True)
        services.close()
        return outcomes

    *good, bad, again, same, fine = asyncio.run(ask())
    assert [*good, again, same, fine] == [None] * 5
    assert isinstance(bad, ModelError) and "no such word" in str(bad)
    assert retriever.asked == [["a", "bbb"], ["c"], ["good", "bad", "fine"], ["good"], ["bad"], ["fine"]]
    asked = len(retriever.asked)
    assert index.nearest("good", 1) == index.nearest("fine", 1) == (1,)
    assert len(retriever.asked) == asked, "it was embedded where others wait"


def test_a_folder_that_is_missing_or_holds_no_model_is_one_clear_line(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(ModelNotFoundError, match="Cannot load the sentence embedding model") as caught:
            SentenceRetriever.from_pretrained(path)
        assert str(path) in str(caught.value)


def test_a_tokenizer_of_another_matrix_is_one_clear_line(folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    shutil.copytree(folder, tmp_path / "short")
    weights = load_file(folder / "model.safetensors")["embedding.weight"]
    save_file({"embedding.weight": weights[:-1].clone()}, tmp_path / "short" / "model.safetensors")
    with pytest.raises(ModelNotFoundError, match=r"tokenizer\.json has \d+ tokens, and embedding\.weight \d+ rows"):
        SentenceRetriever.from_pretrained(tmp_path / "short")


def test_a_static_model_is_loaded_without_sentence_transformers_and_gives_its_numbers(folder: Path) -> None:
    from sentence_transformers import SentenceTransformer

    code = (
        "import sys; from codevqa.models.retrieval import SentenceRetriever as R; R.from_pretrained(sys.argv[1]);"
        "sys.exit(int(bool({'sentence_transformers', 'transformers'} & set(sys.modules))))"
    )
    assert subprocess.run([sys.executable, "-c", code, str(folder)], timeout=500).returncode == 0
    mini = Path(codevqa.__file__).parent / "mini" / "weights" / "retriever"
    for place in (folder, mini):
        texts = ["dog", "Is there a red house left of the tree?", "", "zebra dog"]
        expected = SentenceTransformer(str(place), device="cpu").encode(texts)
        np.testing.assert_allclose(SentenceRetriever.from_pretrained(place).embed(texts), expected, rtol=0, atol=3e-7)


def test_another_model_goes_through_sentence_transformers(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    settings = json.loads((tmp_path / "config_sentence_transformers.json").read_text())
    settings |= {"prompts": {"question": "cat "}, "default_prompt_name": "question"}
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(settings))
    assert SentenceRetriever.from_pretrained(tmp_path).embed(["dog"]).tolist() == [[0, 0.5, 0.5, 0]]


@dataclass
class Trap:
    """Makes a folder where it is unpickled."""

    path: Path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_a_bank_is_kept_until_weights_change(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(StaticEmbedding, "of", lambda folder: None)
    model = shutil.copytree(folder, tmp_path / "model")
    bank = ["dog", "cat dog", "tree"]

    def nearest() -> tuple[int, ...]:
        return ExampleIndex(SentenceRetriever.from_pretrained(model), bank).nearest("tree", 3)

    assert nearest() == (2, 0, 1)
    (kept,) = cache_folder().iterdir()
    right = np.load(kept)
    np.save(kept, right[::-1])
    assert nearest() == (0, 1, 2), "it was read"
    for damaged in (kept.read_bytes()[:-9], b""):
        kept.write_bytes(damaged)
        assert nearest() == (2, 0, 1)
    np.save(kept, np.array([Trap(tmp_path / "trap")], dtype=object))
    assert nearest() == (2, 0, 1) and not (tmp_path / "trap").exists(), "no code in it runs"
    np.save(kept, right[::-1])
    for weights in model.rglob("*.safetensors"):
        os.utime(weights, (1, 1))
    assert nearest() == (2, 0, 1) and len([*cache_folder().iterdir()]) == 2
    shutil.rmtree(cache_folder())
    cache_folder().write_bytes(b"")  # a file where the folder would be
    assert nearest() == (2, 0, 1)

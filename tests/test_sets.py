"""Many pictures at once: what programs select, group and sort, how sure that is, and how few batches it takes."""

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blip_kit import TEXTS, load
from engine_kit import engine
from pages_kit import Read
from PIL import Image as PILImage
from tiny import noise_picture, write_blip

from codevqa import Answer, Collection, QuerySettings, Settings
from codevqa.collections import picture_files
from codevqa.core.errors import ProgramRuntimeError
from codevqa.core.images import Picture
from codevqa.core.selection import chance_of_yes, number_range
from codevqa.core.settings import SetSettings
from codevqa.core.trace import Evidence
from codevqa.models.fakes import FakeCaptioner, FakeMatcher
from codevqa.models.protocols import GenerationRequest, MatchRequest
from codevqa.primitives import Image, primitive
from codevqa.prompts import load_prompt_set as load_prompts

MANY = 40


def level(picture: Picture) -> int:
    """Which of the pictures it is: its shade of grey."""
    return int(np.asarray(picture.pixels)[0, 0, 0])


def grey(count: int = MANY) -> list[PILImage.Image]:
    return [PILImage.new("RGB", (24, 24), (shade, shade, shade)) for shade in range(count)]


def logit(request: MatchRequest) -> float:
    """Every fourth picture surely fits, of every fifth it is not sure."""
    shade = level(request.picture)
    return 0.5 if shade % 5 == 0 else 9.0 if shade % 4 == 0 else -9.0


def read(request: GenerationRequest) -> str:
    """Reads a yes in captions of even pictures."""
    shade = int(str(request.prompt).rsplit("Shade ", 1)[1].split()[0].rstrip(".,\n"))
    asked = str(request.prompt).rsplit("Q: ", 1)[1]
    return (
        str(shade)
        if asked.startswith("How many")
        else f"kind {shade % 3}"
        if asked.startswith("What")
        else ("yes" if shade % 2 == 0 else "no")
    )


def sets(matcher: FakeMatcher | None = None, **values: Any) -> Any:
    chosen = SetSettings(**{"witness": True, **values})
    captioner = FakeCaptioner(lambda request: f"shade {level(request.picture)}", grid=6)
    used = Settings(query=QuerySettings(captions=1, patches=5), sets=chosen, workers=4)
    return engine(read=read, matcher=matcher or FakeMatcher(6, logit=logit), captioner=captioner, settings=used)


def numbers(answer: Answer, kind: str) -> list[int]:
    return [
        ref.index
        for call in answer.trace.calls
        for evidence in call.evidence
        if evidence.kind == kind
        for ref in evidence.images
    ]


WANTED = [at + 1 for at in range(MANY) if (at % 2 == 0 if at % 5 == 0 else at % 4 == 0)]


def test_select_asks_matching_in_one_batch_and_reads_where_it_is_unsure() -> None:
    matcher = FakeMatcher(6, logit=logit)
    with sets(matcher) as vqa:
        answer = vqa.run(grey(), 'answer = select(images, "a cup")')
        (call,) = answer.trace.calls
        assert [ref.index for ref in call.value] == WANTED and matcher.matches.batches[0] == MANY
        assert [evidence.kind for evidence in call.evidence] == ["select"] and call.evidence[
            0
        ].text == "Is there a cup?"
        looped = vqa.run(grey(), 'answer = [img for img in images if query(img, "Is there a cup?") == "yes"]')
        (chosen,), (again,) = answer.selections, looped.selections
        assert sorted(pick.image.index for pick in chosen.picked) == WANTED
        assert (chosen.low, chosen.high, chosen.count) == (again.low, again.high, again.count)
        assert chosen.low < chosen.count < chosen.high and len(chosen.unsure) == MANY // 5
        assert vqa.run(grey(), 'answer = count(images, "a cup")').text == str(len(WANTED))
        assert Answer.from_json(answer.to_json()).selections == answer.selections


def test_what_is_asked_of_select() -> None:
    with sets() as vqa:
        for wrong, text in (("How many cups are there?", "yes/no question"), (" ", "not an empty string")):
            with pytest.raises(ProgramRuntimeError, match=text):
                vqa.run(grey(3), f"answer = select(images, {wrong!r})")
        with pytest.raises(ProgramRuntimeError, match="needs a detector for one image"):
            vqa.run(grey(1), 'answer = count(img, "cup")')
        assert vqa.run(grey(3), 'answer = len(select([], "a cup"))').text == "0"
        nothing = vqa.run(grey(3), 'answer = len(select(select(images, "a cup"), "no cups"))')
        assert [selection.question for selection in nothing.selections] == ["Is there a cup?", "Are there no cups?"]


def test_sets_are_grouped_and_sorted() -> None:
    with sets(FakeMatcher(6, logit=logit, similarity=lambda request: level(request.picture) % 7 / 10)) as vqa:
        run: Callable[[str], Answer] = lambda source: vqa.run(grey(), source)  # noqa: E731
        assert run('answer = most_common(images, "What is this?")').text == "kind 0"  # 0, 3, ...: one more than others
        most = run('answer = sort_by(images, "How many cups are there?")[:3]').value
        assert [ref.index for ref in most] == [37, 36, 33]  # of the others matching is sure that there are none
        alike = run('answer = sort_by(images, "a cup")[:2]')
        assert [ref.index for ref in alike.value] == [7, 14]
        surest = run('answer = sort_by(images, "Is there a cup?")').value
        assert [ref.index - 1 for ref in surest[:2]] == [4, 8]


def test_a_notebook_shows_groups_with_the_first_of_their_pictures(tmp_path: Path) -> None:
    for shade, picture in enumerate(grey()):
        picture.save(tmp_path / f"{shade:02}.png")
    with sets() as vqa:
        groups = vqa.group(Collection(tmp_path), "What kind is it?")
    page = Read(groups._repr_html_())
    assert [element.text for element in page.all("h3")] == ["kind 0: 14", "kind 1: 13", "kind 2: 13"]
    assert len(page.all("img")) == 24 and page.all("img")[8].attributes["alt"] == "image 2, 01.png"
    assert [element.text for element in page.all(cls="cv-soft")] == [f"and {more} more pictures" for more in (6, 5, 5)]
    page = Read(replace(groups, answer=replace(groups.answer, sources=()))._repr_html_())
    assert page.all(cls="cv-absent")[0].text == "image 1" and len(page.all("h3")) == 3


def test_what_is_ruled_out_or_out_of_time_is_told() -> None:
    few = lambda request: logit(request) if level(request.picture) < 10 else -9.0  # noqa: E731
    scored = FakeMatcher(6, logit=few, similarity=lambda request: 0.4 if level(request.picture) < 10 else 0.1)
    with sets(scored, exact=False, rule_out=0.3) as vqa:
        answer = vqa.run(grey(), 'answer = select(images, "a cup")')
        assert numbers(answer, "ruled_out") == list(range(11, MANY + 1)) and numbers(answer, "select")[-1] == 10
        assert answer.selections[0].ruled_out == MANY - 10 and len(answer.selections[0].others) == MANY - 3
        every = vqa.run(grey(), 'answer = select(images, "no cups")')  # a low score is what this wants
        assert not every.selections[0].ruled_out
    blind = FakeMatcher(6, logit=logit, similarity=lambda request: 0.1)
    with sets(blind, exact=False, rule_out=0.3) as vqa:  # one that counts is among the best that it would rule out
        assert numbers(vqa.run(grey(), 'answer = select(images, "a cup")'), "select") == list(range(1, MANY + 1))
    with sets(seconds=1e-6) as vqa:
        answer = vqa.run(grey(100), 'answer = select(images, "a cup")')
        assert numbers(answer, "left") == list(range(65, 101)) and answer.selections[0].left == 36


def test_a_picture_that_is_gone_is_neither_selected_nor_not(tmp_path: Path) -> None:
    weights = write_blip(tmp_path / "matcher", "matcher")
    (tmp_path / "photos").mkdir()
    rng = np.random.default_rng(3)
    for number in range(12):
        PILImage.fromarray(rng.integers(0, 256, (30, 40, 3), np.uint8)).save(tmp_path / "photos" / f"{number:02}.png")
    with sets(load(weights)) as vqa:  # type: ignore[arg-type]
        pictures = Collection(tmp_path / "photos", index=tmp_path / "index")
        pictures.open()
        picture_files.recent.clear()
        (tmp_path / "photos" / "05.png").unlink()
        for asked in ("a cup", "Is there more than one cup?", "Is the cup the same as ours?"):
            answer = vqa.run(pictures, f"answer = len(select(images, {asked!r}))")
            assert numbers(answer, "unread") == [6] == [ref.index for ref in answer.selections[0].unread]
            assert numbers(answer, "select") == [1, 2, 3, 4, 5, *range(7, 13)]
        ordered = vqa.run(pictures, 'answer = sort_by(images, "a cup")')
        assert len(ordered.value) == 11 and numbers(ordered, "unread") == [6]


def test_the_best_of_a_large_set_is_found_by_matching() -> None:
    near = FakeMatcher(
        6,
        similarity=lambda request: level(request.picture) / 100,
        logit=lambda request: 5.0 if level(request.picture) in (10, MANY - 15) else -5.0,
    )
    program = 'answer = find_matching_image(images, "a cup")'
    with sets(near) as vqa:
        assert vqa.run(grey(), program).value.index == MANY - 14
        assert len(numbers(vqa.run(grey(), program), "itm")) == 20
        assert vqa.run(grey(8), program).value.index == 8
    with sets(near, witness=False) as vqa:
        assert vqa.run(grey(), program).value.index == MANY


def test_writers_are_told_of_them_for_large_sets_alone() -> None:
    mini = {"image": load_prompts("gqa"), "set": load_prompts("mini")}
    for prompts, lists_select in ((None, True), (mini, False)):
        with engine("answer = 1", prompts=prompts) as vqa:  # type: ignore[arg-type]
            alone = vqa.prompt("How many dogs are there?", form="set")
            small, large = (vqa.ask(grey(count), "How many dogs are there?").program for count in (10, 11))
        assert small and large and small.prompt == alone
        assert "select(" not in alone and "sort_by(" not in alone
        assert (large.prompt == alone) is not lists_select
        assert lists_select is ("select(images: list[Image], question: str)" in large.prompt)
        assert "count(" not in large.prompt, "there is no detector"


def test_own_primitives_take_the_place_of_those_for_sets() -> None:
    @primitive
    def select(images: list[Image], question: str) -> str:
        """Says so."""
        return "mine"

    with engine(primitives=[select]) as vqa:
        assert vqa.run(grey(3), 'answer = select(images, "a cup")').text == "mine"


def test_logits_are_those_of_matching(tmp_path: Path) -> None:
    matcher = load(write_blip(tmp_path / "matcher", "matcher"))
    requests = [MatchRequest(noise_picture(seed), text) for seed, text in itertools.product(range(3), TEXTS)]
    expected = [match.logit for match in matcher.match(requests)]
    np.testing.assert_allclose(matcher.logits(requests), expected, rtol=0, atol=3e-5)


def test_the_range_is_the_smallest_that_holds_nine_cases_in_ten() -> None:
    rng = random.Random(4)
    for _ in range(20):
        chances = [rng.random() ** 2 for _ in range(9)]
        likely = [0.0] * 10
        for kept in itertools.product((0, 1), repeat=9):
            likely[sum(kept)] += math.prod(
                chance if yes else 1 - chance for chance, yes in zip(chances, kept, strict=True)
            )
        low, high = number_range([*chances, 1.0, 0.0])
        assert sum(likely[low - 1 : high]) >= 0.9
        narrower = high - low
        assert all(sum(likely[at : at + narrower]) < 0.9 for at in range(10))
    assert number_range([]) == (0, 0) and number_range([1.0, 0.9999, 0.0]) == (2, 2)


def test_chances_say_what_was_answered() -> None:
    eyes = Evidence("eyes", choices=("yes", "no"), scores=(0.3, 0.7))
    assert chance_of_yes("no", [eyes]) == pytest.approx(0.3)
    fits = [chance_of_yes("yes", [Evidence("itm", scores=(score,))]) for score in (6.0, 7.0, 9.0)]
    assert 0.5 <= fits[0] < fits[1] < fits[2] <= 1 and chance_of_yes("no", [Evidence("itm", scores=(-9.0,))]) < 0.01
    both = chance_of_yes("yes", [Evidence("itm", scores=(7.0, 7.0))])
    assert both < fits[1], "two things had to fit"
    assert chance_of_yes("no", []) == pytest.approx(1 - chance_of_yes("yes", []))


def test_a_reply_that_says_neither_is_unread_and_never_no() -> None:
    def vague(request: GenerationRequest) -> str:
        return "There is a cat." if "Shade 3" in str(request.prompt) else read(request)

    settings = Settings(query=QuerySettings(captions=1, patches=4))
    captioner = FakeCaptioner(lambda request: f"shade {level(request.picture)}", grid=6)
    program = 'answer = select(images, "Is there a cat?")'
    with engine(program, vague, settings=settings, captioner=captioner) as vqa:
        (selection,) = vqa.run(grey(6), program).selections
        assert [pick.image.index for pick in selection.picked] == [1, 3, 5]
        assert [image.index for image in selection.unread] == [4]
        sure = vqa.run([picture for place, picture in enumerate(grey(6)) if place != 3], program).selections[0]
        assert (selection.low, selection.high) == (sure.low, sure.high + 1), "it may be either"
        with pytest.raises(ProgramRuntimeError, match="said neither: 'there is a cat'"):
            vqa.run(grey(6)[3], 'answer = query(img, "Is there a cat?")')
        groups = vqa.group(grey(6), "Is there a cat?")
        assert {row.answer: [image.index for image in row.pictures] for row in groups} == {
            "yes": [1, 3, 5],
            "no": [2, 6],
            "": [4],
        }

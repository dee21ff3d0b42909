"""Programs over models that are not BLIP's: what they are offered, what a detector and eyes answer, and ``direct``."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_kit import GARDEN, ROOT, SHELF, CommandLine
from engine_kit import BLUE, GREEN, RED, engine, reader
from PIL import Image
from PIL import Image as PILImage

from codevqa import Answer, CodeVQA, Settings, WriterSettings
from codevqa.core.errors import ProgramError, ProgramRuntimeError, SetupError
from codevqa.core.images import MAX_CUT, load_picture
from codevqa.core.settings import PromptForm
from codevqa.core.trace import ImageRef
from codevqa.models.fakes import FakeCaptioner, FakeDetector, FakeEyes, FakeMatcher
from codevqa.models.protocols import Box, DetectRequest, Models, SimilarityRequest
from codevqa.pages import trace_page
from codevqa.pages.pictures import picture_of
from codevqa.primitives.detection import DETECTION
from codevqa.primitives.visual import servable_names
from codevqa.prompts import ProgramExample, load_prompt_set

WIDE = PILImage.new("RGB", (80, 40), "white")
WIDE.paste((255, 0, 0), (40, 0, 80, 40))
CUPS = [Box(40, 10, 60, 30, 0.6), Box(60, 0, 80, 20, 0.9)]


class Compares:
    """A matcher of CLIP's kind: it tells nothing of where."""

    name = "compares"

    def similarity(self, requests: list[SimilarityRequest]) -> list[float]:
        """Returns the less, the more green there is."""
        return [-float(np.asarray(request.picture.pixels)[0, 0, 1]) for request in requests]


def boxes(request: DetectRequest) -> list[Box]:
    """A cup and a rim in each part of a picture that is wide enough, else nothing."""
    return [] if request.phrase == "unicorn" else CUPS if request.picture.pixels.width == 80 else [Box(2, 4, 6, 8, 0.5)]


def seeing(
    program: str = "answer = 1", *, form: PromptForm = "completion", prompts: str = "gqa", **looking: Any
) -> CodeVQA:
    """An engine with eyes and these models that look at pictures, and no others."""
    models = Models(reader(), **{"eyes": FakeEyes(), **looking})
    settings = Settings(writer=WriterSettings(selection="fixed", repairs=0, form=form), workers=2)
    return engine(
        program,
        models=models,
        prompts={"image": load_prompt_set(prompts), "set": load_prompt_set("covr")},
        settings=settings,
    )


def test_what_models_serve() -> None:
    always = {"open_image", "open_images", "knowledge_query"}
    detector_names, asked = {*DETECTION.names}, {"query", "visual_query", "select", "most_common", "sort_by"}
    for looking, names in (
        ({}, set()),
        ({"captioner": FakeCaptioner()}, set()),
        ({"captioner": FakeCaptioner(), "matcher": FakeMatcher()}, {"get_pos", "find_matching_image", *asked}),
        ({"captioner": FakeCaptioner(), "matcher": Compares()}, {"find_matching_image"}),
        ({"eyes": FakeEyes()}, asked),
        ({"detector": FakeDetector()}, {"get_pos", *detector_names}),
    ):
        assert servable_names(Models(reader(), **looking)) == always | names, looking


@pytest.mark.parametrize("form", ["completion", "chat"])
def test_prompts_name_nothing_that_no_model_serves(form: PromptForm) -> None:
    with seeing(form=form) as vqa:
        for kind in ("image", "set"):
            shots = len([example for example in vqa.writer.prompts_for(kind).examples if example.form == kind])
            prompt = vqa.prompt("Is the cup left of the dog?", form=kind, shots=shots)
            assert "query(" in prompt and shots > 20
            assert not any(f"{name}(" in prompt for name in ("get_pos", "find_matching_image", "count", "crop"))
        with pytest.raises(ProgramError, match="'get_pos'"):
            vqa.run(RED, "answer = get_pos(img, 'cup')")
    with seeing(form=form, detector=FakeDetector(), matcher=Compares()) as vqa:
        prompt = vqa.prompt("How many cups?", shots=4)
        assert 'answer = count(img, "chair")' in prompt and 'crop(img, "sign")' in prompt
        assert "crop(img: Image, object: str) -> Image" in prompt and "get_pos(img: Image" in prompt
        set_prompt = vqa.prompt("How many cups?", form="set", shots=1)
        assert 'count(img, "bottle") for img in images' in set_prompt


def test_a_method_of_a_primitive_s_name_is_no_call_of_it() -> None:
    method = ProgramExample("one", "Two?", 'answer = ["yes"].count("yes") == 2')
    bank = (method, ProgramExample("two", "How many?", 'answer = count(img, "cup")'))
    assert replace(load_prompt_set("gqa"), examples=bank).without(["count"]).examples == (method,)


def test_a_program_counts_and_looks_closer() -> None:
    program = """cup = crop(img, "cup")
rim = crop(cup, "rim")
answer = [count(img, "cup"), cup.width, cup.height, rim.width, find_matching_image([img, cup], "red").width]"""
    with seeing(detector=FakeDetector(boxes), matcher=Compares()) as vqa:
        answer = vqa.run(WIDE, program)
    # The best box with a tenth around it, as far as the picture goes; then one in that part.
    assert answer.value == [2, 22, 22, 6, 22]
    cup, rim, counted, matched = answer.trace.calls
    assert cup.value == ImageRef(1, (58, 0, 80, 22)) and rim.arguments["img"] == cup.value
    assert rim.value == ImageRef(1, (59, 3, 65, 9)) and str(rim.value) == "part of image 1"
    assert matched.value == cup.value and matched.evidence[0].images == (ImageRef(1), cup.value)
    (evidence,) = counted.evidence
    assert evidence.kind == "detection" and evidence.scores == (0.9, 0.6)
    assert list(map(list, evidence.boxes)) == [[18, 12, 24, 24], [12, 6, 18, 18]]
    assert Answer.from_json(answer.to_json()) == answer
    page = trace_page(answer, [load_picture(WIDE)])
    assert 'class="cv-box" style="left:75.0%;top:0.0%;width:25.0%;height:50.0%"' in page and "part of image 1" in page


def test_a_crop_of_nothing_is_the_whole_picture_and_a_part_is_of_bounded_size() -> None:
    huge = PILImage.new("RGB", (4000, 3000))
    everything = FakeDetector(lambda request: [Box(0, 0, 4000, 2000, 0.9)] if request.phrase == "sky" else [])
    with seeing(detector=everything, matcher=Compares()) as vqa:
        answer = vqa.run(huge, 'answer = crop(img, "unicorn") == img, crop(img, "sky").width, count(img, "unicorn")')
    assert answer.value == (True, MAX_CUT, 0)
    assert answer.trace.calls[0].evidence[0].boxes == () and "nothing was found" in trace_page(
        answer, [load_picture(huge)]
    )


def test_a_part_that_no_picture_has_is_not_drawn() -> None:
    for part in ((0, 0, 10**9, 10**9), (0, 0, 0, 0), (-4, 0, 4, 4)):
        assert picture_of(ImageRef(1, part), [load_picture(WIDE)]) is None
    for value in ([1, 2], [1, 0, 0, 4, "4"], [[1], 0, 0, 4, 4], True):
        with pytest.raises(ValueError, match="named by its number"):
            ImageRef.read(value)


def test_positions_are_a_box_s_centre_where_no_matcher_tells_and_a_failure_where_nothing_is_found() -> None:
    with seeing(detector=FakeDetector(boxes), matcher=Compares()) as vqa:
        answer = vqa.run(WIDE, 'answer = get_pos(img, "cup")')
        (evidence,) = answer.trace.calls[0].evidence
        assert answer.value == evidence.position and answer.value == (21, 18) and len(evidence.boxes) == 1
        with pytest.raises(ProgramRuntimeError, match=r"get_pos\(\) found no 'unicorn' in image 1"):
            vqa.run(WIDE, 'answer = get_pos(img, "unicorn")')
        caught = "try:\n    answer = get_pos(img, 'unicorn')\nexcept ValueError:\n    answer = 'nowhere'"
        assert vqa.run(WIDE, caught).text == "nowhere"
    with seeing(detector=FakeDetector(boxes), matcher=FakeMatcher(6)) as vqa:
        assert vqa.run(WIDE, 'answer = get_pos(img, "cup")').trace.calls[0].evidence[0].kind == "gradcam"


def test_programs_may_use_the_names_of_primitives_for_variables() -> None:
    program = (
        "seen, count = {}, 0\nfor one in images:\n    seen[crop(one, 'a')] = 1\n    count += 1\nanswer = len(seen)"
    )
    with seeing(detector=FakeDetector(boxes)) as vqa:
        assert vqa.run([RED, GREEN, BLUE], program).text == "3"
        with pytest.raises(ProgramError, match="line 2: Operator"):
            vqa.run([RED], "crop = crop\nanswer = crop + 1")


# -- eyes: a vision-language model answers query, and is the baseline "direct" -----------------------------------------

SHORT = "\nAnswer the question using a single word or phrase."


def test_query_asks_the_eyes_with_what_can_be_chosen_from_and_shows_it() -> None:
    eyes = FakeEyes("Red.")
    with seeing('answer = query(img, "What color is it?")', eyes=eyes) as vqa:
        answer = vqa.ask(RED, "What color is the thing?")
        with pytest.raises(ProgramRuntimeError, match="said neither: 'red'"):
            vqa.run(RED, 'answer = query(img, "Is it red or blue?") + query(img, "Is it big?")')
    assert answer.text == "red" and answer.models["eyes"] == "fake-eyes" and "captioner" not in answer.models
    assert eyes.requests[0].text == f"What color is it?{SHORT}"
    assert [request.choices for request in eyes.requests] == [(), ("red", "blue"), ("yes", "no")]
    (seen,) = answer.trace.calls[0].evidence
    assert (seen.kind, seen.prompt, seen.completion) == ("eyes", f"What color is it?{SHORT}", "Red.")


def test_asked_directly_it_sees_all_pictures_and_the_statement_as_a_question() -> None:
    eyes = FakeEyes("No, it is not.")
    with seeing(eyes=eyes) as vqa:
        answer = vqa.ask([RED, GREEN, BLUE], "There is a red thing.", method="direct")
    (asked,) = eyes.requests
    assert (answer.text, answer.method, answer.program, answer.fallback) == ("no", "direct", None, False)
    assert asked.text == f"Is it true that There is a red thing?{SHORT}"
    assert [picture.pixels.getpixel((0, 0)) for picture in asked.pictures] == [(255, 0, 0), (0, 128, 0), (0, 0, 255)]
    assert answer.trace.baseline[0].kind == "eyes"


def test_a_program_that_fails_is_answered_by_the_eyes() -> None:
    blip: Any = {"matcher": FakeMatcher(6), "captioner": FakeCaptioner(grid=6)}
    with seeing("answer = 1 / 0", eyes=FakeEyes("blue"), **blip) as vqa:
        answer = vqa.ask(BLUE, "What color is it?")
        captions = vqa.ask(BLUE, "What color is it?", method="pnpvqa")
    assert (answer.text, answer.fallback, answer.trace.baseline[0].kind) == ("blue", True, "eyes")
    assert captions.trace.baseline[0].kind == "pnpvqa"


def test_a_prompt_set_says_how_answers_are_to_be() -> None:
    eyes = FakeEyes("thing")
    with seeing('answer = visual_query(img, "What is it?")', prompts="okvqa", eyes=eyes) as vqa:
        vqa.ask(RED, "What is it?")
    assert "respond with 'Unanswerable'" in eyes.requests[0].text


def test_what_the_models_cannot_do_is_refused() -> None:
    eyes, blip = FakeEyes(), {"eyes": None, "matcher": FakeMatcher(6), "captioner": FakeCaptioner()}
    for method, lacks, looking in (("pnpvqa", "captioner", {"eyes": eyes}), ("direct", "vision-language model", blip)):
        with seeing(**looking) as vqa, pytest.raises(SetupError, match=lacks):
            vqa.ask(RED, "What is it?", method=method)  # type: ignore[arg-type]
    assert not eyes.requests
    with pytest.raises(SetupError, match="Nothing here can answer"):
        seeing(eyes=None, matcher=FakeMatcher(6))


WEIGHTS = ROOT / "codevqa" / "mini" / "weights" / "vlm"


def test_programs_and_direct_questions_are_answered_by_it(codevqa: CommandLine) -> None:
    """Three pictures of a shelf, two with a purple cup; captions are not read."""
    for method in ("codevqa", "direct"):
        asked = ["ask", *SHELF, "-q", "How many pictures contain a purple cup?", "--preset", "mini-vlm"]
        done = codevqa(*asked, "--method", method)
        assert done.stdout == "2\n"


@pytest.mark.slow
def test_a_large_picture_is_answered_through_a_real_server(tmp_path: Path, served: str) -> None:
    """Model, pictures and questions go over HTTP to ``transformers serve``, from the program and without one."""
    large = tmp_path / "harbor.jpg"
    with Image.open(GARDEN.with_name("harbor.png")) as small:
        small.convert("RGB").resize((3000, 3000)).save(large, quality=95)
    sets = {"eyes.base_url": served, "eyes.timeout": 300.0}
    with CodeVQA.from_preset("mini", eyes=f"openai:{WEIGHTS}", sets=sets) as vqa:
        answer = vqa.ask(large, "What color is the flag?")
        direct = vqa.ask([large, GARDEN], "How many pictures contain a flag?", method="direct")
    (seen,) = answer.trace.calls[-1].evidence
    assert (answer.text, answer.fallback, seen.kind) == ("red", False, "eyes")
    assert direct.text == "1"

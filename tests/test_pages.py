"""Pages of answers: everything is there, and it says what it is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pages_kit import (
    MATCHED,
    PICTURES,
    PLACED,
    READ,
    SOURCE,
    SYNTAX,
    TYPE,
    Read,
    answer,
    asked,
    hostile,
    opened,
    picture,
)

from codevqa.core.errors import ErrorRecord
from codevqa.core.events import CallBegan
from codevqa.core.trace import Call, Evidence, ImageRef, Program, Trace
from codevqa.pages import answer_fragment, call_html, evidence_html, program_html, trace_page

SHOWN = """Is it there?|a cat on a mat|Context: A red cat.|THE PROMPT|THE COMPLETION|mini-7|it printed this|first try
|ProgramSyntaxError: line 1: '(' was never closed|writing-model|1,234|3.50 s|250 ms
|x = 20.5, y = 18.5|the upper right|match: 96 %|first.png|answer = 'no'"""


def test_the_page_shows_everything_an_answer_rests_on() -> None:
    page = Read(trace_page(answer(), PICTURES))
    text = page.element("body").text
    assert [words for words in SHOWN.replace("\n", "").split("|") if words not in text] == []
    assert [element.attributes["data-index"] for element in page.all(cls="cv-call")] == [str(n) for n in range(1, 10)]
    assert page.element(cls="cv-answer").text == "no"
    assert page.element(cls="cv-answer").attributes["data-outcome"] == "answered"
    assert len(page.all("img", cls="cv-heat")) == 7
    assert all(element.attributes["alt"] for element in page.all("img"))


def test_the_time_of_each_part_has_a_name() -> None:
    stages = {"writing": 0.8, "choosing": 0.05, "running": 2.5, "other": 0.15}
    page = Read(trace_page(answer(stages=stages), PICTURES))
    bar = page.element(cls="cv-timeline").attributes["aria-label"]
    assert bar.startswith(
        "Time line: writing the program 800 ms, choosing among programs 50 ms, "
        "running the program, without its calls 400 ms, other 150 ms, call 1 under 1 ms, call 2 250 ms"
    )
    assert "writing" in page.element(cls="cv-timeline").text
    assert Read(trace_page(answer(), PICTURES)).element(cls="cv-timeline").text.startswith("other")


def test_a_fallback_is_marked_with_its_typed_error_and_its_evidence() -> None:
    program = Program(SOURCE)
    trace = Trace((), "", ((program, TYPE),), (READ,))
    page = Read(trace_page(answer(fallback=True, error=TYPE, text="perhaps", program=program, trace=trace), PICTURES))
    element = page.element(cls="cv-answer")
    assert (element.attributes["data-outcome"], element.text) == ("fallback", "perhaps")
    assert "ProgramTypeError: line 4: no name 'cat'" in page.element(cls="cv-fallback").text
    assert page.element(cls="cv-failing").attributes["data-line"] == "4"
    text = page.element("body").text
    assert "What was read instead, without a program" in text and "a cat on a mat" in text
    assert "Written before" not in text and "It ended with" not in text  # its own program is shown once


def test_no_answer_and_the_baseline_say_what_they_are() -> None:
    page = Read(trace_page(answer(text="", error=ErrorRecord("ProgramLimitError", "too many calls")), PICTURES))
    assert page.element(cls="cv-answer").attributes["data-outcome"] == "failed"
    assert "ProgramLimitError: too many calls" in page.element(cls="cv-verdict").text
    page = Read(trace_page(answer(program=None, method="pnpvqa", trace=Trace(baseline=(READ,))), PICTURES))
    assert "Found without a program" in page.element(cls="cv-verdict").text and not page.all(cls="cv-program")
    seen = Trace(baseline=(replace(READ, kind="eyes", captions=()),))
    direct = Read(trace_page(answer(program=None, method="direct", trace=seen), PICTURES)).element("body").text
    assert "a vision-language model looked at the pictures" in direct and "captions of the pictures" not in direct
    assert page.element(id="cv-program").tag == "section"  # the skip link leads somewhere


def test_pictures_are_shrunk_and_named_where_they_are_not_at_hand() -> None:
    html = trace_page(answer(), (picture(3000, 2000, name="large.png"), *PICTURES[1:]))
    sizes = [opened(element.attributes["src"]).size for element in Read(html).all("img")]
    assert max(max(size) for size in sizes) == 640 and (640, 427) in sizes and len(html) < 200_000
    page = Read(trace_page(answer(), ()))
    assert [element.text for element in page.all(cls="cv-absent")][:3] == ["image 1", "image 2", "image 3"]
    assert len(page.all("img", cls="cv-heat")) == 7  # the maps are still drawn


def test_the_answer_without_a_program_stands_beside_with_whether_it_agrees() -> None:
    for text, word in (("No", "agrees"), ("yes", "disagrees")):
        baseline = answer(text=text, program=None, method="pnpvqa", trace=Trace())
        beside = Read(trace_page(answer(), PICTURES, baseline)).element(cls="cv-beside")
        assert beside.text == f"Without a program: {text} {word}"
    fallen = answer(fallback=True, error=SYNTAX)  # it is an answer without a program, too: nothing agrees with it
    assert Read(trace_page(fallen, PICTURES, baseline)).element(cls="cv-beside").text == "Without a program: yes"


def test_a_notebook_gets_one_piece_with_its_own_styles_and_no_names_to_clash() -> None:
    page = Read(answer_fragment(answer(), PICTURES))
    assert page.elements[0].tag == "div" and all(element.inside[0] is page.elements[0] for element in page.elements)
    assert len(page.all("style")) == 1 and not page.all("a") and not page.all("script")
    assert not any("id" in element.attributes for element in page.elements)
    assert page.element(cls="cv-answer").text == "no" and len(page.all(cls="cv-call")) == 9


# -- programs --------------------------------------------------------------------------------------------------------


def test_a_notebook_shows_a_program_alone_and_all_of_a_trace() -> None:
    shown = answer(trace=replace(answer().trace, baseline=(READ,), drafts=hostile()[0].trace.drafts))
    program = shown.program
    assert program is not None and str(program) == SOURCE
    page = Read(program._repr_html_())
    assert [element.text for element in page.all("code")] == SOURCE.splitlines() and len(page.all("style")) == 1
    page = Read(shown.trace._repr_html_())
    text = "".join(element.text for element in page.all(cls="cv-root"))
    for words in (
        "a cat on a mat",
        "it printed this",
        "x = (",
        "was never closed",
        "programs that were written to choose from",
    ):
        assert words in text
    assert len(page.all(cls="cv-call")) == 9 and len(page.all("style")) == 1
    assert not any("open" in element.attributes for element in page.all("details"))
    assert Read(Trace()._repr_html_()).element(cls="cv-root").text.strip() == ""


def test_a_failed_call_and_a_failing_line_are_marked() -> None:
    calls = [replace(asked(n), line=3, error=ErrorRecord("ValueError", "no") if n > 2 else None) for n in range(1, 8)]
    page = Read(program_html(SOURCE, calls, ErrorRecord("ProgramRuntimeError", "line 3: <oh>", 3)))
    failing = page.element(cls="cv-failing")
    assert failing.attributes["data-line"] == "3" and "✗" in failing.text
    assert page.element(cls="cv-why").text.strip() == "line 3: <oh>"
    assert [element.text for element in page.all(cls="cv-value")] == ["'yes'", "'yes'", "failed", "failed"]
    assert page.element(cls="cv-more").text == "and 3 more, 3 of them failed"
    page = Read(program_html("answer = 1", (), ErrorRecord("ProgramLimitError", "too slow", 99)))
    assert not page.all(cls="cv-failing") and "too slow" in page.element(cls="cv-error").text


@pytest.mark.parametrize(
    "source",
    [
        "answer = '''two\nlines <b>''' if x else \"it's # no comment\" # 'a comment'\nreturned = 3.5e-2",
        'x = \'never closed\ny = """nor this\nz = 1',
        "\n\nhalf = quer",
    ],
)
def test_a_program_reads_as_it_is(source: str) -> None:
    page = Read(program_html(source + "\n\n"))
    assert "\n".join(element.text for element in page.all("td", cls="cv-source")) == source


# -- calls and evidence ----------------------------------------------------------------------------------------------


def test_cards_say_their_state() -> None:
    states: dict[str, Call | CallBegan] = {
        "computed": asked(3),
        "remembered": asked(3, remembered=True),
        "failed": asked(3, error=ErrorRecord("ValueError", "it went wrong")),
        "running": CallBegan(3, "query", asked(3).arguments, 3),
    }
    for state, call in states.items():
        card = Read(call_html(call, PICTURES)).element(cls="cv-call")
        assert [card.attributes[f"data-{name}"] for name in ("index", "name", "state")] == ["3", "query", state]
        assert "query(image 1, 'Is there a 3?')" in card.text
        assert ("'yes'" in card.text) == (state in ("computed", "remembered"))
        assert ("ValueError: it went wrong" in card.text) == (state == "failed")


def test_captions_stand_beside_the_patches_they_saw_and_positions_are_marked() -> None:
    page = Read(evidence_html(READ, PICTURES))
    items = [element for element in page.all("li") if any("cv-captions" in around.classes for around in element.inside)]
    assert [element.text for element in items] == ["a red cat", "a cat on a mat"]
    seen = page.all("img", cls="cv-patches")
    assert seen[0].attributes["src"] != seen[1].attributes["src"] and "3 of 256 patches" in seen[0].attributes["alt"]
    assert page.element("img", cls="cv-heat").attributes["alt"].endswith("most relevant at the upper left")
    marked = Read(evidence_html(PLACED, PICTURES)).element("svg", cls="cv-spot")
    assert marked.attributes["style"] == "left:85.42%;top:22.92%" and "cv-stage" in marked.inside[-2].classes
    odd = replace(PLACED, position=(float("nan"), 1.0))
    assert not Read(evidence_html(odd, PICTURES)).all(cls="cv-spot")


def test_scores_of_all_pictures_stand_as_bars_and_the_first_of_the_best_is_marked() -> None:
    page = Read(evidence_html(MATCHED, PICTURES))
    bars = page.all("li", cls="cv-bar")
    assert ["cv-best" in element.classes for element in bars] == [False, True, False]  # as find_matching_image picks
    assert [element.text for element in page.all(cls="cv-bar-score")] == [
        "match \u221210.0",
        "match 30.0",
        "match 30.0",
    ]
    places = [
        element.attributes["style"] for element in page.all("i") if any("cv-bar" in a.classes for a in element.inside)
    ]
    assert places == ["left:0.0%;width:25.0%", "left:25.0%;width:75.0%", "left:25.0%;width:75.0%"]
    odd = Read(evidence_html(replace(MATCHED, scores=(float("nan"), float("-inf"), -2.0)), PICTURES))
    assert ["cv-best" in element.classes for element in odd.all("li", cls="cv-bar")] == [False, False, True]


def test_evidence_is_shown_by_what_it_holds() -> None:
    own = Evidence("depth", (ImageRef(2),), "how far", scores=(0.5, 0.25), completion="near")
    text = Read(evidence_html(own, PICTURES)).element(cls="cv-evidence").text
    assert all(word in text for word in ("depth", "how far", "scores: 0.5, 0.25", "near", "image 2, second.png"))
    boxes = Evidence("detection", (), "cat", scores=(0.004, 0.5))
    assert "confidence in each box: under 1 %, 50 %" in Read(evidence_html(boxes, ())).text
    ragged = Evidence("own", (ImageRef(1),), relevance=(((1.0,), (1.0, 2.0)),), patches=(((1,),),), captions=(("x",),))
    page = Read(evidence_html(ragged, PICTURES))
    assert "no relevance" in page.element(cls="cv-evidence").text and not page.all("img", cls="cv-heat")

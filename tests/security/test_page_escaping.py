"""Answers that try to break out of their pages: what users, models and pictures say stays text."""

from __future__ import annotations

import re
from dataclasses import replace

from pages_kit import HOSTILE, MATCHED, PICTURES, Read, answer, hostile

from codevqa.core.answer import Answer
from codevqa.core.events import CallBegan, PromptExample
from codevqa.core.trace import ImageRef
from codevqa.engine.sets import Group, Groups
from codevqa.pages import (
    answer_fragment,
    call_html,
    evidence_html,
    examples_html,
    program_html,
    trace_page,
)

STYLE = r"((left|top|width):-?[\d.]+%;?|(padding-left|text-indent):-?\d+ch;?)+"


def assert_harmless(html: str) -> Read:
    page = Read(html)
    for element in page.elements:
        for name, value in element.attributes.items():
            assert not name.startswith("on"), (element.tag, name)
            if name in ("src", "href", "action", "data", "xlink:href", "srcset", "style"):
                assert name != "src" or value.startswith("data:image/"), value[:50]
                assert name != "href" or value.startswith("#"), value[:50]
                assert name != "style" or re.fullmatch(STYLE, value), value
                assert name in ("src", "href", "style"), name
        assert element.tag not in ("iframe", "object", "embed", "link", "form", "base", "textarea")
    assert all(script.attributes.get("type") == "application/json" for script in page.all("script"))
    return page


def test_nothing_from_user_model_or_picture_breaks_out_of_the_page() -> None:
    answer, pictures = hostile()
    page = assert_harmless(trace_page(answer, pictures))
    assert page.element("h1").text == HOSTILE
    assert page.element(cls="cv-answer").text == HOSTILE
    assert len(page.all("script")) == 1 and len(page.all("style")) == 1
    assert page.element("title").text.count(HOSTILE) == 2


def test_nothing_breaks_out_of_the_fragments() -> None:
    answer, pictures = hostile()
    assert answer.program is not None
    fragments = [
        answer_fragment(answer, pictures),
        program_html(answer.program.source, answer.trace.calls, answer.error),
        answer.program._repr_html_(),
        answer.trace._repr_html_(),
        Groups((Group(HOSTILE, (ImageRef(1), ImageRef(2))),), replace(answer, sources=pictures))._repr_html_(),
        examples_html([PromptExample(HOSTILE, HOSTILE, HOSTILE)]),
        call_html(CallBegan(1, HOSTILE, {HOSTILE: HOSTILE}, 1), pictures),
        *(call_html(call, pictures) for call in answer.trace.calls),
        *(evidence_html(evidence, pictures) for evidence in answer.trace.calls[0].evidence),
    ]
    for fragment in fragments:
        page = assert_harmless(fragment)
        assert not page.all("script")
        assert HOSTILE in "".join(element.text for element in page.elements) or MATCHED.kind in fragment


def test_the_page_carries_its_answer_and_cannot_be_ended_by_it() -> None:
    answer, pictures = hostile()
    answer = replace(answer, value="\ud800 \u2028 \x00 \x7f")  # text that is no valid Unicode, and controls
    page = Read(trace_page(answer, pictures))
    data = page.element("script", id="cv-answer-data").text
    assert "<" not in data and data.isascii()
    assert Answer.from_json(data) == answer


def test_the_policy_of_the_page_forbids_scripts_and_requests() -> None:
    page = Read(trace_page(answer(), PICTURES))
    policy = page.element("meta", http_equiv="Content-Security-Policy").attributes["content"]
    assert policy == "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    assert not re.search(r"@import|url\(|https?://", trace_page(answer(), PICTURES))


def test_characters_that_deceive_the_eye_are_replaced() -> None:
    for letter in ("\u202e", "\u2066", "\x00", "\x1b", "\ud800", "\x85"):
        html = program_html(f'x = "a{letter}b"')
        assert letter not in html and "a\ufffdb" in html
        html.encode("utf-8")

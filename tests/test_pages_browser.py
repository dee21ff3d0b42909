"""Trace pages in a real browser: nothing runs, nothing is asked of anybody, and they can be read everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser_kit import Visitor
from pages_kit import SOURCE, answer, hostile, picture, visiting

from codevqa.core.errors import ErrorRecord
from codevqa.pages import answer_fragment, program_html, styles, trace_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PICTURES = (picture(300, 200, name="first.png"), picture(200, 200, "red", "second.png"), picture(90, 150, "green"))


@pytest.fixture
def reader(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., Visitor]]:
    with visiting(browser) as visit:

        def read(html: str, **options: Any) -> Visitor:
            path = tmp_path / f"page-{len(list(tmp_path.iterdir()))}.html"
            path.write_text(html, encoding="utf-8")
            return visit(path, **options)

        yield read


def fixed(html: str) -> str:
    return f"<!doctype html><meta charset=utf-8><meta name=viewport content='width=device-width'><body>{html}"


def test_a_hostile_answer_runs_nothing_and_requests_nothing(reader: Callable[..., Visitor]) -> None:
    answer, pictures = hostile()
    seen = reader(trace_page(answer, pictures))
    assert seen.page.locator("img[onerror], img[src=x]").count() == 0
    assert seen.page.locator("h1").inner_text() == answer.question
    reader(fixed(answer_fragment(answer, pictures)))


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1280, "light")])
def test_the_page_fits_and_its_text_has_contrast(reader: Callable[..., Visitor], width: int, scheme: str) -> None:
    failed = ErrorRecord("ProgramRuntimeError", "line 4: " + "a long story " * 20, 4)
    pages = {
        "answer": trace_page(answer(), PICTURES),
        "hostile": trace_page(*hostile()),
        "fragment": fixed(answer_fragment(answer(fallback=True, error=failed), PICTURES)),
        "long": fixed(f"<style>{styles()}</style>" + program_html(SOURCE + "x = '" + "long " * 80 + "'", (), failed)),
    }
    for name, html in pages.items():
        seen = reader(html, viewport={"width": width, "height": 900}, color_scheme=scheme)
        seen.page.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
        assert seen.overflow() <= 0, name
        if name != "fragment" and name != "long":  # their ground is that of the page around
            assert seen.grave() == [], name
        seen.shot(f"trace-{name}-{width}-{scheme}")


def test_the_policy_holds_where_escaping_would_not(reader: Callable[..., Visitor]) -> None:
    evil = "<script>document.title = 'taken'</script><img src='x' onerror=\"document.title = 'taken'\"><main"
    html = trace_page(answer(), PICTURES).replace("<main", evil, 1)
    page = reader(html, innocent=False).page
    page.wait_for_timeout(200)
    assert page.title() == "no – Is it there? – first and 2 more"
    free = reader(html.replace('http-equiv="Content-Security-Policy"', 'name="none"'), innocent=False)
    free.page.wait_for_function("document.title === 'taken'")  # the attack itself works

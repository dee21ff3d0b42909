"""The page of checked rules: what fails and what is to be looked at, with the evidence and the program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from .. import __version__
from ..core.answer import Answer
from ..core.rules import Verdict
from .answer_page import fragment
from .render import program_html, rules_html


def rules_page(verdicts: Sequence[Verdict], evidence: Mapping[tuple[str, str], Answer]) -> str:
    """Returns one self-contained page.

    Args:
        verdicts: of the rules, in order.
        evidence: answers by the names of rule and picture; pictures without one are listed by name.
    """
    rules = []
    for verdict in verdicts:
        doubtful = [*verdict.of("fail"), *verdict.of("look")]
        shown = [
            (picture, Markup(fragment(answer, alone=False)))
            for picture in doubtful
            if (answer := evidence.get((verdict.rule.name, picture.picture))) is not None
        ]
        names = {picture.picture for picture, _ in shown}
        program = Markup(program_html(verdict.program)) if verdict.program else ""
        rest = [picture for picture in doubtful if picture.picture not in names]
        rules.append({"verdict": verdict, "shown": shown, "rest": rest, "program": program})
    return rules_html(rules, __version__)

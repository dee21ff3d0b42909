"""The embedded vision-language model, in this process and behind a real server."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_kit import CommandLine
from PIL import Image

from codevqa import CodeVQA

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "examples" / "pictures"
WEIGHTS = ROOT / "codevqa" / "mini" / "weights" / "vlm"


def test_programs_and_direct_questions_are_answered_by_it(codevqa: CommandLine) -> None:
    """Three pictures of a shelf, two with a purple cup; captions are not read."""
    shelf = sorted(map(str, PICTURES.glob("shelf-*.png")))
    for method in ("codevqa", "direct"):
        asked = ["ask", *shelf, "-q", "How many pictures contain a purple cup?", "--preset", "mini-vlm"]
        done = codevqa(*asked, "--method", method)
        assert done.stdout == "2\n"


@pytest.mark.slow
def test_a_large_picture_is_answered_through_a_real_server(tmp_path: Path, served: str) -> None:
    """Model, pictures and questions go over HTTP to ``transformers serve``, from the program and without one."""
    large = tmp_path / "harbor.jpg"
    with Image.open(PICTURES / "harbor.png") as small:
        small.convert("RGB").resize((3000, 3000)).save(large, quality=95)
    sets = {"eyes.base_url": served, "eyes.timeout": 300.0}
    with CodeVQA.from_preset("mini", eyes=f"openai:{WEIGHTS}", sets=sets) as vqa:
        answer = vqa.ask(large, "What color is the flag?")
        direct = vqa.ask([large, PICTURES / "garden.png"], "How many pictures contain a flag?", method="direct")
    (seen,) = answer.trace.calls[-1].evidence
    assert (answer.text, answer.fallback, seen.kind) == ("red", False, "eyes")
    assert direct.text == "1"

"""The grammar of programs: what it takes, what it refuses, and that its dialects say the same."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

import pytest
from grammar_kit import NEEDED, accepts, fenced, grammar, of

from codevqa.core.trace import Form
from codevqa.models.grammar import Grammar
from codevqa.primitives import Image, PrimitiveSet, primitive
from codevqa.prompts import load as load_prompts
from codevqa.writing.prompt_forms import opening_line

pytest.importorskip("llguidance", reason=NEEDED)

BANKS: list[tuple[str, Form]] = [
    *(("gqa", "image"), ("covr", "set"), ("nlvr2", "set"), ("nlvr", "set"), ("mini", "image"), ("mini", "set")),
]

GOOD = [
    'answer = query(images[0], question="What is it?")',
    'answer = query(img=images[0], question=f"Is the {found[0]} {len(found) / 2:.1f} {name.lower()}?")',
    'answer = query(find_matching_image(images, "x"), "y") if len(images) > 1 else "none"',
    "for i, image in enumerate(images):\n    if query(image, \"a\") == 'yes':\n        answer = str(i)\n        break",
    'seen = {}\nseen["a"] = seen.get("a", 0) + 1\nanswer = max(seen, key=lambda k: seen[k])',
    "answer = sorted(words, key=len, reverse=True)[-1].strip()\n\nrest = answer[1:-1]",
    'answer = any(query(i, "Red?") == "yes" and not done for i in images if i is not first)',
    "note = isx\nanswer = inx or notx\nif_ = reversed_\nquery_1 = keys",
    'for i, (x, y) in enumerate(points):\n    pass\nanswer = ", ".join({str(n) for n in (x, 2)})',
    "while_ = 0\nx, y = get_pos(images[0], 'dog')\nx += -y // 2 ** 2\nanswer = LEFT < x <= RIGHT",
]
BAD = {
    "a function nobody knows": 'answer = ask(img, "What?")',
    "a builtin that programs have not": 'answer = eval("1")',
    "a method nobody knows": 'answer = img.show("x")',
    "an argument that is missing": "answer = query(images[0])",
    "an argument too many": 'answer = query(img, "a", "b")',
    "arguments in the wrong order": 'answer = query("a", img)',
    "an argument nobody knows": 'answer = query(img, prompt="a")',
    "the same argument twice": 'answer = query(img, "a", img=img)',
    "a builtin without arguments": "answer = len()",
    "a keyword for a name": "answer = else",
    "a primitive for a name": "query = 1\nanswer = 1",
    "no answer": 'found = query(img, "a")',
    "break outside a loop": "break\nanswer = 1",
    "a block that is not indented": "if x:\nanswer = 1",
    "indentation without a block": "x = 1\n    answer = 1",
    "a text that is not closed": 'answer = "a\n',
    "an operator too many": "answer = a + not b",
    "an import": "import os\nanswer = 1",
    "a number that Python does not read": "answer = 012",
    "an escape that Python does not read": r'answer = "\x"',
}


def test_every_program_of_the_banks_is_of_the_grammar() -> None:
    refused = []
    for name, form in BANKS:
        for example in load_prompts(name).examples:
            if example.form == form:
                program = example.program.strip()
                if not accepts(grammar(name, form).lark, f"\n{opening_line(form, 13)}\n{program}\n# Image"):
                    refused.append(example.id)
                if not accepts(grammar(name, form, chat=True).lark, fenced(program)):
                    refused.append(f"{example.id} in chat")
    assert refused == []


@pytest.mark.parametrize("program", GOOD)
def test_python_of_many_kinds_is_taken(program: str) -> None:
    ast.parse(program)
    assert accepts(grammar("covr", "set", chat=True).lark, fenced(program))


@pytest.mark.parametrize("program", BAD.values(), ids=BAD.keys())
def test_what_would_fail_is_refused(program: str) -> None:
    assert not accepts(grammar("covr", "set", chat=True).lark, fenced(program), whole=True)


def test_completion_form_begins_with_the_opening_line_and_ends_with_the_program() -> None:
    lark, program = grammar().lark, 'answer = query(img, "What?")'
    for end in ("", "\n", "\n\n", "\n# Image", "\n\n# Image"):
        assert accepts(lark, f'\nimg = open_image("Image7.jpg")\n{program}{end}')
    assert not accepts(lark, program, whole=False)
    assert not accepts(lark, f'?\nimg = open_image("Image7.jpg")\n{program}', whole=False)
    assert not accepts(lark, f'\nimg = open_image("Image7.jpg")\n{program}\n# Count', whole=False)
    assert not accepts(lark, f'\nimages = open_images("ImageSet7.jpg")\n{program}', whole=False)
    # In chat the line may be repeated.
    lark = grammar(chat=True).lark
    assert accepts(lark, fenced(program)) and accepts(lark, fenced(f'img = open_image("Image7.jpg")\n{program}'))


def test_blocks_nest_four_deep_and_no_deeper() -> None:
    def nested(depth: int) -> str:
        lines = [f"{'    ' * level}for x{level} in images:" for level in range(depth)]
        return "\n".join([*lines, f"{'    ' * depth}answer = 1"])

    lark = grammar("covr", "set", chat=True).lark
    assert accepts(lark, fenced(nested(4)))
    assert not accepts(lark, fenced(nested(5)))


@primitive
def count(img: Image, what: str, least: int = 0, near: bool = False) -> int:
    """Counts things."""
    return 0


@primitive
def now() -> str:
    """Tells the time."""
    return ""


def test_arguments_with_defaults_may_be_left_out_or_named_in_order() -> None:
    lark = of(PrimitiveSet([count, now])).lark
    taken = ['img, "a"', 'img, "a", 1', 'img, "a", 1, True', 'img, "a", near=True', 'img, what="a", least=2']
    taken += ['img=img, what="a", near=True']
    refused = ["img", "", 'what="a", 1', 'img, "a", 1, True, 2', 'img, "a", near=True, least=1', "img, least=1"]
    for given in taken:
        assert accepts(lark, fenced(f"answer = count({given})")), given
    for given in refused:
        assert not accepts(lark, fenced(f"answer = count({given})")), given
    assert accepts(lark, fenced("answer = now()")) and not accepts(lark, fenced("answer = now(1)"))
    assert not accepts(lark, fenced('answer = query(img, "a")'))
    assert accepts(of(PrimitiveSet([])).lark, fenced("answer = 1"))


def test_the_dialect_of_servers_says_the_same() -> None:
    """llguidance's own reader of GBNF, which is not ours, judges the text that servers are sent."""
    from llguidance.gbnf_to_lark import gbnf_to_lark

    text = grammar("covr", "set", chat=True).gbnf
    read = gbnf_to_lark(text)
    for program in GOOD:
        assert accepts(read, fenced(program)), program
    for why, program in BAD.items():
        assert not accepts(read, fenced(program)), why
    assert text.startswith("root ::= ") and "_" not in re.sub(r'"[^"]*"|\[[^]]*\]', "", text)


def test_equal_grammars_are_equal_values() -> None:
    one, other = grammar("covr", "set"), grammar("covr", "set")
    assert one == other and hash(one) == hash(other) and one.key == other.key
    changed = replace(one, rules=(*one.rules, ("more", '"x"')))
    assert changed != one and changed.key != one.key
    assert Grammar((("first_rule", '"a" first_rule?'),)).gbnf == 'root ::= "a" root?\n'
    assert Grammar((("first_rule", '"a" [/b] first_rule?'),)).lark == 'start: "a" /[\\/b]/ start?\n'

"""Rules about pictures: how a file of them is read, what it is refused for, and how answers are judged."""

from pathlib import Path

import pytest

from codevqa.core.errors import InputError
from codevqa.core.rules import (
    MOST_RULES,
    SURE,
    PictureVerdict,
    Rule,
    Side,
    Verdict,
    changed_sides,
    exit_status,
    judge,
    judge_picture,
    read_bound,
    read_rules,
)
from codevqa.core.table import Cell, Column, Row, Table, Value

HELMETS = '[[rule]]\nname = "helmets"\nask = "Is every person wearing a helmet?"\n'
YES = HELMETS + 'want = "yes"\n'
SIDES: tuple[Side, ...] = ("pass", "fail", "look", "skip")
WORN = Rule("helmets", "Is every person wearing a helmet?", ("yes",))


def rules_of(folder: Path, text: str) -> tuple[Rule, ...]:
    file = folder / "rules.toml"
    file.write_text(text, encoding="utf-8")
    return read_rules(file)


def rule_of(folder: Path, *lines: str, ask: str = WORN.ask) -> Rule:
    (rule,) = rules_of(folder, "\n".join(["[[rule]]", 'name = "helmets"', f'ask = "{ask}"', *lines]))
    return rule


def refusal(folder: Path, text: str) -> str:
    """Returns what a file of rules is refused with, which is one line that names the file."""
    with pytest.raises(InputError) as refused:
        rules_of(folder, text)
    message = str(refused.value)
    assert "\n" not in message and str(folder / "rules.toml") in message
    return message


# -- reading -----------------------------------------------------------------------------------------------------------


def test_a_file_of_rules_is_read_in_order_with_all_that_it_says(tmp_path: Path) -> None:
    text = """
    [[rule]]
    name = " helmets "
    where = "Is there a person?"
    ask = "Is every person wearing a helmet?"
    want = "yes"
    allow = "2 %"
    sure = 0.8
    [[rule]]
    name = "enough"
    about = "folder"
    ask = "How many pictures show a cup?"
    want = ">= 2"
    [[rule]]
    name = "kinds"
    ask = "What animal is it? =dog,cat"
    each = "3"
    """
    helmets, enough, kinds = rules_of(tmp_path, text)
    assert helmets == Rule("helmets", WORN.ask, ("yes",), "Is there a person?", 0.02, True, 0.8)
    assert enough == Rule("enough", "How many pictures show a cup?", (">= 2",), about="folder")
    assert (kinds.each, kinds.want, kinds.sure, kinds.about) == ("3", (), SURE, "picture")
    assert kinds.column.choices == ("dog", "cat") and kinds.condition is None
    assert helmets.condition is not None and helmets.condition.question == "Is there a person?"


@pytest.mark.parametrize(
    ("line", "wanted"),
    [('want = "Yes"', ("Yes",)), ("want = true", ("yes",)), ("want = [true, false]", ("yes", "no"))],
)
def test_yes_and_no_are_also_true_and_false(line: str, wanted: tuple[str, ...], tmp_path: Path) -> None:
    assert rule_of(tmp_path, line).want == wanted


@pytest.mark.parametrize(
    ("line", "allow", "share"),
    [("", 0, False), ("allow = 3", 3, False), ('allow = "2 %"', 0.02, True), ('allow = "0.5%"', 0.005, True)],
)
def test_allow_is_a_number_or_a_share_of_the_pictures(line: str, allow: float, share: bool, tmp_path: Path) -> None:
    rule = rule_of(tmp_path, 'want = "yes"', line)
    assert (rule.allow, rule.share) == (allow, share)


@pytest.mark.parametrize(
    ("bound", "holds", "fails"),
    [
        (">= 2", (2, 3), (1,)),
        ("> 2", (3,), (2,)),
        ("<=2", (1, 2), (3,)),
        ("< 2", (1,), (2,)),
        ("= 2", (2,), (1, 3)),
        ("2", (2,), (1, 3)),
        ("at least 2", (2, 3), (1,)),
        ("At most 2", (1, 2), (3,)),
        ("exactly 2", (2,), (1, 3)),
        ("1-3", (1, 3), (0, 4)),
        ("1 to 3", (1, 3), (0, 4)),
        ("1..3", (1, 3), (0, 4)),
        (" >= 2.5 ", (3,), (2,)),
    ],
)
def test_bounds_of_numbers(bound: str, holds: tuple[int, ...], fails: tuple[int, ...]) -> None:
    within = read_bound(bound)
    assert within is not None
    assert [number for number in (*holds, *fails) if within(number)] == list(holds)


@pytest.mark.parametrize("text", ["red", "", ">= two", "2 %", "1-2-3", "=> 2", "2 or 3"])
def test_what_is_no_bound(text: str) -> None:
    assert read_bound(text) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (YES + "wnat = 1", "rule 1: there is no key 'wnat'. Did you mean want?"),
        (YES + "alow = 1", "Did you mean allow?"),
        (YES + "share = true", "there is no key 'share'"),
        (YES + "zzzzz = 1", "There are: ['name', 'ask', 'want'"),
        ("threshold = 1\n" + YES, "there is no key 'threshold'. Write each rule below [[rule]]."),
        (YES + YES, "two rules are called 'helmets'."),
        (YES + YES.replace('"helmets"', '"HELMETS"'), "two rules are called 'helmets'."),
        (HELMETS, "rule 1 (helmets) wants nothing."),
        (HELMETS + "want = []", "wants nothing."),
        (YES + '[[rule]]\nname = "next"\nwant = "yes"', "rule 2 has no name, or asks nothing."),
        ('[[rule]]\nask = "Is it?"\nwant = "yes"', "rule 1 has no name, or asks nothing."),
        ('[[rule]]\nname = 3\nask = "Is it?"\nwant = "yes"', "rule 1: name must be a text."),
        (HELMETS + 'want = "maybe"', "is yes or no, so want cannot be 'maybe'."),
        (HELMETS + "want = 1", "is yes or no, so want cannot be '1'."),
        (HELMETS + 'want = ["yes", "some"]', "so want cannot be 'some'."),
        (HELMETS + "want = {least = 1}", "want must be an answer, or a list of answers."),
        (YES + "allow = 0.02", """allow must be a number of pictures, or such as "2 %", not 0.02."""),
        (YES + "allow = -1", "not -1."),
        (YES + "allow = true", "not True."),
        (YES + 'allow = "some"', "not 'some'."),
        (YES + 'allow = "101 %"', "not '101 %'."),
        (YES + "sure = 1.5", "sure must lie from 0 to 1, not 1.5."),
        (YES + "sure = -0.1", "not -0.1."),
        (YES + "sure = nan", "not nan."),
        (YES + "sure = true", "not True."),
        (YES + 'sure = "0.9"', "not '0.9'."),
        (YES + 'about = "photo"', "about is picture or folder, not 'photo'."),
        (YES + "about = 1", "about must be a text."),
        (HELMETS + 'each = "many"', "each must be a number of pictures, not 'many'."),
        (YES + 'where = "What is it?"', "where needs a yes/no question, not 'What is it?'."),
        (YES + 'about = "folder"\nwhere = "Is it?"', "has no where, each or allow."),
        (YES + 'about = "folder"\nallow = 1', "has no where, each or allow."),
        (HELMETS + 'about = "folder"\neach = "3"', "has no where, each or allow."),
        ("", "has no rules."),
        ("rule = []", "has no rules."),
        ("rule = 1", "has no rules."),
        (YES.replace("[[rule]]", "[rule]"), "has no rules. Write each below [[rule]]"),
        ("[[rule", "not TOML"),
        ("".join(YES.replace("helmets", f"{number}") for number in range(MOST_RULES + 1)), "has 101 rules."),
    ],
)
def test_refused_in_one_line(text: str, message: str, tmp_path: Path) -> None:
    assert message in refusal(tmp_path, text)


@pytest.mark.parametrize(
    ("ask", "want", "kind"),
    [
        ("How many cups are there?", '"many"', "a number"),
        ("How many cups are there?", '["2", "red"]', "a number"),
        ("How many cups are there?", '"yes"', "a number"),
        ("What animal is it? =dog,cat", '"cow"', "one of dog, cat"),
        ("What animal is it? =dog,cat", '["dog", "cow"]', "one of dog, cat"),
    ],
)
def test_a_want_that_the_question_cannot_have_is_refused(ask: str, want: str, kind: str, tmp_path: Path) -> None:
    message = refusal(tmp_path, f'[[rule]]\nname = "n"\nask = "{ask}"\nwant = {want}')
    assert f"rule 1 (n): the answer to {ask!r} is {kind}, so want cannot be" in message


@pytest.mark.parametrize(
    ("ask", "want"),
    [
        ("How many cups are there?", "2"),
        ("How many cups are there?", "[1, 2]"),
        ("How many cups are there?", '"1-3"'),
        ("What animal is it? =dog,cat", '"Dog"'),
        ("What color is it?", '["red", "2"]'),
    ],
)
def test_a_want_that_the_question_can_have_is_taken(ask: str, want: str, tmp_path: Path) -> None:
    assert rule_of(tmp_path, f"want = {want}", ask=ask).want


def test_a_file_that_is_not_there_or_no_text_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"rules\.toml"):
        read_rules(tmp_path / "rules.toml")
    (tmp_path / "rules.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"rules\.toml"):
        read_rules(tmp_path / "rules.toml")


@pytest.mark.parametrize(
    ("wants", "value", "passes"),
    [
        (("yes",), "YES", True),
        (("yes",), "no", False),
        (("red", "blue"), "Blue", True),
        (("red", "blue"), "green", False),
        ((">= 2",), 2, True),
        ((">= 2",), 1, False),
        (("1", "3"), 3, True),
        (("1", "3"), 2, False),
        (("2",), 2.0, True),
        (("2",), "2", True),
    ],
)
def test_what_passes(wants: tuple[str, ...], value: Value, passes: bool) -> None:
    assert Rule("n", "?", wants).passes(value) is passes


# -- one picture -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "side", "why"),
    [
        (Cell("yes", 0.95), "pass", ""),
        (Cell("no", 0.95), "fail", ""),
        (Cell("no", 0.9), "fail", ""),
        (Cell("no", 0.89), "look", f"{WORN.ask} no: the chance is 89%, below 90%"),
        (Cell("yes", 0.6), "look", f"{WORN.ask} yes: the chance is 60%, below 90%"),
        (Cell("yes", None), "look", f"{WORN.ask} yes: the chance is not known"),
        (Cell("yes", 0.99, "It looks unlike."), "look", "It looks unlike."),
        (Cell(None), "look", f"No answer to: {WORN.ask}"),
        (None, "look", "It was not reached."),
    ],
)
def test_a_picture_passes_fails_or_is_to_be_looked_at(cell: Cell | None, side: Side, why: str) -> None:
    verdict = judge_picture(WORN, "a.png", cell, None)
    assert (verdict.picture, verdict.side, verdict.why) == ("a.png", side, why)


def test_how_sure_it_must_be_is_the_rules(tmp_path: Path) -> None:
    assert judge_picture(rule_of(tmp_path, 'want = "yes"', "sure = 0.5"), "a", Cell("no", 0.6), None).side == "fail"
    assert judge_picture(rule_of(tmp_path, 'want = "yes"', "sure = 1"), "a", Cell("no", 0.99), None).side == "look"


@pytest.mark.parametrize(
    ("condition", "cell", "side"),
    [
        (Cell("yes", 0.95), Cell("no", 0.95), "fail"),
        (Cell("yes", 0.95), Cell("yes", 0.95), "pass"),
        (Cell("yes", 0.95), Cell("yes", 0.5), "look"),
        (Cell("no", 0.95), None, "skip"),
        (Cell("no", 0.6), None, "look"),
        (Cell("yes", 0.6), Cell("no", 0.95), "look"),
        (Cell("maybe", 0.95), Cell("no", 0.95), "look"),
        (Cell(None), None, "look"),
        (Cell("no", 0.95, "It looks unlike."), None, "look"),
    ],
)
def test_where_says_which_pictures_a_rule_is_about(condition: Cell, cell: Cell | None, side: Side) -> None:
    rule = Rule("helmets", WORN.ask, ("yes",), "Is there a person?")
    verdict = judge_picture(rule, "a", cell, condition)
    assert verdict.side == side
    if side == "look" and condition.chance == 0.6:
        assert verdict.why.startswith("Is there a person? ")


# -- all pictures ------------------------------------------------------------------------------------------------------


def sides(**counts: int) -> list[PictureVerdict]:
    """Returns pictures on each side."""
    return [
        PictureVerdict(f"{side}-{number}", side, Cell("no", 1.0))
        for side in SIDES
        for number in range(counts.get(side, 0))
    ]


@pytest.mark.parametrize(
    ("lines", "counts", "side", "summary"),
    [
        ([], {"pass": 3}, "pass", "0 of 3 fail"),
        ([], {"pass": 2, "fail": 1}, "fail", "1 of 3 fail"),
        ([], {"pass": 2, "look": 1}, "look", "0 of 3 fail, 1 to look at"),
        ([], {"fail": 1, "look": 1}, "fail", "1 of 2 fail, 1 to look at"),
        ([], {"pass": 1, "skip": 2}, "pass", "0 of 1 fail"),
        ([], {"skip": 2}, "pass", "0 of 0 fail"),
        (["allow = 1"], {"pass": 2, "fail": 1}, "pass", "1 of 3 fail (1 allowed)"),
        (["allow = 1"], {"pass": 2, "fail": 2}, "fail", "2 of 4 fail (1 allowed)"),
        (["allow = 2"], {"fail": 1, "look": 1}, "pass", "1 of 2 fail (2 allowed), 1 to look at"),
        (["allow = 1"], {"fail": 1, "look": 1}, "look", "1 of 2 fail (1 allowed), 1 to look at"),
        (['allow = "10 %"'], {"pass": 18, "fail": 2}, "pass", "2 of 20 fail (2 allowed)"),
        (['allow = "10 %"'], {"pass": 17, "fail": 3}, "fail", "3 of 20 fail (2 allowed)"),
        (['allow = "10 %"'], {"pass": 8, "fail": 1, "skip": 91}, "fail", "1 of 9 fail (0 allowed)"),
        (['allow = "100 %"'], {"fail": 3}, "pass", "3 of 3 fail (3 allowed)"),
    ],
)
def test_failures_beyond_what_is_allowed_fail(
    lines: list[str], counts: dict[str, int], side: str, summary: str, tmp_path: Path
) -> None:
    rule = rule_of(tmp_path, 'want = "yes"', *lines)
    verdict = judge(rule, sides(**counts), "answer = 1")
    assert (verdict.side, verdict.summary, verdict.program) == (side, summary, "answer = 1")
    assert [len(verdict.of(name)) for name in SIDES] == [counts.get(name, 0) for name in SIDES]


def test_a_share_allows_as_many_as_it_says_it_does(tmp_path: Path) -> None:
    """A share that binary fractions cannot hold is not one picture short: 29 % of 100 is 29."""
    for percent in range(1, 100):
        rule = rule_of(tmp_path, 'want = "yes"', f'allow = "{percent} %"')
        verdict = judge(rule, sides(fail=percent, **{"pass": 100 - percent}), "")
        assert (percent, verdict.side) == (percent, "pass")
        assert verdict.summary == f"{percent} of 100 fail ({percent} allowed)"
        assert judge(rule, sides(fail=percent + 1, **{"pass": 99 - percent}), "").side == "fail"


def animals(*values: Value, chance: float = 0.95, each: str = "2") -> Verdict:
    rule = Rule("kinds", "What animal is it? =dog,cat", each=each)
    cells = [Cell(value, chance) for value in values]
    return judge(rule, [judge_picture(rule, f"{number}", cell, None) for number, cell in enumerate(cells)], "")


def test_each_wants_so_many_pictures_of_each_answer() -> None:
    even = animals("dog", "cat", "dog", "cat")
    assert (even.side, even.summary) == ("pass", "cat 2, dog 2; 2 of each wanted")
    odd = animals("dog", "cat", "dog")
    assert (odd.side, odd.summary) == ("fail", "cat 1, dog 2; 2 of each wanted")
    assert [(picture.picture, picture.cell.value) for picture in odd.of("fail")] == [("1", "cat")]
    assert animals("dog", "dog", "cat", each=">= 1").side == "pass"
    assert animals("dog", "dog", "dog", "cat", each="1-2").side == "fail"


def test_each_is_to_be_looked_at_where_an_answer_is_unsure() -> None:
    unsure = animals("dog", "cat", chance=0.5, each="1")
    assert (unsure.side, unsure.summary) == ("look", "cat 0, dog 0; 1 of each wanted; 2 to look at")
    assert len(unsure.of("look")) == 2


def test_each_misses_a_choice_of_which_there_is_no_picture() -> None:
    none = animals("dog", "dog")
    assert (none.side, "cat 0" in none.summary) == ("fail", True)


@pytest.mark.parametrize(
    ("judged", "status"),
    [(["pass", "pass"], 0), (["pass", "look"], 2), (["look", "fail", "pass"], 1), (["fail", "look"], 1), ([], 0)],
)
def test_a_failure_outweighs_a_doubt(judged: list[str], status: int) -> None:
    verdicts = [Verdict(WORN, side, ()) for side in judged]  # type: ignore[arg-type]
    assert exit_status(verdicts) == status


def answers(*values: Value, first: int = 0) -> Table:
    rows = [Row(f"{number}", {"helmets": Cell(value, 1.0)}) for number, value in enumerate(values, first)]
    return Table((Column.parse("helmets", WORN.ask),), tuple(rows))


def test_pictures_change_sides_in_both_directions() -> None:
    before, after = answers("yes", "yes", "no", "no", None), answers("yes", "no", "yes", "no", "yes")
    assert changed_sides(before, after, WORN) == (["1", "2", "4"], 2, 1)
    assert changed_sides(before, before, WORN) == ([], 0, 0)


def test_a_picture_that_one_program_was_not_asked_about_changes_no_side() -> None:
    assert changed_sides(answers("no"), answers("yes", "yes", first=1), WORN) == ([], 0, 0)


# -- names -------------------------------------------------------------------------------------------------------------


def test_the_name_of_a_rule_is_that_of_its_answers(tmp_path: Path) -> None:
    (rule,) = rules_of(tmp_path, YES.replace('"helmets"', '"hard  hats"'))
    assert rule.name == rule.column.name


@pytest.mark.parametrize(
    "text",
    [
        YES.replace('"helmets"', '"hard hats"') + YES.replace('"helmets"', '"hard  hats"'),
        YES + 'where = "Is there a person?"\n' + YES.replace('"helmets"', '"helmets, where"'),
    ],
)
def test_two_questions_cannot_share_a_name(text: str, tmp_path: Path) -> None:
    refusal(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        YES.replace('"helmets"', '"helmets_truth"'),
        YES.replace('"helmets"', '"id"'),
        '[[rule]]\nname = "kinds"\nask = "What is it? =dog"\nwant = "dog"',
    ],
)
def test_a_name_or_choices_that_no_column_can_have_are_told_with_file_and_rule(text: str, tmp_path: Path) -> None:
    assert "rule 1" in refusal(tmp_path, text)


@pytest.mark.parametrize("line", ["allow = 1", 'want = "dog"'])
def test_what_each_leaves_no_meaning_is_refused(line: str, tmp_path: Path) -> None:
    refusal(tmp_path, f'[[rule]]\nname = "kinds"\nask = "What is it? =dog,cat"\neach = "3"\n{line}')

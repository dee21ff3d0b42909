"""``codevqa check``: verdicts, the lock beside the rules, and what is written for people and for machines."""

import csv
import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from cli_kit import GARDEN, SHELF, CommandLine, Done, assert_one_clear_line
from engine_kit import engine
from pages_kit import Read, opened

from codevqa import CodeVQA
from codevqa.core.text import visible
from codevqa.models.fakes import ScriptedLM

HOUSE = '[[rule]]\nname = "house"\nask = "Is there a house?"\nwant = "yes"\n'
ENOUGH = '[[rule]]\nname = "enough"\nask = "How many pictures show a house?"\nabout = "folder"\n'
COUNT = '[[rule]]\nname = "count"\nask = "How many cups are there?"\nwant = ">= 1"\n'
ROOF = '[[rule]]\nname = "roof"\nwhere = "Is there a house?"\nask = "What color is the house?"\nwant = "red"\n'
KINDS = '[[rule]]\nname = "kinds"\nask = "Is there a house?"\neach = "1"\n'
PROGRAM = 'answer = query(img, "Is there a house?")'
COUNTING = 'answer = len([img for img in images if query(img, "Is there a house?") == "yes"])'
CONTRARY = 'img = open_image("Image7.jpg")\nanswer = "no" if query(img, "Is there a house?") == "yes" else "yes"'
UPDATE = "Write it again with --update."


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fill(tmp_path / "photos", GARDEN, SHELF[0], SHELF[1])
    write(HOUSE)


def fill(folder: Path, *pictures: Path | str) -> None:
    """Copies pictures into a folder: of ours, only the garden shows a house."""
    folder.mkdir(exist_ok=True)
    for path in pictures:
        shutil.copy(path, folder)


def write(text: str) -> None:
    Path("rules.toml").write_text(text, encoding="utf-8")


def lock() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(Path("rules.lock").read_text(encoding="utf-8"))
    return data


def edit_lock(*keys: str, value: object) -> None:
    """Changes one entry of the lock, as a person might by hand."""
    data = entry = lock()
    for key in keys[:-1]:
        entry = entry[key]
    entry[keys[-1]] = value
    Path("rules.lock").write_text(json.dumps(data), encoding="utf-8")


class Check:
    """``codevqa check rules.toml photos``, and more words."""

    def __init__(self, codevqa: CommandLine) -> None:
        self._codevqa = codevqa

    def __call__(self, *words: object, pictures: Sequence[object] = ("photos",), vqa: CodeVQA | None = None) -> Done:
        return self._codevqa("check", "rules.toml", *pictures, *words, engine=vqa)


@pytest.fixture
def check(codevqa: CommandLine) -> Check:
    return Check(codevqa)


def refused(done: Done, words: str) -> None:
    """Holds that nothing was checked: one line says why."""
    kept = [line for line in done.stderr.splitlines() if not re.fullmatch(r"codevqa: \d+ pictures?", line)]
    assert_one_clear_line(Done(done.returncode, done.stdout, "\n".join(kept)), words, 3)


# -- verdicts ----------------------------------------------------------------------------------------------------------


def test_a_rule_fails_with_its_pictures_and_status_1(check: Check) -> None:
    done = check()
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines() == [
        "FAIL  house  2 of 3 fail",
        "      fail  photos/shelf-1.png: Is there a house? no",
        "      fail  photos/shelf-2.png: Is there a house? no",
    ]
    assert check("--quiet").stdout == "FAIL  house  2 of 3 fail\n"


def test_a_rule_passes_with_status_0(check: Check) -> None:
    done = check(pictures=[GARDEN])
    assert (done.returncode, done.stdout) == (0, "PASS  house  0 of 1 fail\n"), done.stderr
    write(HOUSE + "allow = 2\n")
    assert check("--quiet").stdout == "PASS  house  2 of 3 fail (2 allowed)\n"


def test_a_doubt_is_to_be_looked_at_with_status_2(check: Check) -> None:
    write(COUNT)
    done = check(pictures=[SHELF[0]])
    assert done.returncode == 2, done.stderr
    first, line = done.stdout.splitlines()
    assert first == "LOOK  count  0 of 1 fail, 1 to look at"
    assert re.search(r"  look  .*shelf-1\.png: How many cups are there\? 1: the chance is \d\d%, below 90%$", line)
    write(f"{COUNT}sure = 0.5\n")
    assert check("--quiet", pictures=[SHELF[0]]).returncode == 0


def test_where_leaves_out_the_pictures_that_a_rule_is_not_about(check: Check) -> None:
    write(ROOF)
    done = check("--json")
    assert done.returncode == 0, done.stderr
    (rule,) = json.loads(done.stdout)["rules"]
    assert rule["summary"] == "0 of 1 fail"
    assert [picture["side"] for picture in rule["pictures"]] == ["pass", "skip", "skip"]
    assert set(lock()["rules"]) == {"roof", "roof, where"}


def test_a_rule_that_is_about_no_picture_asks_and_writes_nothing_more(check: Check) -> None:
    write(ROOF)
    done = check(pictures=[SHELF[0]])
    assert (done.returncode, done.stdout) == (
        0,
        "PASS  roof  0 of 0 fail: no picture is a yes to 'Is there a house?'\n",
    ), done.stderr
    assert set(lock()["rules"]) == {"roof, where"}


def test_a_rule_about_the_folder(check: Check) -> None:
    for want, line, status in (("<= 3", "PASS  enough  1, wanted <= 3", 0), ("4-9", "FAIL  enough  1, wanted 4-9", 1)):
        write(f'{ENOUGH}want = "{want}"\n')
        done = check()
        assert (done.returncode, done.stdout) == (status, f"{line}\n"), done.stderr


def test_a_count_whose_range_is_on_both_sides_of_a_bound_is_to_be_looked_at(check: Check) -> None:
    write(f'{ENOUGH}want = "1"\n')
    done = check()
    assert done.returncode == 2, done.stderr
    assert done.stdout.startswith("LOOK  enough  1, wanted 1; How many pictures show a house? 1: the chance is 50%")


def test_each_wants_as_many_pictures_of_each_answer(check: Check) -> None:
    write(KINDS)
    done = check()
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines()[0] == "FAIL  kinds  no 2, yes 1; 1 of each wanted"
    assert "photos/garden.png" not in done.stdout
    assert check("--quiet", pictures=[GARDEN, SHELF[0]]).returncode == 0


def test_the_worst_of_several_rules_is_the_status(check: Check) -> None:
    write(ROOF + HOUSE)
    done = check("--quiet")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["PASS", "FAIL"] and done.returncode == 1


# -- the lock ----------------------------------------------------------------------------------------------------------


def test_the_first_run_writes_a_lock_with_programs_and_models(check: Check) -> None:
    done = check()
    assert "programs kept in rules.lock" in done.stderr and f"    {PROGRAM}" in done.stderr.splitlines()
    written = lock()
    assert written["rules"]["house"]["question"] == "Is there a house?"
    assert PROGRAM in written["rules"]["house"]["program"]
    assert {"writer", "reader", "matcher", "captioner"} <= set(written["models"])
    assert written["models"]["matcher"] == "@mini/weights/matcher"


def test_the_second_run_opens_no_model_and_says_the_same(check: Check) -> None:
    write(HOUSE + ROOF)
    first, before = check(), Path("rules.lock").read_bytes()
    second = check(vqa=None, pictures=["photos"])
    assert (second.returncode, second.stdout) == (first.returncode, first.stdout)
    assert "loading" not in second.stderr and "programs kept" not in second.stderr
    assert Path("rules.lock").read_bytes() == before


def test_where_nothing_is_remembered_the_locked_program_runs_and_none_is_written(
    check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(HOUSE + ENOUGH + 'want = ">= 1"\n')
    with engine(lambda request: COUNTING if "Image Set" in str(request.prompt)[-200:] else PROGRAM) as vqa:
        first = check(vqa=vqa)
    monkeypatch.setenv("XDG_CACHE_HOME", str(Path.cwd() / "another"))
    writer = ScriptedLM([], name="writer")
    with engine(writer) as vqa:
        second = check(vqa=vqa)
    assert writer.requests == []
    assert (second.returncode, second.stdout) == (first.returncode, first.stdout), second.stderr


def test_a_doubtful_program_stays_doubtful_when_it_comes_from_the_lock(check: Check) -> None:
    write(ENOUGH + 'want = ">= 1"\nsure = 0.5\n')
    verdicts = []
    for _ in range(2):
        with engine("answer = 3") as vqa:  # whatever the pictures
            verdicts.append(check(vqa=vqa).stdout)
    assert verdicts[0].startswith("LOOK") and verdicts[0] == verdicts[1]


def test_a_program_that_was_edited_in_the_lock_is_the_one_that_runs(check: Check) -> None:
    check()
    edit_lock("rules", "house", "program", value=CONTRARY)
    done = check()
    assert done.stdout.splitlines() == [
        "FAIL  house  1 of 3 fail",
        "      fail  photos/garden.png: Is there a house? no",
    ]
    assert lock()["rules"]["house"]["program"] == CONTRARY


def test_a_rule_that_is_gone_leaves_the_lock_and_a_new_one_comes_in(check: Check) -> None:
    write(HOUSE + ROOF)
    check()
    kept = lock()["rules"]["house"]
    write(HOUSE + KINDS)
    check()
    assert set(lock()["rules"]) == {"house", "kinds"} and lock()["rules"]["house"] == kept


def test_a_lock_of_another_model_is_refused(check: Check) -> None:
    check()
    edit_lock("models", "matcher", value="another/model")
    before = Path("rules.lock").read_bytes()
    refused(check(), "rules.lock is of another model: its matcher is another/model, not @mini/weights/matcher.")
    assert Path("rules.lock").read_bytes() == before


def test_a_lock_of_another_writer_is_as_good(check: Check) -> None:
    check()
    edit_lock("models", "writer", value="another/model")
    assert check().returncode == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "rules.lock, line 1: not JSON"),
        ("[]", f"rules.lock is damaged: TypeError list indices must be integers or slices, not str. {UPDATE}"),
        ("{}", f"rules.lock is damaged: KeyError 'codevqa'. {UPDATE}"),
        ('{"codevqa": 1, "models": {}, "prompts": "", "rules": []}', f"{UPDATE}"),
        ('{"codevqa": 1, "models": {}, "prompts": "", "rules": {"house": {"question": "?"}}}', "KeyError 'program'."),
        ('{"codevqa": 2}', f"rules.lock was written by another version of codevqa. {UPDATE}"),
    ],
)
def test_a_damaged_lock_is_refused_and_stays(text: str, words: str, check: Check) -> None:
    Path("rules.lock").write_text(text)
    refused(check(), words)
    assert Path("rules.lock").read_text() == text


def test_a_rule_whose_question_changed_has_its_program_written_anew(check: Check) -> None:
    check()
    write(HOUSE.replace("a house", "a red house") + ROOF)
    done = check()
    assert "house: Is there a red house?" in done.stderr and "programs kept in rules.lock" in done.stderr
    assert lock()["rules"]["house"]["question"] == "Is there a red house?"


# -- programs anew -----------------------------------------------------------------------------------------------------


def test_update_says_which_pictures_change_sides(check: Check) -> None:
    check()
    own = lock()
    edit_lock("rules", "house", "program", value=CONTRARY)
    done = check("--update")
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "house: 1 begin to pass and 2 cease to (McNemar p = 1)"
    assert lines[1:4] == ["  photos/garden.png", "  photos/shelf-1.png", "  photos/shelf-2.png"]
    assert lines[4] == "FAIL  house  2 of 3 fail"
    assert lock() == own


def test_update_says_where_no_picture_changes_sides(check: Check) -> None:
    check()
    assert check("--update").stdout.startswith("house: the program is the same\n")
    edit_lock("rules", "house", "program", value=f'img = open_image("Image1.jpg")\n{PROGRAM}')
    done = check("--update")
    assert done.stdout.startswith("house: another program, and no picture changes sides\n"), done.stderr
    assert "Image1.jpg" not in lock()["rules"]["house"]["program"]


def test_update_asks_the_writer_though_its_program_is_remembered(check: Check) -> None:
    check()
    with engine("answer = query(img, 'Is this a house?')") as vqa:
        done = check("--update", vqa=vqa)
    assert lock()["rules"]["house"]["program"] == "answer = query(img, 'Is this a house?')", done.stderr
    assert done.stdout.startswith("house: 2 begin to pass and 0 cease to (McNemar p = 0.5)\n")


def test_update_takes_another_question_of_where(check: Check) -> None:
    write(ROOF)
    check()
    write(ROOF.replace("a house", "a red house"))
    assert check("--update").returncode == 0
    assert lock()["rules"]["roof, where"]["question"] == "Is there a red house?"


def test_update_takes_a_lock_to_the_models_of_now(check: Check) -> None:
    check()
    edit_lock("models", "matcher", value="another/model")
    assert check("--update").returncode == 1
    assert check().returncode == 1


@pytest.mark.parametrize("text", ["{", "{}", '{"codevqa": 2}'])
def test_update_takes_the_place_of_a_damaged_lock(text: str, check: Check) -> None:
    Path("rules.lock").write_text(text)
    assert check("--update").returncode == 1
    assert PROGRAM in lock()["rules"]["house"]["program"]


# -- files and formats -------------------------------------------------------------------------------------------------


def test_json_holds_each_picture_of_each_rule(check: Check) -> None:
    write(HOUSE + ROOF)
    done = check("--json")
    assert done.returncode == 1
    house, roof = json.loads(done.stdout)["rules"]
    assert (house["rule"], house["side"], house["summary"]) == ("house", "fail", "2 of 3 fail")
    assert PROGRAM in house["program"] and roof["side"] == "pass"
    garden, *shelves = house["pictures"]
    assert garden["picture"] == str(Path("photos/garden.png").resolve())
    assert (garden["side"], garden["value"], garden["why"]) == ("pass", "yes", "") and garden["chance"] >= 0.9
    assert [picture["side"] for picture in shelves] == ["fail", "fail"]


def test_junit_counts_failures_and_doubts(check: Check) -> None:
    write(HOUSE + ROOF)
    check("--junit", "check.xml", "--quiet")
    root = ElementTree.parse("check.xml").getroot()
    assert (root.tag, root.get("name")) == ("testsuites", "rules.toml")
    house, roof = root.findall("testsuite")
    assert house.attrib == {"name": "house", "tests": "3", "failures": "2", "errors": "0"}
    assert roof.attrib == {"name": "roof", "tests": "1", "failures": "0", "errors": "0"}  # the others are skipped
    cases = {Path(case.get("name", "")).name: case for case in house.findall("testcase")}
    assert [case.get("classname") for case in cases.values()] == ["house"] * 3
    assert len(cases["garden.png"]) == 0
    (failure,) = cases["shelf-1.png"]
    assert (failure.tag, failure.get("message")) == ("failure", "Is there a house? no")


def test_junit_calls_a_doubt_an_error(check: Check) -> None:
    write(COUNT)
    check("--junit", "check.xml", pictures=[SHELF[0], GARDEN])
    (suite,) = ElementTree.parse("check.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "1")
    (error,) = suite.iter("error")
    assert "1: the chance is" in error.get("message", "")


def test_the_page_stands_alone_and_shows_the_evidence_of_what_fails(check: Check) -> None:
    shutil.copy(SHELF[2], "photos/<b>x<&b>.png")
    write(HOUSE.replace('"house"', '"<i>house</i>"'))
    assert check("--page", "check.html", "--quiet").returncode == 1
    text = Path("check.html").read_text(encoding="utf-8")
    page = Read(text)
    assert not any(element.text.startswith(("x", "house")) for tag in "bi" for element in page.all(tag))
    assert page.all("h2")[0].text == "<i>house</i>"
    assert not page.all("script") and not page.all("link") and "http-equiv" in page.all("meta")[1].attributes
    policy = page.element("meta", http_equiv="Content-Security-Policy").attributes["content"]
    assert policy == "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    outside = [
        element.attributes[name]
        for element in page.elements
        for name in ("src", "href", "action", "srcset", "data")
        if name in element.attributes and not element.attributes[name].startswith(("data:", "#"))
    ]
    assert outside == [] and "url(" not in text.replace("url(data:", "")
    summaries = [element.text for element in page.all("summary") if element.text.startswith("Fails: ")]
    assert [Path(summary.removeprefix("Fails: ")).name for summary in summaries] == [
        "<b>x<&b>.png",
        "shelf-1.png",
        "shelf-2.png",
    ]
    (program,) = [element.inside[-2] for element in page.all("summary") if element.text == "The program"]
    assert PROGRAM in program.text
    pictures = [image.attributes["src"] for image in page.all("img")]
    assert len(pictures) >= 3 and all(opened(picture).width > 10 for picture in pictures)
    assert page.element("title").text == "Rules: 1 of 1 fail"
    assert "Is there a house? Wanted: yes. 3 of 4 fail." in page.element("section", id="rule-1").text


def test_a_page_of_what_passes_names_rules_and_programs_alone(check: Check) -> None:
    assert check("--page", "check.html", pictures=[GARDEN]).returncode == 0
    page = Read(Path("check.html").read_text(encoding="utf-8"))
    assert page.element("title").text == "Rules: 0 of 1 fail" and "passes" in page.text
    assert [element.text for element in page.all("summary")] == ["The program"] and not page.all("img")


def test_the_page_shows_the_evidence_of_the_question_that_is_in_doubt(check: Check) -> None:
    write(COUNT + 'where = "Is there a cup?"\n')
    check("--page", "check.html", pictures=[SHELF[0]])
    page = Read(Path("check.html").read_text(encoding="utf-8"))
    (shown,) = [element for element in page.all("details") if "To look at: " in element.text]
    assert "How many red cups are there?" in shown.text


def test_labels_say_how_often_a_rule_is_right(check: Check) -> None:
    with Path("labels.csv").open("w", newline="") as file:
        rows = [("filepath", "picked", "house_truth")]
        names = {"garden.png": "yes", "shelf-1.png": "no", "shelf-2.png": "yes"}
        rows += [(str(Path("photos", name).resolve()), "random", truth) for name, truth in names.items()]
        csv.writer(file).writerows(rows)
    done = check("--labels", "labels.csv", "--quiet")
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines()[:2] == [
        "house: right on 1 of 2 labelled pictures that fail, 9 to 91 %",
        "house: right on 1 of 1 labelled pictures that pass, 21 to 100 %",
    ]


@pytest.mark.parametrize("way", ["labels", "update"])
def test_json_is_all_that_is_printed(way: str, check: Check) -> None:
    check()
    Path("labels.csv").write_text(f"filepath,picked,house_truth\n{Path('photos/garden.png').resolve()},random,yes\n")
    done = check("--json", *(["--labels", "labels.csv"] if way == "labels" else ["--update"]))
    assert json.loads(done.stdout)["rules"]


def test_seconds_end_a_run_that_another_goes_on_with(check: Check) -> None:
    done = check("--seconds", 0)
    assert done.returncode == 2
    assert done.stdout.splitlines()[0] == "LOOK  house  0 of 3 fail, 3 to look at"
    assert "photos/garden.png: It was not reached." in done.stdout
    assert "3 pictures were not reached: run the same again to go on." in done.stderr
    assert check("--quiet").stdout == "FAIL  house  2 of 3 fail\n"


# -- names and errors --------------------------------------------------------------------------------------------------


def rename(name: bytes) -> None:
    """Leaves one picture in the folder, which shows no house, under a name of bytes."""
    for path in Path("photos").iterdir():
        path.unlink()
    shutil.copy(SHELF[0], Path("photos", os.fsdecode(name)))


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"a\x1b[31mb.png", r"photos/a\x1b[31mb.png"),
        (b"a\rb.png", r"photos/a\rb.png"),
        ("a\u202eb.png".encode(), r"photos/a\u202eb.png"),
        (b"a\xffb.png", r"photos/a\udcffb.png"),
    ],
)
def test_names_reach_no_terminal_and_no_file_as_commands(name: bytes, shown: str, check: Check) -> None:
    rename(name)
    done = check("--junit", "check.xml", "--page", "check.html")
    assert done.stdout.splitlines()[1] == f"      fail  {shown!r}: Is there a house? no".replace("\\\\", "\\")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", done.stdout + done.stderr)
    (case,) = ElementTree.parse("check.xml").getroot().iter("testcase")
    assert case.get("name", "").endswith(f"/photos/{visible(os.fsdecode(name))}")
    assert "\x1b" not in Path("check.html").read_text(encoding="utf-8")


def test_a_name_makes_no_line_of_its_own(check: Check) -> None:
    rename(b"a\nPASS  house  0 of 1 fail.png")
    assert [line for line in check().stdout.splitlines() if line.startswith("PASS")] == []


def test_junit_is_xml_whatever_a_picture_is_called(check: Check) -> None:
    rename("a\uffff.png".encode())
    check("--junit", "check.xml", "--quiet")
    assert ElementTree.parse("check.xml").getroot().tag == "testsuites"


def test_rules_that_are_wrong_are_told_before_pictures_are_read(check: Check) -> None:
    write(HOUSE + "wnat = 1\n")
    done = check(pictures=["nowhere"])
    refused(done, "rules.toml, rule 1: there is no key 'wnat'. Did you mean want?")
    assert not Path("rules.lock").exists()


@pytest.mark.parametrize(
    ("words", "pictures", "message"),
    [
        ((), (), "No picture was given."),
        ((), ("nowhere",), "nowhere"),
        (("--preset", "nope"), ("photos",), "No preset 'nope'."),
        (("--labels", "nowhere.csv"), ("photos",), "nowhere.csv"),
        (("--prompts", "nope"), ("photos",), "nope"),
    ],
)
def test_what_cannot_be_checked_ends_with_status_3(
    words: tuple[str, ...], pictures: tuple[str, ...], message: str, check: Check
) -> None:
    done = check("--quiet", *words, pictures=pictures)
    refused(done, message)


@pytest.mark.parametrize("option", ["--junit", "--page"])
def test_a_file_that_cannot_be_written_ends_with_status_3(option: str, check: Check) -> None:
    done = check(option, "nowhere/check", "--quiet", pictures=[GARDEN])
    assert done.returncode == 3 and done.stderr.count("\n") == 1
    assert "There is no folder 'nowhere'." in done.stderr


@pytest.mark.parametrize("words", [("--junti", "check.xml"), ("--seconds", "soon"), ("--config", "nowhere.toml")])
def test_a_command_that_is_misspelt_is_no_verdict(words: tuple[str, ...], check: Check) -> None:
    assert check(*words).returncode == 3

"""``codevqa ask`` for many questions: typed at a terminal, from a script, or from a file; the models load once."""

import json
from pathlib import Path

from cli_kit import GARDEN, CommandLine, assert_one_clear_line
from pages_kit import Read

from codevqa.cli.conversation import pointing

HARBOR = GARDEN.with_name("harbor.png")


def test_a_script_of_questions_and_commands(tmp_path: Path, codevqa: CommandLine) -> None:
    page, copy = tmp_path / "page.html", tmp_path / "a picture.png"
    copy.write_bytes(GARDEN.read_bytes())
    flag, house, tree = (f"What color is the {thing}?" for thing in ("flag", "house", "tree"))
    lines = [flag, "", f":open '{copy}'", house, f":trace {page}", ":quit", tree]
    done = codevqa("ask", HARBOR, "--quiet", stdin="\n".join(lines))
    assert (done.returncode, done.stdout, done.stderr) == (0, "red\nred\n", "")
    assert house in Read(page.read_text(encoding="utf-8")).element("h1").text


def test_a_line_that_fails_is_told_and_the_next_is_answered(tmp_path: Path, codevqa: CommandLine) -> None:
    copy = tmp_path / "harbor.png"
    copy.write_bytes(HARBOR.read_bytes())
    wrong = {
        ":trace a.html": "Nothing has been answered yet.",
        ":open 'a": "No closing quotation.",
        ":open none.png": "No picture at none.png.",
        ":open http://127.0.0.1/a.png": "No picture at http://127.0.0.1/a.png. Download it first",
        ":shut": "No command :shut.",
        "What color is it?": "'it' is not clear. Name the thing",
        "Who stands there?": "'there' is not clear.",
        "x" * 1001: "The question has 1,001 characters.",
        "\udcff": "half a surrogate pair",  # a byte that is not UTF-8
    }
    later = {":trace": "0 files were given. Give 1.", f":trace {copy}": "a name that ends in .html"}
    script = "\n".join([*wrong, "What color is the flag?", *later]).encode("utf-8", "surrogateescape")
    done = codevqa("ask", copy, "--quiet", stdin=script)
    assert (done.returncode, done.stdout) == (1, "red\n")
    assert not pointing("Is there a flag, and is it red?") and not pointing("How many flags are there?")
    lines = done.stderr.splitlines()
    for line, words in zip(lines, [*wrong.values(), *later.values()], strict=True):
        assert line.startswith("codevqa: ") and words in line
    assert copy.read_bytes() == HARBOR.read_bytes()
    assert_one_clear_line(codevqa("ask", copy, stdin="\n"), "No question was given. Give -q QUESTION")


def test_a_file_is_answered_in_order_and_a_bad_line_costs_no_other(tmp_path: Path, codevqa: CommandLine) -> None:
    (tmp_path / "pictures").mkdir()
    for each in (GARDEN, HARBOR):
        (tmp_path / "pictures" / each.name).write_bytes(each.read_bytes())
    flag = {"images": ["pictures/harbor.png"], "question": "What color is the flag?", "id": 7}
    lines = [
        json.dumps(flag),
        "nonsense",
        json.dumps({"images": "pictures/garden.png", "question": "Is the red house to the left of the green tree?"}),
        "",
        json.dumps({"images": ["none.png"], "question": "What is it?"}),
        json.dumps({"images": [1], "question": "What is it?"}),
        json.dumps({"images": ["https://127.0.0.1/a.png"], "question": "What is it?"}),
        json.dumps({"images": [str(GARDEN)], "question": "x" * 1001}),
        json.dumps({"images": [str(GARDEN)], "question": "\ud800"}),
        "[" * 100_000,
        json.dumps({"images": [str(GARDEN)], "question": "What color is the house?"}),
    ]
    path = tmp_path / "questions.jsonl"
    path.write_text("\n".join(lines))
    done = codevqa("ask", "--questions", path)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1
    assert [row["answer"] for row in rows] == ["red", "", "yes", "", "", "", "", "", "", "red"]
    assert len({tuple(row) for row in rows}) == 1, "every row has the same keys"
    assert done.stdout.encode(), "half a surrogate pair would not go out"
    kinds = [row["error"] and row["error"]["type"] for row in rows]
    assert kinds == [
        None, "InputError", None, "ImageError", "InputError", "ImageError", "QuestionError", "InputError",
        "InputError", None,
    ]  # fmt: skip
    assert rows[1]["error"]["message"].startswith(f"{path}, line 2: not JSON: ")
    assert rows[4]["error"]["message"].startswith(f'{path}, line 6 lacks "images" or "question".')
    assert "10 of 10 questions" in done.stderr and "7 unanswered" in done.stderr


def test_a_picture_of_standard_input(codevqa: CommandLine) -> None:
    with HARBOR.open("rb") as picture:
        done = codevqa("ask", "-", "-q", "What color is the flag?", "--quiet", stdin=picture.read())
    assert (done.returncode, done.stdout) == (0, "red\n"), done.stderr
    assert_one_clear_line(codevqa("ask", "-", "-q", "What is it?", stdin="text"), "standard input is not a picture")

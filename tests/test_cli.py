"""The command line as its user meets it, with the embedded models wherever one has to answer."""

import ast
import io
import json
import logging
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from cli_kit import GARDEN, ROOT, SHELF, CommandLine, assert_one_clear_line
from engine_kit import engine
from pages_kit import Read
from tiny_lm import build_tiny_lm

from codevqa.cli.main import main
from codevqa.core.answer import Answer
from codevqa.core.errors import SetupError

ASKED = ("ask", GARDEN, "-q", "What is it?")


def test_help_warns_of_nothing_and_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['codevqa']\n"
        "try:\n    import codevqa.cli.main as m; m.main()\nexcept SystemExit: pass\n"
        "heavy = {'codevqa.plugins'}\n"
        "heavy |= {*'torch transformers numpy PIL sentence_transformers openai pydantic_monty'.split()}\n"
        "sys.exit(f'imported: {heavy & set(sys.modules)}' if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    listed = done.stdout[done.stdout.index("\nAsk:\n") :]
    for name in ("  ask  ", "  mini-data  Write drawn", "\nEvaluate:\n  eval  "):
        assert name in listed
    assert "..." not in listed and max(map(len, listed.splitlines())) <= 80


def test_what_the_help_says_to_start_with_works_as_it_stands(
    codevqa: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    *_, line = codevqa("--help").stdout.splitlines()
    command = line.removeprefix("  Start with: ")
    assert len(line) <= 80 and f"  Example: {command}\n" in codevqa("ask", "--help").stdout
    program, *words = shlex.split(command)
    done = codevqa(*words)
    assert (program, done.returncode, done.stdout) == ("codevqa", 0, "yes\n"), done.stderr


def test_ask_prints_the_answer_on_stdout_and_the_rest_on_stderr(codevqa: CommandLine) -> None:
    done = codevqa("ask", GARDEN, "-q", "Is the red house to the left of the green tree?")
    assert (done.returncode, done.stdout) == (0, "yes\n"), done.stderr
    assert "get_pos(" in done.stderr and "answer" in done.stderr


def test_a_question_without_its_option_is_understood_and_a_name_of_no_picture_is_not(codevqa: CommandLine) -> None:
    assert codevqa("ask", GARDEN, "Is there a red house?").stdout == "yes\n"
    for words in ((GARDEN, "my house.png"), ("no such garden",), (GARDEN, "nosuchfile")):
        assert_one_clear_line(codevqa("ask", *words), str(words[-1]))


def test_one_picture_asked_about_as_a_set_and_by_the_baseline(codevqa: CommandLine) -> None:
    asked = ("ask", GARDEN, "-q", "What color is the house?", "--json", "--quiet")
    assert json.loads(codevqa(*asked, "--as-set").stdout)["program"].startswith("images = open_images(")
    answer = json.loads(codevqa(*asked, "--method", "pnpvqa", "--evidence").stdout)
    assert answer["program"] is None and answer["calls"] == [] and answer["answer"] == "red"
    assert answer["baseline"][0]["captions"][0]


def test_what_a_program_prints_is_shown_also_where_it_fails(codevqa: CommandLine) -> None:
    done = codevqa("run", "-", GARDEN, stdin="print('one')\nprint('two')\nanswer = 1\n")
    assert (done.returncode, done.stdout) == (0, "1\n") and "  printed: one\n  printed: two\n" in done.stderr
    quiet = codevqa("run", "-", GARDEN, "--quiet", stdin="print('one')\nanswer = 1\n")
    assert quiet.stderr == ""
    failed = codevqa("run", "-", GARDEN, "--quiet", stdin="print('one')\na = []\nanswer = a[0]\n")
    assert failed.returncode == 1 and failed.stderr.splitlines()[0] == "  printed: one"
    assert "line 3: IndexError" in failed.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("--dataset", "gqa", "--shots", 2),
        ("--as-set", "--set", "writer.selection=random", "--set", "seed=3"),
        ("--compat", "release"),
        ("--lm", "transformers:FOLDER"),
    ],
)
def test_prompt_prints_what_ask_shows(words: tuple[object, ...], tmp_path: Path, codevqa: CommandLine) -> None:
    if "--lm" in words:  # one with a chat template, whose completions are nonsense
        chat = build_tiny_lm(tmp_path, context=20_000)
        words = (
            "--lm",
            f"transformers:{chat}",
            *(f"--set={setting}" for setting in ("writer.max_tokens=5", "writer.repairs=0", "query.shots=0")),
        )
    question = "IS the red  house LEFT of the tree?"
    printed = codevqa("prompt", "-q", question, *words)
    assert printed.returncode == 0, printed.stderr
    answer = json.loads(codevqa("ask", GARDEN, "-q", question, *words, "--json", "--evidence", "--quiet").stdout)
    program = answer["written"] or answer["attempts"][0]["program"]
    assert printed.stdout == program["prompt"]
    assert "--shots" not in words or len(program["examples"]) == printed.stdout.count("\nimg = open_image(") == 2
    assert printed.stdout.startswith("[system]\n") == ("--lm" in words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("aks",), "No such command 'aks'. Did you mean 'ask'?"),
        (("run", "-", "-"), "cannot be the program and a picture"),
        ((*ASKED, "-q", "Is it?"), "Only one question is asked at a time."),
        ((*ASKED, "--evidence"), "--evidence does nothing without --json or --questions."),
        ((*ASKED, "--method", "pnpvqa", "--shots", "2"), "--shots does nothing with"),
        ((*ASKED, "--method", "direct"), "The method direct needs a vision-language model. Name one: --preset api"),
        ((*ASKED, "--set", "max_question=5"), "The limit is 5."),
        ((*ASKED, "--preset", "huge"), "No preset 'huge'. There are: mini, mini-vlm, vlm, api, base, large, paper."),
        ((*ASKED, "--preset", "mni"), "No preset 'mni'. Did you mean mini?"),
        ((*ASKED, "--set", "qurey.captions=3"), "No field qurey.captions. Did you mean query.captions?"),
        ((*ASKED, "--prompts", "nlvr3"), "No prompt set 'nlvr3'. Did you mean nlvr"),
        ((*ASKED, "--preset", "base"), "Salesforce/"),
        (("ask",), "No picture was given"),
        (("ask", "-"), "so you cannot type questions"),
        (("ask", GARDEN, "--questions", "a.jsonl"), "IMAGE does not go with --questions"),
        (("eval", "gqa", "--data", ".", "--out", "o", "--retry-errors"), "does nothing without --resume."),
        (("eval", "gqa", "--data", ".", "--out", "o", "--ray-actors", "2"), "does nothing without --engine ray."),
        (("eval", "vqa9", "--data", ".", "--out", "o"), "No data set 'vqa9'. Did you mean vqav2?"),
        (("eval", "gqa", "--data", ".", "--out", "o", "--group-by", "a"), "--group-by is for your own questions."),
    ],
)
def test_what_cannot_be_done_is_told_before_loading(
    words: tuple[object, ...], message: str, codevqa: CommandLine
) -> None:
    done = codevqa(*words, stdin="answer = 1\n")
    assert_one_clear_line(done, message)
    assert "loading" not in done.stderr


def test_a_server_that_is_down_is_told_without_its_key(codevqa: CommandLine) -> None:
    there = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENAI_API_KEY": "sk-secret"}
    done = codevqa(*ASKED, "--lm", "openai:some-model", **there)
    assert_one_clear_line(done, "127.0.0.1:9", status=1)
    assert "secret" not in done.stderr


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_it_quietly_with_the_status_of_one(codevqa: CommandLine) -> None:
    def interrupt(_: object) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        return "answer = 1"

    with engine(interrupt) as vqa:
        done = codevqa(*ASKED, "--quiet", engine=vqa)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_models_lists_every_preset_and_what_is_missing(codevqa: CommandLine) -> None:
    presets = json.loads(codevqa("models", "--json").stdout)
    assert set(presets) == {"mini", "mini-vlm", "vlm", "api", "base", "large", "paper"}
    assert presets["paper"]["parts"]["language_model"]["missing"] == "yours to choose: --language-model"
    for part in presets["mini"]["parts"].values():
        assert part["missing"] == ""
        assert part["bytes"] == sum(file.stat().st_size for file in Path(part["place"]).rglob("*") if file.is_file())
    assert "MB on disk" in codevqa("models").stdout
    listing = codevqa("models", "mini").stdout
    assert "mushroom, plane" in listing and "yellow" in listing and "base" not in listing
    first, _ = presets["mini"]["try"]
    assert codevqa("ask", GARDEN, "-q", first, "--quiet").stdout == "red\n"
    assert "What they know: codevqa models" in codevqa("ask", GARDEN, "-q", "Is there a zebra?", "--quiet").stderr


def test_output_is_utf_8_whatever_the_terminal_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO()
    monkeypatch.setattr(sys, "argv", ["codevqa", "ask", "\u7ea2.png", "-q", "Is it?"])
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(buffer, encoding="cp1252", errors="strict"))
    with pytest.raises(SystemExit):
        main()
    sys.stderr.flush()
    assert buffer.getvalue().decode().startswith("codevqa: No picture at \u7ea2.png.")


def test_a_terminal_is_told_nothing_that_it_would_obey(tmp_path: Path, codevqa: CommandLine) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "print('\\x1b]0;title\\x07')  # \x9b31m\nquery(img, 'What \\x1b[31m is it?')\nanswer = 'red\\x1b[2J \\u202etxt'"
    )
    done = codevqa("run", program, GARDEN)
    assert done.returncode == 0 and done.stdout == "red\\u001b[2J \\u202etxt\n", done
    assert "What \\x1b[31m" in done.stderr and not [
        character for character in done.stderr if not character.isprintable() and character != "\n"
    ]
    assert_one_clear_line(codevqa("ask", tmp_path / "a\x1b[31m.png", "-q", "Is it?"), "a\\u001b[31m.png")
    program.write_text("answer = 'red\\x9b2J\\u202e\\u200f\\x7f\\x1b \u00e9'")
    printed = codevqa("run", program, GARDEN, "--json").stdout
    assert printed.strip().isprintable() and "\u00e9" in printed, "JSON keeps what a terminal shows"
    assert json.loads(printed)["answer"] == "red\x9b2J\u202e\u200f\x7f\x1b \u00e9", "and says the rest exactly"


def test_what_is_loaded_is_named_where_a_file_replaces_a_preset_s_models(tmp_path: Path, codevqa: CommandLine) -> None:
    weights = ROOT / "mini" / "weights"
    parts = {"matcher": "blip", "captioner": "blip", "retriever": "sentence", "lm": "transformers"}
    roles = {name.replace("lm", "language_model"): f"{kind}:{weights / name}" for name, kind in parts.items()}
    (tmp_path / "my.toml").write_text('preset = "base"\n' + "".join(f'{role} = "{of}"\n' for role, of in roles.items()))
    with engine("answer = 1") as vqa:
        words = ("run", "-", GARDEN, "--preset", tmp_path / "my.toml")
        line = codevqa(*words, stdin="answer = 1", engine=vqa).stderr.splitlines()[0]
        plain = codevqa(*words[:-2], stdin="answer = 1", engine=vqa).stderr.splitlines()[0]
    assert "BLIP" not in line and line.endswith("my.toml (lm, matcher, captioner, retriever) ..."), line
    assert plain.startswith("codevqa: loading mini (tiny models inside the package"), plain


def test_everything_that_is_printed_goes_one_way() -> None:
    for file in (ROOT / "codevqa" / "cli").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
            assert name not in ("print", "pprint", "echo", "secho", "__stdout__", "__stderr__"), f"{file}: {name}"
            if file.name != "printing.py":
                stream = isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith(("stdout", "stderr"))
                assert not stream or name in ("isatty", "fileno"), f"{file}, {ast.unparse(node)}: use print_text"


def test_what_is_logged_is_told_as_anything_else(codevqa: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = logging.getLogger("codevqa.plain")
    monkeypatch.setattr(plain, "propagate", False)  # pytest listens at the root
    monkeypatch.setattr("codevqa.cli.models.including", lambda _: plain.warning("left out: \x1b]0;title\x07"))
    assert codevqa("models", "mini", "--json").stderr == "codevqa: left out: \\u001b]0;title\\u0007\n"


TRACED = ("ask", GARDEN, "-q", "Is it red?", "--quiet", "--trace")


def page_of(path: Path) -> tuple[Read, Answer]:
    page = Read(path.read_text(encoding="utf-8"))
    return page, Answer.from_json(page.element("script", id="cv-answer-data").text)


def test_ask_writes_the_page_of_the_answer_it_prints(tmp_path: Path, codevqa: CommandLine) -> None:
    trace = tmp_path / "out.html"
    question = ("-q", "How many pictures contain a purple cup?")
    done = codevqa("ask", *SHELF, *question, "--trace", trace, "--json", "--evidence")
    assert done.returncode == 0 and done.stderr.splitlines()[-1] == f"codevqa: trace written to {trace}"
    page, answer = page_of(trace)
    assert answer == Answer.from_json(done.stdout)
    assert page.element(cls="cv-answer").text == "2"
    assert len(page.all("img", cls="cv-heat")) == 3 and "shelf-2.png" in page.element("body").text
    assert list(tmp_path.iterdir()) == [trace]


def test_a_fallback_is_said_and_has_a_page(tmp_path: Path, codevqa: CommandLine) -> None:
    trace = tmp_path / "out.html"
    with engine("answer = nothing", repairs=0) as vqa:
        done = codevqa(*TRACED, trace, engine=vqa)
    assert (done.stdout, done.stderr) == ("yes\n", "")
    page, answer = page_of(trace)
    assert answer.fallback and answer.error is not None and answer.error.type in page.element("body").text
    with engine("answer = nothing", repairs=0) as vqa:
        loud = codevqa(*TRACED[:4], engine=vqa)
    assert "codevqa: the program failed (" in loud.stderr and "plain PnP-VQA answered instead" in loud.stderr


@pytest.mark.parametrize(
    ("source", "text", "line"),
    [
        ("print('hello')\nanswer = query(img, 'Is it red?')\n", "yes", None),
        ("x = query(img, 'Is it red?')\ny = get_pos(img, '')\nanswer = x\n", "", "2"),
        ("answer = nothing\n", "", "1"),
    ],
    ids=["answers", "fails", "is refused"],
)
def test_run_writes_its_page(source: str, text: str, line: str | None, tmp_path: Path, codevqa: CommandLine) -> None:
    trace = tmp_path / "out.html"
    with engine() as vqa:
        done = codevqa("run", "-", GARDEN, "--trace", trace, stdin=source, engine=vqa)
    assert done.returncode == (line is not None) and f"trace written to {trace}" in done.stderr, done.stderr
    page, answer = page_of(trace)
    assert answer.text == text
    assert [element.attributes["data-line"] for element in page.all(cls="cv-failing")] == ([line] if line else [])


def test_a_page_is_written_into_a_folder_under_a_page_s_name(tmp_path: Path, codevqa: CommandLine) -> None:
    picture = tmp_path / "a.png"
    picture.write_bytes(GARDEN.read_bytes())
    for place, words in ((tmp_path / "no" / "out.html", "There is no folder"), (picture, "a name that ends in .html")):
        done = codevqa(*TRACED, place)
        assert_one_clear_line(done, words)
        assert "loading" not in done.stderr
    assert picture.read_bytes() == GARDEN.read_bytes()


def test_an_answer_outlives_its_page(tmp_path: Path, codevqa: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Answer, "save_html", Mock(side_effect=SetupError("No space left on device.")))
    with engine("answer = query(img, 'Is it red?')") as vqa:
        done = codevqa(*TRACED, tmp_path / "out.html", "--json", engine=vqa)
    assert done.returncode == 2 and "No space left" in done.stderr
    assert json.loads(done.stdout)["answer"] == "yes"

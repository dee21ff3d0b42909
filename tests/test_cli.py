"""The command line as its user meets it, with the embedded models wherever one has to answer."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from cli_kit import GARDEN, ROOT, SHELF, CommandLine, Engines, assert_one_clear_line, spawn
from PIL import Image, PngImagePlugin
from tiny_lm import build_tiny_lm

from codevqa import CodeVQA, Models, QuerySettings, Settings, Writer, WriterSettings
from codevqa.cli.ask import ask
from codevqa.cli.main import main
from codevqa.models.fakes import FakeCaptioner, FakeMatcher, ScriptedLM
from codevqa.prompts import load as load_prompts


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['codevqa', '--help']\n"
        "try:\n    import codevqa.cli.main as m; m.main()\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'transformers', 'numpy', 'PIL', 'sentence_transformers', 'openai', 'pydantic_monty'}\n"
        "sys.exit(f'imported: {heavy & set(sys.modules)}' if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in ("ask", "run", "prompt", "models"):
        assert name in done.stdout


def test_ask_prints_the_answer_on_stdout_and_the_rest_on_stderr(codevqa: CommandLine) -> None:
    done = codevqa("ask", str(GARDEN), "-q", "Is the red house to the left of the green tree?")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "yes\n"
    assert "get_pos(" in done.stderr and "answer" in done.stderr


@pytest.mark.slow
def test_the_installed_command_answers_with_exactly_the_promised_keys() -> None:
    installed = str(Path(sys.executable).with_name("codevqa"))
    words = ("ask", *SHELF, "-q", "How many pictures contain a purple cup?", "--json", "--quiet")
    done = spawn(*words, program=(installed,))
    assert done.returncode == 0 and done.stderr == "", done.stderr
    answer = json.loads(done.stdout)
    assert list(answer) == [
        *("question", "answer", "program", "calls", "fallback", "error", "warnings", "seconds", "models")
    ]
    assert answer["answer"] == "2" and answer["fallback"] is False and answer["error"] is None
    assert [call["value"] for call in answer["calls"] if call["name"] == "query"] == ["yes", "no", "yes"]
    assert set(answer["models"]) == {"writer", "reader", "matcher", "captioner", "retriever"}


def test_evidence_is_printed_where_it_is_asked_for(tmp_path: Path, codevqa: CommandLine) -> None:
    path = tmp_path / "program.py"
    path.write_text('answer = query(images[0], "What color is the house?")\n')
    words = ("run", str(path), str(GARDEN), "-q", "Which color?", "--json", "--quiet")
    plain, full = (json.loads(codevqa(*words, *extra).stdout) for extra in ((), ("--evidence",)))
    assert plain["question"] == full["question"] == "Which color?"
    assert "evidence" not in plain["calls"][0] and full["calls"][0]["evidence"][0]["captions"][0]


def test_one_picture_asked_about_as_a_set(codevqa: CommandLine) -> None:
    data = json.loads(codevqa("ask", str(GARDEN), "-q", "Is it red?", "--as-set", "--json", "--quiet").stdout)
    assert data["program"].startswith("images = open_images(")


def test_a_fallback_is_said_on_stderr_unless_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def scripted(*_: object) -> Iterator[CodeVQA]:
        lm = ScriptedLM(lambda request: "yes" if "Q: " in str(request.prompt) else "answer = nothing")
        writer = Writer(lm, load_prompts("gqa"), settings=WriterSettings(selection="fixed", repairs=0))
        settings = Settings(workers=1, query=QuerySettings(captions=1))
        with CodeVQA(writer, Models(lm, FakeMatcher(6), FakeCaptioner(grid=6)), settings) as vqa:
            yield vqa

    monkeypatch.setattr(sys.modules["codevqa.cli.ask"], "open_engine", scripted)
    ask([str(GARDEN)], "Is it red?")
    loud = capsys.readouterr()
    assert loud.out == "yes\n"
    assert "codevqa: the program failed (" in loud.err and "plain PnP-VQA answered instead" in loud.err
    ask([str(GARDEN)], "Is it red?", quiet=True, json=True)
    quiet = capsys.readouterr()
    assert quiet.err == "" and json.loads(quiet.out)["fallback"] is True


def test_baseline(codevqa: CommandLine) -> None:
    done = codevqa("ask", str(GARDEN), "-q", "What color is the house?", "--method", "pnpvqa", "--json", "--quiet")
    answer = json.loads(done.stdout)
    assert answer["program"] is None and answer["calls"] == [] and answer["answer"] == "red"


def test_run_a_program_from_a_file_and_from_standard_input(tmp_path: Path, codevqa: CommandLine) -> None:
    source = 'img = open_image("Image1.jpg")\nanswer = query(img, "What color is the house?")\n'
    path = tmp_path / "program.py"
    path.write_text(source)
    assert codevqa("run", str(path), str(GARDEN), "--quiet").stdout == "red\n"
    assert codevqa("run", "-", str(GARDEN), "--quiet", stdin=source).stdout == "red\n"


def test_what_a_program_prints_is_shown_also_where_it_fails(codevqa: CommandLine) -> None:
    done = codevqa("run", "-", str(GARDEN), stdin="print('one')\nprint('two')\nanswer = 1\n")
    assert (done.returncode, done.stdout) == (0, "1\n") and "  printed: one\n  printed: two\n" in done.stderr
    quiet = codevqa("run", "-", str(GARDEN), "--quiet", stdin="print('one')\nanswer = 1\n")
    assert quiet.stderr == ""
    failed = codevqa("run", "-", str(GARDEN), "--quiet", stdin="print('one')\na = []\nanswer = a[0]\n")
    assert failed.returncode == 1 and failed.stderr.splitlines()[0] == "  printed: one"
    assert "line 3: IndexError" in failed.stderr


def test_as_many_examples_are_shown_as_are_asked_for(codevqa: CommandLine) -> None:
    words = ("ask", str(GARDEN), "-q", "What color is the house?", "--json", "--evidence", "--quiet")
    for shots in (0, 2):
        written = json.loads(codevqa(*words, "--shots", shots).stdout)["written"]
        assert len(written["examples"]) == shots and written["prompt"].count("\nimg = open_image(") == shots
    assert_one_clear_line(codevqa(*words, "--shots", 100_000), "100000 examples were asked for")


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--dataset", "gqa", "--shots", 2),
        ("--as-set", "--set", "writer.selection=random", "--set", "seed=3"),
        ("--compat", "release"),
        ("--lm", "transformers:FOLDER"),
    ],
)
def test_prompt_prints_what_ask_shows_the_model(
    words: tuple[object, ...], tmp_path: Path, codevqa: CommandLine
) -> None:
    if "--lm" in words:  # one with a chat template, whose completions are nonsense
        words = ("--lm", f"transformers:{build_tiny_lm(tmp_path, context=20_000)}", "--set", "writer.max_tokens=5")
    question = "IS the red  house LEFT of the tree?"
    printed = codevqa("prompt", "-q", question, *words)
    assert printed.returncode == 0, printed.stderr
    answer = json.loads(codevqa("ask", GARDEN, "-q", question, *words, "--json", "--evidence", "--quiet").stdout)
    program = answer["written"] or answer["attempts"][0]["program"]
    assert printed.stdout == program["prompt"]
    assert printed.stdout.startswith("[system]\n") == ("--lm" in words)


def test_prompt_asks_about_the_pictures_that_its_set_is_for(codevqa: CommandLine) -> None:
    def last(*words: str) -> str:
        done = codevqa("prompt", "-q", "are all red?", "--selection", "fixed", *words)
        return str(done.stdout.rsplit("\n", 1)[1])

    assert last() == "# Image 7: Are all red?"
    assert last("--as-set") == "# Image Set 7: Are all red?"
    assert last("--dataset", "covr") == "# Image Set 7: Are all red?"


@pytest.mark.parametrize(
    ("words", "chat"),
    [
        (("--lm", "openai:gpt"), True),
        (("--lm", "openai-completion:gpt"), False),
        (("--lm", "openai:gpt", "--set", "language_model.form=completion"), False),
        (("--lm", "transformers:FOLDER"), True),
    ],
)
def test_prompt_has_the_form_that_suits_a_model_that_is_not_loaded(
    words: tuple[str, ...], chat: bool, tmp_path: Path, codevqa: CommandLine
) -> None:
    if words[1] == "transformers:FOLDER":
        words = ("--lm", f"transformers:{build_tiny_lm(tmp_path)}")
    done = codevqa("prompt", "-q", "What is it?", "--selection", "fixed", *words)
    assert done.returncode == 0 and done.stdout.startswith("[system]\n") == chat, done.stderr


def test_prompt_names_find_object_where_the_preset_has_a_detector(codevqa: CommandLine) -> None:
    words = ("prompt", "-q", "What is it?", "--selection", "fixed")
    assert "find_object(" not in codevqa(*words).stdout
    assert "find_object(" in codevqa(*words, "--set", "detector=zero-shot:none").stdout
    done = codevqa(*words, "--preset", "paper", "--set", "writer.form=auto")
    assert_one_clear_line(done, "The preset paper has no language model of its own")


def test_the_preset_may_come_from_the_environment(codevqa: CommandLine) -> None:
    done = codevqa("ask", str(GARDEN), "-q", "What is it?", CODEVQA_PRESET="huge")
    assert_one_clear_line(done, "No preset 'huge'")
    done = codevqa("ask", str(GARDEN), "-q", "What is it?", CODEVQA_LANGUAGE_MODEL="gpt-4")
    assert_one_clear_line(done, "'gpt-4' is no language model")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ask", str(GARDEN), "-q", "What?", "--method", "vilt"), "No method 'vilt'. There are: codevqa, pnpvqa."),
        (("prompt", "-q", "What?", "--selection", "best"), "There are: nearest, random, fixed."),
        (("prompt", "-q", " "), "The question is empty"),
        (("prompt", "-q", "What?", "--dataset", "coco"), "No prompt set 'coco'"),
        (("run", str(GARDEN), str(GARDEN)), "is not a text file"),
        (("run", str(ROOT), str(GARDEN)), "Is a directory"),
        (("run", "-", "none.png"), "No picture at none.png"),
        (("run", "-", "-"), "cannot be the program and a picture"),
        (("run", "-", str(GARDEN), "-q", "x" * 1001), "The question has 1,001 characters. The limit is 1,000."),
        (("prompt", "-q", "x" * 1001), "The question has 1,001 characters. The limit is 1,000."),
        (("ask", str(GARDEN), "-q", "x" * 100_000), "The question has 100,000 characters. The limit is 1,000."),
        (("ask", str(GARDEN), "-q", "Is it?", "--set", "max_question=5"), "The limit is 5."),
        (("ask", str(GARDEN), "-q", "Is it?", "--evidence"), "--evidence does nothing without --json or --questions."),
        (("run", "-", str(GARDEN), "--evidence"), "--evidence does nothing without --json."),
        (("ask", str(GARDEN), "-q", "Is it?", "--method", "pnpvqa", "--shots", "2"), "--shots does nothing with"),
        (("eval", "gqa", "--data", ".", "--out", "o", "--sample-seed", "1"), "does nothing without --sample."),
        (("eval", "gqa", "--data", ".", "--out", "o", "--retry-errors"), "does nothing without --resume."),
        (("report", ".", "--price-prompt", "1"), "--price-prompt does nothing without --price-completion."),
        (("lavis", "--python", "python3.11"), "--python does nothing without install."),
        (("ask",), "No picture was given"),
        (("ask", "-"), "so you cannot type questions"),
        (
            ("ask", "https://example.org/a.png", "-q", "What?"),
            "is a web address, not a file. Download the picture",
        ),
        (("ask", str(GARDEN), "--questions", "a.jsonl"), "IMAGE does not go with --questions"),
        (("ask", "--questions", "none.jsonl"), "No file none.jsonl"),
        (("ask", "--questions", str(GARDEN)), "is not a text file"),
    ],
)
def test_what_cannot_be_done_is_said_before_any_model_is_loaded(
    words: tuple[str, ...], said: str, codevqa: CommandLine
) -> None:
    done = codevqa(*words, stdin="answer = 1\n")
    assert_one_clear_line(done, said)
    assert "loading" not in done.stderr


def test_version(codevqa: CommandLine) -> None:
    from codevqa import __version__

    done = codevqa("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{__version__}\n", "")


def test_an_interrupt_ends_it_quietly_with_the_status_of_one() -> None:
    with subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "codevqa", "run", "-", str(GARDEN)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Where the tests run in the background of a shell, interrupts are ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stderr is not None and process.stdin is not None
        for line in process.stderr:
            if "codevqa.cli.main" in line:  # the last import before it waits for the program
                break
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        try:
            _, rest = process.communicate(timeout=500)
        finally:
            process.kill()
        assert process.returncode == 130, rest
    assert "Traceback" not in rest


def test_models_lists_every_preset_and_what_is_missing(codevqa: CommandLine) -> None:
    done = codevqa("models", "--json")
    presets = json.loads(done.stdout)
    assert set(presets) == {"mini", "base", "large", "paper"}
    assert all(part["missing"] == "" for part in presets["mini"]["parts"].values())
    assert presets["large"]["parts"]["matcher"]["id"].startswith("blip:Salesforce/blip-itm-large-coco@")
    assert presets["paper"]["parts"]["language_model"]["missing"] == "yours to choose: --language-model"
    for part in presets["mini"]["parts"].values():
        assert part["bytes"] == sum(file.stat().st_size for file in Path(part["place"]).rglob("*") if file.is_file())
        assert part["memory"] > 0.5 * part["bytes"]
    told = codevqa("models").stdout
    assert "MB on disk" in told and "size unknown until then" in told


def bad_pictures(folder: Path) -> dict[str, tuple[Path, str]]:
    text = folder / "text.png"
    text.write_text("hello")
    truncated = folder / "truncated.png"
    truncated.write_bytes(GARDEN.read_bytes()[:3000])
    animated = folder / "animated.gif"
    frames = [Image.fromarray(np.full((8, 8), value, np.uint8)) for value in (0, 99)]
    frames[0].save(animated, save_all=True, append_images=frames[1:])
    bomb = folder / "bomb.png"
    header = io.BytesIO()
    PngImagePlugin.putchunk(header, b"IHDR", (50_000).to_bytes(4, "big") * 2 + b"\x08\x02\x00\x00\x00")
    PngImagePlugin.putchunk(header, b"IDAT", b"")
    bomb.write_bytes(b"\x89PNG\r\n\x1a\n" + header.getvalue())
    return {
        "missing": (folder / "nothing.png", "No picture at"),
        "folder": (folder, "is a folder"),
        "text": (text, "is not a picture"),
        "truncated": (truncated, "is damaged"),
        "animated": (animated, "is animated"),
        "bomb": (bomb, "is too large"),
    }


@pytest.mark.parametrize("kind", ["missing", "folder", "text", "truncated", "animated", "bomb"])
def test_bad_pictures(kind: str, tmp_path: Path, codevqa: CommandLine) -> None:
    path, words = bad_pictures(tmp_path)[kind]
    assert_one_clear_line(codevqa("ask", str(path), "-q", "What is it?"), words)


def test_empty_question(codevqa: CommandLine) -> None:
    assert_one_clear_line(codevqa("ask", str(GARDEN), "-q", "  "), "The question is empty")


def test_unknown_preset(codevqa: CommandLine) -> None:
    done = codevqa("ask", str(GARDEN), "-q", "What is it?", "--preset", "huge")
    assert_one_clear_line(done, "No preset 'huge'. There are: mini, base, large, paper.")


def test_a_preset_without_a_language_model_of_its_own(codevqa: CommandLine) -> None:
    done = codevqa("ask", str(GARDEN), "-q", "What is it?", "--preset", "paper")
    assert_one_clear_line(done, "Choose one, such as --language-model")


def test_unknown_prompt_set(codevqa: CommandLine) -> None:
    done = codevqa("ask", str(GARDEN), "-q", "What is it?", "--dataset", "coco")
    assert_one_clear_line(done, "No prompt set 'coco'")


def test_unknown_back_end(codevqa: CommandLine) -> None:
    done = codevqa("ask", str(GARDEN), "-q", "What is it?", "--lm", "gpt-4")
    assert_one_clear_line(
        done,
        "Write one of: transformers:ID, transformers-int8:ID, openai:ID, openai-chat:ID, openai-completion:ID.",
    )


def test_missing_model_folder(tmp_path: Path, codevqa: CommandLine) -> None:
    done = codevqa("ask", str(GARDEN), "-q", "What is it?", "--lm", f"transformers:{tmp_path / 'none'}")
    assert_one_clear_line(done, "none")


def test_no_network_for_a_hub_model(codevqa: CommandLine) -> None:
    assert_one_clear_line(codevqa("ask", str(GARDEN), "-q", "What is it?", "--preset", "base"), "Salesforce/")


def test_server_down(codevqa: CommandLine) -> None:
    done = codevqa(
        "ask",
        str(GARDEN),
        "-q",
        "What is it?",
        "--lm",
        "openai:some-model",
        OPENAI_BASE_URL="http://127.0.0.1:9/v1",
        OPENAI_API_KEY="sk-secret",
    )
    assert_one_clear_line(done, "127.0.0.1:9", status=1)
    assert "secret" not in done.stderr


def test_a_program_that_never_ends(codevqa: CommandLine) -> None:
    done = codevqa("run", "-", str(GARDEN), stdin="while True:\n    answer = 1\n")
    assert_one_clear_line(done, "computed longer than 2 seconds", status=1)


def test_a_program_that_fails_names_its_line(codevqa: CommandLine) -> None:
    done = codevqa("run", "-", str(GARDEN), stdin="a = []\nanswer = a[0]\n")
    assert_one_clear_line(done, "line 2: IndexError", status=1)


def test_missing_program() -> None:
    assert_one_clear_line(spawn("run", "none.py", str(GARDEN)), "No file none.py")


def test_full_disk() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "codevqa", "models"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=500
        )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr and "No space left" in done.stderr


def test_usage_errors_are_not_tracebacks(codevqa: CommandLine) -> None:
    done = codevqa("prompt")
    assert done.returncode == 2 and "Traceback" not in done.stderr and "--question" in done.stderr


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_a_terminal_that_lacks_a_letter_is_shown_it_escaped(
    encoding: str, tmp_path: Path, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = "Is it \u7ea2\u8272, \xe9\x81 or \U0001f600?"
    (tmp_path / "questions.jsonl").write_text(json.dumps({"images": [str(GARDEN)], "question": question}))
    words = ["codevqa", "ask", "--questions", str(tmp_path / "questions.jsonl"), "--method", "pnpvqa", "--quiet"]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr(CodeVQA, "from_configuration", engines.configured)
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding=encoding))
    with pytest.raises(SystemExit):
        main()
    sys.stdout.flush()
    assert json.loads(printed.getvalue().decode(encoding))["question"] == question
    # So is what goes wrong.
    told = io.BytesIO()
    monkeypatch.setattr(sys, "argv", ["codevqa", "ask", "\u7ea2.png", "-q", "Is it?"])
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(told, encoding=encoding, errors="strict"))
    with pytest.raises(SystemExit):
        main()
    sys.stderr.flush()
    assert told.getvalue().startswith(b"codevqa: No picture at \\u7ea2.png.")


def test_a_terminal_is_told_nothing_that_it_would_obey(tmp_path: Path, codevqa: CommandLine) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "print('\\x1b]0;title\\x07')  # \x9b31m\nquery(img, 'What \\x1b[31m is it?')\nanswer = 'red\\x1b[2J \\u202etxt'"
    )
    done = codevqa("run", str(program), str(GARDEN))
    assert done.returncode == 0 and done.stdout == "red\\x1b[2J \\u202etxt\n", done
    assert "What \\x1b[31m" in done.stderr and not [one for one in done.stderr if not one.isprintable() and one != "\n"]
    done = codevqa("ask", str(tmp_path / "a\x1b[31m.png"), "-q", "Is it?")
    assert_one_clear_line(done, "a\\x1b[31m.png")
    assert codevqa("run", str(program), str(GARDEN), "--json").stdout.count("\\u001b") >= 1, "JSON says it exactly"

"""Parts of one's own: files that ``--include`` names, an installed package, and plugins that fail."""

import logging
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest
from cli_kit import GARDEN, ROOT, CommandLine, assert_one_clear_line, environment

from codevqa import plugins
from codevqa.core.errors import InputError

PART = '''
from codevqa import Image, primitive
from codevqa.models.fakes import ScriptedLM
from codevqa.plugins import register_dataset, register_model

@primitive
def breadth(img: Image) -> int:
    """Returns the width of the image in pixels."""
    return img.picture.size[0]

@register_model("language_model", "fixed")
def fixed(text: str = "answer = 'no'"):
    return ScriptedLM(text, name="fixed")
'''


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leaves no part behind."""
    monkeypatch.setattr(plugins, "_parts", {})
    monkeypatch.setattr(plugins, "_looked", False)
    monkeypatch.setattr(plugins, "included", [])
    known = set(sys.modules)
    yield
    for name in set(sys.modules) - known:
        if name.startswith("own_"):
            del sys.modules[name]


def test_an_included_file_brings_primitives_and_models(tmp_path: Path, codevqa: CommandLine) -> None:
    (tmp_path / "own_parts.py").write_text(PART)
    words = ("--include", tmp_path / "own_parts.py", "--quiet", "--lm", "own_parts/fixed")
    done = codevqa(
        "ask", *words, GARDEN, "-q", "Is there a tree?", "--set", "language_model.text=answer = breadth(img)"
    )
    assert "the question wants" not in done.stdout and done.returncode == 0, done.stderr
    (tmp_path / "program.py").write_text("answer = breadth(img)")
    done = codevqa("run", *words, tmp_path / "program.py", GARDEN)
    assert done.stdout == "256\n", done.stderr
    wrong = codevqa("ask", *words[:-1], "own_parts/fixd", GARDEN, "-q", "Is there a tree?")
    assert_one_clear_line(wrong, "'own_parts/fixd' cannot be the language model. Did you mean own_parts/fixed?")
    listed = codevqa("models", "--include", tmp_path / "own_parts.py").stdout
    assert "own_parts/fixed: language_model of a plugin\nbreadth: primitive of a plugin\n" in listed


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1\nx.y\n", "line 2: AttributeError: 'int' object has no attribute 'y'"),
        ("\nx = = 1\n", "line 2: SyntaxError: invalid syntax"),
        (PART.replace("breadth", "query"), "line 1: ValueError: its primitive 'query' has the name of a built-in one"),
        (PART.replace("language_model", "writer"), "line 11: ValueError: no part 'writer'; there are: matcher"),
        ("raise SystemExit(0)", "line 1: SystemExit: 0"),
        ("\nraise GeneratorExit", "own_broken.py, line 2: GeneratorExit:"),
        ("class Panic(BaseException): pass\nraise Panic('odd')", "own_broken.py, line 2: Panic: odd"),
        (
            PART.replace("breadth", "vqa_in"),
            "ValueError: A primitive cannot be called 'vqa_in': use a plain identifier",
        ),
    ],
)
def test_a_file_that_fails_leaves_nothing(source: str, message: str, tmp_path: Path, codevqa: CommandLine) -> None:
    (tmp_path / "own_broken.py").write_text(source)
    done = codevqa("run", "--include", tmp_path / "own_broken.py", "-", GARDEN, stdin="answer = 1")
    assert_one_clear_line(done, message)
    assert plugins._parts == {}


def test_an_included_file_that_hangs_names_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(plugins, "_SLOW_S", 0.05)
    (tmp_path / "own_slow.py").write_text("import time\ntime.sleep(0.4)")
    plugins.include(tmp_path / "own_slow.py")
    assert [record.getMessage() for record in caplog.records] == [f"Still importing {tmp_path / 'own_slow.py'}."]


def test_a_file_that_is_called_as_a_module_is_or_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("json.py", "__main__.py"):
        (tmp_path / name).write_text("")
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)  # as where a console script runs
    main = sys.modules["__main__"]
    for name, message in (
        ("json.py", "json is no free module name"),
        ("__main__.py", "__main__ is no free module name"),
        ("own_none.py", "No Python file"),
    ):
        with pytest.raises(InputError, match=message):
            plugins.include(tmp_path / name)
    assert sys.modules["__main__"] is main


def test_plugins_that_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(plugins, "_SLOW_S", 0.05)
    (tmp_path / "own_bad.py").write_text(f"{PART}\nraise RuntimeError('no\\nluck')")
    (tmp_path / "own_good.py").write_text(f"import time\ntime.sleep(0.4)\n{PART}")
    (tmp_path / "own_panic.py").write_text("raise BaseException('odd')")
    points = EntryPoints(EntryPoint(name, name, "codevqa") for name in ("own_bad", "own_good", "own_panic"))
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points)
    with caplog.at_level(logging.WARNING):
        assert plugins.names("language_model") == ["own_good/fixed"]
    assert [record.getMessage() for record in caplog.records] == [
        "The plugin own_bad (own_bad) was left out: RuntimeError: no luck",
        "Still importing the plugin own_good (own_good). CODEVQA_PLUGINS= leaves it out.",
        "The plugin own_panic (own_panic) was left out: BaseException: odd",
    ]

    for wanted, names, warnings in (("", [], 0), ("own_good", ["own_good/fixed"], 0), ("own_god", [], 1)):
        monkeypatch.setattr(plugins, "_parts", {})
        monkeypatch.setattr(plugins, "_looked", False)
        monkeypatch.setenv("CODEVQA_PLUGINS", wanted)
        sys.modules.pop("own_good", None)
        caplog.clear()
        assert plugins.names("language_model") == names
        assert sum("is not installed" in record.getMessage() for record in caplog.records) == warnings


DATA = """
from codevqa.eval import Example
from codevqa.eval.task import DatasetPicture
from codevqa.plugins import register_dataset, register_model

@register_dataset("late")
def late(folder, split):
    yield Example("1", "Is it red?", (DatasetPicture(folder / "garden.png"),), "image", ("yes",))
    raise RuntimeError("no\\nluck")

@register_dataset("ends")
def ends(folder, split):
    yield Example("1", "Is it red?", (DatasetPicture(folder / "garden.png"),), "image", ("yes",))
    raise GeneratorExit("early")

@register_dataset("nothing")
def nothing(folder, split):
    return None

@register_dataset("rows")
def rows(folder, split):
    return [{"id": 1}]

@register_dataset("wrong")
def wrong(folder, split):
    return [Example(1, None, folder, "image")]

@register_model("language_model", "gone")
def gone():
    raise OSError("no weights")

@register_model("language_model", "exits")
def exits():
    raise SystemExit(0)
"""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("own_data/late",), "own_data/late failed: RuntimeError: no luck"),
        (("own_data/ends",), "own_data/ends failed: GeneratorExit: early"),
        (("gqa", "--lm", "own_data/exits"), "The language_model own_data/exits failed: SystemExit: 0"),
        (("own_data/nothing",), "own_data/nothing failed: TypeError: 'NoneType' object is not iterable"),
        (("own_data/rows",), "own_data/rows yields examples, not {'id': 1}."),
        (("own_data/wrong",), "own_data/wrong failed: ValidationError: 3 validation errors for Example id Input"),
        (("gqa", "--lm", "own_data/gone"), "The language_model own_data/gone failed: OSError: no weights"),
    ],
)
def test_what_a_part_raises_is_one_line(
    words: tuple[str, ...], message: str, tmp_path: Path, codevqa: CommandLine
) -> None:
    (tmp_path / "own_data.py").write_text(DATA)
    (tmp_path / "questions.json").write_text('[{"question_id": 1, "question": "Is it?", "image": "g.png"}]')
    shutil.copy(GARDEN, tmp_path / "g.png")
    data = GARDEN.parent if "/" in words[0] else tmp_path
    command = ("eval", *words, "--data", data, "--split", "questions")
    done = codevqa(*command, "--include", tmp_path / "own_data.py", "--out", tmp_path / "run", "--quiet")
    assert_one_clear_line(done, message)


def test_the_example_package_is_installed_and_used(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "plugin", tmp_path / "plugin")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", tmp_path / "there", tmp_path / "plugin"], check=True, timeout=300)
    variables = {**environment(), "PYTHONPATH": str(tmp_path / "there"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "codevqa"]
    source = "print(brightness(img) > 0.3)\nanswer = 'yes'"
    run = [*command, "run", "-", str(GARDEN)]
    done = subprocess.run(run, input=source, env=variables, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout == "yes\n" and "printed: True" in done.stderr
    words = ["eval", "brightness/bright", "--data", str(ROOT / "examples" / "pictures"), "--out", str(tmp_path / "run")]
    words += ["--limit", "1", "--method", "codevqa"]
    done = subprocess.run([*command, *words], env=variables, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.startswith("brightness/bright test: 1 questions; exact match"), done.stderr
    assert "codevqa  1.000" in done.stdout

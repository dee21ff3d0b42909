"""Configurations: every value reachable, each knows where it comes from, mistakes are told before a model is loaded."""

import hashlib
import inspect
import math
import pickle
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_type_hints, is_typeddict

import pytest
from cli_kit import GARDEN, ROOT, CommandLine, assert_one_clear_line, environment
from eval_kit import Numbered

from codevqa import CodeVQA
from codevqa.cli.options import choose_options
from codevqa.core.errors import InputError, ProgramTypeError, UnknownNameError
from codevqa.core.settings import QuerySettings, Settings, WriterSettings
from codevqa.eval import evaluate
from codevqa.eval.run.choices import engine_for
from codevqa.presets.back_ends import LOADERS, options_of
from codevqa.presets.checkpoints import resolve
from codevqa.presets.compat import compat_layer
from codevqa.presets.configuration import Layer, Text, configure, flat
from codevqa.presets.presets import PRESETS
from codevqa.presets.published import RELEASE
from codevqa.prompts import load_prompt_set as load_prompts


def set_layer(*words: str) -> Layer:
    """What ``--set`` makes of its words."""
    pairs = [word.partition("=") for word in words]
    return Layer("--set", {name: Text(value) for name, _, value in pairs})


def arguments(target: Callable[..., Any]) -> dict[str, Any]:
    """The annotation of each keyword argument of a loader; where a class method takes any, those of its class."""
    hints = get_type_hints(target.__init__ if inspect.isclass(target) else target)
    annotations: dict[str, Any] = {}
    for name, parameter in inspect.signature(target).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY:
            annotations[name] = hints[name]
        elif parameter.kind is parameter.VAR_KEYWORD:
            typed = [hint for hint in get_args(hints[name]) if is_typeddict(hint)]
            annotations |= get_type_hints(typed[0]) if typed else arguments(target.__self__)  # type: ignore[attr-defined]
    return annotations


@pytest.mark.parametrize(("role", "back_end"), [(role, name) for role, loaders in LOADERS.items() for name in loaders])
def test_the_table_of_back_ends_has_each_option_of_its_loader(role: str, back_end: str) -> None:
    loader = LOADERS[role][back_end]
    taken = arguments(loader.maker)
    if back_end == "blip":
        taken["dtype"] = str | None  # a program may give torch's own, a text cannot
    assert loader.takes == taken
    assert options_of(role, f"{back_end}:x").keys() == taken.keys() - loader.fixed.keys()


NO_SERVER = ("--lm", "openai:some", "--set", "language_model.base_url=http://127.0.0.1:9/v1")
LIGHT = """
import sys
from codevqa.cli.main import main
try:
    main()
except SystemExit:
    pass
print({"torch", "transformers", "sentence_transformers", "gradio"} & sys.modules.keys())
"""


@pytest.mark.parametrize(
    "words",
    [
        ["config"],
        ["ask", str(GARDEN), "-q", "Is it red?", "--set", "captioner.fats=false"],
        ["ask", "nowhere.png", "-q", "Is it red?"],
        ["ask", str(GARDEN), "-q", "Is it red?", *NO_SERVER],
    ],
    ids=" ".join,
)
def test_what_loads_no_model_waits_for_pytorch(words: list[str]) -> None:
    command = [sys.executable, "-c", LIGHT, *words]
    done = subprocess.run(command, capture_output=True, text=True, input="", timeout=500, env=environment(), check=True)
    assert done.stdout.splitlines()[-1] == "set()"
    assert words == ["config"] or done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("query.caption=3", "No field query.caption. Did you mean query.captions?"),
        ("preset=base", "No field preset. Give --preset."),
        ("query.captions=3\nseed=1", "query.captions must be "),
        ("writer.form=talk", "writer.form must be 'auto', 'completion' or 'chat', not 'talk'."),
        ("matcher.blok=2", "No option matcher.blok of blip. Did you mean matcher.block?"),
        ("matcher=blop:x", "'blop:x' cannot be the matcher. Did you mean blip?"),
        ("matcher=x", "'x' cannot be the matcher. Write one of: blip:ID"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_field(word: str, message: str) -> None:
    with pytest.raises((InputError, UnknownNameError)) as caught:
        configure("mini", [set_layer(word)])
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("value", [-1, math.nan, True, "3"])
def test_a_number_that_cannot_be_is_refused_where_settings_are_made(value: Any) -> None:
    with pytest.raises(InputError, match=rf"^workers must be .*, not {value!r}\.$"):
        Settings(workers=value)


def test_each_layer_is_over_those_before_it_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text('preset = "base"\nseed = 5\n[query]\ncaptions = 4\nwitness = false\n[matcher]\ndtype = "float64"\n')
    configuration = configure(str(path), [compat_layer("release"), set_layer("query.captions=2")])
    origins = {"seed": str(path), "query.captions": "--set", "query.stated": "--compat release"}
    origins |= {"workers": "default", "matcher": "preset base"}
    assert {name: configuration.origins[name] for name in origins} == origins
    assert (configuration.preset, configuration.settings.seed, configuration.settings.query.captions) == ("base", 5, 2)
    assert configuration.options["matcher"] == {"dtype": "float32"}


def test_options_of_a_layer_go_to_whatever_the_part_is_in_the_end() -> None:
    configuration = configure(
        "mini", [set_layer("matcher.dtype=float32"), Layer("--matcher", {"matcher": "blip:some/other"})]
    )
    assert (configuration.parts["matcher"], configuration.options["matcher"]) == (
        "blip:some/other",
        {"dtype": "float32"},
    )
    assert configure("mini", [set_layer("retriever=none")]).parts.keys() == PRESETS["mini"].parts.keys() - {"retriever"}
    with pytest.raises(InputError, match="There is no retriever to set"):
        configure("mini", [set_layer("retriever=none", "retriever.device=cpu")])


def test_settings_of_a_language_model_do_not_go_to_another(mini: CodeVQA) -> None:
    own, other = configure("mini"), configure("mini", [Layer("--lm", {"language_model": "openai:x"})])
    assert (own.settings.writer.max_tokens, own.settings.writer.repairs) == (512, 0)
    assert (other.settings.writer.max_tokens, other.settings.writer.repairs) == (512, 1)
    assert (own.origins["writer.repairs"], other.origins["writer.repairs"]) == ("preset mini", "default")
    kept = configure("mini", [Layer("--lm", {"language_model": "openai:x"}), set_layer("writer.repairs=0")])
    assert (kept.settings.writer.repairs, kept.origins["writer.repairs"]) == (0, "--set")
    assert other.settings.sets == own.settings.sets
    prompts = load_prompts("mini")
    assert getattr(mini.models.reader, "reading_shots") == 0 < prompts.reading_shots  # noqa: B009


def test_what_a_back_end_does_not_have_is_left_out_of_compat_alone() -> None:
    other = Layer("--lm", {"language_model": "openai:x"})
    precise = Layer("--compat", {"language_model.dtype": "float32"}, optional=True)
    assert configure("mini", [other, precise]).options["language_model"] == {}
    with pytest.raises(InputError, match=r"No option language_model.dtype of openai"):
        configure("mini", [other, replace(precise, optional=False)])


def test_everything_the_release_does_is_a_field_and_turned_on() -> None:
    configuration = configure("base", [compat_layer("release")])
    values = flat(configuration.settings) | {
        f"{role}.{name}": value for role in configuration.parts for name, value in configuration.options[role].items()
    }
    assert {name: values[name] for name in RELEASE} == dict(RELEASE)
    assert pickle.loads(pickle.dumps(configuration)) == configuration  # noqa: S301  # it travels to other processes
    with pytest.raises(UnknownNameError, match="There is: release"):
        compat_layer("lavis")


def test_what_config_prints_is_read_back_as_the_same(tmp_path: Path, codevqa: CommandLine) -> None:
    path = tmp_path / "printed.toml"
    values = {"prompts": f'{tmp_path}/a "b" ü\\', "query.captions": "none", "query.doubt": "1e-7"}
    values |= {"language_model": "transformers:one", "language_model.max_batch": "2", "retriever": "none"}
    words = [f"--set={name}={value}" for name, value in values.items()]
    done = codevqa("config", "--preset", "base", *words)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    path.write_text(done.stdout, encoding="utf-8")
    configuration = configure("base", [Layer("--set", {name: Text(value) for name, value in values.items()})]).here()
    assert replace(configure(str(path)), origins=configuration.origins, layers=configuration.layers) == configuration
    again = codevqa("config", "--config", path)
    assert tomllib.loads(again.stdout) == tomllib.loads(done.stdout)
    assert "# --set\n" in done.stdout and f"# {path}\n" in again.stdout


def test_prompts_of_a_file_lie_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codevqa: CommandLine) -> None:
    shutil.copytree(ROOT / "prompts" / "gqa", tmp_path / "conf" / "p")
    path = tmp_path / "conf" / "my.toml"
    path.write_text('prompts = "p"\n')
    monkeypatch.chdir(tmp_path)
    printed = tmp_path / "printed.toml"  # which says so wherever it is kept
    printed.write_text(codevqa("config", "--config", "conf/my.toml").stdout)
    assert f'prompts = "{tmp_path / "conf" / "p"}"' in printed.read_text()
    path.write_text('prompts = "q"\n')
    done = codevqa("ask", GARDEN, "-q", "Is it?", "--config", path)
    assert_one_clear_line(done, f"No prompt set '{tmp_path / 'conf' / 'q'}'")


def test_the_preset_of_a_file_gives_way_to_a_named_one_alone(tmp_path: Path, codevqa: CommandLine) -> None:
    path = tmp_path / "my.toml"
    path.write_text('preset = "large"\n[query]\npatches = 7\n')

    def printed(*words: object, **variables: str) -> dict[str, object]:
        return tomllib.loads(codevqa("config", *words, **variables).stdout)

    assert printed("--config", path)["preset"] == printed("--preset", path)["preset"] == "large"
    assert printed("--config", path, CODEVQA_PRESET="mini")["preset"] == "large"
    named = printed("--config", path, "--preset", "mini", CODEVQA_LANGUAGE_MODEL="openai:x")
    assert (named["preset"], named["query"]["patches"]) == ("mini", 7)  # type: ignore[index]
    assert named["language_model"] == {"spec": "openai:x"}
    path.write_text('language_model = "openai:y"')
    done = codevqa("config", "--config", path, CODEVQA_LANGUAGE_MODEL="openai:x")
    assert 'spec = "openai:x"' in done.stdout and "# environment\n" in done.stdout


def test_a_key_is_given_to_the_model_and_printed_nowhere(codevqa: CommandLine) -> None:
    words = ["--lm", "openai:x", "--set", "language_model.api_key=sk-1234567890", "--set"]
    done = codevqa("config", *words, "language_model.base_url=http://me:hunter22@localhost/v1")
    assert "sk-1234" not in done.stdout and "hunter22" not in done.stdout
    assert "# given, and not shown: api_key, base_url" in done.stdout


def test_the_library_takes_single_values() -> None:
    base = Settings(writer=WriterSettings(max_tokens=8, repairs=0), query=QuerySettings(captions=5))
    with CodeVQA.from_preset("mini", settings=base, sets={"query.patches": 9, "matcher.block": 1}) as vqa:
        assert (vqa.settings.query.captions, vqa.settings.query.patches, vqa.settings.writer.max_tokens) == (5, 9, 8)
        assert vqa.configuration is not None and vqa.configuration.options["matcher"] == {"block": 1, "average": "all"}


def test_a_model_is_the_same_for_the_library_and_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    with CodeVQA.from_preset("api", model="some") as vqa:
        assert vqa.configuration is not None
        assert vqa.configuration.parts == choose_options("api", model="some").configure().here().parts
        assert vqa.model_names["writer"] == vqa.model_names["eyes"] == "some"


def test_the_library_names_the_option_that_was_meant(mini: CodeVQA) -> None:
    wrong: Any = {"promts": "gqa"}
    with pytest.raises(InputError, match=r"from_preset\(\) has no option 'promts'. Did you mean prompts\?"):
        CodeVQA.from_preset(**wrong)
    asked: Any = {"metod": "direct"}
    with pytest.raises(InputError, match=r"ask\(\) has no option 'metod'. Did you mean method\?"):
        mini.ask(GARDEN, "Is there a tree?", **asked)
    with pytest.raises(ProgramTypeError, match=r"Name 'qurey' used when not defined. Did you mean query\?"):
        mini.run(GARDEN, "answer = qurey(img, 'Is there a tree?')")


def test_a_run_records_every_part_with_the_hashes_of_its_weights(tmp_path: Path) -> None:
    data = Numbered(tmp_path / "pictures", 1)
    layers = [set_layer("matcher.dtype=float64", "query.captions=2", "workers=2")]
    with evaluate(engine_for(data, "mini", layers), data, tmp_path / "run", methods=["pnpvqa"]) as store:
        info = store.info
    matcher = info.parts["matcher"]
    weights = Path(resolve("@mini/weights/matcher"), "model.safetensors").read_bytes()
    assert matcher == {
        "spec": "blip:@mini/weights/matcher",
        "options": {"block": 2, "average": "all", "dtype": "float64"},
        "computes": "float64 on cpu",
        "weights": {"model.safetensors": hashlib.sha256(weights).hexdigest()},
    }
    assert info.parts.keys() == {"matcher", "captioner", "language_model", "retriever"}
    assert all(part["computes"].endswith(" on cpu") and part["weights"] for part in info.parts.values())
    assert info.settings["query"]["captions"] == 2


def test_the_preset_paper_is_the_released_code() -> None:
    paper, release = configure("paper"), configure("paper", [compat_layer("release")])
    assert paper.settings == release.settings
    values = flat(paper.settings)
    assert {name: values[name] for name in PUBLISHED} == PUBLISHED
    assert {paper.options[role]["dtype"] for role in ("matcher", "captioner")} == {"float32"}


PUBLISHED = {
    "writer.bank": 50,
    "writer.form": "completion",
    "writer.wording": "release",
    "writer.selection": "nearest",
    "writer.retrieval": "words",
    "writer.programs": 1,
    "writer.refuse": False,
    "writer.max_tokens": 512,
    "writer.repairs": 0,
    "writer.fit": False,
    "query.form": "completion",
    "query.wording": "release",
    "query.patches": 20,
    "query.max_tokens": 20,
    "query.attempts": 4,
    "query.selection": "question",
    "query.fit": False,
    "query.witness": False,
    "query.stated": False,
    "position_text": "question",
    "position_at": "corner",
    "answers": "release",
    "agree": 1,
    "abstain_below": 0.0,
}
"""What the figures of the paper were computed with, as far as settings say it."""

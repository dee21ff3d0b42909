"""The demo served for real, with the embedded models: its documented API."""

from __future__ import annotations

import re
from typing import Any

import pytest

pytest.importorskip("gradio", reason="the demo needs Gradio: pip install 'codevqa[demo]'")

from demo_kit import PICTURES, PROGRAM, ROOT, garden
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError

from codevqa.demo import DemoLimits


@pytest.mark.slow
def test_the_example_of_the_documentation_runs(
    demo: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "demo.md").read_text("utf-8"), re.S)
    assert "http://127.0.0.1:7860" in example
    scope: dict[str, Any] = {}
    exec(compile(example.replace("http://127.0.0.1:7860/".rstrip("/"), demo), "docs/demo.md", "exec"), scope)
    printed = capsys.readouterr().out.splitlines()
    expected = re.findall(r"print\(.*?\)  # (yes|no|\[.*?\])", example)
    assert [line for line in printed if line in ("yes", "no") or line.startswith("[")] == expected
    assert len(expected) == 3


def test_the_documented_limits_are_the_defaults() -> None:
    text = (ROOT / "docs" / "demo.md").read_text("utf-8")
    limits = DemoLimits()
    for words in (
        f"{limits.upload_bytes >> 20} MB; {limits.pixels // 1_000_000} million pixels",
        f"pictures of one question | {limits.pictures} |",
        f"{limits.question}; {limits.program:,} characters",
        f"| {limits.at_once}, {limits.queue} |",
        f"| {limits.seconds:.0f} seconds |",
        f"| {limits.visitors}, until they leave |",
        f"| {limits.keep_seconds // 60} minutes, {limits.stored_bytes >> 30} GB together, then the oldest go first |",
        f"from first byte to last | {limits.receive_seconds:.0f} seconds |",
        f"({limits.memory_bytes >> 20} MB)",
    ):
        assert words in text, words


def test_only_two_endpoints_are_offered_and_they_are_typed(client: Client) -> None:
    info = client.view_api(return_format="dict", print_info=False)
    assert sorted(info["named_endpoints"]) == ["/ask", "/run"]
    assert info["unnamed_endpoints"] == {}
    ask = info["named_endpoints"]["/ask"]
    assert [one["parameter_name"] for one in ask["parameters"]] == ["images", "question", "preset", "method", "shots"]
    assert [one["parameter_has_default"] for one in ask["parameters"]] == [False, False, True, True, True]
    text, details = (one["type"] for one in ask["returns"])
    assert text == {"type": "string"}
    assert {"program", "calls", "error", "seconds", "tokens"} <= set(details["properties"])
    assert "remembered" in details["properties"]["calls"]["items"]["properties"]
    run = info["named_endpoints"]["/run"]
    assert [one["parameter_name"] for one in run["parameters"]] == ["program", "images", "question", "preset"]


def test_a_set_the_baseline_and_the_number_of_examples(client: Client) -> None:
    shelf = [handle_file(str(PICTURES / f"shelf-{number}.png")) for number in (1, 2, 3)]
    question = "How many pictures contain a purple cup?"
    text, details = client.predict(images=shelf, question=question, shots=2, api_name="/ask")
    assert text == "2"
    assert [call["name"] for call in details["calls"]] == ["open_images", "query", "query", "query"]
    assert details["calls"][0]["value"] == "images 1 to 3"
    assert not any(name.startswith("/") for name in details["models"].values()), "folders of the server stay its own"
    text, details = client.predict(images=[garden()], question="What is this?", method="pnpvqa", api_name="/ask")
    assert text and details["program"] is None and details["calls"] == []


def test_what_a_client_computed_is_remembered_for_it_alone(demo: str, client: Client) -> None:
    other = Client(demo, verbose=False)
    for asking, known in ((client, False), (client, True), (other, False)):
        text, details = asking.predict(program=PROGRAM, images=[garden()], api_name="/run")
        assert text == "blue"
        assert details["calls"][1]["remembered"] is known


def test_a_program_that_fails_says_where(client: Client) -> None:
    program = PROGRAM.replace("answer = query", "answer = querry")
    text, details = client.predict(program=program, images=[garden()], api_name="/run")
    assert text == ""
    assert details["error"]["line"] == 2 and "querry" in details["error"]["message"]
    text, details = client.predict(program=f"{PROGRAM}\nanswer = 1 / 0", images=[garden()], api_name="/run")
    assert text == "" and details["error"]["line"] == 3
    assert [call["value"] for call in details["calls"]] == ["image 1", "blue"], "what ran before is there"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"question": " "}, "question is empty"),
        ({"question": "x" * 301}, "301 characters"),
        ({"images": []}, "There is no picture"),
        ({"images": [garden()] * 4}, "limit is 3"),
        ({"preset": "nope"}, "No preset 'nope'"),
        ({"preset": "large"}, "Qwen/Qwen2.5-Coder-7B-Instruct"),
        ({"method": "magic"}, "No method 'magic'"),
        ({"shots": -1}, "-1 examples"),
    ],
)
def test_what_cannot_be_answered_is_one_line(client: Client, fields: dict[str, Any], told: str) -> None:
    with pytest.raises(AppError) as caught:
        client.predict(**{"images": [garden()], "question": "Is it?", "api_name": "/ask"} | fields)
    assert told in str(caught.value)
    assert "Traceback" not in str(caught.value) and "\n" not in str(caught.value)

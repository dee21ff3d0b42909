"""The demo served for real, with the embedded models: its documented API."""

import asyncio
import json
import re
from dataclasses import replace

import pytest

pytest.importorskip("gradio", reason="the demo needs Gradio: pip install 'codevqa[demo]'")

import gradio as gr
from demo_kit import PICTURES, PROGRAM, ROOT, garden
from docs_kit import blocks, run_python
from gradio_client import Client, handle_file

from codevqa import Answer
from codevqa.demo.api import Blocks


def test_the_example_of_the_documentation_runs(demo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (example,) = [block for block in blocks("docs/demo.md") if block.kind == "python"]
    assert "http://127.0.0.1:7860" in example.text and len(re.findall(r"print\(.*\)  # ", example.text)) == 3
    run_python(replace(example, text=example.text.replace("http://127.0.0.1:7860", demo.rstrip("/"))))


def test_only_two_endpoints_are_offered(client: Client) -> None:
    info = client.view_api(return_format="dict", print_info=False)
    assert sorted(info["named_endpoints"]) == ["/ask", "/run"] and info["unnamed_endpoints"] == {}


def test_a_set_the_baseline_and_the_number_of_examples(client: Client) -> None:
    shelf = [handle_file(str(PICTURES / f"shelf-{number}.png")) for number in (1, 2, 3)]
    question = "How many pictures contain a purple cup?"
    text, details = client.predict(images=shelf, question=question, shots=2, api_name="/ask")
    answer = Answer.from_json(details)
    assert text == answer.text == "2"
    assert [call.name for call in answer.trace.calls] == ["open_images", "query", "query", "query"]
    assert not any(name.startswith("/") for name in answer.models.values()), "folders of the server stay its own"
    text, details = client.predict(images=[garden()], question="What is this?", method="pnpvqa", api_name="/ask")
    assert text and json.loads(details)["program"] is None


def test_what_a_client_computed_is_remembered_for_it_alone(demo: str, client: Client) -> None:
    other = Client(demo, verbose=False)
    for asking, known in ((client, False), (client, True), (other, False)):
        text, details = asking.predict(program=PROGRAM, images=[garden()], api_name="/run")
        assert text == "blue" and json.loads(details)["calls"][1]["remembered"] is known


@pytest.mark.parametrize("cause", ["too few arguments", "a fault", "a refusal of Gradio's"])
def test_what_a_visitor_sent_is_logged_on_one_short_line_at_most(
    cause: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    sent = "\x1b[31mpassword\n" * 40_000

    def handler(*texts: str) -> str:
        raise (gr.Error if cause == "a refusal of Gradio's" else ValueError)(sent)

    async def call() -> None:
        with Blocks(analytics_enabled=False) as page:
            boxes = [gr.Textbox() for _ in range(2)]
            boxes[0].change(handler, boxes, boxes[0])
        await page.process_api(page.fns[0], [sent] * (1 if cause == "too few arguments" else 2))

    with pytest.raises(gr.Error) as caught:
        asyncio.run(call())
    assert not caught.value.print_exception, "Gradio would print it"
    logged = "".join(record.getMessage() for record in caplog.records)
    assert len(logged) < 1000 and logged.isprintable() and bool(logged) == (cause != "a refusal of Gradio's")
    assert capsys.readouterr() == ("", "")

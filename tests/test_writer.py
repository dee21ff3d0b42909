import asyncio
import dataclasses
import json
import time
from pathlib import Path
from typing import Literal

import pytest
from reading_kit import Letters

from codevqa.core.errors import ProgramTypeError, SetupError
from codevqa.core.events import Event, Prepared, PromptExample, Writing
from codevqa.core.settings import WriterSettings
from codevqa.models.fakes import ScriptedLM
from codevqa.models.protocols import Completion, GenerationRequest
from codevqa.prompts import ProgramExample, PromptSet
from codevqa.prompts import load_prompt_set as load_prompts
from codevqa.writing.mending import with_answer
from codevqa.writing.prompt_forms import render_chat, render_completion
from codevqa.writing.replies import extract_program, why_empty
from codevqa.writing.writer import Writer

CAT = ProgramExample("1", "Is the CAT black?", 'answer = query(img, "Is the cat black?")\n')
DOGS = ProgramExample("2", "how many dogs are there?", 'answer = query(img, "How many dogs are there?")')

EXPECTED = """\
Write code.
# Image 1: Is the cat black?
img = open_image("Image1.jpg")
answer = query(img, "Is the cat black?")
# Image 2: How many dogs are there?
img = open_image("Image2.jpg")
answer = query(img, "How many dogs are there?")
# Image 3: What is left of the dog?"""


def bank(**changes: object) -> PromptSet:
    base = load_prompts("gqa")
    fields = {"preamble": "Write code.\n{api}\n", "examples": (CAT, DOGS), "shots": 2, **changes}
    return dataclasses.replace(base, **fields)  # type: ignore[arg-type]


def test_completion_prompt_byte_for_byte() -> None:
    assert render_completion("Write code.\n", [CAT, DOGS], "What is LEFT of\nthe dog?", "image") == EXPECTED


def test_set_form_byte_for_byte() -> None:
    example = ProgramExample("1", "Are there 2 cats?", 'answer = "no"', "set")
    assert render_completion("P", [example], "all red?", "set") == (
        'P\n# Image Set 1: Are there 2 cats?\nimages = open_images("ImageSet1.jpg")\nanswer = "no"\n'
        "# Image Set 2: All red?"
    )


@pytest.mark.parametrize(
    "completion",
    [
        '\nimg = open_image("Image3.jpg")\nanswer = 1\n# Image 4: Next?\nanswer = 2',
        '\n# Image 3: What?\nimg = open_image("Image3.jpg")\nanswer = 1\n',
        'Sure!\n```python\nimg = open_image("Image3.jpg")\nanswer = 1\n```\nThis works.',
        '```\nimg = open_image("Image3.jpg")\r\nanswer = 1',
    ],
)
def test_extract_program(completion: str) -> None:
    source = extract_program(completion, continued=completion.startswith("\n"))
    assert source == 'img = open_image("Image3.jpg")\nanswer = 1' and extract_program("") == ""


ASK = 'answer = query(img, "Is there a dog?")'
FUNCTION = 'def look(img):\n    return query(img, "Is there a dog?")'
REPLIES = {
    **{f"label {label}": f"```{label}\n{ASK}\n```" for label in ("Python", " py", "python3", "tool_code", "{python}")},
    "attributes": f'```python title="x.py"\n{ASK}\n```',
    "tildes": f"~~~python\n{ASK}\n~~~",
    "four backticks": f"````\n```python\n{ASK}\n```\n````",
    "one line": f"```python {ASK} ```",
    "span": f"Use `{ASK}` to answer.",
    "in a list": f"1. The program:\n   ```python\n   {ASK}\n   ```\n2. Done.",
    "in a quotation": f"> ```python\n> {ASK}\n> ```",
    "unclosed": f"Sure! ```python\n{ASK}",
    "unopened": f"{ASK}\n```\nThis asks.",
    "indented": f"Here it is:\n\n    {ASK}\n\nIt asks.",
    "tags": f"Sure: <code>{ASK}</code>",
    "CodeLlama": f"[PYTHON]\n{ASK}\n[/PYTHON]",
    "escaped": f"<pre><code>{ASK.replace(chr(34), '&quot;')}</code></pre>",
    "JSON": json.dumps({"code": ASK}),
    "tool call": json.dumps([{"name": "python", "arguments": json.dumps({"code": ASK})}]),
    "shell": f">>> {ASK}\n>>> answer\n'yes'",
    "tokens": f"<|im_start|>assistant\n{ASK}<|im_end|>\nmore",
    "end of code": f"\ufeff```python\r\n{ASK}\r\n```<end_code>",
    "other blocks": f"```text\nlook\n```\n```python\n{ASK}\n```\nOutput:\n```\nyes\n```",
    "draft": f"Draft:\n```python\nanswer = 1\n```\nCorrected:\n```python\n{ASK}\n```",
    "bare draft": f"Draft:\nanswer = 1\n\nCorrected:\n{ASK}\n\nExplanation: it asks.",
    "thoughts": f"<think>\n```python\nanswer = 1\n```\n</think>\n{ASK}",
    "two parts": f"```python\n{FUNCTION}\n```\nUse it:\n```python\nanswer = look(img)\n```",
    "backticks": '```python\nasked = "Is there a dog?"  # ``` \nanswer = query(img, asked)\n```',
    "comment": f'answer = "no"\n# Images are looked at\n{ASK}',
    "function": f"```python\n{FUNCTION}\n```",
    "usage": f'```python\n{FUNCTION}\n```\n```python\nresult = look(img)\nprint(f"Answer: {{result}}")\n```',
    "main": f'{FUNCTION}\n\nif __name__ == "__main__":\n    print(look(img))',
    "main prints": 'def main():\n    print(query(img, "Is there a dog?"))\n\nmain()',
    "print": 'print(query(img, "Is there a dog?"))',
    "branches": 'if query(img, "Is there a dog?") == "yes":\n    print("yes")\nelse:\n    print("no")',
    "other name": 'last = "no"\nif query(img, "Is there a dog?") == "yes":\n    last = "yes"',
    "return": 'return query(img, "Is there a dog?")',
}
CASES = Path(__file__).parents[1] / "shared/cases/replies.json"


@pytest.mark.parametrize("form", REPLIES)
def test_a_program_is_read_from_every_form_of_reply(form: str) -> None:
    asked: list[str] = []

    def query(img: object, text: str) -> str:
        asked.append(text)
        return "yes"

    names: dict[str, object] = {"img": 1, "query": query}
    exec(with_answer(extract_program(REPLIES[form])), names)
    assert (asked, names["answer"]) == (["Is there a dog?"], "yes")


@pytest.mark.skipif(not CASES.exists(), reason="needs the shared cases")
def test_a_program_is_read_from_the_shared_replies() -> None:
    replies = json.loads(CASES.read_text())["replies"]
    assert [name for name, text in replies.items() if "query(" not in with_answer(extract_program(text))] == []


BROKEN = {
    'answer = "no"\nfor one in images\n    answer = query(one, "Is it red?")': "",
    '```python\nanswer = query(img, "Is it red?"\n```\nThis asks.': 'answer = query(img, "Is it red?"',
    "I cannot say.": "",
}


def test_broken_code_is_kept_whole_and_repaired() -> None:
    assert {text: extract_program(text) for text in BROKEN} == {text: code or text for text, code in BROKEN.items()}


HOSTILE = ["```\na\n", "`", "~", "answer = 1 ", "x<think>", "<think>\n", "(", '{"', '{"a":', "<code>", " ", "\n", "a,"]


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_megabyte_is_read_soon(piece: str) -> None:
    began = time.perf_counter()
    with_answer(extract_program(piece * (1_000_000 // len(piece))))
    assert time.perf_counter() - began < 2


def test_of_a_long_reply_both_ends_are_read_and_not_its_middle() -> None:
    block, rest = "\n```python\nanswer = 1\n```\n", "so it goes on.\n" * 10_000
    for reply, wanted in ((block + rest, True), (rest + block, True), (rest + block + rest, False)):
        assert (extract_program(reply) == "answer = 1") is wanted


@pytest.mark.parametrize(
    ("reply", "why"), [("<think>answer = 1", "only thoughts; raise writer.max_tokens"), (" ", "is empty")]
)
def test_a_reply_without_text_says_why(reply: str, why: str) -> None:
    assert extract_program(reply) == "" and why in why_empty(reply) and not why_empty("answer = 1")


def test_only_a_completion_stops_at_the_next_heading_and_no_comment_is_one() -> None:
    stops = {}
    for form in ("completion", "chat"):
        settings = WriterSettings(form=form)
        stops[form] = Writer(ScriptedLM([]), bank(), Letters(), settings).request("What?", "image")[0].stop
    assert stops == {"completion": ("\n# Image 4:",), "chat": ()}
    assert extract_program("\nanswer = 1\n# Image by image\nx = 2\n# Image 9: Is it?\n", continued=True).endswith(
        "x = 2"
    )


CONTINUED = {
    "?\nanswer = 1": "answer = 1",
    " are there?\nif a:\n    answer = 1": "if a:\n    answer = 1",
    's in it?\nimg = open_image("Image3.jpg")\nanswer = 1': 'img = open_image("Image3.jpg")\nanswer = 1',
    "answer = 1": "answer = 1",
}


def test_words_that_go_on_with_the_question_are_not_the_program() -> None:
    assert {text: extract_program(text, continued=True) for text in CONTINUED} == CONTINUED


def test_fixed_selection_shares_everything_but_the_question() -> None:
    writer = Writer(ScriptedLM([]), bank(), settings=WriterSettings(selection="fixed"))
    request, ids = writer.request("What is it?", "image")
    assert isinstance(request.prompt, str)
    assert ids == ("1", "2")
    assert request.prompt[request.shared :] == "\n# Image 3: What is it?"


def test_nearest_selection_is_most_similar_first() -> None:
    writer = Writer(ScriptedLM([]), bank(shots=1), Letters())
    assert writer.request("dogs dogs?", "image")[1] == ("2",)
    assert writer.request("black cat", "image")[1] == ("1",)
    writer = Writer(ScriptedLM([]), bank(), Letters())
    request, ids = writer.request("dog dog dogs many", "image")
    assert ids == ("2", "1") and isinstance(request.prompt, str)
    assert request.prompt[: request.shared] == writer.preamble("image").rstrip("\n")


def test_examples_may_be_near_in_structure() -> None:
    set_bank = load_prompts("nlvr2")
    questions = {
        "dog": "an old red tractor shed, extra yacht; dog, dog ears",
        "two": "the left image shows exactly 2 birds",
        "all": "both left dogs",
    }
    first = set_bank.examples[0]
    bank = tuple(dataclasses.replace(first, id=name, question=text) for name, text in questions.items())
    near = {}
    for way in ("words", "structure", "both"):
        settings = WriterSettings(retrieval=way, shots=2)
        writer = Writer(ScriptedLM(""), dataclasses.replace(set_bank, examples=bank), Letters(), settings)
        near[way] = [example.id for example in writer.select("The left dog has exactly 2 dog ears", "set")]
    assert near == {"words": ["dog", "two"], "structure": ["two", "all"], "both": ["two", "dog"]}


def test_random_selection_depends_on_question_and_seed_only() -> None:
    many = tuple(dataclasses.replace(CAT, id=str(number)) for number in range(30))
    settings = WriterSettings(selection="random", shots=5)

    def pick(question: str, seed: int) -> tuple[str, ...]:
        return Writer(ScriptedLM([]), bank(examples=many), settings=settings, seed=seed).request(question, "image")[1]

    assert pick("a?", 0) == pick("a?", 0)
    assert pick("a?", 0) != pick("b?", 0)
    assert pick("a?", 0) != pick("a?", 1)
    assert len(set(pick("a?", 0))) == 5


def test_a_form_without_examples_is_a_clear_error() -> None:
    with pytest.raises(SetupError, match="no examples about a set of images"):
        Writer(ScriptedLM([]), bank()).request("All?", "set")


@pytest.mark.parametrize("form", ["completion", "chat"])
def test_a_repair_shows_the_program_and_its_error_after_the_same_prompt(form: Literal["completion", "chat"]) -> None:
    model = ScriptedLM(["\n? = 1\nanswer = 2" if form == "chat" else "\nanswer = 2", "```python\nanswer = 3\n```"])

    async def generate(request: GenerationRequest) -> Completion:
        return model.generate([request])[0]

    async def main() -> None:
        writer = Writer(model, bank(), settings=WriterSettings(form=form))
        program = await writer.write("What is it?", "image", generate)
        # A chat reply does not go on with the question.
        assert program.source == ("? = 1\nanswer = 2" if form == "chat" else "answer = 2")
        fixed = await writer.repair(program, ProgramTypeError("unknown name x", line=1), generate)
        assert (fixed.source, fixed.question, fixed.examples) == ("answer = 3", "What is it?", ("1", "2"))

    asyncio.run(main())
    first, second = (request.prompt for request in model.requests)
    if isinstance(first, str):
        head = "# Image 3: What is it?"
        failed = "answer = 2\n# That program fails: line 1: unknown name x. Corrected:"
        assert first.endswith(head) and second == f"{first}\n{failed}\n{head}"
    else:
        assert second[:-2] == first and [turn.role for turn in second[-2:]] == ["assistant", "user"]  # type: ignore[union-attr]
        assert "? = 1\nanswer = 2" in second[-2].content  # type: ignore[union-attr]
        assert second[-1].content == (  # type: ignore[union-attr]
            "That program fails: line 1: unknown name x\nWrite the whole program again, corrected.\n"
            "# Question: What is it?\n# (answer is a word or two)"
        )


COMPLETED = {
    'flag = query(img, "a")': 'flag = query(img, "a")\nanswer = flag',
    'x = 1\nquery(img, "a")': 'x = 1\nanswer = query(img, "a")',
    'query(img,\n      "a")  # so': 'answer = query(img,\n      "a")  # so',
    "print(query(img, 'a'))": "answer = query(img, 'a')",
}
UNCHANGED = ["x, y = get_pos(img, 'a')", "if a:\n    answer = 1\nb = 2"]
UNCHANGED += ["x = " + "(" * 3000, "x = 1\n" * 5000, ""]


def test_a_program_that_ends_without_setting_answer_takes_its_last_line() -> None:
    assert {source: with_answer(source) for source in COMPLETED} == COMPLETED
    assert [source for source in UNCHANGED if with_answer(source) != source] == []


def test_a_chat_says_what_kind_of_answer_each_question_wants() -> None:
    wanted = {"Is it red?": 'answer is "yes" or "no"', "Is it red or blue?": 'answer is "red" or "blue"'}
    for question, hint in (wanted | {"How many are there?": "answer is a number"}).items():
        turns = render_chat("P", [CAT], question, "image")
        assert turns[-1].content == f"# Question: {question}\n# ({hint})"
        assert turns[2].content == '```python\nanswer = query(img, "Is the cat black?")\n```'


@pytest.mark.parametrize("form", ["completion", "chat"])
@pytest.mark.parametrize(
    "text",
    [
        "```python\nanswer = 1\nx = 2\n```\nThis works.",
        '\n# Image 3: What?\nimg = open_image("Image3.jpg")\nanswer = 1',
        '\nimg = open_image("Image3.jpg")\nanswer = 1\n\n# a comment\nx = `1`',
    ],
)
def test_the_program_is_told_as_far_as_it_is_written(form: Literal["completion", "chat"], text: str) -> None:
    event_log: list[Event] = []
    requests: list[GenerationRequest] = []

    async def generate(request: GenerationRequest) -> Completion:
        requests.append(request)
        assert request.on_text is not None
        for end in range(len(text) + 1):
            request.on_text(text[:end])
        return Completion(text)

    async def main() -> None:
        writer = Writer(ScriptedLM([]), bank(), settings=WriterSettings(form=form, selection="fixed"))
        program = await writer.write("What is it?", "image", generate, tell=event_log.append)
        first = len(event_log)
        fixed = await writer.repair(program, ProgramTypeError("bad"), generate, tell=event_log.append)
        assert isinstance(event_log[0], Prepared) and event_log[0].prompt == program.prompt
        assert event_log[0].examples[1] == PromptExample(
            "2", DOGS.question, f'img = open_image("Image2.jpg")\n{DOGS.program}'
        )
        for events, version in ((event_log[1:first], program), (event_log[first:], fixed)):
            sources = [event.source for event in events if isinstance(event, Writing)]
            assert len(sources) == len(events) > 5 and sources[-1] == version.source
            assert len(set(sources)) == len(sources) and "```" not in "".join(sources)
            assert all(version.source.startswith(source) for source in sources if not source.startswith("#"))

    asyncio.run(main())
    count = len(event_log)
    for request in requests:  # a back end that speaks too late is not heard
        assert request.on_text is not None
        request.on_text("answer = 'late'")
    assert len(event_log) == count

"""OpenAIEyes against an HTTP server on loopback: what it is sent, what becomes of its answers and of its failures."""

import base64
import io
import math
import time
from typing import Any

import pytest
from openai_kit import Reply, Serve, failure, refusal, turn
from PIL import Image
from test_downloads import configured

from codevqa.core.errors import ServerError
from codevqa.core.images import load_picture
from codevqa.models.openai_eyes import OpenAIEyes
from codevqa.models.protocols import LookRequest
from codevqa.presets.assembly import check_server

RED, BLUE = (load_picture(Image.new("RGB", (8, 6), color)) for color in ("red", "blue"))
ASK = LookRequest((RED,), "What color?", 5)
YES_NO = LookRequest((RED,), "Is it red?", 5, ("yes", "no"))


def sent(body: dict[str, Any]) -> list[Image.Image]:
    """The pictures of a request, as a server decodes them."""
    kind = "data:image/jpeg;base64,"
    urls = [part["image_url"]["url"] for part in body["messages"][0]["content"][:-1]]
    assert all(url.startswith(kind) for url in urls)
    pictures: list[Image.Image] = [
        Image.open(io.BytesIO(base64.b64decode(url[len(kind) :], validate=True))) for url in urls
    ]
    for picture in pictures:
        picture.load()
        assert (picture.format, picture.mode) == ("JPEG", "RGB")
    return pictures


def weighted_turn(text: str, *tokens: tuple[Any, Any], first: str | None = None, **more: Any) -> Reply:
    """An answer whose first token could have been any of some, each with its probability."""
    listed = [{"token": token, "logprob": math.log(p) if type(p) is float and p < 1 else p} for token, p in tokens]
    begun = {"token": first or text, "logprob": 0.0, "top_logprobs": listed}
    return turn(text, logprobs={"content": [begun]}, **more)


def test_pictures_go_first_and_the_text_last(serve: Serve) -> None:
    server = serve(lambda path, body, n: turn(" red\n"))
    (sight,) = OpenAIEyes("m", base_url=server.url).look([LookRequest((RED, BLUE), "Which?", 5)])
    assert (sight.text, sight.chances, sight.prompt_tokens, sight.completion_tokens) == ("red", (), 7, 3)
    path, body, _ = server.seen[0]
    content = body["messages"][0].pop("content")
    assert path == "/v1/chat/completions"
    assert body == {"model": "m", "max_tokens": 5, "temperature": 0, "messages": [{"role": "user"}]}
    assert [list(part["image_url"]) for part in content[:2]] == [["url"], ["url"]]
    assert content[2:] == [{"type": "text", "text": "Which?"}]
    body["messages"][0]["content"] = content
    (red, *_), (*_, blue) = (picture.resize((1, 1)).tobytes() for picture in sent(body))
    assert red > 240 < blue
    OpenAIEyes("m", base_url=server.url, detail="low", structured=True).look([YES_NO, ASK])
    bodies = sorted((body for _, body, _ in server.seen[1:]), key=len)
    assert bodies[1]["structured_outputs"] == {"choice": ["yes", "no"]} and "structured_outputs" not in bodies[0]
    assert bodies[1]["logprobs"] is True and "logprobs" not in bodies[0]
    assert bodies[0]["messages"][0]["content"][0]["image_url"]["detail"] == "low"


def test_no_side_of_a_picture_that_arrives_is_over_1024(serve: Serve) -> None:
    file = io.BytesIO()
    Image.effect_noise((3000, 1), 90).convert("RGB").save(file, "JPEG", comment=b"private")
    server = serve(lambda path, body, n: turn("red"))
    OpenAIEyes("m", base_url=server.url).look([LookRequest((load_picture(file.getvalue()),), "What?")])
    (picture,) = sent(server.seen[0][1])
    assert picture.size == (1024, 1) and "comment" not in picture.info


CHANCES = [
    (weighted_turn("Yes", ("Yes", 0.5), (" yes", 0.1), ("no", 0.2), ("The", 0.1)), [0.75, 0.25]),
    (weighted_turn("yes", ("yes", 0.9), ("x", 0.001)), [1, 0]),  # "no" is less likely than the last
    (weighted_turn("yes", ("yes", 0.02), ("The", 0.9), ("x", 0.01)), []),  # "no" may be half as likely
    (weighted_turn("yes", ("yes", 0.4), (" ", 0.1), ("no", 0.4)), [0.5, 0.5]),
    *[(weighted_turn("yes", ("yes", wrong), ("no", 0.4)), []) for wrong in (None, 9, math.nan, 10**400, -(10**400))],
    (weighted_turn("yes", ("yes", 0.9), ("no", 0.1), first="Hm"), []),  # the server tells of its thoughts
    (weighted_turn("yes", ("yes", 0.9), ("no", 0.1), reasoning_content="yes it is"), []),
    (weighted_turn("yes it is</think>yes", ("yes", 0.9), ("no", 0.1), first="yes"), []),
    (turn("yes"), []),
    *[
        (turn("yes", logprobs=logprobs), [])
        for logprobs in (1, {"content": None}, {"content": [1]}, {"content": [{"token": 1}]})
    ],
    (turn("yes", logprobs={"content": [{"token": "yes", "top_logprobs": 5}]}), []),
]


@pytest.mark.parametrize(("reply", "expected"), CHANCES)
def test_chances_of_the_choices(serve: Serve, reply: Reply, expected: list[float]) -> None:
    (sight,) = OpenAIEyes("m", base_url=serve(lambda path, body, n: reply).url).look([YES_NO])
    assert [chance for _, chance in sight.chances] == pytest.approx(expected)
    assert [choice for choice, _ in sight.chances] == (["yes", "no"] if expected else [])


def test_choices_that_begin_alike_have_no_chances(serve: Serve) -> None:
    server = serve(lambda *_: weighted_turn("red", ("red", 0.8), ("b", 0.001), ("blue", 0.1)))
    eyes = OpenAIEyes("m", base_url=server.url)
    alike, other = (LookRequest((RED,), "?", 5, ("red car", choice, "blue")) for choice in ("red bus", "big"))
    first, second = eyes.look([alike, other])
    assert first.chances == ()
    assert dict(second.chances) == pytest.approx({"red car": 0.8 / 0.9, "big": 0, "blue": 0.1 / 0.9})


@pytest.mark.parametrize(
    "refused",
    [
        failure(400, "No.", param="logprobs", code="unsupported_parameter"),
        (422, {"detail": "Unexpected fields in the request: {'top_logprobs'}"}, {}),
    ],
)
def test_chances_that_a_server_refuses_are_asked_for_no_more(serve: Serve, refused: Reply) -> None:
    server = serve(lambda path, body, n: refused if "top_logprobs" in body or "logprobs" in body else turn("yes"))
    eyes = OpenAIEyes("m", base_url=server.url)
    assert [(sight.text, sight.chances) for _ in range(2) for sight in eyes.look([YES_NO])] == [("yes", ())] * 2
    assert len(server.seen) == 3


@pytest.mark.parametrize(
    "blind",
    [
        failure(500, "image input is not supported - hint: you may need to provide the mmproj"),  # llama.cpp
        failure(400, "Qwen/Qwen3-4B is not a multimodal model"),  # vLLM
        failure(400, "Model does not support images. Please use a model that does."),  # LM Studio
        failure(400, "Vision add-on is not loaded, but images were provided for processing"),  # LM Studio
        failure(500, "this model is missing data required for image input"),  # Ollama
        failure(400, "Invalid content type. image_url is only supported by certain models."),  # OpenAI
        (400, {"error": "this model does not support image input"}, {}),  # Ollama
        failure(400, "messages[0]: unknown variant `image_url`, expected `text`"),  # DeepSeek
        failure(400, "'messages.0' : for 'role:user', 'messages.0.content' must be a string"),  # Groq
    ],
)
def test_a_model_without_eyes_is_one_clear_error(serve: Serve, blind: Reply) -> None:
    server = serve(lambda path, body, n: blind)
    error = refusal(OpenAIEyes("m", base_url=server.url), ASK)
    assert "m at http://127.0.0.1" in str(error) and "cannot see pictures: " in str(error)
    assert "Name a vision-language model" in error.hint
    assert not isinstance(error, ServerError) and not error.retryable and len(server.seen) == 1
    other = refusal(OpenAIEyes("m", base_url=serve(lambda *_: failure(400, "Cannot decode the image")).url), ASK)
    assert "answered 400: Cannot decode the image" in str(other)


def test_a_server_that_talks_is_cut(serve: Serve) -> None:
    server = serve(lambda path, body, n: turn("no" if n == 2 else "It is a red  car.\n" * 500, "length"))
    eyes = OpenAIEyes("m", base_url=server.url)
    assert [eyes.look([ASK])[0].text for _ in range(2)] == ["It is a red  car.", "no"]


def test_an_answer_that_ends_in_spaces_is_read_in_time(serve: Serve) -> None:
    server = serve(lambda path, body, n: turn("yes" + " " * 40_000))
    eyes = OpenAIEyes("m", base_url=server.url)
    started = time.monotonic()
    assert eyes.look([ASK])[0].text == "yes"
    assert time.monotonic() - started < 2


def test_each_server_is_checked_once_before_anything_is_loaded(serve: Serve) -> None:
    server = serve(lambda *_: turn("red"))
    parts = {"language_model": "openai:a", "eyes": "openai:b"}
    options = {f"{role}.base_url": server.url for role in parts}
    check_server(configured("mini", **parts, **options))
    assert server.checks == 1
    check_server(configured("mini", eyes="openai:b", **{"eyes.base_url": server.url}))
    assert server.checks == 2
    with pytest.raises(ServerError, match=r"Cannot reach the model server at http://127.0.0.1:9/v1"):
        check_server(configured("mini", **parts, **options | {"eyes.base_url": "http://127.0.0.1:9/v1"}))

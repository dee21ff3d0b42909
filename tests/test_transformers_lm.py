"""TransformersLM on a tiny random Llama from disk, against plain ``model.generate`` one prompt at a time."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_lm import build_tiny_lm, build_tokenizer

from codevqa.core.errors import ModelError, ModelNotFoundError, SetupError
from codevqa.models.base import GenerationRequest, Message
from codevqa.models.causal_lm import TransformersLM
from codevqa.models.causal_lm.tokenised_request import control_tokens

HEAD = '# Image 1: Is the red ball left of the box?\nimg = open_image("Image1.jpg")\nanswer = query(img, "What?")\n'
PROMPTS = [
    "What color is the car?",
    HEAD + "# Image 2: ",
    "yes",
    "Please answer the question according to the above context.\n===\n",
    "box_x, box_y = get_pos(img,",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_lm(tmp_path_factory.mktemp("lm"))


@pytest.fixture(params=[True, False], ids=["loop", "generate"])
def lm(folder: Path, request: pytest.FixtureRequest) -> TransformersLM:
    made = TransformersLM.from_pretrained(folder, device="cpu", loop=request.param)
    assert made.own_loop is request.param
    return made


def reference(folder: Path, prompt: str, max_tokens: int) -> tuple[list[int], str]:
    """What transformers itself decodes greedily: token ids and text."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    given = tokenizer(prompt, return_tensors="pt")
    output = model.generate(**given, max_new_tokens=max_tokens, do_sample=False)
    made = output[0, given["input_ids"].shape[1] :].tolist()
    return made, tokenizer.decode(made, skip_special_tokens=True)


def test_greedy_text_and_counts_are_those_of_transformers(folder: Path, lm: TransformersLM) -> None:
    for prompt in PROMPTS:
        made, text = reference(folder, prompt, 24)
        (completion,) = lm.generate([GenerationRequest(prompt, 24)])
        assert completion.text == text
        assert completion.completion_tokens == len(made)
        assert completion.prompt_tokens == len(lm.tokenizer(prompt)["input_ids"])


def test_outputs_differ_between_prompts(lm: TransformersLM) -> None:
    # Otherwise equality between batched and single runs would show nothing.
    texts = {completion.text for completion in lm.generate([GenerationRequest(p, 24) for p in PROMPTS])}
    assert len(texts) == len(PROMPTS)


@pytest.mark.parametrize("max_batch", [1, 2, 16])
def test_batch_equals_one_by_one(folder: Path, max_batch: int) -> None:
    lm = TransformersLM.from_pretrained(folder, device="cpu", max_batch=max_batch, loop=False)
    requests = [GenerationRequest(prompt, 5 + 7 * i) for i, prompt in enumerate(PROMPTS)]
    single = [lm.generate([request])[0] for request in requests]
    before = lm.stats.generate_calls
    assert lm.generate(requests) == single
    assert lm.stats.generate_calls - before == -(-len(requests) // max_batch)
    assert lm.generate([]) == []


def test_each_row_has_its_own_token_limit(lm: TransformersLM) -> None:
    limits = [1, 9, 4]
    completions = lm.generate([GenerationRequest(PROMPTS[0], limit) for limit in limits])
    assert [completion.completion_tokens for completion in completions] == limits


def test_stop_string_cuts_the_text_and_ends_the_row(lm: TransformersLM) -> None:
    (free,) = lm.generate([GenerationRequest(PROMPTS[0], 40)])
    middle = len(free.text) // 2
    stop = free.text[middle : middle + 9]
    # Nine characters of random text are more than one token of a 400-entry vocabulary.
    assert len(lm.tokenizer(stop, add_special_tokens=False)["input_ids"]) > 1
    (cut,) = lm.generate([GenerationRequest(PROMPTS[0], 40, stop=("never this", stop))])
    assert cut.text == free.text[: free.text.index(stop)]
    assert cut.completion_tokens < free.completion_tokens


def test_decoding_ends_when_the_last_row_has_stopped(lm: TransformersLM, monkeypatch: pytest.MonkeyPatch) -> None:
    free = lm.generate([GenerationRequest(p, 40) for p in PROMPTS[:2]])
    requests = [GenerationRequest(p, 40, stop=(c.text[4:8],)) for p, c in zip(PROMPTS, free, strict=False)]
    steps = []
    forward = lm.model.forward

    def counted(*args: Any, **given: Any) -> Any:
        steps.append(1)
        return forward(*args, **given)

    monkeypatch.setattr(lm.model, "forward", counted)
    before = lm.stats.steps
    stopped = lm.generate(requests)
    passes = lm.stats.steps - before if lm.own_loop else len(steps)
    assert [c.text for c in stopped] == [f.text[: f.text.index(f.text[4:8])] for f in free]
    most = max(c.completion_tokens for c in stopped)
    assert most < 20
    # Our loop makes several tokens in one pass where it guesses well.
    assert 0 < passes <= most if lm.own_loop else passes == most


def test_stop_string_in_the_prompt_does_not_end_it(lm: TransformersLM) -> None:
    prompt = "answer\n# Image"
    (free,) = lm.generate([GenerationRequest(prompt, 12)])
    (stopped,) = lm.generate([GenerationRequest(prompt, 12, stop=("# Image",))])
    assert "# Image" not in free.text
    assert stopped == free


def test_end_token_ends_the_completion(folder: Path, lm: TransformersLM) -> None:
    made, _ = reference(folder, PROMPTS[0], 12)
    place = next(i for i in range(3, 12) if made[i] not in made[:i])
    lm._ends = {made[place]}
    lm.model.generation_config.eos_token_id = [made[place]]
    ended, other = lm.generate([GenerationRequest(PROMPTS[0], 12), GenerationRequest(PROMPTS[2], 12)])
    assert ended.completion_tokens == place + 1
    assert ended.text == lm.completion_text(lm.tokenizer(PROMPTS[0])["input_ids"], made[:place])
    assert [other] == lm.generate([GenerationRequest(PROMPTS[2], 12)])


def test_tokenizers_that_drop_a_leading_space(lm: TransformersLM) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {"\u2581answer": 0, "\u2581=": 1, "\u2581query": 2, "<unk>": 3}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    lm.tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    assert lm.tokenizer.decode([1, 2]) == "= query"
    assert lm.completion_text([0], [1, 2]) == " = query"


# --- shared prefixes -------------------------------------------------------------------------------------------------


def test_kept_prefix_gives_the_same_completions(lm: TransformersLM) -> None:
    tails = ["# Image 2: Is it?", "", "  x", "# Image 2: What color is the car?\nimg = open_image(", "=" * 30]
    plain = lm.generate([GenerationRequest(HEAD + tail, 20) for tail in tails])
    # The loop finds out by itself what the prompts of one call have in common.
    assert (lm.stats.reused_tokens > 0) is lm.own_loop
    requests = [GenerationRequest(HEAD + tail, 20, shared=len(HEAD)) for tail in tails]
    assert lm.generate(requests) == plain
    assert lm.stats.prefix_misses >= 1
    assert lm.generate(requests) == plain, "the kept prefix was changed by the first use"
    assert [lm.generate([request])[0] for request in requests] == plain


def test_prefix_is_computed_once(folder: Path) -> None:
    lm = TransformersLM.from_pretrained(folder, device="cpu", loop=False)
    requests = [GenerationRequest(f"{HEAD}# Image 2: {i}", 4, shared=len(HEAD)) for i in range(3)]
    head = len(lm.tokenizer(HEAD)["input_ids"])
    lm.generate(requests)
    first = lm.stats.prefilled_tokens
    assert (lm.stats.prefix_misses, lm.stats.prefix_hits) == (1, 0)
    lm.generate(requests)
    assert (lm.stats.prefix_misses, lm.stats.prefix_hits) == (1, 1)
    assert lm.stats.prefilled_tokens - first == first - head
    assert lm.stats.reused_tokens == 6 * head


def test_prefix_whose_last_token_joins_the_rest(lm: TransformersLM) -> None:
    # "ans" | "wer" is one token in the whole prompt: its tokens do not begin with those of the prefix.
    head, whole = HEAD + "ans", HEAD + "answer = "
    assert lm.tokenizer(whole)["input_ids"][: len(lm.tokenizer(head)["input_ids"])] != lm.tokenizer(head)["input_ids"]
    (plain,) = lm.generate([GenerationRequest(whole, 20)])
    (kept,) = lm.generate([GenerationRequest(whole, 20, shared=len(head))])
    assert kept == plain
    # Our loop knows the whole prompt by now.
    assert lm.own_loop or 0 < lm.stats.reused_tokens < len(lm.tokenizer(head)["input_ids"])


@pytest.mark.parametrize("shared", [3, 10**6])
def test_prefix_too_short_or_the_whole_prompt(lm: TransformersLM, shared: int) -> None:
    (plain,) = lm.generate([GenerationRequest(HEAD, 20)])
    assert lm.generate([GenerationRequest(HEAD, 20, shared=shared)]) == [plain]


def test_kept_prefixes_stay_within_their_bytes(folder: Path) -> None:
    def load(**given: Any) -> TransformersLM:
        return TransformersLM.from_pretrained(folder, device="cpu", loop=False, **given)

    heads = [HEAD, HEAD.replace("red", "box"), HEAD.replace("ball", "car")]
    requests = [GenerationRequest(head + "# Image 2:", 6, shared=len(head)) for head in heads]
    roomy = load()
    expected = roomy.generate(requests)
    one = roomy._reference.prefixes.currsize // 3
    tight = load(prefix_cache_bytes=int(2.2 * one))
    assert tight.generate(requests) == expected
    assert 0 < tight._reference.prefixes.currsize <= tight._reference.prefixes.maxsize
    tight.generate(requests[2:])
    assert (tight.stats.prefix_hits, tight.stats.prefix_misses) == (1, 3)
    tight.generate(requests[:1])
    assert tight.stats.prefix_misses == 4, "the oldest prefix should have been dropped"
    # Kept now: the third and the first. Using the third makes the first the oldest.
    tight.generate(requests[2:])
    tight.generate(requests[1:2])
    misses = tight.stats.prefix_misses
    tight.generate(requests[2:])
    assert tight.stats.prefix_misses == misses
    # One that can never fit does not drive out the others.
    tight.generate([GenerationRequest(HEAD * 4 + "x", 2, shared=4 * len(HEAD))])
    misses = tight.stats.prefix_misses
    tight.generate(requests[1:])
    assert tight.stats.prefix_misses == misses
    none = load(prefix_cache_bytes=0)
    assert none.generate(requests) == expected
    assert none._reference.prefixes.currsize == 0


def test_sliding_windows_do_without_reuse(tmp_path: Path, folder: Path) -> None:
    from transformers import MistralConfig, MistralForCausalLM

    shutil.copytree(folder, tmp_path / "lm")
    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=400,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        sliding_window=16,
        max_position_embeddings=512,
        initializer_range=0.25,
    )
    MistralForCausalLM(config).save_pretrained(tmp_path / "lm")
    lm = TransformersLM.from_pretrained(tmp_path / "lm", device="cpu")
    prompts = [HEAD + "# Image 2: Is it?", HEAD + "a"]
    plain = [lm.generate([GenerationRequest(prompt, 12)])[0] for prompt in prompts]
    assert lm.generate([GenerationRequest(prompt, 12, shared=len(HEAD)) for prompt in prompts]) == plain
    assert lm.stats.reused_tokens == 0


# --- chat, limits, loading -------------------------------------------------------------------------------------------


def test_chat_prompt_goes_through_the_template(folder: Path, lm: TransformersLM) -> None:
    turns = (Message("system", "Be short."), Message("user", "What color?"))
    (completion,) = lm.generate([GenerationRequest(turns, 16)])
    rendered = "<|system|>Be short.\n<|user|>What color?\n<|assistant|>"
    ids = torch.tensor([lm.tokenizer(rendered, add_special_tokens=False)["input_ids"]])
    output = lm.model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=16)
    assert completion.text == lm.tokenizer.decode(output[0, ids.shape[1] :], skip_special_tokens=True)
    assert completion.prompt_tokens == ids.shape[1]


def test_no_chat_template_is_a_setup_error(tmp_path: Path) -> None:
    lm = TransformersLM.from_pretrained(build_tiny_lm(tmp_path, chat_template=None), device="cpu")
    with pytest.raises(SetupError, match="no chat template"):
        lm.generate([GenerationRequest((Message("user", "hi"),), 4)])


TURNS = "{% for turn in messages %}<|{{ turn['role'] }}|>{{ turn['content'] }}\n{% endfor %}"
REFUSES = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
DROPS = "{% if messages[0]['role'] == 'system' %}{% set messages = messages[1:] %}{% endif %}"


@pytest.mark.parametrize("template", [REFUSES + TURNS, DROPS + TURNS], ids=["refused", "left out"])
def test_a_system_turn_goes_into_the_first_of_the_user_where_a_template_has_none(folder: Path, template: str) -> None:
    lm = TransformersLM.from_pretrained(folder, device="cpu")
    rest = (Message("user", "What color?"), Message("assistant", "red"), Message("user", "And now?"))
    lm.tokenizer.chat_template = TURNS
    merged = lm.generate([GenerationRequest((Message("user", "Be short.\n\nWhat color?"), *rest[1:]), 16)])
    assert merged != lm.generate([GenerationRequest(rest, 16)])
    lm.tokenizer.chat_template = template
    for shared in (0, 1, 3):
        assert lm.generate([GenerationRequest((Message("system", "Be short."), *rest), 16, shared=shared)]) == merged


@pytest.mark.parametrize("template", ["{{ raise_exception('no') }}", "{% for %}", "{{ messages[0]['content'] + 3 }}"])
def test_template_that_refuses_is_a_setup_error(folder: Path, template: str) -> None:
    lm = TransformersLM.from_pretrained(folder, device="cpu")
    lm.tokenizer.chat_template = template
    with pytest.raises(SetupError, match=r"refuses this prompt: .* Mend chat_template\.jinja") as caught:
        lm.generate([GenerationRequest((Message("system", "hi"), Message("user", "hi")), 4)])
    assert "\n" not in str(caught.value)


def test_a_tokenizer_of_a_larger_model_is_a_setup_error(tmp_path: Path) -> None:
    build_tiny_lm(tmp_path, vocab_size=300)
    build_tokenizer().save_pretrained(tmp_path)
    lm = TransformersLM.from_pretrained(tmp_path, device="cpu")
    assert lm.generate([GenerationRequest("x", 4)])
    with pytest.raises(SetupError, match=r"makes token 3\d\d, and the model knows 300\. Put the tokenizer\.json"):
        lm.generate([GenerationRequest("Please answer the question", 4)])


def test_context(lm: TransformersLM) -> None:
    with pytest.raises(ModelError, match=r"prompt is \d{3,} tokens long; .* context of 512") as caught:
        lm.generate([GenerationRequest("ball " * 700, 4)])
    assert "\n" not in str(caught.value)
    # Room for the prompt and a little more: the completion ends with the context.
    prompt = "="
    while len(lm.tokenizer(prompt)["input_ids"]) < 500:
        prompt += " x="
    (completion,) = lm.generate([GenerationRequest(prompt, 400)])
    assert completion.prompt_tokens + completion.completion_tokens <= 512


def test_unusable_requests(tmp_path: Path, lm: TransformersLM) -> None:
    bare = TransformersLM.from_pretrained(build_tiny_lm(tmp_path, bos=False), device="cpu")
    with pytest.raises(ModelError, match="prompt is empty"):
        bare.generate([GenerationRequest("", 4)])
    with pytest.raises(ModelError, match="max_tokens is 0"):
        lm.generate([GenerationRequest("x", 0)])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_weights_load_as_float32_on_the_cpu(tmp_path: Path, dtype: str) -> None:
    lm = TransformersLM.from_pretrained(build_tiny_lm(tmp_path, dtype=dtype), device="cpu")
    assert {weight.dtype for weight in lm.model.parameters()} == {torch.float32}
    assert lm.generate([GenerationRequest("x", 4)])[0].completion_tokens == 4
    kept = TransformersLM.from_pretrained(tmp_path, device="cpu", dtype=dtype)
    assert {weight.dtype for weight in kept.model.parameters()} == {getattr(torch, dtype)}


def test_sampling_settings_of_a_checkpoint_do_not_seep_in(tmp_path: Path, lm: TransformersLM) -> None:
    build_tiny_lm(tmp_path)
    settings = {"do_sample": True, "temperature": 5.0, "top_k": 3, "repetition_penalty": 3.0, "eos_token_id": 2}
    (tmp_path / "generation_config.json").write_text(json.dumps(settings))
    other = TransformersLM.from_pretrained(tmp_path, device="cpu")
    requests = [GenerationRequest(prompt, 24) for prompt in PROMPTS]
    assert other.generate(requests) == lm.generate(requests)


def test_unknown_device_and_dtype(folder: Path) -> None:
    for given in ({"device": "warp"}, {"device": "cpu", "dtype": "int32"}, {"device": "cpu", "dtype": "no"}):
        with pytest.raises(SetupError, match="Unknown"):
            TransformersLM.from_pretrained(folder, **given)  # type: ignore[arg-type]


def spoil(folder: Path, how: str) -> None:
    weights = folder / "model.safetensors"
    if how == "no weights":
        weights.unlink()
    elif how == "cut weights":
        weights.write_bytes(weights.read_bytes()[:5000])
    elif how == "no config":
        (folder / "config.json").unlink()
    elif how == "bad config":
        (folder / "config.json").write_text("{not json")
    elif how == "unknown architecture":
        (folder / "config.json").write_text('{"model_type": "abacus"}')
    elif how == "no tokenizer":
        (folder / "tokenizer.json").unlink()
    elif how == "bad tokenizer":
        (folder / "tokenizer.json").write_text('{"version": "1.0", "model": 3}')
    elif how == "no vocabulary":
        (folder / "config.json").write_text((folder / "config.json").read_text().replace('"llama"', '"qwen2"'))
        (folder / "tokenizer.json").unlink()
        (folder / "tokenizer_config.json").unlink()
    elif how.startswith("pointer "):
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 12345\n"
        (folder / how.split()[1]).write_text(pointer)
    elif how == "another width":
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "hidden_size": 32}))
    else:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))


HOWS = {
    "no weights": "no file named model.safetensors",
    "cut weights": "incomplete",
    "no config": "config.json",
    "bad config": "not a valid JSON",
    "unknown architecture": "abacus",
    "no tokenizer": "tokenizer of .* Its tokenizer.json must be there",
    "bad tokenizer": "tokenizer of .* Its tokenizer.json must be there",
    "no vocabulary": "it has no vocabulary. Its tokenizer.json must be there",
    "pointer config.json": "config.json is a pointer of Git LFS, .* Run git lfs pull",
    "pointer model.safetensors": "model.safetensors is a pointer of Git LFS, .* Run git lfs pull",
    "pointer tokenizer.json": "tokenizer.json is a pointer of Git LFS, .* Run git lfs pull",
    "another width": "not of the shape",
    "more layers": "9 weights are missing",
}


@pytest.mark.parametrize(("how", "says"), HOWS.items())
def test_spoilt_folders(tmp_path: Path, folder: Path, how: str, says: str) -> None:
    shutil.copytree(folder, tmp_path / "lm")
    spoil(tmp_path / "lm", how)
    with pytest.raises(ModelNotFoundError, match=says) as caught:
        TransformersLM.from_pretrained(tmp_path / "lm", device="cpu")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_missing_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelNotFoundError, match="No model folder"):
        TransformersLM.from_pretrained(tmp_path / "none")
    with pytest.raises(ModelNotFoundError, match="No model folder"):
        TransformersLM.from_pretrained("./none")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelNotFoundError, match="nobody/no-such-model"):
        TransformersLM.from_pretrained("nobody/no-such-model", device="cpu")


@pytest.mark.slow
def test_silent(tmp_path: Path) -> None:
    build_tiny_lm(tmp_path)
    # transformers has advice on these settings, and another for outputs longer than the context.
    settings = {"do_sample": False, "temperature": 0.5, "top_k": 3, "eos_token_id": 2}
    (tmp_path / "generation_config.json").write_text(json.dumps(settings))
    code = (
        "import sys; from codevqa.models.base import GenerationRequest as R;"
        "from codevqa.models.causal_lm import TransformersLM;"
        "lm = TransformersLM.from_pretrained(sys.argv[1], device='cpu');"
        "assert len(lm.generate([R('some words ' * 9 + 'x' * i, 480, shared=90) for i in range(2)])) == 2"
    )
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=root, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_mini_language_model() -> None:
    folder = Path(__file__).resolve().parents[1] / "codevqa" / "mini" / "weights" / "lm"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    lm = TransformersLM.from_pretrained(folder, device="cpu")
    (free,) = lm.generate([GenerationRequest(HEAD, 24)])
    made, text = reference(folder, HEAD, 24)
    assert (free.text, free.completion_tokens) == (text, len(made))
    assert lm.generate([GenerationRequest(HEAD, 24, shared=40)]) == [free]


def test_control_tokens_end_a_text_wherever_the_vocabulary_keeps_them() -> None:
    class Converted:
        """A tokenizer whose control tokens became ordinary ones."""

        def get_vocab(self) -> dict[str, int]:
            words = ["a", "<|fim_middle|>", "<|im_end|>", "<|endoftext|>", "</s>", "<end_of_turn>", "<fim_suffix>"]
            return {
                word: number for number, word in enumerate([*words, "<", "<b>", "<|python_tag|>", "<|message|>", "|>"])
            }

    assert control_tokens(Converted()) == {1, 2, 3, 4, 5, 6}

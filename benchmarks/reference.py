"""The algorithm of the paper's release, for comparison: faithful to what it computes, and kept nowhere else.

One question at a time, one model call at a time, float32, nothing kept between calls:

- ``query``: image-text matching with gradients through everything, parameters and vision tower included, for the
  GradCAM map of one block; then the captioner encodes the picture again and samples 100 captions of 20 patches each in
  one batch, of which the first few distinct ones are read; then one greedy reading.
- ``get_pos``: that whole matching pass with its backward pass, once for every token of the phrase.
- ``find_matching_image``: the vision tower over the images and the text tower over the phrase, for each call.
- A program that fails gives way to the same reading over all images.

Where the release would cost still more, this does not: it goes on sampling by the hundred until 100 captions differ
(one batch here), and waits three seconds a question for its server (not here). Where it is wrong by accident
(primitives out of reach inside comprehensions, "no" for a missing answer) this does as the library does, so that
answers can be compared; programs run in the library's sandbox. Prompts are the library's too.

Follows Subramanian et al. (ACL 2023) and Tiong et al., "Plug-and-Play VQA" (2022), with LAVIS's models.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import numpy as np
import torch
from transformers import (
    BertTokenizer,
    BlipForConditionalGeneration,
    BlipForImageTextRetrieval,
    LogitsProcessor,
    LogitsProcessorList,
)
from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil

from codevqa.core.errors import ModelError, ProgramError
from codevqa.core.images import ImageSource, Picture, load_pictures
from codevqa.core.trace import Form
from codevqa.engine.answers import answer_text
from codevqa.models.causal_lm import TransformersLM
from codevqa.models.protocols import Completion, GenerationRequest, LanguageModel
from codevqa.models.retrieval import ExampleIndex
from codevqa.presets.assembly import load, prompt_sets, quiet_libraries
from codevqa.presets.checkpoints import resolve
from codevqa.presets.presets import preset
from codevqa.primitives.kinds import Image
from codevqa.primitives.patches import Patches
from codevqa.primitives.reading import render_reading
from codevqa.primitives.visual import VISUAL
from codevqa.prompts import PromptSet, ReadingExample
from codevqa.sandbox.sandbox import Sandbox
from codevqa.writing.writer import Writer

Seeds = Callable[[str, str, int], int]
"""``seeds(picture key, text, place)``: seed of the caption at that place, patches and tokens."""


@dataclass(frozen=True)
class Network:
    """One of BLIP's networks as transformers loads it, with what is needed to feed it."""

    model: Any
    tokenizer: Any
    processor: Any
    grid: int
    dec_id: int
    enc_id: int
    device: torch.device

    @classmethod
    def load(cls, folder: str, architecture: type[Any]) -> Network:
        """Loads a network in float32 on the CPU."""
        model = architecture.from_pretrained(folder, dtype=torch.float32).eval().requires_grad_(False)
        tokenizer, vision = BertTokenizer.from_pretrained(folder), model.config.vision_config
        dec_id, enc_id = (tokenizer.convert_tokens_to_ids(token) for token in ("[DEC]", "[ENC]"))
        grid = vision.image_size // vision.patch_size
        processor = BlipImageProcessorPil.from_pretrained(folder)
        return cls(model, tokenizer, processor, grid, dec_id, enc_id, model.device)


def engine_seeds(seed: int) -> Seeds:
    """Returns the library's rule, so that both draw the same captions."""

    def rule(key: str, text: str, place: int) -> int:
        digest = hashlib.sha256("\x1f".join(map(str, (seed, key, text, place))).encode()).digest()
        return int.from_bytes(digest[:8], "big") >> 1

    return rule


@dataclass(frozen=True)
class Numbers:
    """Numbers of the method, with the release's values."""

    block: int = 7
    every_token: bool = False
    """Whether relevance averages all tokens, or those between the first and the last."""
    drawn: int = 100
    """Captions sampled for each query."""
    patches: int = 20
    prompt: str = "a picture of "
    min_length: int = 10
    max_length: int = 20
    top_k: int = 50
    temperature: float = 1.0
    answer_tokens: int = 20
    attempts: int = 5


@dataclass(frozen=True)
class QueryReading:
    """What one query read, and what it answered."""

    text: str
    captions: tuple[tuple[str, ...], ...]


@dataclass
class Counts:
    """How much work was done."""

    matching_passes: int = 0
    """Forward and backward passes of matching, vision tower included."""
    vision_forwards: int = 0
    """Pictures through either vision tower."""
    captions: int = 0
    readings: int = 0


class Coupled(LogitsProcessor):  # type: ignore[misc]
    """Samples from the top-k softmax with one given random number a row and step, by inverting the distribution.

    The numbers are those the library draws from a caption's seed, so that equal seeds give equal captions.
    """

    def __init__(self, seeds: Sequence[int], steps: int, before: int, top_k: int, temperature: float) -> None:
        self._numbers = np.stack([np.random.Generator(np.random.PCG64(seed % 2**64)).random(steps) for seed in seeds])
        self._before, self._top_k, self._temperature = before, top_k, temperature

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Returns scores with a single finite entry a row."""
        step = input_ids.shape[1] - self._before
        logits = scores.double().cpu().numpy() / self._temperature
        result = torch.full_like(scores, -torch.inf)
        for row, (values, number) in enumerate(zip(logits, self._numbers[:, step], strict=True)):
            edge = np.sort(values)[-min(self._top_k, len(values))]
            shares = np.where(values >= edge, np.exp(values - values.max()), 0.0)
            below = np.cumsum(shares)
            result[row, int(np.argmax(below > number * below[-1]))] = 0.0
        return result


class Release:
    """Answers questions as the release does.

    Args:
        matcher: the matching network in float32; its parameters are set to take gradients.
        captioner: the captioning network in float32.
        reader: reads captions, one prompt at a time.
        writer: builds the prompts for programs; its language model writes them.
        numbers: numbers of the method.
        seeds: seed of each caption; None samples as the release does, from torch's own generator.
    """

    def __init__(
        self,
        matcher: Network,
        captioner: Network,
        reader: LanguageModel,
        writer: Writer,
        numbers: Numbers = Numbers(),
        seeds: Seeds | None = None,
    ) -> None:
        self.counts = Counts()
        self.numbers = numbers
        self.seeds = seeds
        self._matcher = matcher
        self._captioner = captioner
        matcher.model.requires_grad_(True)  # as LAVIS leaves them: its backward pass computes their gradients too
        self._reader = reader
        self._writer = writer
        self._sandbox = Sandbox(VISUAL, workers=1)
        self._runner = asyncio.Runner()
        self._indexes: dict[tuple[str, Form], ExampleIndex] = {}
        self._read: dict[str, torch.Tensor] = {}

    def close(self) -> None:
        """Ends the sandbox."""
        self._runner.run(self._sandbox.aclose())
        self._runner.close()

    def __enter__(self) -> Release:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # -- the models --------------------------------------------------------------------------------------------------

    def gradcam(self, picture: Picture, text: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns GradCAM of every token, (tokens, grid, grid), and the two ITM logits: one whole pass.

        As ``compute_gradcam`` of LAVIS: gradients flow back through the text encoder and the vision tower, and into
        every parameter.
        """
        at, model = self._matcher, self._matcher.model
        encoded = self._tokens(text)
        ids = encoded["input_ids"].clone().to(at.device)
        ids[:, 0] = at.enc_id
        kept: list[torch.Tensor] = []

        def keep(_: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            inputs[0].retain_grad()
            kept.append(inputs[0])

        attention = model.text_encoder.encoder.layer[self.numbers.block].crossattention.self
        handle = attention.dropout.register_forward_pre_hook(keep)  # its input is the attention probabilities
        try:
            with torch.enable_grad():
                model.zero_grad()
                embeddings = model.vision_model(pixel_values=self._pixels([picture])).last_hidden_state
                hidden = model.text_encoder(
                    input_ids=ids,
                    attention_mask=encoded["attention_mask"].to(at.device),
                    encoder_hidden_states=embeddings,
                    encoder_attention_mask=torch.ones(embeddings.shape[:2], dtype=torch.long, device=at.device),
                ).last_hidden_state
                logits = model.itm_head(hidden[:, 0])
                logits[:, 1].sum().backward()
        finally:
            handle.remove()
        self.counts.matching_passes += 1
        self.counts.vision_forwards += 1
        gradient = kept[0].grad
        assert gradient is not None
        cam = (kept[0].detach() * gradient.clamp(min=0))[0, :, :, 1:].mean(0)
        return cam.reshape(len(cam), at.grid, at.grid), logits.detach()[0]

    def captions(self, picture: Picture, relevance: torch.Tensor, text: str) -> list[str]:
        """Encodes the picture again and samples all captions in one batch; returns them in the order drawn."""
        at, numbers = self._captioner, self.numbers
        seeds = None if self.seeds is None else [self.seeds(picture.key, text, n) for n in range(numbers.drawn)]
        with torch.no_grad():
            embeddings = at.model.vision_model(pixel_values=self._pixels([picture])).last_hidden_state[0]
            shown = torch.stack([embeddings[chosen.to(at.device)] for chosen in self._patches(relevance, seeds)])
            prompt = [at.dec_id, *at.tokenizer(numbers.prompt)["input_ids"][1:-1]]
            ids = torch.tensor([prompt] * numbers.drawn, device=at.device)
            sampling: dict[str, Any] = {"do_sample": True, "top_k": numbers.top_k, "temperature": numbers.temperature}
            if seeds is not None:
                steps = numbers.max_length - len(prompt)
                sampler = Coupled(seeds, steps, len(prompt), numbers.top_k, numbers.temperature)
                sampling = {"do_sample": False, "logits_processor": LogitsProcessorList([sampler])}
            rows = at.model.text_decoder.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                encoder_hidden_states=shown,
                encoder_attention_mask=torch.ones(shown.shape[:2], dtype=torch.long, device=at.device),
                max_length=numbers.max_length,
                min_length=numbers.min_length,
                eos_token_id=at.tokenizer.sep_token_id,
                pad_token_id=at.tokenizer.pad_token_id,
                **sampling,
            )
        self.counts.vision_forwards += 1
        self.counts.captions += len(rows)
        texts = (at.tokenizer.decode(row[len(prompt) :], skip_special_tokens=True) for row in rows)
        return [caption.strip() for caption in texts]

    def _patches(self, relevance: torch.Tensor, seeds: Sequence[int] | None) -> list[torch.Tensor]:
        """Row numbers of the embeddings each caption is shown; row 0 is CLS."""
        if seeds is not None:
            weights = relevance.cpu().numpy()
            drawn = (Patches(weights, self.numbers.patches).draw(seed) for seed in seeds)
            return [torch.tensor(chosen) + 1 for chosen in drawn]
        # The floor keeps torch from refusing a map with fewer relevant patches than are wanted.
        shares = relevance.flatten() / relevance.sum().clamp(min=1e-30) + 1e-12
        count = min(self.numbers.patches, shares.numel())
        return [torch.multinomial(shares, count).sort().values + 1 for _ in range(self.numbers.drawn)]

    def _pixels(self, pictures: Sequence[Picture]) -> torch.Tensor:
        """Pictures as the networks take them; the last few are kept, as the release resizes them once a question."""
        for picture in pictures:
            if picture.key not in self._read:
                batch = self._matcher.processor(images=[picture.pixels], return_tensors="pt")
                self._read[picture.key] = batch["pixel_values"].to(device=self._matcher.device, dtype=torch.float32)
        pixels = torch.cat([self._read[picture.key] for picture in pictures])
        while len(self._read) > 8:
            del self._read[next(iter(self._read))]
        return pixels

    def _tokens(self, text: str) -> Any:
        return self._matcher.tokenizer(
            [text], truncation=True, max_length=35, split_special_tokens=True, return_tensors="pt"
        )

    # -- the primitives ----------------------------------------------------------------------------------------------

    def relevance(self, picture: Picture, text: str) -> torch.Tensor:
        """Returns the map that patches are drawn from, (grid, grid): one pass, averaged over the question's tokens."""
        maps, _ = self.gradcam(picture, text)
        return maps[self._averaged_tokens(len(maps))].mean(0)

    def query(self, pictures: Sequence[Picture], question: str, form: Form, task: Form) -> QueryReading:
        """Answers a question about one picture or all from sampled captions.

        Raises:
            ModelError: the reader said nothing.
        """
        prompts = self._writer.prompts_for(task)
        text = question.strip().rstrip("?").strip()
        read = []
        for picture in pictures:
            kept: list[str] = []
            for caption in self.captions(picture, self.relevance(picture, text), text):
                if caption and not any(caption in other for other in kept):
                    kept.append(caption)
            read.append(tuple(kept[: prompts.captions]))  # whatever else was drawn is thrown away
        prompt = render_reading(self._examples(question, form, prompts), read, question, form, prompts.image_labels)
        request = GenerationRequest(prompt, self.numbers.answer_tokens, ("\n",))
        for _ in range(self.numbers.attempts):
            self.counts.readings += 1
            answer = self._reader.generate([request])[0].text.strip()
            if answer:
                return QueryReading(answer.lower(), tuple(read))
        raise ModelError("The reader said nothing.")

    def get_pos(self, picture: Picture, phrase: str) -> tuple[float, float]:
        """Returns the centre of the most relevant patch on the 24 x 24 grid, y upwards: one pass for every token."""
        words = range(1, len(self._tokens(phrase)["input_ids"][0]) - 1)
        for _ in words or (0,):  # the release computes everything again for each token it averages over
            maps, _ = self.gradcam(picture, phrase)
        relevance = maps[self._averaged_tokens(len(maps))].mean(0)
        row, column = divmod(int(relevance.argmax()), self._matcher.grid)
        step = 24 / self._matcher.grid
        return (column + 0.5) * step, 24 - (row + 0.5) * step

    def find_matching_image(self, pictures: Sequence[Picture], phrase: str) -> int:
        """Returns the place of the picture that the phrase fits best."""
        at, model = self._matcher, self._matcher.model
        encoded = self._tokens(f"a picture of {phrase}")
        with torch.no_grad():
            embeddings = model.vision_model(pixel_values=self._pixels(pictures)).last_hidden_state
            hidden = model.text_encoder(
                input_ids=encoded["input_ids"].to(at.device), attention_mask=encoded["attention_mask"].to(at.device)
            ).last_hidden_state
            images = torch.nn.functional.normalize(model.vision_proj(embeddings[:, 0]), dim=-1)
            text = torch.nn.functional.normalize(model.text_proj(hidden[:, 0]), dim=-1)
        self.counts.vision_forwards += len(pictures)
        return int((images @ text[0]).argmax())

    def _averaged_tokens(self, tokens: int) -> list[int]:
        words = list(range(1, tokens - 1))
        return list(range(tokens)) if self.numbers.every_token or not words else words

    def _examples(self, question: str, form: Form, prompts: PromptSet) -> list[ReadingExample]:
        pool = [example for example in prompts.reading if example.form == form]
        if not pool and form in self._writer.prompts:
            pool = [example for example in self._writer.prompts[form].reading if example.form == form]
        retriever, trained = self._writer.retriever, getattr(self._reader, "reading_shots", None)
        shots = prompts.reading_shots if trained is None else trained
        if retriever is None or len(pool) <= shots or shots == 0:
            return pool[:shots]
        if (prompts.name, form) not in self._indexes:
            self._indexes[prompts.name, form] = ExampleIndex(retriever, [example.question for example in pool])
        return [pool[place] for place in self._indexes[prompts.name, form].nearest(question, shots)]

    # -- questions ---------------------------------------------------------------------------------------------------

    def ask(self, images: ImageSource | Sequence[ImageSource], question: str, *, form: Form | None = None) -> str:
        """Writes a program, runs it, and returns its answer as text; empty where nothing could be answered."""
        pictures = load_pictures(images)
        kind: Form = form or ("image" if len(pictures) == 1 else "set")
        question = " ".join(question.split())
        try:
            return self._runner.run(self._ask(pictures, question, kind))
        except ModelError:
            return ""

    async def _ask(self, pictures: Sequence[Picture], question: str, form: Form) -> str:
        images = [Image(number, picture) for number, picture in enumerate(pictures, 1)]

        async def generate(request: GenerationRequest) -> Completion:
            return self._writer.language_model.generate([request])[0]

        async def host(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], line: int | None) -> object:
            return self._call(images, form, name, VISUAL.get(name).bind(args, kwargs))

        program = await self._writer.write(question, form, generate)
        try:
            await self._sandbox.check(program.source)
            outcome = await self._sandbox.run(program.source, host, images=images)
            return answer_text(outcome.value)
        except ProgramError:
            return self.query(pictures, question, form, form).text

    def _call(self, images: list[Image], form: Form, name: str, arguments: dict[str, Any]) -> object:
        if name == "open_images":
            return list(images)
        if name == "open_image":
            number = re.fullmatch(r"Image(\d+)\.\w+", arguments["path"])
            if number is None:
                raise ValueError(f"there is no image {arguments['path']!r}")
            return images[0 if len(images) == 1 else int(number.group(1)) - 1]
        if name == "find_matching_image":
            several: list[Image] = arguments["images"]
            if not several:
                raise ValueError("no images")
            return several[self.find_matching_image([image.picture for image in several], arguments["phrase"])]
        picture = arguments["img"].picture
        text = arguments["question" if name == "query" else "object"]
        if not text.strip():
            raise ValueError("nothing is asked")
        return self.query([picture], text, "image", form).text if name == "query" else self.get_pos(picture, text)


def from_preset(name: str, *, numbers: Numbers | None = None, seeds: Seeds | None = None) -> Release:
    """Builds the reference over the models of a preset, loaded anew, in float32 on the CPU.

    Args:
        name: the preset.
        numbers: None takes the release's, except where the preset's own options say otherwise.
        seeds: see :class:`Release`.
    """
    quiet_libraries()
    chosen = preset(name)
    matching, captioning = chosen.options.get("matcher", {}), chosen.options.get("captioner", {})
    used = numbers or Numbers()
    used = replace(
        used,
        block=matching.get("block", used.block),
        every_token=matching.get("average", "words") == "all",
        **{key: captioning[key] for key in ("min_length", "max_length", "top_k", "temperature") if key in captioning},
    )
    folders = {role: resolve(spec.partition(":")[2]) for role, spec in chosen.parts.items()}
    # One prompt at a time, nothing kept between them.
    model = TransformersLM.from_pretrained(
        folders["language_model"], device="cpu", max_batch=1, prefix_cache_bytes=0, loop=False
    )
    retriever = load("retriever", chosen.retriever)
    writer = Writer(model, prompt_sets(chosen, None), retriever, chosen.settings.writer, seed=chosen.settings.seed)
    return Release(
        Network.load(folders["matcher"], BlipForImageTextRetrieval),
        Network.load(folders["captioner"], BlipForConditionalGeneration),
        model,
        writer,
        used,
        seeds,
    )

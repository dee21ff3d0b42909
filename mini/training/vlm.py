"""Trains a tiny vision-language model, an Idefics3 of 3 million parameters, on drawn scenes.

    python -m codevqa.mini.training.vlm --out build/vlm --minutes 6         on a GPU, 15 processes draw
    python -m codevqa.mini.training.vlm --out build/try --minutes 0.5 --small     a try on the CPU

Each row of a step is one picture or a set of two to five, and after it several questions that do not see one another;
the loss is on the answers. Besides, a head that is thrown away is asked what each cell of a picture shows: so the tower
learns to see within seconds, and the text model has something to read.
"""

from __future__ import annotations

import argparse
import json
import math
import queue
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from codevqa.mini.world import CANVAS, COLORS, KINDS, SIZES

from .vlm_data import (
    ANSWER,
    CELLS,
    END,
    FAKE,
    GLOBAL,
    IMAGE,
    PAD,
    SHARES,
    Case,
    GroupPool,
    build_tokenizer,
    cases,
    start_drawing,
)

PATCH = 8
SCALE = CANVAS // PATCH // CELLS
"""Patches across a cell."""
CONTEXT = 768
TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'assistant' %}" + ANSWER + "{% endif %}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] if part['type'] == 'image' %}" + IMAGE + "{% endfor %}"
    "{% for part in message['content'] if part['type'] == 'text' %}{{ part['text'] }}{% endfor %}{% endif %}"
    "{% if message['role'] == 'assistant' %}" + END + "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}" + ANSWER + "{% endif %}"
)
"""Pictures first, text last, then the answer and its end."""
ROWS = {False: 480, True: 12}
"""Pictures a step, whatever the sets; small ones for a try."""
RATE, WARM_UP = 1.5e-3, 300
"""The highest learning rate, and the steps in which it grows to that."""


def network_config(tokenizer: Any) -> Any:
    """Sizes of the network."""
    from transformers import Idefics3Config

    ids = {name: tokenizer.convert_tokens_to_ids(token) for name, token in (("pad", PAD), ("end", END), ("see", IMAGE))}
    text = {
        "model_type": "llama",
        "vocab_size": len(tokenizer),
        "hidden_size": 160,
        "intermediate_size": 352,
        "num_hidden_layers": 5,
        "num_attention_heads": 5,
        "num_key_value_heads": 5,
        "max_position_embeddings": CONTEXT,
        "initializer_range": 0.04,
        "tie_word_embeddings": True,
        "pad_token_id": ids["pad"],
        "eos_token_id": ids["end"],
        "bos_token_id": None,
    }
    vision = {
        "hidden_size": 160,
        "intermediate_size": 496,
        "num_hidden_layers": 5,
        "num_attention_heads": 5,
        "image_size": CANVAS,
        "patch_size": PATCH,
        "initializer_range": 0.04,
    }
    return Idefics3Config(
        text_config=text,
        vision_config=vision,
        image_token_id=ids["see"],
        scale_factor=SCALE,
        pad_token_id=ids["pad"],
        tie_word_embeddings=True,
    )


class Trainee(nn.Module):
    """The network with the head that training alone has; reads a row with all its texts at once."""

    wrap: Tensor

    def __init__(self, tokenizer: Any) -> None:
        super().__init__()
        from transformers import Idefics3ForConditionalGeneration

        self.network: Any = Idefics3ForConditionalGeneration(network_config(tokenizer))
        width = self.network.config.text_config.hidden_size
        self.parts = (len(KINDS) + 1, len(COLORS), len(SIZES), 2)
        self.looks = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, sum(self.parts)))
        around = [tokenizer.convert_tokens_to_ids(name) for name in (FAKE, GLOBAL, FAKE)]
        self.register_buffer("wrap", torch.tensor(around), persistent=False)

    def see(self, pixels: Tensor) -> Tensor:
        """Features of uint8 pictures (rows, y, x, 3), (rows, CELLS ** 2, width)."""
        model = self.network.model
        values = pixels.permute(0, 3, 1, 2).float() / 127.5 - 1
        features: Tensor = model.connector(model.vision_model(pixel_values=values).last_hidden_state)
        return features

    def read(self, seen: Tensor, tokens: Tensor, segments: Tensor) -> Tensor:
        """The logits of the next token at each place of the texts, (rows, places, words).

        ``seen`` has the pictures of each row one after the other.
        """
        model = self.network.model.text_model
        rows, length = tokens.shape
        around = model.embed_tokens(self.wrap).to(seen.dtype).expand(len(seen), -1, -1)
        shown = torch.cat([around[:, :2], seen, around[:, 2:]], 1).reshape(rows, -1, seen.shape[-1])
        hidden = torch.cat([shown, model.embed_tokens(tokens).to(seen.dtype)], 1)
        before = shown.shape[1]
        whole = F.pad(segments, (before, 0))
        place = torch.arange(before + length, device=tokens.device)
        first = torch.ones_like(whole, dtype=torch.bool)
        first[:, 1:] = whole[:, 1:] != whole[:, :-1]
        first[:, before] = True
        starts = torch.where(first, place, 0).cummax(1).values
        positions = torch.where(place < before, place, before + place - starts)
        visible = (place < before)[None, None, :] | (whole[:, None, :] == whole[:, :, None])
        allowed = (visible & (place[None, None, :] <= place[None, :, None]))[:, None]
        kind = torch.bfloat16 if hidden.is_cuda else hidden.dtype
        mask = torch.zeros(allowed.shape, dtype=kind, device=hidden.device).masked_fill(~allowed, -1e4)
        turned = model.rotary_emb(hidden, positions)
        for layer in model.layers:
            hidden = layer(hidden, attention_mask=mask, position_ids=positions, position_embeddings=turned)
        logits: Tensor = self.network.lm_head(model.norm(hidden[:, before:]))
        return logits

    def forward(self, batch: dict[str, Tensor], telling: float) -> tuple[Tensor, Tensor]:
        """The loss, and figures: of answers, captions, cells, share of answers' tokens right, whether captions are."""
        seen = self.see(batch["pixels"].flatten(0, 1))
        logits = self.read(seen, batch["tokens"].long(), batch["segments"])
        wanted, weights = batch["tokens"][:, 1:].long(), batch["weights"][:, 1:].float() / 4
        logits = logits[:, :-1].float()
        each = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="none").view_as(weights)
        loss = (each * weights).sum() / weights.sum()
        answers, captions = (weights == 1).float(), ((weights > 0) & (weights < 1)).float()
        words = answers * (wanted != self.network.config.text_config.eos_token_id)
        right = ((logits.argmax(-1) == wanted) * words).sum() / words.sum()
        cells = self._cells(seen, batch["cells"].flatten(0, 1).long())
        figures = [
            (each * answers).sum() / answers.sum(),
            (each * captions).sum() / captions.sum().clamp(min=1),
            cells,
            right,
        ]
        figures.append((captions.sum() > 0).float())  # sets have no captions
        return loss + telling * cells, torch.stack(figures).detach()

    def _cells(self, seen: Tensor, looks: Tensor) -> Tensor:
        """The loss of what the cells show."""
        kind, color, size, within = self.looks(seen).float().split(self.parts, -1)
        there = (looks[..., 0] > 0).float()
        every = F.cross_entropy(kind.flatten(0, 1), looks[..., 0].flatten(), reduction="none").view_as(there)
        loss = (every * (0.2 + there)).mean() * 4
        for logits, place in ((color, 1), (size, 2)):
            losses = F.cross_entropy(logits.flatten(0, 1), looks[..., place].flatten(), reduction="none").view_as(there)
            loss = loss + (losses * there).sum() / there.sum()
        off = (within - looks[..., 3:].float() / 255).abs().sum(-1)
        total: Tensor = loss + 2 * (off * there).sum() / there.sum()
        return total


def save_checkpoint(trainee: Trainee, tokenizer: Any, folder: Path) -> None:
    """Writes the checkpoint as transformers reads it, in half precision."""
    from transformers import GenerationConfig, Idefics3ForConditionalGeneration, Idefics3Processor
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

    network = Idefics3ForConditionalGeneration(trainee.network.config)
    network.load_state_dict({name: tensor.cpu() for name, tensor in trainee.network.state_dict().items()})
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    network.generation_config = GenerationConfig(do_sample=False, max_new_tokens=32, **ends)
    network.half().save_pretrained(folder)
    side = {"longest_edge": CANVAS}
    pictures = Idefics3ImageProcessorPil(size=side, max_image_size=side, do_image_splitting=False, resample=3)
    Idefics3Processor(pictures, tokenizer, image_seq_len=CELLS**2, chat_template=TEMPLATE).save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)


class BatchFeed:
    """Batches of random groups, gathered by a thread while the network is trained; counts the time spent waiting."""

    def __init__(self, pools: dict[int, GroupPool], rows: int, device: torch.device, seed: int) -> None:
        self.pools, self.rows, self.device, self.waited = pools, rows, device, 0.0
        self._rng = np.random.default_rng(seed)
        self._queue: queue.Queue[dict[str, Tensor]] = queue.Queue(6)
        threading.Thread(target=self._gather, daemon=True).start()

    def of(self, pictures: int) -> dict[str, Tensor]:
        """A batch about so many pictures each."""
        arrays = self.pools[pictures].sample(self._rng, self.rows // pictures)
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        gpu = self.device.type == "cuda"
        return {name: tensor.pin_memory() if gpu else tensor for name, tensor in tensors.items()}

    def _gather(self) -> None:
        while True:
            pictures = int(self._rng.choice(list(SHARES), p=list(SHARES.values())))
            self._queue.put(self.of(pictures))

    def next(self) -> dict[str, Tensor]:
        """The next batch, on the device."""
        begun = time.perf_counter()
        batch = self._queue.get()
        self.waited += time.perf_counter() - begun
        return {name: tensor.to(self.device, non_blocking=True) for name, tensor in batch.items()}


def _compile_layers(trainee: Trainee, feed: BatchFeed, device: torch.device) -> None:
    """Compiles the layers for each number of pictures; goes on without where that fails."""
    import torch._dynamo

    torch._dynamo.config.recompile_limit = 64
    model = trainee.network.model
    layers = [*model.vision_model.encoder.layers, *model.text_model.layers]
    for layer in layers:
        layer.compile(dynamic=False)
    begun = time.perf_counter()
    try:
        for pictures in SHARES:
            batch = {name: tensor.to(device) for name, tensor in feed.of(pictures).items()}
            _loss(trainee, batch, 1.0)[0].backward()  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()
            print(f"compiled for {pictures} pictures, {time.perf_counter() - begun:.0f} s", flush=True)
    except Exception as error:  # noqa: BLE001 - whatever the compiler raises, training can do without
        print(f"not compiled: {type(error).__name__}: {str(error)[:300]}", flush=True)
        for layer in layers:
            layer._compiled_call_impl = None
    trainee.zero_grad(set_to_none=True)


def _loss(trainee: Trainee, batch: dict[str, Tensor], telling: float) -> tuple[Tensor, Tensor]:
    kind = batch["tokens"].device.type
    with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
        output: tuple[Tensor, Tensor] = trainee(batch, telling)
    return output


def train_vlm(
    trainee: Trainee, feed: BatchFeed, tokenizer: Any, options: argparse.Namespace, device: torch.device
) -> None:
    """Trains for the minutes planned, reporting every 20 s and saving every minute."""
    named = list(trainee.named_parameters())
    decayed = [tensor for name, tensor in named if tensor.ndim > 1 and "embed" not in name]
    kept = [tensor for name, tensor in named if tensor.ndim <= 1 or "embed" in name]
    groups = [{"params": decayed, "weight_decay": 0.05}, {"params": kept, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.98), fused=device.type == "cuda")
    begun = reported = saved = time.perf_counter()
    figures, steps, seconds, pictures = torch.zeros(5, device=device), 0, options.minutes * 60, 0
    total = 0
    while (now := time.perf_counter()) - begun < seconds:
        done = (now - begun) / seconds
        rate = RATE * min(1.0, (total + 1) / WARM_UP) * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        batch = feed.next()
        loss, parts = _loss(trainee, batch, max(0.1, 1 - 2 * done))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(decayed + kept, 1.0)
        optimizer.step()
        figures += parts
        steps, total, pictures = steps + 1, total + 1, pictures + batch["cells"].shape[0] * batch["cells"].shape[1]
        if time.perf_counter() - reported > 20:
            answers, captions, cells, right, tellers = (figures / steps).tolist()
            spent = time.perf_counter() - reported
            picture_count = sum(pool.groups_drawn * pool.pictures for pool in feed.pools.values())
            captions /= max(tellers, 1e-9)
            print(
                f"{time.perf_counter() - begun:4.0f} s step {total} answers {answers:.3f} right {right:.3f} "
                f"captions {captions:.3f} cells {cells:.3f} rate {rate:.1e}, {pictures / spent:.0f} pictures/s, "
                f"waiting {feed.waited / spent:.0%}, {picture_count} pictures made",
                flush=True,
            )
            figures.zero_()
            steps, pictures, feed.waited, reported = 0, 0, 0.0, time.perf_counter()
        if time.perf_counter() - saved > 60:
            save_checkpoint(trainee, tokenizer, options.out)
            saved = time.perf_counter()
    save_checkpoint(trainee, tokenizer, options.out)


@torch.inference_mode()
def answer_cases(folder: Path, asked: list[Case], device: torch.device, batch: int = 64) -> list[str]:
    """What the saved folder answers, loaded and prompted as any other."""
    from transformers import AutoModelForImageTextToText, AutoProcessor

    from codevqa.mini.world import draw_scene

    processor = AutoProcessor.from_pretrained(folder)
    network = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).to(device).eval()
    order = sorted(range(len(asked)), key=lambda place: len(asked[place].scenes))
    replies = [""] * len(asked)
    for start in range(0, len(order), batch):
        places = order[start : start + batch]
        shown = [[draw_scene(scene) for scene in asked[place].scenes] for place in places]
        prompts = [
            processor.apply_chat_template([user_turn(len(pictures), asked[place].question)], add_generation_prompt=True)
            for place, pictures in zip(places, shown, strict=True)
        ]
        inputs = processor(text=prompts, images=shown, padding=True, return_tensors="pt").to(device)
        outputs = network.generate(**inputs, max_new_tokens=12)[:, inputs["input_ids"].shape[1] :]
        for place, text in zip(places, processor.batch_decode(outputs, skip_special_tokens=True), strict=True):
            replies[place] = text.strip()
    return replies


def user_turn(pictures: int, text: str) -> dict[str, Any]:
    """A user's turn as chat templates take it."""
    return {"role": "user", "content": [*({"type": "image"} for _ in range(pictures)), {"type": "text", "text": text}]}


def measure_accuracy(folder: Path, count: int, device: torch.device) -> dict[str, dict[str, dict[str, Any]]]:
    """Share of right answers on held-out scenes, by split and then by kind of question and number of pictures."""
    report: dict[str, dict[str, dict[str, Any]]] = {}
    for split in ("test", "test_combinations", "test_wording"):
        asked = cases(count, split)
        hits: dict[str, list[bool]] = defaultdict(list)
        for case, answer in zip(asked, answer_cases(folder, asked, device), strict=True):
            form = "image" if len(case.scenes) == 1 else "set"
            for key in ("all", f"pictures {len(case.scenes)}", f"{form}.{case.kind}"):
                hits[key].append(answer == case.answer)
        report[split] = {
            key: {"right": sum(results) / len(results), "n": len(results)} for key, results in sorted(hits.items())
        }
    return report


def print_accuracy(report: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Prints the measurement as a table."""
    print(f"{'':24}" + "".join(f"{split:>26}" for split in report))
    for key in sorted({key for rows in report.values() for key in rows}):
        row = [rows.get(key) for rows in report.values()]
        print(f"{key:24}" + "".join(f"{cell['right']:18.1%} n={cell['n']:<5}" if cell else " " * 26 for cell in row))


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the checkpoint")
    parser.add_argument("--minutes", type=float, default=6.0, help="of training, without compiling and measuring")
    parser.add_argument("--workers", type=int, default=15, help="processes that draw")
    parser.add_argument("--small", action="store_true", help="few pictures in memory and in a step, for a try")
    parser.add_argument("--cases", type=int, default=1500, help="questions of the measurement in each split")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    torch.manual_seed(options.seed)
    if options.small:
        torch.set_num_threads(1)  # many times faster than several where others run
    slots = {1: 40000, 2: 10000, 3: 10000, 4: 5000, 5: 5000}
    pools = {pictures: GroupPool(pictures, count // (50 if options.small else 1)) for pictures, count in slots.items()}
    workers = start_drawing(pools, options.workers, options.seed)  # before anything touches the GPU
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = True
    tokenizer = build_tokenizer()
    trainee = Trainee(tokenizer).to(device)
    count = sum(parameter.numel() for parameter in trainee.network.parameters())
    print(f"{count} parameters, {count * 2 / 1e6:.2f} MB in half precision; on {device}", flush=True)
    least = 40 if options.small else 800
    while any(pool.ready < min(pool.slots, least) for pool in pools.values()):
        if not all(process.is_alive() for process in workers):
            raise SystemExit("A process that draws has died.")
        time.sleep(0.2)
    feed = BatchFeed(pools, ROWS[options.small], device, options.seed)
    if device.type == "cuda":
        _compile_layers(trainee, feed, device)
    train_vlm(trainee, feed, tokenizer, options, device)
    for process in workers:
        process.terminate()
    report = measure_accuracy(options.out, options.cases, device)
    print_accuracy(report)
    (options.out / "evaluation.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Trains the mini matcher and captioner together on drawn scenes.

    python -m training.vision --minutes 9 --out out                     a first run on a GPU
    python -m training.vision --minutes 9 --out out2 --resume out       a second one, from its weights
    python -m training.vision --smoke --out out                         a few steps on the CPU
    python -m training.vision --export codevqa/mini/weights --resume out2   half-precision folders for the package

Losses: ITM cross-entropy, captions of 20 patches (chosen around the things a question asks about, later also by the
matcher's own GradCAM for that question) and of the whole picture, and ITC in which every true picture of the batch is
positive.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader

from .vision_data import CAPTIONS, PAIRS, PATCHES, Batch, Batches
from .vision_model import Pair, configuration
from .vision_weights import export, restore, save
from .vision_words import PAD

PROMPT_TOKENS = 4
"""[DEC] a picture of: never a target."""


@dataclass
class Plan:
    """What one run does."""

    out: Path
    minutes: float = 9.0
    batch: int = 512
    rate: float = 1.2e-3
    floor: float = 0.02
    """Last learning rate as a share of the first."""
    warmup: int = 300
    seed: int = 1
    workers: int = 15
    resume: Path | None = None
    maps_from: float = 0.4
    """Share of the run after which patches are mostly chosen by the matcher's own maps."""
    smoke: bool = False
    limit: int = 0
    """Steps at most; 0 for as many as the time allows."""


def losses(pair: Pair, batch: Batch, mapped: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The loss of a batch, and its parts (see ``NAMES``)."""
    seen = pair.see(batch["pixels"], dtype)
    matcher = pair.matcher
    texts = batch["itm"].flatten(0, 1)
    hidden = pair.read(matcher.text_encoder, texts, pair.keys(matcher.text_encoder, seen), dtype)
    logits = F.linear(hidden[:, 0].float(), matcher.itm_head.weight, matcher.itm_head.bias)
    itm = F.cross_entropy(logits, batch["match"].flatten())
    itc = _contrast(pair, batch, seen, dtype)

    relevance = pair.relevance(batch["query"], seen.detach())
    patches = _choose(relevance, batch["coverage"], mapped)
    told = batch["captions"]
    keys = pair.keys(pair.captioner.text_decoder.bert, seen)
    whole = _caption(pair, told[:, CAPTIONS], keys, dtype)
    part_keys = [tuple(_gather(part, patches) for part in both) for both in keys]
    part = _caption(pair, told[:, :CAPTIONS].flatten(0, 1), part_keys, dtype)  # type: ignore[arg-type]
    loss = itm + 0.75 * (0.3 * whole + 0.7 * part) + 0.25 * itc
    return loss, torch.stack([itm, itc, whole, part]).detach()


NAMES = ("itm", "itc", "caption_whole", "caption_part")


def _contrast(pair: Pair, batch: Batch, seen: Tensor, dtype: torch.dtype) -> Tensor:
    matcher = pair.matcher
    hidden = pair.read(matcher.text_encoder, batch["contrast"], None, dtype)
    text = F.normalize(F.linear(hidden[:, 0].float(), matcher.text_proj.weight, matcher.text_proj.bias), dim=-1)
    picture = F.normalize(F.linear(seen[:, 0].float(), matcher.vision_proj.weight, matcher.vision_proj.bias), dim=-1)
    scores = text @ picture.T * pair.scale.exp().clamp(max=100)
    true = true_of(batch)
    loss = torch.zeros((), device=scores.device)
    for table, truth in ((scores, true), (scores.T, true.T)):
        # Each positive against all negatives, so that none is pushed away by another.
        negative = torch.logsumexp(table.masked_fill(truth, -1e4), 1, keepdim=True)
        each = F.softplus(negative - table).masked_fill(~truth, 0.0).sum(1) / truth.sum(1).clamp(min=1)
        loss = loss + 0.5 * each.mean()
    return loss


def true_of(batch: Batch) -> Tensor:
    """Whether contrast text i is true of picture j: the number of its things that fit lies within both bounds."""
    specs, things = batch["specs"][:, None, :, None, :], batch["things"][None, :, None, :, :]
    fitting = ((specs == things) | (specs == -1)).all(-1) & (things[..., 0] >= 0)
    count = fitting.sum(-1)
    bounds = batch["bounds"][:, None]
    true: Tensor = ((count >= bounds[..., 0]) & (count <= bounds[..., 1])).all(-1)
    return true


def _choose(relevance: Tensor, coverage: Tensor, mapped: Tensor) -> Tensor:
    """Patches of each caption, (rows * CAPTIONS, PATCHES), sorted, drawn without replacement."""
    own = relevance / relevance.sum(1, keepdim=True).clamp(min=1e-12)
    around = coverage / coverage.sum(1, keepdim=True).clamp(min=1e-12)
    use = (torch.rand(len(own), CAPTIONS, 1, device=own.device) < mapped).float()
    chance = use * own[:, None] + (1 - use) * around[:, None]
    chance = 0.97 * chance + 0.03 / chance.shape[-1]
    noise = -torch.log(-torch.log(torch.rand_like(chance).clamp(1e-9, 1 - 1e-6)))
    drawn = (chance.log() + noise).topk(PATCHES, -1).indices
    return drawn.flatten(0, 1).sort(-1).values


def _gather(part: Tensor, patches: Tensor) -> Tensor:
    """Keys or values (pictures, heads, 1 + patches, part) of the chosen patches, one row a caption."""
    pictures, heads, _, width = part.shape
    index = (patches + 1).view(pictures, CAPTIONS, 1, PATCHES, 1).expand(-1, -1, heads, -1, width)
    return part[:, None].expand(-1, CAPTIONS, -1, -1, -1).gather(3, index).flatten(0, 1)


def _caption(pair: Pair, ids: Tensor, keys: list[tuple[Tensor, Tensor]], dtype: torch.dtype) -> Tensor:
    logits = pair.write(ids[:, :-1], keys, dtype)[:, PROMPT_TOKENS - 1 :].flatten(0, 1).float()
    return F.cross_entropy(logits, ids[:, PROMPT_TOKENS:].flatten(), ignore_index=PAD)


class Trainer:
    """Runs steps, on a GPU as one CUDA graph."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.device = torch.device("cuda" if torch.cuda.is_available() and not plan.smoke else "cpu")
        self.dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        torch.manual_seed(plan.seed)
        self.pair = Pair()
        if plan.resume:
            restore(self.pair, plan.resume)
        self.pair.to(self.device)
        named = {name: tensor for name, tensor in self.pair.named_parameters() if tensor.requires_grad}
        decayed = [tensor for name, tensor in named.items() if tensor.ndim > 1 and "embedding" not in name]
        kept = [tensor for name, tensor in named.items() if tensor.ndim <= 1 or "embedding" in name]
        self.parameters = decayed + kept
        groups = [{"params": decayed, "weight_decay": 0.05}, {"params": kept, "weight_decay": 0.0}]
        self.rate = torch.tensor(plan.rate, device=self.device)
        on_gpu = self.device.type == "cuda"
        self.optimizer = torch.optim.AdamW(groups, lr=self.rate, betas=(0.9, 0.98), fused=on_gpu, capturable=on_gpu)
        self.mapped = torch.zeros((), device=self.device)
        self.watched = torch.zeros(len(NAMES), device=self.device)
        if on_gpu:
            self.pair.compile()

    def step(self, batch: Batch) -> None:
        """One step of the optimizer; figures are added to ``watched``."""
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter.grad.zero_()
        loss, watched = losses(self.pair, batch, self.mapped, self.dtype)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.watched += watched

    def captured(self, batch: Batch) -> Callable[[Batch], None]:
        """Warms up, then captures a step in a CUDA graph; the function returned runs it on a new batch."""
        fixed = {name: tensor.to(self.device) for name, tensor in batch.items()}
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(4):
                self.step(fixed)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step(fixed)

        def run(fresh: Batch) -> None:
            for name, tensor in fresh.items():
                fixed[name].copy_(tensor, non_blocking=True)
            graph.replay()

        return run

    def run(self) -> None:
        """Trains for the time planned, reporting as it goes."""
        plan, on_gpu = self.plan, self.device.type == "cuda"
        started = time.monotonic()
        ahead = 3 if plan.workers else None
        drawn = Batches(plan.batch, plan.seed)
        batches = iter(
            DataLoader(drawn, batch_size=None, num_workers=plan.workers, prefetch_factor=ahead, pin_memory=on_gpu)
        )
        first = next(batches)
        self._set(1e-6, 0.0)
        run = self.captured(first) if on_gpu else self._plain
        print(f"ready after {time.monotonic() - started:.0f} s on {self.device}", flush=True)
        self.watched.zero_()
        step, since, shown = 0, 0, time.monotonic()
        while (done := self._done(started, step)) < 1:
            warm = min(1.0, (step + 1) / plan.warmup)
            cosine = plan.floor + (1 - plan.floor) * 0.5 * (1 + math.cos(math.pi * done))
            self._set(plan.rate * warm * cosine, 0.75 if done > plan.maps_from else 0.0)
            run(next(batches))
            step, since = step + 1, since + 1
            if step % 20 == 0 and on_gpu:
                torch.cuda.synchronize()
            if time.monotonic() - shown > 15:
                figures = (self.watched / since).tolist()
                pace = since * plan.batch / (time.monotonic() - shown)
                line = " ".join(f"{name} {figure:.3f}" for name, figure in zip(NAMES, figures, strict=True))
                print(f"{done:.2f} step {step} {pace:.0f}/s {line}", flush=True)
                if not math.isfinite(sum(figures)) or (time.monotonic() - started > 220 and figures[0] > 0.68):
                    raise SystemExit("the loss does not fall")
                self.watched.zero_()
                since, shown = 0, time.monotonic()
        print(f"{step} steps, {step * plan.batch} pictures", flush=True)
        save(self.pair, plan.out)
        history = asdict(plan) | {"steps": step, "pictures": step * plan.batch}
        (plan.out / "run.json").write_text(json.dumps(history, default=str, indent=1), encoding="utf-8")

    def _done(self, started: float, step: int) -> float:
        """The share of the run that is over."""
        spent = (time.monotonic() - started) / (self.plan.minutes * 60)
        return max(spent, step / self.plan.limit) if self.plan.limit else spent

    def _plain(self, batch: Batch) -> None:
        self.step({name: tensor.to(self.device) for name, tensor in batch.items()})

    def _set(self, rate: float, mapped: float) -> None:
        self.rate.fill_(rate)
        self.mapped.fill_(mapped)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--export", type=Path, help="write the package's folders there and stop")
    parser.add_argument("--smoke", action="store_true", help="a few small steps on the CPU")
    for name in ("minutes", "rate", "floor", "maps_from"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, default=getattr(Plan, name))
    for name in ("batch", "seed", "workers", "warmup", "limit"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Plan, name))
    chosen = vars(parser.parse_args())
    folder = chosen.pop("export")
    if chosen["smoke"]:
        chosen |= {"batch": 4, "workers": 0, "limit": chosen["limit"] or 4, "warmup": 2}
    plan = Plan(**chosen)
    if folder is not None:
        pair = Pair(configuration())
        if plan.resume is None:
            raise SystemExit("--export needs --resume: a folder that a run wrote")
        restore(pair, plan.resume)
        export(pair, folder)
        return
    torch.backends.cuda.matmul.allow_tf32 = True
    print(f"{2 * PAIRS} texts and {CAPTIONS + 1} captions a picture, {plan.batch} pictures a step", flush=True)
    Trainer(plan).run()


if __name__ == "__main__":
    main()

"""Trains the mini matcher and captioner together on drawn scenes.

    python -m codevqa.mini.training.vision --out build/v1 --steps 5600  a first run on a GPU
    python -m codevqa.mini.training.vision --out build/v2 --resume build/v1 ...  a second one, from its weights
    python -m codevqa.mini.training.vision --out build/try --smoke  two small steps on the CPU
    python -m codevqa.mini.training.vision --export mini/weights --resume build/v2

Losses: ITM cross-entropy, captions of 20 patches (chosen around the things a question asks about, later also by the
matcher's own GradCAM for that question) and of the whole picture, and ITC in which every true picture of the batch is
positive.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader

from .vision_data import CAPTIONS, PATCHES, Batch, Batches
from .vision_model import Pair, export_pair, restore, save_pair
from .vision_words import PAD

PROMPT_TOKENS = 4
"""[DEC] a picture of: never a target."""
BATCH, WORKERS = 512, 15
NAMES = ("itm", "itc", "caption_whole", "caption_part")


def losses(pair: Pair, batch: Batch, mapped: float) -> tuple[Tensor, Tensor]:
    """The loss of a batch, and its parts as ``NAMES`` has them.

    Args:
        pair: The networks.
        batch: As :mod:`.vision_data` makes it.
        mapped: Share of the captions whose patches the matcher's own map chooses.
    """
    seen = pair.see(batch["pixels"])
    texts = batch["itm"]
    hidden = pair.read(texts.flatten(0, 1), seen.repeat_interleave(texts.shape[1], 0))
    itm = F.cross_entropy(pair.matcher.itm_head(hidden[:, 0]).float(), batch["match"].flatten())
    itc = _contrast_loss(pair, batch, seen)

    patches = _choose_patches(pair.relevance(batch["query"], seen), batch["coverage"], mapped)
    captions = batch["captions"]
    whole = _caption(pair, captions[:, CAPTIONS], seen)
    chosen = (patches + 1)[:, :, None].expand(-1, -1, seen.shape[-1])  # row 0 is CLS
    part = _caption(pair, captions[:, :CAPTIONS].flatten(0, 1), seen.repeat_interleave(CAPTIONS, 0).gather(1, chosen))
    loss = itm + 0.75 * (0.3 * whole + 0.7 * part) + 0.25 * itc
    return loss, torch.stack([itm, itc, whole, part]).detach()


def _contrast_loss(pair: Pair, batch: Batch, seen: Tensor) -> Tensor:
    matcher = pair.matcher
    text = F.normalize(matcher.text_proj(pair.read(batch["contrast"], None)[:, 0]).float(), dim=-1)
    picture = F.normalize(matcher.vision_proj(seen[:, 0]).float(), dim=-1)
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


def _choose_patches(relevance: Tensor, coverage: Tensor, mapped: float) -> Tensor:
    """Patches of each caption, (rows * CAPTIONS, PATCHES), sorted, drawn without replacement."""
    own = relevance / relevance.sum(1, keepdim=True).clamp(min=1e-12)
    around = coverage / coverage.sum(1, keepdim=True).clamp(min=1e-12)
    use = (torch.rand(len(own), CAPTIONS, 1, device=own.device) < mapped).float()
    chance = use * own[:, None] + (1 - use) * around[:, None]
    chance = 0.97 * chance + 0.03 / chance.shape[-1]
    noise = -torch.log(-torch.log(torch.rand_like(chance).clamp(1e-9, 1 - 1e-6)))
    drawn = (chance.log() + noise).topk(PATCHES, -1).indices
    return drawn.flatten(0, 1).sort(-1).values


def _caption(pair: Pair, ids: Tensor, seen: Tensor) -> Tensor:
    logits = pair.write(ids[:, :-1], seen)[:, PROMPT_TOKENS - 1 :].flatten(0, 1).float()
    return F.cross_entropy(logits, ids[:, PROMPT_TOKENS:].flatten(), ignore_index=PAD)


def train_pair(pair: Pair, options: argparse.Namespace, device: torch.device) -> None:
    """Trains for the steps planned, reporting as it goes."""
    gpu = device.type == "cuda"
    named = list(pair.named_parameters())
    decayed = [tensor for name, tensor in named if tensor.ndim > 1 and "embedding" not in name]
    kept = [tensor for name, tensor in named if tensor.ndim <= 1 or "embedding" in name]
    groups = [{"params": decayed, "weight_decay": 0.05}, {"params": kept, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=options.rate, betas=(0.9, 0.98), fused=gpu)
    drawn = Batches(4 if options.smoke else BATCH, options.seed)
    workers = 0 if options.smoke else WORKERS
    batches = iter(DataLoader(drawn, batch_size=None, num_workers=workers, pin_memory=gpu))
    for step in range(options.steps):
        done = step / options.steps
        cosine = options.floor + (1 - options.floor) * 0.5 * (1 + math.cos(math.pi * done))
        for group in optimizer.param_groups:
            group["lr"] = options.rate * cosine * min(1.0, (step + 1) / options.warmup)
        batch = {name: tensor.to(device, non_blocking=True) for name, tensor in next(batches).items()}
        with torch.autocast(device.type, torch.bfloat16, enabled=gpu):
            loss, parts = losses(pair, batch, 0.75 if done > options.maps_from else 0.0)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(decayed + kept, 1.0)
        optimizer.step()
        if step % 100 == 0 or step == options.steps - 1:
            figures = zip(NAMES, parts.tolist(), strict=True)
            print(f"step {step}", *(f"{name} {figure:.3f}" for name, figure in figures), flush=True)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--resume", type=Path, help="folder that a run wrote")
    parser.add_argument("--export", type=Path, help="write the package's folders there and stop")
    parser.add_argument("--smoke", action="store_true", help="two small steps on the CPU")
    parser.add_argument("--steps", type=int, default=5600)
    parser.add_argument("--rate", type=float, default=1.2e-3)
    parser.add_argument("--floor", type=float, default=0.05, help="last learning rate as a share of the first")
    parser.add_argument("--warmup", type=int, default=300, help="steps in which the rate grows")
    parser.add_argument("--maps-from", type=float, default=0.5, help="share of the run before the matcher's own maps")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    pair = restore(options.resume) if options.resume else Pair()
    if options.export:
        export_pair(pair, options.export)
        return
    if options.smoke:
        options.steps = 2
    device = torch.device("cuda" if torch.cuda.is_available() and not options.smoke else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = True
    train_pair(pair.to(device), options, device)
    save_pair(pair, options.out)


if __name__ == "__main__":
    main()

"""Visual Haystacks (Wu and others, arXiv:2407.13766): yes/no questions about one to three of up to 10,000 photographs.

https://huggingface.co/datasets/tsunghanwu/visual_haystacks. Licence: MIT for the questions; the photographs belong to
COCO and are not included. ::

    single_needle/VHs_large/visual_haystack_10.json, single_needle/VHs_small/…, multi_needle/multi_needle_2/…
    coco/val2017/000000000139.jpg, coco/test2017/…

One file is a list of one size, ``oracle`` with the needles alone::

    {"conversations": [{"from": "human", "value": "For the image with a truck, is there a dog?"},
                       {"from": "gpt", "value": "yes"}],
     "pos_image": ["coco/val2017/000000000139.jpg"], "neg_image": ["coco/test2017/000000000001.jpg", …]}

A split is named by the folder and the size: ``single_needle_10``, ``single_needle_small_10``, ``multi_needle_2_10``.
The authors shuffle the pictures without a seed; here the question is the seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from ..task import Example
from .files import JsonRecord
from .loader import Loader, Picture, truth_gold

FOLDERS = {
    "single_needle": ("single_needle/VHs_large", "VHs_full/single_needle", "VHs_large"),
    "single_needle_small": ("single_needle/VHs_small", "VHs_small/single_needle", "VHs_small"),
    "multi_needle": ("multi_needle", "VHs_full/multi_needle"),
    "multi_needle_2": ("multi_needle/multi_needle_2",),
    "multi_needle_3": ("multi_needle/multi_needle_3",),
}
SIZES = ("oracle", "2", "3", "5", "10", "20", "50", "100", "500", "1000", "10000")
_ANSWERS = {"yes": True, "no": False}


class VisualHaystacks(Loader):
    """One size of Visual Haystacks."""

    name = "vhs"
    title = "Visual Haystacks"
    prompts = "covr"
    splits = tuple(dict.fromkeys(("single_needle_10", *(f"{needles}_{size}" for needles in FOLDERS for size in SIZES))))
    folders = ("vhs", "VHs_qa", "visual_haystacks")
    places = ("",)
    questions = "Get the folders from https://huggingface.co/datasets/tsunghanwu/visual_haystacks."
    pictures = "Get val2017.zip and test2017.zip from https://cocodataset.org, and unpack them into its coco/."

    def names(self) -> tuple[str, ...]:
        """Returns where it may be; a split that is not official is read by its own name."""
        needles, _, size = self.split.rpartition("_")
        return (*(f"{folder}/visual_haystack_{size}.json" for folder in FOLDERS.get(needles, ())), f"{self.split}.json")

    def examples(self, key: str, row: JsonRecord, picture: Picture) -> Iterator[Example]:
        """Turns a record into an example."""
        texts = {turn["from"]: str(turn["value"]) for turn in row["conversations"]}
        question = texts["human"].replace("<image>", "").strip()
        needles, hay = list(map(str, row["pos_image"])), list(map(str, row.get("neg_image") or ()))
        if not needles:
            raise ValueError("it has no pos_image")
        names = needles + hay
        random.Random(f"{question} {needles}").shuffle(names)
        yield Example(
            id=str(row.get("id") or " ".join((question, *needles))),
            question=question,
            images=tuple(picture(*_coco_paths(name)) for name in names),
            form="set",
            gold=truth_gold(_ANSWERS[texts["gpt"].strip(" .").lower()]) if "gpt" in texts else (),
            groups={"images": str(len(names)), "needles": str(len(needles))},
            cluster=" ".join(sorted(needles)),
        )


def _coco_paths(name: str) -> tuple[str, ...]:
    """Where a picture may be: as the file says, or in COCO's folders, with or without ``coco/`` before them."""
    folder, file = name.split("/")[-2:] if "/" in name else ("", name)
    folders = (folder,) if folder else ("val2017", "test2017")
    return (name, *(f"{before}{place}/{file}" for place in folders for before in ("", "coco/")), file)

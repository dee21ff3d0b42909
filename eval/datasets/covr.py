"""COVR (Bogin, Gupta, Gardner and Berant, EMNLP 2021): questions and statements about sets of one to five photographs.

https://covr-dataset.github.io. Licence: MIT for the repository, none stated for the data; the photographs belong to
Visual Genome, imSitu and NLVR2 and are not included. ::

    train.jsonl, val.jsonl, test.jsonl
    images/VG_100K/7.jpg, images/VG_100K_2/…, images/of500_images/<verb>/<verb>_<n>.jpg, images/<NLVR2 picture>.png

One record a line::

    {"qid": "val_test_747468", "utterance": "Do all phones that are on a table have the same color?",
     "scenes": ["7", "8"], "properties": ["has_quantifier", "has_quantifier_all"],
     "pattern_name": "quantifier_same_attr", "program": [{"operation": "find", "arguments": ["table"]}, …],
     "answer": true}

An answer is a bool, an integer or a string; the test split has none. From version 1.0.1 on val and test have a
paraphrase by people, ``paraphrased`` (``rephrase`` in the authors' own code). The files of CodeVQA's authors are lists
of ``{"question_id": 1638198, "question": …, "scenes": […], "answer": …}``. The scenes have no order. Pictures are read
out of zip archives too, but not out of imSitu's tar.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..task import Example
from .files import JsonRecord
from .loader import Loader, Picture, gold_text


class COVR(Loader):
    """A split of COVR; people's paraphrase is asked where there is one."""

    name = "covr"
    title = "COVR"
    splits = ("test", "val", "train")
    folders = ("covr", "covr_v1_0", "covr_v1_0_1", "covr-dataset")
    places = ("images", "")
    questions = "Get covr_v1_0 (version 1.0.1) from https://github.com/benbogin/covr-dataset into that folder."
    pictures = (
        "Get Visual Genome's images.zip and images2.zip from https://cs.stanford.edu/people/rak248/ and imSitu's "
        "of500_images.tar into images/ of that folder."
    )
    files = tuple(f"{base}{{split}}{end}" for end in (".jsonl", ".json") for base in ("", "annotations/", "data/"))

    def names(self) -> tuple[str, ...]:
        """Returns where they may be; ``test_paraphrased`` is ``test`` where there is no file of that name."""
        splits = (self.split, self.split.removesuffix("_paraphrased"))
        return tuple(name.format(split=split) for split in splits for name in self.files)

    def examples(self, key: str, row: JsonRecord, picture: Picture) -> Iterator[Example]:
        """Turns a record into an example."""
        scenes = [str(scene) for scene in row["scenes"]]
        if not scenes:
            raise ValueError("it has no scenes")
        template = row["utterance"] if "utterance" in row else row["question"]
        answer = row.get("answer")
        groups = {"images": str(len(scenes))}
        if row.get("pattern_name"):
            groups["pattern"] = str(row["pattern_name"])
        yield Example(
            id=str(row["qid"] if "qid" in row else row["question_id"]),
            question=str(row.get("paraphrased") or row.get("rephrase") or template),
            images=tuple(picture(*scene_paths(scene)) for scene in scenes),
            form="set",
            gold=() if answer is None else (gold_text(answer),),
            groups=groups,
            cluster=" ".join(sorted(scenes)),
        )


def scene_paths(scene: str) -> tuple[str, ...]:
    """Where the picture of a scene may be: Visual Genome's by number, NLVR2's by its name, imSitu's by its verb."""
    if scene.isnumeric():
        return (f"VG_100K/{scene}.jpg", f"VG_100K_2/{scene}.jpg", f"{scene}.jpg")
    if scene.count("-") == 3:
        return (f"{scene}.png", f"{scene.partition('-')[0]}/{scene}.png")
    verb = scene.rpartition("_")[0]
    return (f"of500_images/{verb}/{scene}.jpg", f"of500_images/{scene.partition('_')[0]}/{scene}.jpg", f"{scene}.jpg")

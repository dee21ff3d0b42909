"""The paper's release at work, in a process of its own: its loaders, prompts and course of a question, models scripted.

Run as a script it reads a case from standard input, and writes what the models were asked for each of its questions to
standard output. Everything it runs comes from the checkout; what that imports and this machine lacks is stood in for,
and so are the models.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

REAL = {
    "lavis.datasets.datasets.covr_datasets",
    "lavis.datasets.datasets.gqa_datasets",
    "lavis.models.pnp_vqa_models.gpt_qa",
    "lavis.models.pnp_vqa_models.pnp_vqa",
    "lavis.models.pnp_vqa_models.utils",
    "lavis.processors.blip_processors",
}
ABSENT = ("groundingdino", "lavis", "omegaconf", "openai", "sentence_transformers", "torchvision", "transformers")
GRID = 24


def embed(sentence: str) -> list[float]:
    """Returns an embedding that every letter of a text has a part in, as much in capitals as not."""
    words = [hashlib.sha256(word.encode()).digest() for word in sentence.split()]
    return [sum(word[place] - 127.5 for word in words) for place in range(32)]


class Node(dict[str, Any]):
    """A configuration, read as OmegaConf's are."""

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(name)
        return self[name]

    @classmethod
    def of(cls, value: Any) -> Any:
        return cls({key: cls.of(one) for key, one in value.items()}) if isinstance(value, dict) else value


class StandIns(MetaPathFinder, Loader):
    """Imports the real modules out of the checkout, and empty ones for all others."""

    def __init__(self, root: Path, names: dict[str, Any]) -> None:
        self.root, self.names = root, names

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        if fullname in REAL:
            return importlib.util.spec_from_file_location(fullname, self.root / f"{fullname.replace('.', '/')}.py")
        return ModuleSpec(fullname, self, is_package=True) if fullname.partition(".")[0] in ABSENT else None

    def exec_module(self, module: ModuleType) -> None:
        def get(name: str) -> Any:
            if name.startswith("__") or f"{module.__name__}.{name}" in REAL:
                raise AttributeError(name)
            return self.names[name] if name in self.names else type(name, (), {})

        module.__dict__["__getattr__"] = get


class Registry:
    """Registers nothing, and finds the parts of the model."""

    def __init__(self) -> None:
        self.models: dict[str, Any] = {}

    def get_model_class(self, arch: str) -> Any:
        return self.models[arch]

    def __getattr__(self, name: str) -> Any:
        return lambda *_: lambda registered: registered


class Reference:
    """The release's model for a task, as its own configuration has it."""

    def __init__(self, case: dict[str, Any]) -> None:
        import numpy as np
        import torch
        import yaml  # type: ignore[import-untyped, unused-ignore]

        self.case, self.torch = case, torch
        self.root = Path(case["release"])
        self.asked: list[dict[str, Any]] = []
        self.matched: list[str] = []
        self.program = ""
        registry = Registry()
        encoder = SimpleNamespace(encode=lambda texts, **_: torch.tensor([embed(text) for text in texts]))
        encoder.eval = encoder.to = lambda *_: encoder
        names = {
            "registry": registry,
            "BaseModel": torch.nn.Module,
            "Completion": SimpleNamespace(create=self.complete),
            "SentenceTransformer": lambda _: encoder,
            "compute_gradcam": self.gradcam,
        }
        sys.meta_path.insert(0, StandIns(self.root, names))
        from lavis.models.pnp_vqa_models import gpt_qa, pnp_vqa

        pnp_vqa.np, pnp_vqa.time = np, SimpleNamespace(time=lambda: 0.0, sleep=lambda _: None)
        matcher = SimpleNamespace(tokenizer=self.tokens, device="cpu", max_txt_len=35)
        registry.models = {
            "blip_image_text_matching": SimpleNamespace(from_config=lambda _: matcher),
            "blip_caption": SimpleNamespace(from_config=lambda _: None),
            "gpt_qa": gpt_qa.GPTQA,
        }
        read = [yaml.safe_load((self.root / "lavis" / name).read_text()) for name in self.configs()]
        model = {**read[0]["model"], **read[1]["model"], "grounding_dino_path": None, "vis_processor": None}
        if "prompt_path" in model.get("subquestions", {}) and not Path(model["subquestions"]["prompt_path"]).is_file():
            model["subquestions"]["prompt_path"] = case["preamble"]  # the release lacks the one it names
        if case["method"] == "pnpvqa":
            model.pop("subquestions", None)  # where a baseline's file says "none", the code wants a prompt for it
        if "subquestions" in model:
            model["subquestions"]["programs_path"] = case["programs"]
        self.model = pnp_vqa.PNPVQA.from_config(Node.of(model))
        self.model.forward_cap = self.captions

    def configs(self) -> tuple[str, str]:
        kind = "_codevqa" if self.case["method"] == "codevqa" else ""
        return (
            "configs/models/pnp-vqa/pnp_vqa_gpt3.yaml",
            f"projects/pnp-vqa/eval/{self.case['task']}_eval_gpt3{kind}.yaml",
        )

    def complete(self, **given: Any) -> dict[str, Any]:
        self.asked.append({name: given[name] for name in ("prompt", "max_tokens", "stop")})
        return {"choices": [{"text": self.program if given["max_tokens"] == 512 else self.case["reply"]}]}

    def captions(self, samples: dict[str, Any], **_: Any) -> dict[str, Any]:
        samples["captions"] = [list(self.case["captions"][str(int(image.flatten()[0]))]) for image in samples["image"]]
        return samples

    def tokens(self, text: str | list[str], **_: Any) -> Any:
        if isinstance(text, list):
            return SimpleNamespace(to=lambda _: None)
        return {"input_ids": self.case["tokens"][text]}

    def gradcam(self, text_input: list[str], **_: Any) -> Any:
        """The first token's map, the average of all words, and every token's, as the release stacks them."""
        (text,) = text_input
        self.matched.append(text)
        maps = self.torch.tensor(self.case.get("maps", {}).get(text, [[0.0] * GRID**2] * 40))
        maps = maps.reshape(-1, GRID, GRID)
        return [self.torch.cat((maps[:1], maps[1:-1].mean(0, keepdim=True), maps[1:]))], None

    def answer(self, question: str, program: str) -> dict[str, Any]:
        """Answers one question with a program, and tells what the models were asked."""
        self.asked, self.matched, self.program = [], [], program
        answers, _, _ = self.model.predict_answers(self.sample(question))
        return {"asked": self.asked, "matched": self.matched, "answer": answers[0]}

    def sample(self, question: str) -> dict[str, Any]:
        """The question as the release's loader gives it, in a batch of one."""
        from lavis.datasets.datasets import covr_datasets, gqa_datasets
        from lavis.processors.blip_processors import BlipQuestionProcessor

        task = self.case["task"]
        data = covr_datasets.COVREvalDataset if task in ("covr", "nlvr2") else gqa_datasets.GQAEvalDataset
        loader = data.__new__(data)
        loader.vis_root, loader.text_processor = self.case["pictures"], BlipQuestionProcessor()
        loader.vis_processor = lambda image: self.torch.full((3, 2, 2), float(image.getpixel((0, 0))[0]))
        names = sorted(path.stem for path in Path(self.case["pictures"]).glob("*/*.jpg"))
        about = {"question": question, "question_id": 1, "instance_id": 1}
        loader.annotation = [{**about, "scenes": names, "image": f"VG_100K/{names[0]}.jpg"}]
        item = loader[0]
        batch: dict[str, Any] = {"text_input": [item["text_input"]]}
        for name in {"image", "images"} & set(item):
            batch[name] = item[name].unsqueeze(0)
        if "images" in item:
            batch["num_images"] = self.torch.tensor([item["num_images"]])
        return batch


def main() -> None:
    """Answers the case on standard input."""
    case = json.load(sys.stdin)
    os.chdir(case["release"])
    with redirect_stdout(sys.stderr):
        reference = Reference(case)
        told = [reference.answer(question, program) for question, program in case["questions"]]
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()

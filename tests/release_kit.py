"""The paper's release at work beside us: its loaders, prompts and course of a question, over scripted models.

Everything it runs comes from the checkout. What that imports besides is stood in for, and so are the models.
"""

import builtins
import hashlib
import inspect
from contextlib import chdir
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import yaml  # type: ignore[import-untyped, unused-ignore]

MODELS, DATA = "lavis.models.pnp_vqa_models.", "lavis.datasets.datasets."
REAL = {
    *(f"{MODELS}{name}" for name in ("gpt_qa", "pnp_vqa")),
    *(f"{DATA}{name}_datasets" for name in ("covr", "gqa")),
    "lavis.processors.blip_processors",
}
ABSENT = {"groundingdino", "lavis", "omegaconf", "openai", "sentence_transformers"}
ABSENT |= {"time", "torchvision", "transformers"}
GRID = 24


def embed(sentence: str) -> list[float]:
    """Returns an embedding that every letter of a text has a part in, as much in capitals as not."""
    words = [hashlib.sha256(word.encode()).digest() for word in sentence.split()]
    return [sum(word[place] - 127.5 for word in words) for place in range(32)]


class Absent(type):
    """Stands in for what is imported: a class, and so is everything in it."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(name, (), {})


class Script:
    """What both ask their models, and what these say."""

    program = reply = ""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, int]] = []
        self.matched: list[str] = []
        self.captions: dict[int, list[str]] = {}

    def complete(self, prompt: Any, max_tokens: int) -> str:
        self.asked.append((prompt, max_tokens))
        return f"\n{self.program}" if max_tokens == 512 else self.reply

    def tokens(self, text: str) -> list[int]:
        """The numbers of a text's tokens."""
        return []

    def maps(self, text: str) -> Any:
        """A map for each token of a text."""
        return torch.zeros(40, GRID, GRID)


class Release:
    """The release's model for a task, as its own configuration has it."""

    def __init__(self, root: Path, pool: str, method: str, preamble: Path, script: Script) -> None:
        self.root, self.script, self.modules = root, script, dict[str, ModuleType]()
        self.task = pool.partition("_")[0]
        encoder = SimpleNamespace(encode=lambda texts, **_: torch.tensor([embed(text) for text in texts]))
        encoder.eval = encoder.to = lambda *_: encoder
        matcher = SimpleNamespace(tokenizer=self.tokens, device="cpu", max_txt_len=35)

        def unregistered(_: str) -> Any:
            return lambda kind: kind

        self.names = {
            "registry": SimpleNamespace(register_model=unregistered, register_processor=unregistered),
            "BaseModel": torch.nn.Module,
            "Completion": SimpleNamespace(create=self.complete),
            "SentenceTransformer": lambda _: encoder,
            "compute_gradcam": self.gradcam,
            "time": lambda: 0.0,
            "sleep": lambda _: None,
        }
        kind = "_codevqa" if method == "codevqa" else ""
        configs = ("configs/models/pnp-vqa/pnp_vqa_gpt3", f"projects/pnp-vqa/eval/{self.task}_eval_gpt3{kind}")
        parts, read = (yaml.safe_load((root / "lavis" / f"{name}.yaml").read_text())["model"] for name in configs)
        if not kind:
            read.pop("subquestions", None)  # where a baseline's file says "none", the code wants a prompt for it
        else:
            named = root / read["subquestions"]["prompt_path"]  # the release lacks some that it names
            read["subquestions"] |= {"programs_path": pool, "prompt_path": str(named if named.is_file() else preamble)}
        reader = self.imported(f"{MODELS}gpt_qa").GPTQA.from_config(parts["question_answering_model"])
        model = self.imported(f"{MODELS}pnp_vqa").PNPVQA
        known = inspect.signature(model).parameters.keys() - {"grounding_dino_path"}
        options = {name: value for name, value in read.items() if name in known}
        with chdir(root):
            self.model = model(matcher, None, reader, **options)
        self.model.forward_cap = self.captions

    def imported(self, name: str, *arguments: Any) -> Any:
        """Imports the real modules out of the checkout, and stand-ins for all others."""
        if name.partition(".")[0] not in ABSENT:
            return __import__(name, *arguments)
        if name not in REAL:
            return Absent(name, (), dict(self.names))
        if name not in self.modules:
            module = self.modules[name] = ModuleType(name)
            vars(module)["__builtins__"] = {**vars(builtins), "__import__": self.imported}
            path = self.root / f"{name.replace('.', '/')}.py"
            exec(compile(path.read_text(), path, "exec"), vars(module))
        return self.modules[name]

    def complete(self, *, prompt: str, max_tokens: int, **_: Any) -> dict[str, Any]:
        return {"choices": [{"text": self.script.complete(prompt, max_tokens)}]}

    def captions(self, samples: dict[str, Any], **_: Any) -> dict[str, Any]:
        samples["captions"] = [[*self.script.captions[int(image.flatten()[0])]] for image in samples["image"]]
        return samples

    def tokens(self, text: str | list[str], **_: Any) -> Any:
        if isinstance(text, list):
            return SimpleNamespace(to=lambda _: None)
        return {"input_ids": self.script.tokens(text)}

    def gradcam(self, text_input: list[str], **_: Any) -> Any:
        """The first token's map, the average of all words, and every token's, as the release stacks them."""
        (text,) = text_input
        self.script.matched.append(text)
        maps = self.script.maps(text)
        return [torch.cat((maps[:1], maps[1:-1].mean(0, keepdim=True), maps[1:]))], None

    def answer(self, question: str, pictures: list[Path]) -> str:
        """Answers one question, as the release's loader gives it in a batch of one."""
        name, data = ("covr", "COVREvalDataset") if self.task in ("covr", "nlvr2") else ("gqa", "GQAEvalDataset")
        kind = getattr(self.imported(f"{DATA}{name}_datasets"), data)
        loader = kind.__new__(kind)
        loader.vis_root = pictures[0].parents[1]
        loader.text_processor = self.imported("lavis.processors.blip_processors").BlipQuestionProcessor()
        loader.vis_processor = lambda image: torch.full((3, 2, 2), float(image.getpixel((0, 0))[0]))
        about = {"question": question, "question_id": 1, "instance_id": 1, "image": f"VG_100K/{pictures[0].name}"}
        loader.annotation = [{**about, "scenes": [path.stem for path in pictures]}]
        item = loader[0]
        batch: dict[str, Any] = {"text_input": [item["text_input"]]}
        batch |= {name: item[name].unsqueeze(0) for name in {"image", "images"} & set(item)}
        if "images" in item:
            batch["num_images"] = torch.tensor([item["num_images"]])
        answers, _, _ = self.model.predict_answers(batch)
        return str(answers[0])

"""Which part loses NLVR: the writer or the reader? Each is swapped alone, over the same eyes (the mini vision models).

    python benchmarks/swap_parts.py LANGUAGE_MODEL RETRIEVER FOLDER

FOLDER holds the dev split of the NLVR corpus (docs/evaluation.md). One order of boxes for each statement.
"""

import sys
import time
from dataclasses import replace

from codevqa import CodeVQA, Question
from codevqa.core.trace import Method
from codevqa.eval.datasets import open_dataset
from codevqa.eval.task import Example


def main(language_model: str, retriever: str, folder: str) -> None:
    """Print accuracy, the share of yes and the fallbacks for each pairing of writer and reader."""
    examples = list(open_dataset("nlvr", folder, "dev", permutations=1))
    majority = sum(example.gold[0] == "yes" for example in examples) / len(examples)
    print(f"{len(examples)} statements; {majority:.3f} are true")
    workers = {"workers": 64}
    mini = CodeVQA.from_preset("mini", sets=workers)
    large = CodeVQA.from_preset(
        "mini", language_model=language_model, retriever=retriever, prompts="nlvr", sets=workers
    )
    witnesses = CodeVQA.from_preset(
        "mini",
        language_model=language_model,
        retriever=retriever,
        prompts="nlvr",
        sets=workers | {"query.witness": True, "query.stated": True},
    )
    pairs = {
        "writer mini, reader mini": (mini, mini),
        "writer large, reader large": (large, large),
        "writer large, reader mini": (large, mini),
        "writer mini, reader large": (mini, large),
        "writer large, reader large, both witnesses": (witnesses, witnesses),
    }
    for name, (writer, reader) in pairs.items():
        models = replace(writer.models, reader=reader.models.reader, domain=None)
        print_share(name, CodeVQA(writer.writer, models, writer.settings), examples)
    print_share(
        "PnP-VQA, reader large",
        CodeVQA(large.writer, replace(large.models, domain=None), large.settings),
        examples,
        "pnpvqa",
    )


def print_share(name: str, engine: CodeVQA, examples: list[Example], method: Method = "codevqa") -> None:
    """Ask every statement and print one line."""
    start = time.perf_counter()
    questions = [
        Question([image.load().pixels for image in example.images], example.question, form=example.form)
        for example in examples
    ]
    answers = engine.ask_many(questions, method=method)
    right = sum(answer.text == example.gold[0] for answer, example in zip(answers, examples, strict=True))
    yes = sum(answer.text == "yes" for answer in answers)
    fallbacks = sum(answer.fallback for answer in answers)
    n = len(examples)
    seconds = time.perf_counter() - start
    print(f"{name:44} {right / n:.3f}  yes {yes / n:.2f}  {fallbacks} fallbacks  {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])

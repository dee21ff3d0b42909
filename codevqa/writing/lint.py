"""Checks prompt sets: ``python -m codevqa.writing.lint [NAME or FOLDER ...]``, all sets of the package by default.

A language model copies what it is shown, so every program of a bank must parse, pass the sandbox's static check, and
leave a usable answer whatever its primitives return. Programs are run in the sandbox against invented answers, once
for every way these can turn out.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..core.errors import CodeVQAError, ProgramAnswerError, ProgramError
from ..core.settings import Limits
from ..primitives import CONSTANTS, Primitive, PrimitiveSet
from ..primitives.knowledge import KNOWLEDGE
from ..primitives.visual import VISUAL, find_object
from ..prompts import Example, PromptSet, available, load
from ..sandbox.sandbox import Sandbox
from .lint_outcomes import Outcomes, blank_images, compared_words, explore, few, is_yes_no
from .lint_rules import faults, is_single_query
from .prompt_forms import opening_line

__all__ = ["Finding", "lint"]

RUNS = 64
"""Runs of one program at most."""
MORE_RUNS = 256
"""Runs more of one whose answer has been the same so far."""
SINGLE_QUERY_SHARE = 0.6
"""Largest share of programs that only pass the question on to ``query``."""
_SET_SIZES = (2, 5)
"""Pictures in the sets that programs are run on, where the set of prompts does not fix the number."""


@dataclass(frozen=True)
class Finding:
    """Something wrong with a prompt set."""

    prompts: str
    """Name of the set."""
    where: str
    """Id of the example, or the file."""
    rule: str
    """Short name of what is broken, e.g. ``syntax`` or ``truth``."""
    message: str
    line: int | None = None
    """Line of the program, from 1, where there is one."""

    def __str__(self) -> str:
        line = f", line {self.line}" if self.line is not None else ""
        return f"{self.prompts} {self.where}{line}: {self.rule}: {self.message}"


def lint(prompt_set: PromptSet, primitives: PrimitiveSet | None = None) -> list[Finding]:
    """Checks a prompt set.

    Args:
        prompt_set: the set.
        primitives: the whole vocabulary, of which the set lists some; None takes all there are.
    """
    known = VISUAL.extend([find_object, *KNOWLEDGE])
    return asyncio.run(_lint(prompt_set, known if primitives is None else primitives))


async def _lint(prompt_set: PromptSet, primitives: PrimitiveSet) -> list[Finding]:
    findings = [*_bank(prompt_set), *_reading(prompt_set), *_knowledge(prompt_set), *_preamble(prompt_set)]
    for name in prompt_set.primitives:
        if name not in primitives.names:
            findings.append(Finding(prompt_set.name, "prompt.json", "primitive", f"there is no primitive {name!r}"))
    offered = primitives.subset([name for name in prompt_set.primitives if name in primitives.names])
    sandbox = Sandbox(offered, Limits(), workers=2)
    try:
        for example in prompt_set.examples:
            findings += await _Programs(prompt_set, primitives, offered, sandbox).check(example)
    finally:
        await sandbox.aclose()
    return findings


def _bank(prompt_set: PromptSet) -> Iterator[Finding]:
    """Checks the examples as a whole."""
    name, examples = prompt_set.name, prompt_set.examples
    if len(examples) < prompt_set.shots:
        message = f"{len(examples)} examples, of which {prompt_set.shots} are to be shown"
        yield Finding(name, "examples.jsonl", "bank", message)
    yield from _repeated(name, "examples.jsonl", [(example.id, example.question) for example in examples])
    single = sum(_is_single(example) for example in examples)
    if single > SINGLE_QUERY_SHARE * len(examples):
        message = f"{single} of {len(examples)} programs only query the question; {SINGLE_QUERY_SHARE:.0%} may"
        yield Finding(name, "examples.jsonl", "single-query", message)


def _is_single(example: Example) -> bool:
    try:
        return is_single_query(ast.parse(example.program), example.question)
    except (SyntaxError, ValueError):
        return False


def _repeated(name: str, file: str, items: Iterable[tuple[str, str]]) -> Iterator[Finding]:
    items = list(items)
    ids = Counter(key for key, _ in items)
    questions = Counter(_normal(question) for _, question in items)
    for key, count in ids.items():
        if count > 1:
            yield Finding(name, file, "duplicate", f"id {key!r} is used {count} times")
    for question, count in questions.items():
        if count > 1:
            yield Finding(name, file, "duplicate", f"question {question!r} is asked {count} times")


def _normal(question: str) -> str:
    return " ".join(re.findall(r"\w+", question.lower()))


def _reading(prompt_set: PromptSet) -> Iterator[Finding]:
    """Checks the reading examples: they look like what a captioner samples."""
    name, file = prompt_set.name, "reading.jsonl"
    if len(prompt_set.reading) < prompt_set.reading_shots:
        message = f"{len(prompt_set.reading)} examples, of which {prompt_set.reading_shots} are to be shown"
        yield Finding(name, file, "bank", message)
    # One question may be read off several pictures: only the ids must differ.
    yield from _repeated(name, file, [(example.id, example.id) for example in prompt_set.reading])
    for example in prompt_set.reading:
        for captions in example.by_image:
            if len(captions) > prompt_set.captions:
                message = f"{len(captions)} captions of a picture; the set reads {prompt_set.captions}"
                yield Finding(name, example.id, "reading", message)
            for text in captions:
                if text != text.strip().lower() or text.endswith("."):
                    message = f"caption {text!r}: captions are lower case, without a full stop"
                    yield Finding(name, example.id, "reading", message)
        if example.answer != example.answer.strip().lower():
            yield Finding(name, example.id, "reading", f"answer {example.answer!r}: answers are lower case")


def _knowledge(prompt_set: PromptSet) -> Iterator[Finding]:
    """Checks the knowledge examples: each is what a program asks."""
    name, asking = prompt_set.name, {one.id for one in prompt_set.examples if "knowledge_query(" in one.program}
    for example in prompt_set.knowledge:
        if example.id not in asking:
            yield Finding(name, "knowledge.jsonl", "knowledge", f"{example.id!r} is no program that asks for knowledge")
        if example.answer != example.answer.strip().lower():
            yield Finding(name, example.id, "knowledge", f"answer {example.answer!r}: answers are lower case")
    for lacking in sorted(asking - {one.id for one in prompt_set.knowledge}):
        yield Finding(name, lacking, "knowledge", "asks for knowledge, and knowledge.jsonl has no answer")


def _preamble(prompt_set: PromptSet) -> Iterator[Finding]:
    if not {"get_pos", "find_object"} & set(prompt_set.primitives):
        return  # nothing has a place to compare
    given = _constants(prompt_set.preamble)
    for constant, value in CONSTANTS.items():
        if given.get(constant) != value:
            yield Finding(prompt_set.name, "preamble.txt", "preamble", f"{constant} = {value} is not given")


def _constants(preamble: str) -> dict[str, object]:
    """Returns the numbers a preamble gives names to: ``LEFT = 0``, singly, in a tuple, or several on a line."""
    found: dict[str, object] = {name: int(value) for name, value in re.findall(r"\b([A-Z]+) *= *(\d+)\b", preamble)}
    for targets, values in re.findall(r"^((?:[A-Z]+, *)+[A-Z]+) *= *((?:\d+, *)+\d+)$", preamble, re.MULTILINE):
        found.update(zip(re.findall("[A-Z]+", targets), map(int, re.findall(r"\d+", values)), strict=False))
    return found


@dataclass(frozen=True)
class _Programs:
    """Checks one program after another."""

    prompts: PromptSet
    primitives: PrimitiveSet
    offered: PrimitiveSet
    sandbox: Sandbox

    async def check(self, example: Example) -> list[Finding]:
        """Checks one program: its text first, then every way it can run."""
        try:
            tree = ast.parse(example.program)
        except (SyntaxError, ValueError) as error:
            line = error.lineno if isinstance(error, SyntaxError) else None
            return [self._finding(example, "syntax", f"does not parse: {error.args[0]}", line)]
        textual = {item.name for item in self.primitives if item.returns == "str"}
        found = [
            self._finding(example, fault.rule, fault.message, fault.line)
            for fault in faults(tree, textual, self.primitives.names)
        ]
        strange = self._not_offered(tree)
        if strange:
            return [*found, *(self._finding(example, "primitive", *item) for item in strange)]
        source = f"{opening_line(example.form, 1)}\n{example.program}"
        try:
            await self.sandbox.check(source)
        except ProgramError as error:
            return [*found, self._failure(example, "check", error)]
        return [*found, *await self._run(example, source, tree)]

    def _not_offered(self, tree: ast.AST) -> list[tuple[str, int]]:
        """Returns the primitives a program uses that the set does not list, each with its line."""
        names = {node.id: node.lineno for node in ast.walk(tree) if isinstance(node, ast.Name)}
        missing = set(self.primitives.names) - set(self.offered.names)
        return [(f"{name} is not among the set's primitives", names[name]) for name in sorted(missing & set(names))]

    async def _run(self, example: Example, source: str, tree: ast.AST) -> list[Finding]:
        sizes: Sequence[int] = (1,)
        if example.form == "set":
            sizes = (len(self.prompts.image_labels),) if self.prompts.image_labels else _SET_SIZES
        words = compared_words(tree)
        found: dict[str, Finding] = {}
        answers: set[object] = set()

        async def play(outcomes: Outcomes) -> None:
            try:
                value = await self._answer(source, outcomes)
            except ProgramError as error:
                rule = "answer" if isinstance(error, ProgramAnswerError) else "runtime"
                found.setdefault(rule, self._failure(example, rule, error, outcomes))
                return
            answers.add(value if isinstance(value, str | int) else repr(value))
            message = _unusable(value, example.question)
            if message:
                found.setdefault("answer", self._finding(example, "answer", f"{message} {outcomes.story()}".strip()))

        for size in sizes:
            await explore(play, partial(Outcomes, blank_images(size), words), RUNS // len(sizes))
        seeds = iter(range(MORE_RUNS))
        while len(answers) == 1 and not found and (seed := next(seeds, None)) is not None:
            await play(Outcomes(blank_images(sizes[-1]), words, fill=few(seed)))
        if len(answers) == 1 and not found:
            message = f"the answer is {answers.pop()!r} whatever the primitives return"
            found["constant"] = self._finding(example, "constant", message)
        return list(found.values())

    async def _answer(self, source: str, outcomes: Outcomes) -> object:
        """Runs a program against invented answers and returns what it leaves in ``answer``."""

        async def host(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], line: int | None) -> object:
            arguments = self.offered.bind(name, args, kwargs)
            primitive: Primitive = self.offered.get(name)
            return outcomes.answer(primitive, arguments)

        return (await self.sandbox.run(source, host, images=outcomes.images)).value

    def _failure(self, example: Example, rule: str, error: ProgramError, outcomes: Outcomes | None = None) -> Finding:
        # The program runs below the line that opens its pictures, which the bank does not hold.
        line = None if error.line is None else max(error.line - 1, 1)
        story = outcomes.story() if outcomes else ""
        return self._finding(example, rule, f"{' '.join(error.message.split())} {story}".strip(), line)

    def _finding(self, example: Example, rule: str, message: str, line: int | None = None) -> Finding:
        return Finding(self.prompts.name, example.id, rule, message, line)


def _unusable(value: object, question: str) -> str:
    """Says what is wrong with an answer; empty where nothing is."""
    if not isinstance(value, str | int) or value == "" or (isinstance(value, str) and not value.strip()):
        return f"leaves {value!r} in answer, not a text, a whole number or a truth value"
    statement = not question.rstrip().endswith("?")
    if (statement or is_yes_no(question)) and value not in ("yes", "no") and not isinstance(value, bool):
        return f"leaves {value!r} in answer where the question wants yes or no"
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Checks the named sets and writes each finding on a line; returns 1 where there are any."""
    parser = argparse.ArgumentParser(prog="python -m codevqa.writing.lint", description="Checks prompt sets.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="set of the package, or a folder (default: all sets)")
    names = parser.parse_args(arguments).names or available()
    failed = False
    for name in names:
        try:
            prompt_set = load(name)
            findings = lint(prompt_set)
        except CodeVQAError as error:
            sys.stderr.write(f"{name}: {error}\n")
            failed = True
            continue
        sys.stdout.writelines(f"{finding}\n" for finding in findings)
        sys.stdout.write(f"{name}: {len(prompt_set.examples)} programs, {len(findings)} findings\n")
        failed = failed or bool(findings)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

"""What programs may call, and the prompt sets that say so: which primitives, which examples, which preamble."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import cache

from ..core.errors import SetupError
from ..core.trace import Form
from ..primitives.detection import DETECTION, count, find_object
from ..primitives.sets import SETS
from ..primitives.signature import Primitive, PrimitiveSet
from ..primitives.visual import BUILT_IN, KNOWLEDGE, VISUAL
from ..prompts import ProgramExample, PromptSet

_OPENERS = ("open_image", "open_images")


def by_form(prompts: PromptSet | Mapping[Form, PromptSet]) -> Mapping[Form, PromptSet]:
    """Returns the prompt set to use for each form of question that has examples."""
    if isinstance(prompts, Mapping):
        return dict(prompts)
    forms = {example.form for example in prompts.examples} or {prompts.form}
    return dict.fromkeys(forms, prompts)


class Offer:
    """The primitives that programs may call, and the prompt sets without those that models lack.

    Args:
        prompts: a prompt set for each form of question.
        extra: more primitives, such as the user's own, described after those the prompt set names. One that is called
            as a detector's takes its place.
        serves: names of the built-in primitives that the models serve; None is all but a detector's.
        large: whether programs are about large sets: then they are told of what selects, groups and orders them.
        bank: the most examples of a prompt set, without those of primitives; None takes all.
        release: whether prompts are as the paper's release words them: then nothing of ours is added.

    Raises:
        SetupError: a prompt set has no examples of the form it is to serve.
    """

    def __init__(
        self,
        prompts: Mapping[Form, PromptSet],
        extra: Iterable[Primitive] = (),
        serves: Collection[str] | None = None,
        *,
        large: bool = False,
        bank: int | None = None,
        release: bool = False,
    ) -> None:
        self.bare, self.own, self.serves, self._bank = prompts, tuple(extra), serves, bank
        self._release = release
        served = {*VISUAL.names, *KNOWLEDGE.names} if serves is None else serves
        own = {primitive.name for primitive in self.own}
        named = {name for each in prompts.values() for name in each.primitives if name in KNOWLEDGE.names}
        detection = [primitive for primitive in DETECTION if primitive.name in served and primitive.name not in own]
        self._extra = (*detection, *self.own)
        visual = [primitive for primitive in VISUAL.extend(KNOWLEDGE.subset(sorted(named))) if primitive.name in served]
        one_picture = PrimitiveSet([*visual, *self._extra])
        known = {*one_picture.names, *own}
        sets = [primitive for primitive in SETS if "query" in served and primitive.name not in known]
        # For "count" a detector has other examples.
        self._for_sets = tuple(primitive for primitive in sets if large and primitive is not count)
        self.primitives: PrimitiveSet = one_picture.extend(sets)
        """All that programs may call, whichever of them a prompt set describes."""
        described = one_picture.extend(self._for_sets)
        self.lacking = [name for name in BUILT_IN.names if name not in described]
        """Built-in primitives that no program may call."""
        self.prompts: Mapping[Form, PromptSet] = {form: self._complete(each) for form, each in prompts.items()}
        self.preamble = cache(self._preamble)
        """``preamble(form, chat=...)`` is the text before the first example: instruction, constants, API reference."""

    def _complete(self, prompts: PromptSet) -> PromptSet:
        """Returns a prompt set with the examples of added primitives, without examples that call a missing one."""
        examples: list[ProgramExample] = [
            example for primitive in self._added_primitives(prompts) for example in primitive.examples
        ]
        return replace(prompts, examples=(*examples, *prompts.examples[: self._bank])).without(self.lacking)

    def _preamble(self, form: Form, *, chat: bool) -> str:
        prompts = self.prompts_for(form)
        added = self._added_primitives(prompts)
        names = dict.fromkeys((*prompts.primitives, *(primitive.name for primitive in added)))
        described = self.primitives.subset(names)
        if chat:  # where pictures are there already, nothing is opened
            described = described.subset(name for name in described.names if name not in _OPENERS)
        text = prompts.preamble.replace("{api}", described.reference())
        if text != prompts.preamble:
            return text
        # The prompt set says itself what there is, but not of what is the user's own.
        missing = [primitive for primitive in added if not re.search(rf"\b{primitive.name}\b", text)]
        reference = PrimitiveSet(missing).reference()
        return f'{text.rstrip()}\n"""\n{reference}\n"""' if missing else text

    def _added_primitives(self, prompts: PromptSet) -> tuple[Primitive, ...]:
        """Returns the primitives that are described beside a prompt set's.

        A prompt set that says itself what there is, as the paper's release does, is not added to but by
        ``find_object`` and the user's own.
        """
        # A pool of the release without a preamble has ours, and takes no examples with it.
        whole = "{api}" in prompts.preamble and not self._release and prompts.wording != "release"
        candidates = (*self._extra, *self._for_sets)
        return tuple(each for each in candidates if whole or each is find_object or each not in (*DETECTION, *SETS))

    def prompts_for(self, form: Form) -> PromptSet:
        """Returns the prompt set that serves a form.

        Raises:
            SetupError: there is none.
        """
        if form not in self.prompts:
            kind = "one image" if form == "image" else "a set of images"
            names = ", ".join(sorted({prompts.name for prompts in self.prompts.values()}))
            raise SetupError(f"The prompt set {names} has no examples about {kind}.", hint="Choose another.")
        return self.prompts[form]

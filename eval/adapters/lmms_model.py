"""CodeVQA as a model of lmms-eval: ``lmms_eval --model codevqa --model_args preset=mini --tasks gqa``.

The first line of a request's text is the question. ``--model_args`` takes ``preset``, ``method`` (``codevqa`` or
``pnpvqa``) and whatever ``codevqa --set`` does. Tasks that compare likelihoods cannot be asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from lmms_eval.api.model import lmms

from ...core.errors import InputError
from ...core.trace import Method
from . import open_engine, question_of

__all__ = ["LmmsModel"]


class LmmsModel(lmms):  # type: ignore[misc]  # as everything of lmms-eval, where it is not installed
    """An engine that answers all requests at once, sharing batches."""

    is_simple = True

    def __init__(
        self,
        preset: str = "mini",
        method: Method = "codevqa",
        batch_size: object = None,
        max_batch_size: object = None,
        device: object = None,
        **sets: Any,
    ) -> None:
        """Opens the engine of a preset; batches and devices are the preset's affair.

        Raises:
            CodeVQAError: there is no such preset, field or model.
        """
        super().__init__()
        del batch_size, max_batch_size, device
        self.method = method
        self.engine = open_engine(preset, sets)

    def generate_until(self, requests: list[Any]) -> list[str]:
        """Answers requests.

        Raises:
            CodeVQAError: one of them cannot be answered at all.
        """
        answers = self.engine.ask_many(self._asked(requests), method=self.method, errors="raise")
        return [answer.text for answer in answers]

    def _asked(self, requests: list[Any]) -> Iterator[tuple[list[Any], str]]:
        for context, _, pictures_of, place, task, split in (request.args for request in requests):
            yield list(pictures_of(self.task_dict[task][split][place])), question_of(context)

    def loglikelihood(self, requests: list[Any]) -> NoReturn:
        """Fails always.

        Raises:
            InputError: answers have no likelihood here.
        """
        raise InputError("CodeVQA has no likelihoods to compare.", hint="Choose a task that generates its answers.")

    generate_until_multi_round = loglikelihood

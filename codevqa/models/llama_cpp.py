"""A quantised language model in a GGUF file, run in this process by llama.cpp: a CPU with little memory.

The package xllamacpp carries llama.cpp's own server as a library. Prompts are continued one after another, which on a
few cores loses nothing: nearly all of the time goes to prompt tokens, and each of those takes as long in company.
What saves time is not to compute them twice. Prompts that begin alike follow one another; the server keeps the keys and
values of the last prompt of each of its slots, and those of earlier ones in memory of a given size.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..core.errors import ModelError, ModelNotFoundError, SetupError
from .base import Completion, GenerationRequest, cut_at_stop
from .cpu_threads import computing
from .gguf_header import read_header
from .library_errors import first_line
from .text_stream import TextStream, certain, stream_of

__all__ = ["LlamaCppLM"]

_SLOTS = 2
"""Prompts whose keys and values are ready to be continued: one that writes programs and one that reads captions."""
_CONTEXT = 4096
"""Tokens of prompt and completion: twice what the longest prompts have."""
_GREEDY: dict[str, Any] = {
    # A file may carry sampling settings of its own: none of them is to seep in.
    "temperature": 0.0,
    "top_k": 1,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "dry_multiplier": 0.0,
    "cache_prompt": True,
    "stream": True,
}
_MEGABYTE = 1 << 20


class LlamaCppLM:
    """A GGUF file as a :class:`~codevqa.models.base.LanguageModel`, continued greedily.

    A completion ends at the end of a turn, at any other control token (``<|fim_middle|>``), at its stop strings,
    ``max_tokens``, or a full context.

    Args:
        path: the file.
        name: id reported with answers; None takes the file's name.
        context: tokens that a prompt and its completion may take together; the model's own number where that is lower.
        threads: cores used; None takes as many as PyTorch does.
        prefix_cache_bytes: memory for prompts kept beyond those last continued; 0 keeps no others.

    Raises:
        ModelNotFoundError: no such file, it is not GGUF, or llama.cpp does not know its architecture.
        SetupError: the package xllamacpp is missing, or a number is out of range.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        context: int = _CONTEXT,
        threads: int | None = None,
        prefix_cache_bytes: int = 256 * _MEGABYTE,
    ) -> None:
        if context < 1 or prefix_cache_bytes < 0 or (threads is not None and threads < 1):
            raise SetupError("context and threads must be positive, prefix_cache_bytes not negative.")
        file = Path(path).expanduser()
        header = read_header(file)
        self.name = name or file.stem
        self.chat = bool(header.chat_template)
        """Whether the model has a chat template, so that it can be asked in turns."""
        self.context = min(context, header.context or context)
        """Tokens that prompt and completion may take together."""
        self._marks = header.control_tokens
        self._server = _serve(file, self.context, threads or _cores(), prefix_cache_bytes)

    @classmethod
    def from_pretrained(cls, model: str | os.PathLike[str], **options: Any) -> LlamaCppLM:
        """Loads a file, or one of the Hugging Face hub that is fetched once.

        Args:
            model: a path, or ``OWNER/REPOSITORY/FILE.gguf`` of the hub.
            options: those of the class.

        Raises:
            ModelNotFoundError: it is not here and cannot be fetched, or is not a model for llama.cpp.
            SetupError: the package xllamacpp is missing, or a number is out of range.
        """
        _package()  # before a gigabyte is fetched for nothing
        return cls(find(model), **options)

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        """Continues each prompt greedily.

        Raises:
            ModelError: a prompt is empty or longer than the context, or llama.cpp failed.
            SetupError: a chat prompt, and the model has no chat template.
        """
        for request in requests:
            self._check(request)
        # Those that begin alike follow one another: each finds what the one before it has computed.
        order = sorted(range(len(requests)), key=lambda place: _key(requests[place]))
        done: dict[int, Completion] = {}
        for place in order:
            with computing():
                done[place] = self._complete(requests[place])
        return [done[place] for place in range(len(requests))]

    def _check(self, request: GenerationRequest) -> None:
        if not request.prompt:
            raise ModelError("The prompt is empty.", hint="Give the model something to continue.")
        if request.max_tokens < 1:
            raise ModelError(f"max_tokens is {request.max_tokens}; it must be at least 1.")
        if not isinstance(request.prompt, str) and not self.chat:
            raise SetupError(
                f"{self.name} has no chat template, so it cannot read chat prompts.",
                hint="Use the completion form, or an instruction-tuned model.",
            )

    def _complete(self, request: GenerationRequest) -> Completion:
        ends = (*(stop for stop in request.stop if stop), *self._marks)
        asked = {**_GREEDY, "max_tokens": request.max_tokens, "stop": list(ends)}
        written = _Written(ends, stream_of(request))
        if isinstance(request.prompt, str):
            self._server.handle_completions({**asked, "prompt": request.prompt}, written)
        else:
            turns = [{"role": turn.role, "content": turn.content} for turn in request.prompt]
            self._server.handle_chat_completions(
                {**asked, "messages": turns, "stream_options": {"include_usage": True}}, written
            )
        if written.error is not None:
            raise self._failure(written.error)
        return written.completion()

    def _failure(self, error: dict[str, Any]) -> ModelError:
        if error.get("type") == "exceed_context_size_error":
            return ModelError(
                f"The prompt is {error.get('n_prompt_tokens')} tokens long; {self.name} has a context of "
                f"{error.get('n_ctx', self.context)}.",
                hint="Show fewer in-context examples or use a model with a longer context.",
            )
        return ModelError(f"llama.cpp failed on {self.name}: {' '.join(str(error.get('message', error)).split())}")


class _Written:
    """Takes what the server says of one completion, piece by piece."""

    def __init__(self, ends: Sequence[str], stream: TextStream | None) -> None:
        self.error: dict[str, Any] | None = None
        self._ends, self._stream = ends, stream
        self._text, self._pieces = "", 0
        self._prompt = self._made = 0

    def __call__(self, said: dict[str, Any]) -> bool:
        """Takes a piece; true tells the server to stop."""
        if "error" in said:
            self.error = said["error"]
            return True
        timings = said.get("timings")
        if timings:
            self._prompt = timings["cache_n"] + timings["prompt_n"]
            self._made = timings["predicted_n"]
        for choice in said.get("choices", ())[:1]:
            piece = choice["text"] if "text" in choice else choice.get("delta", {}).get("content")
            if piece:
                self._text, self._pieces = self._text + piece, self._pieces + 1
                if self._stream is not None and self._stream.due(self._pieces):
                    self._stream.tell(certain(self._text, self._ends))
        return False

    def completion(self) -> Completion:
        """Returns the whole, and tells it to whoever listens."""
        text = cut_at_stop(self._text, self._ends)
        if self._stream is not None:
            self._stream.finish(text)
        return Completion(text, prompt_tokens=self._prompt, completion_tokens=self._made)


def find(model: str | os.PathLike[str]) -> Path:
    """Returns the path of a GGUF file: itself, or one of the hub, fetched unless it is here.

    Raises:
        ModelNotFoundError: there is no such file, or it cannot be fetched.
    """
    path = Path(model).expanduser()
    parts = str(model).split("/")
    if path.exists() or len(parts) < 3 or not all(parts[:2]) or parts[0] in (".", "..", "~"):
        return path
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download("/".join(parts[:2]), "/".join(parts[2:])))
    except (OSError, ValueError) as error:
        raise ModelNotFoundError(
            f"No GGUF file at {model}, and the hub gives none: {first_line(error)}.",
            hint="Check the path, the name, or the network.",
        ) from None


def _package() -> Any:
    try:
        import xllamacpp
    except ImportError as error:
        raise SetupError(
            f"Models in GGUF files need the package xllamacpp: {error}.", hint="pip install 'codevqa[gguf]'"
        ) from None
    return xllamacpp


def _serve(file: Path, context: int, threads: int, prefix_cache_bytes: int) -> Any:
    package = _package()
    params = package.CommonParams()
    params.model.path = str(file)
    params.n_parallel = _SLOTS
    params.n_ctx = context * _SLOTS
    params.cache_ram_mib = -(-prefix_cache_bytes // _MEGABYTE)
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    # Control tokens as text: a completion ends where one stands, and otherwise they would leave no trace.
    params.special = True
    # What a model writes is taken as it is: no tool calls or thoughts are cut out of it.
    params.force_pure_content_parser = True
    params.verbosity = -1
    # The library cannot help listening on a port of this machine: nobody knows this key.
    params.hostnames = ["127.0.0.1"]
    params.api_keys = [secrets.token_hex(16)]
    params.ui = params.endpoint_slots = params.endpoint_props = False
    params.warmup = False
    try:
        server = package.Server(params)
    except RuntimeError:
        raise ModelNotFoundError(
            f"llama.cpp cannot load {file}: it is not whole, not of an architecture it knows, or memory is short."
        ) from None
    # A server that ends before its loop has begun never ends.
    server.handle_completions({"prompt": "def", "max_tokens": 1})
    return server


def _cores() -> int:
    import torch

    return torch.get_num_threads()


def _key(request: GenerationRequest) -> tuple[str, ...]:
    prompt = request.prompt
    return (prompt,) if isinstance(prompt, str) else tuple(turn.content for turn in prompt)

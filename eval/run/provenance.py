"""What identifies a run: its settings, prompts, models and data."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
import re
import sys
from datetime import UTC, datetime
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any

from ... import __version__
from ...engine.codevqa import CodeVQA
from ...presets.configuration import public
from ...presets.identity import weight_files
from ..datasets.files import sha256
from ..task import DataSet, Located
from .run_info import RunInfo

SAMPLED = 100
"""Examples that are looked at to tell data sets apart."""
_DRAWN = "mini-data.json"
_COMPUTING = ("torch", "transformers")


def engine_info(engine: CodeVQA) -> RunInfo:
    """Describes an engine and this machine; its methods are all that its models can do."""
    return RunInfo(
        dataset="",
        split="",
        methods=engine.models.methods,
        preset=engine.configuration.preset if engine.configuration is not None else "",
        models=engine.model_names,
        parts=_parts(engine),
        settings=json.loads(json.dumps(dataclasses.asdict(engine.settings))),  # as it will be read
        prompts=_prompt_names(engine),
        prompt_hash=prompt_hash(engine),
        version=__version__,
        packages={name: metadata.version(name) for name in _COMPUTING if name in sys.modules},
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=_machine(),
    )


def with_data(info: RunInfo, dataset: DataSet) -> RunInfo:
    """Describes the data set that an engine (:func:`engine_info`) will be asked about.

    Raises:
        SetupError: a file of the data set cannot be read.
    """
    places = [Path(source.path).absolute() for source in getattr(dataset, "sources", ())]
    return dataclasses.replace(
        info,
        dataset=dataset.name,
        split=dataset.split,
        part=tuple(getattr(dataset, "part", ())),
        data=", ".join(dict.fromkeys(map(str, places))),
        data_hash=data_hash(dataset),
        # ``codevqa mini-data`` leaves that file in the folder that it makes.
        drawn=any((folder / _DRAWN).is_file() for place in places for folder in place.parents[:3]),
    )


def _parts(engine: CodeVQA) -> dict[str, dict[str, Any]]:
    """Returns how each model was loaded, where the engine was made from a configuration."""
    configuration = engine.configuration
    if configuration is None:
        return {}
    loaded = {"language_model": engine.writer.language_model, "retriever": engine.writer.retriever}
    return {
        role: {
            "spec": spec,
            "options": json.loads(json.dumps(public(configuration.options.get(role, {})), default=str)),
            "computes": getattr({**vars(engine.models), **loaded}[role], "computes", ""),
            "weights": weight_hashes(spec),
        }
        for role, spec in configuration.parts.items()
    }


def _prompt_names(engine: CodeVQA) -> str:
    names = {form: prompts.name for form, prompts in sorted(engine.writer.prompts.items())}
    if len(set(names.values())) == 1:
        return next(iter(names.values()))
    return ", ".join(f"{form}: {name}" for form, name in names.items())


def prompt_hash(engine: CodeVQA) -> str:
    """Returns the SHA-256 of all that prompts are made from: preambles as shown, both banks, and their numbers."""
    shown = {
        form: {**dataclasses.asdict(prompts), "preamble": engine.writer.preamble(form), "licence": "", "about": ""}
        for form, prompts in engine.writer.prompts.items()
    }
    return hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()


def data_hash(dataset: DataSet) -> str:
    """Returns the SHA-256 of a data set's annotations, the same wherever and however packed they lie.

    It covers the content of the files (``sources``; a second a gigabyte), and ids, questions and answers of the first
    examples, which tell apart what is read from the same files with other options.

    Raises:
        SetupError: a file cannot be read.
    """
    whole = hashlib.sha256()
    for source in getattr(dataset, "sources", ()):
        whole.update(bytes.fromhex(sha256(Located(Path(source.path), getattr(source, "member", "")))))
    for example in islice(dataset, SAMPLED):
        whole.update(json.dumps([example.id, example.question, list(example.gold)]).encode())
    return whole.hexdigest()


def _machine() -> str:
    """Returns what this machine is: system, processors, and the accelerator where PyTorch is loaded and sees one."""
    shown = f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        shown += f", {torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}"
    return shown


def weight_hashes(spec: str) -> dict[str, str]:
    """Returns the SHA-256 of each weight file of a part that lies on this machine, by its name in the checkpoint.

    A second or two for each gigabyte; nothing for the hub's cache, which names its files by their hash.

    Args:
        spec: ``back end:id``. A server's model has no files here.

    Raises:
        SetupError: a file cannot be read.
    """
    return {name: _file_hash(path) for name, path in weight_files(spec).items()}


def _file_hash(path: Path) -> str:
    blob = path.resolve()
    named = blob.parent.name == "blobs" and re.fullmatch("[0-9a-f]{64}", blob.name)
    return blob.name if named else sha256(Located(path))

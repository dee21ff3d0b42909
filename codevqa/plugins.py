"""Parts of your own: packages that announce themselves, and files that ``--include`` names.

A package names its module in the entry-point group ``codevqa``; importing it registers its parts. Programs are offered
its primitives. Models and data sets are called ``package/name``::

    @register_model("language_model", "echo")  # --language-model package/echo
    def echo(loud: bool = False) -> LanguageModel: ...

    @register_dataset("shapes")  # codevqa eval package/shapes --data FOLDER
    def shapes(folder: Path, split: str) -> Iterator[Example]: ...

Packages are looked up when an engine is made, or such a name is used. ``CODEVQA_PLUGINS=a,b`` names those to import.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from logging import getLogger
from pathlib import Path
from threading import RLock, Timer
from types import ModuleType
from typing import Any, TypeVar

from .core.errors import CodeVQAError, InputError, record

ROLES = ("matcher", "captioner", "language_model", "retriever", "detector", "eyes")
_SLOW_S = 2.0
"""Seconds after which it is said what is being imported."""
_log = getLogger(__name__)
_lock = RLock()
_Maker = TypeVar("_Maker", bound=Callable[..., Any])
_parts: dict[tuple[str, str], Any] = {}
"""Makers of models by role and name; of data sets as ``dataset``; and each ``primitive``."""
_looked = False
included: list[str] = []
"""Files that ``--include`` named: other processes do not have them."""


def register_model(role: str, name: str) -> Callable[[_Maker], _Maker]:
    """Registers what makes a model for a role; its annotated parameters are options, such as ``matcher.size``.

    Raises:
        ValueError: there is no such role, or the package has such a part already.
    """
    if role not in (*ROLES, "dataset"):
        raise ValueError(f"no part {role!r}; there are: {', '.join(ROLES)}")

    def register(maker: _Maker) -> _Maker:
        _add(role, f"{maker.__module__.partition('.')[0].strip('_')}/{name}", maker)
        return maker

    return register


def register_dataset(name: str) -> Callable[[_Maker], _Maker]:
    """Registers what yields the examples of a data set, called with its folder and the split whenever it is read."""
    return register_model("dataset", name)


def names(role: str) -> list[str]:
    """Returns the names of registered models of a role, of each ``dataset``, or each ``primitive``."""
    _load_packages()
    return [name for kind, name in _parts if kind == role]


def find(role: str, name: str) -> Any:
    """Returns what is registered under a role and name, None where nothing is."""
    _load_packages()
    return _parts.get((role, name))


def primitives() -> list[Any]:
    """Returns the primitives that plugins offer to programs."""
    return [_parts["primitive", name] for name in names("primitive")]


def include(path: Path) -> None:
    """Imports a file as a module, and offers what it defines.

    Raises:
        InputError: it is no Python file, is called as another module is, or fails; the message names its line.
    """
    if path.suffix != ".py" or not path.is_file():
        raise InputError(f"No Python file {path}.", hint="Check the path.")
    name, file = path.stem, str(path.resolve())
    if file in included:
        return
    try:
        there = find_spec(name) if name.isidentifier() else None
        free = name.isidentifier() and (there is None or there.origin == file)
    except ValueError:  # a module that says nothing of itself, as __main__ may be
        free = False
    if not free:
        raise InputError(f"{path} cannot be included: {name} is no free module name.", hint="Rename the file.")
    spec = spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    try:
        with _importing(str(path)):
            spec.loader.exec_module(module)
            _offer(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever code of the user's raises
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        line = error.lineno if isinstance(error, SyntaxError) and error.filename == file else (lines or [1])[-1]
        what = error.msg if isinstance(error, SyntaxError) else record(error).message
        raise InputError(f"{path}, line {line}: {type(error).__name__}: {what}") from None
    included.append(file)


def _load_packages() -> None:
    """Imports the packages that announce themselves, once. One that fails is left out, and the log says why."""
    global _looked
    with _lock:
        wanted = os.environ.get("CODEVQA_PLUGINS")
        if _looked or wanted == "":
            return
        _looked = True
        from importlib.metadata import entry_points

        points = entry_points(group="codevqa")
        asked = points.names if wanted is None else {word.strip() for word in wanted.split(",")}
        for name in sorted(asked - points.names):
            _log.warning("CODEVQA_PLUGINS names %s, which is not installed.", name)
        for point in sorted(points):
            if point.name in asked:
                _import(f"{point.name} ({point.module})", point.module)


def _import(shown: str, module: str) -> None:
    try:
        with _importing(f"the plugin {shown}. CODEVQA_PLUGINS= leaves it out"):
            _offer(import_module(module))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever code of the user's raises, a panic of Rust's included
        _log.warning("The plugin %s was left out: %s: %s", shown, type(error).__name__, record(error).message)


@contextmanager
def failures(what: str) -> Iterator[None]:
    """Says as an :class:`InputError` what a registered part raises. No generator may yield within."""
    try:
        yield
    except (CodeVQAError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise InputError(f"{what} failed: {type(error).__name__}: {record(error).message}") from error


@contextmanager
def _importing(what: str) -> Iterator[None]:
    """Says what takes long, and keeps nothing of what registered a part of itself and failed."""
    before = dict(_parts)
    slow = Timer(_SLOW_S, _log.warning, ("Still importing %s.", what))
    slow.daemon = True
    slow.start()
    try:
        yield
    except BaseException:
        _parts.clear()
        _parts.update(before)
        raise
    finally:
        slow.cancel()


def _offer(module: ModuleType) -> None:
    """Offers the primitives of a module to programs."""
    from .primitives.signature import Primitive
    from .primitives.visual import BUILT_IN

    for value in vars(module).values():
        if isinstance(value, Primitive) and value not in (*BUILT_IN,):
            if value.name in BUILT_IN:
                raise ValueError(f"its primitive {value.name!r} has the name of a built-in one; rename it")
            _add("primitive", value.name, value)


def _add(role: str, name: str, part: Any) -> None:
    if _parts.setdefault((role, name), part) is not part:
        raise ValueError(f"there is a {role} {name!r} already; rename one")

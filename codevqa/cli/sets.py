"""``codevqa select``, ``group``, ``compare`` and ``index``: commands over folders of pictures."""

from __future__ import annotations

import csv as tables
import json as encoder
import os
import shutil
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from ..core.errors import InputError, ProgramError
from .options import Chosen, From, Json, Quiet, Recursive, Yes
from .terminal import open_engine, print_warnings, warn

if TYPE_CHECKING:
    from ..core.collection import StoredPicture

Pictures = Annotated[list[str] | None, Argument(metavar="PICTURES...", help="Folders, zip files and pictures.")]
Asked = Annotated[str, Option("--question", "-q", help="The question.")]


def select(
    pictures: Annotated[list[str], Argument(metavar="PICTURES... DESCRIPTION", help="Where to look, and for what.")],
    *,
    choice: Chosen,
    recursive: Recursive = False,
    listed: From = None,
    limit: Annotated[int | None, Option(min=1, help="Pictures at most.")] = None,
    copy_to: Annotated[Path | None, Option(metavar="DIR", help="Copy them there. No file is overwritten.")] = None,
    print0: Annotated[bool, Option("--print0", help="End each path with NUL, for xargs -0.")] = False,
    exact: Annotated[
        bool | None, Option("--exact/--fast", help="Look closely at all pictures, or only at those that may match.")
    ] = None,
    seconds: Annotated[float | None, Option(help="Begin no further picture after so many seconds.")] = None,
    yes: Yes = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """List the pictures that show something, the surest first.

    codevqa select photos/ "a red car at night" prints one path a line.
    """
    *words, description = pictures
    if print0 and json:
        raise InputError("--print0 does not go with --json.", hint="Give one of them.")
    choice = choice.but(exact=exact, seconds=seconds)
    if not words and listed is None:
        raise InputError("There are no pictures, or no description.", hint='Such as: select photos/ "a red car"')
    from ..engine.question_check import checked_question
    from .collections import carried_out, named, opened
    from .set_answers import SetAnswer

    checked_question(description, choice.configure().settings)
    if copy_to is not None:
        _make(copy_to)
    collection = opened(named(words, listed), recursive, quiet)
    stopped = None
    with open_engine(choice, quiet) as vqa:
        rule_out = vqa.settings.sets.rule_out
        if exact is False and rule_out <= -1:
            warn("--fast does nothing until a threshold is set: --set sets.rule_out=NUMBER.")
        try:
            answer = carried_out(
                vqa,
                collection.open(),
                lambda memory: vqa.select(collection, description, memory=memory),
                yes=yes,
                quiet=quiet,
            )
        except ProgramError as error:
            if error.answer is None or not error.answer.selections:
                raise
            answer, stopped = error.answer, error
    found = SetAnswer(answer, collection.open())
    picked = [found.pictures[one.index - 1] for one in found.picked()[:limit]]
    print_warnings(answer)
    if copy_to is not None:
        _copy(picked, copy_to)
    if json:
        print(found.to_json())
    else:
        _print_paths(picked, b"\0" if print0 else b"")
    if not quiet or answer.error is not None or any(one.left for one in answer.selections):
        for selection in answer.selections:
            warn(found.told(selection))
    if stopped is not None:
        raise stopped


def group(
    pictures: Pictures = None,
    *,
    question: Asked,
    choice: Chosen,
    recursive: Recursive = False,
    listed: From = None,
    csv: Annotated[Path | None, Option(metavar="FILE", help="Write the answer about each picture.")] = None,
    yes: Yes = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Ask each picture one question, and group them by the answer."""
    if csv is not None and not csv.parent.is_dir():
        raise InputError(f"There is no folder {str(csv.parent)!r}.", hint="Make it, or give another.")
    from ..engine.question_check import checked_question
    from .collections import carried_out, named, opened, path_of
    from .set_answers import print_lines

    checked_question(question, choice.configure().settings)
    collection = opened(named(pictures or (), listed), recursive, quiet)
    with open_engine(choice, quiet) as vqa:
        groups = carried_out(
            vqa,
            collection.open(),
            lambda memory: vqa.group(collection, question, memory=memory),
            yes=yes,
            quiet=quiet,
        )
    print_warnings(groups.answer)
    rows = [(row.answer, [path_of(collection.open()[one.index - 1]) for one in row.pictures]) for row in groups]
    if csv is not None:
        with csv.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            tables.writer(file).writerows([("picture", "answer"), *((one, said) for said, of in rows for one in of)])
    if json:
        told = [{"answer": said, "count": len(of), "pictures": of} for said, of in rows]
        print(encoder.dumps({"question": question, "groups": told}, ensure_ascii=False))
        return
    wide = max(len(said or "-") for said, _ in rows)
    print_lines(f"{said or '-':{wide}}  {len(of):>6,}  {', '.join(of[:3])}" for said, of in rows)


def compare(
    pictures: Annotated[list[str], Argument(metavar="A B...", help="Folders or zip files.")],
    question: Asked,
    *,
    choice: Chosen,
    recursive: Recursive = False,
    yes: Yes = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Ask one question about several folders: one program is written, and run on each."""
    if len(pictures) < 2:
        raise InputError("One folder cannot be compared.", hint="Give two or more.")
    from ..engine.question_check import checked_question
    from .collections import carried_out, named, opened
    from .set_answers import SetAnswer, compared, print_lines

    checked_question(question, choice.configure().settings)
    sets = [opened(named([word]), recursive, quiet) for word in pictures]
    with open_engine(choice, quiet) as vqa:
        answers = carried_out(
            vqa,
            [picture for one in sets for picture in one],
            lambda memory: vqa.compare(sets, question, memory=memory),
            yes=yes,
            quiet=quiet,
        )
    found = [SetAnswer(answer, one.open()) for answer, one in zip(answers, sets, strict=True)]
    print_warnings(answers[0])
    if json:
        told = [{"pictures_of": word, **one.to_dict()} for word, one in zip(pictures, found, strict=True)]
        print(encoder.dumps({"question": question, "answers": told}, ensure_ascii=False, allow_nan=False))
    else:
        if not quiet and answers[0].program is not None:
            print(answers[0].program.source, file=sys.stderr)
        print_lines(compared(pictures, found))


def index(
    pictures: Pictures = None,
    *,
    choice: Chosen,
    recursive: Recursive = False,
    listed: From = None,
    drop: Annotated[bool, Option("--drop", help="Delete the index instead.")] = False,
    quiet: Quiet = False,
) -> None:
    """Index pictures ahead: questions about them then begin at once.

    What is done stays where it is interrupted, and is not done again.
    """
    from ..core.collection import Collection
    from .collections import Pace, named, opened

    sources = named(pictures or (), listed)
    if drop:
        dropped = Collection(sources)
        dropped.drop_index()
        print(f"deleted {dropped.index}")
        return
    collection = opened(sources, recursive, quiet)
    with open_engine(choice, quiet) as vqa:
        pace = Pace()
        with pace.shown(quiet):
            vqa.index(collection, pace.tell)
    size = sum(file.stat().st_size for file in collection.index.rglob("*") if file.is_file())
    print(f"{pace.done:,} pictures, {pace.rate:.1f}/s: {size / 1e6:,.1f} MB in {collection.index}")


def _print_paths(pictures: Iterable[StoredPicture], end: bytes) -> None:
    """Prints one path a line, or each as it is with an end that no path has."""
    from .collections import path_of
    from .set_answers import print_lines

    paths = map(path_of, pictures)
    if not end:
        print_lines(paths)
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(b"".join(os.fsencode(path) + end for path in paths))


def _make(folder: Path) -> None:
    """Makes a folder where there is none."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{folder} is no folder for copies: {error.strerror}.", hint="Give --copy-to another."
        ) from None


def _copy(pictures: Iterable[StoredPicture], folder: Path) -> None:
    """Copies pictures into a folder, each under a name that is free."""
    count = 0
    for picture in pictures:
        name = Path(picture.member) if picture.member else picture.path
        free, number = folder / name.name, 1
        while os.path.lexists(free):
            number += 1
            free = folder / f"{name.stem}-{number}{name.suffix}"
        with free.open("xb") as copy:
            if picture.member:
                with zipfile.ZipFile(picture.path) as archive, archive.open(picture.member) as file:
                    shutil.copyfileobj(file, copy)
            else:
                with picture.path.open("rb") as file:
                    shutil.copyfileobj(file, copy)
        count += 1
    warn(f"{count:,} {'picture' if count == 1 else 'pictures'} copied to {folder}")

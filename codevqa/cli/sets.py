"""``codevqa select``, ``group``, ``compare`` and ``index``: commands over folders of pictures."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Exit, Option

from ..core.errors import InputError, ProgramError
from ..core.question_kind import question_kind
from .options import (
    Chosen,
    From,
    Json,
    Pictures,
    QuestionOption,
    Quiet,
    RayActors,
    RayAddress,
    Recursive,
    Where,
    Yes,
    check_ray,
)
from .printing import print_json, print_text
from .tables import Out, check_out, save_rows
from .terminal import check_choice, open_engine, print_warnings, warn

if TYPE_CHECKING:
    from ..batching.call_cache import Memory
    from ..collections.collection import Collection, StoredPicture
    from ..core.answer import Answer
    from ..engine.codevqa import CodeVQA
    from ..eval.ray import ActorPool
    from .set_answers import SetAnswer

NAMED = 5
"""Pictures that could not be read that are named; the others are counted."""


def select(
    pictures: Annotated[list[str], Argument(metavar="PICTURES... DESCRIPTION", help="Where to look, and for what.")],
    *,
    choice: Chosen,
    recursive: Recursive = False,
    listed: From = None,
    limit: Annotated[int | None, Option(min=1, help="Pictures at most.")] = None,
    copy_to: Annotated[Path | None, Option(metavar="DIR", help="Copy them there. No file is overwritten.")] = None,
    out: Out = None,
    print0: Annotated[bool, Option("--print0", help="End each path with NUL, for xargs -0.")] = False,
    exact: Annotated[
        bool | None, Option("--exact/--fast", help="Look closely at all pictures, or only at those that may match.")
    ] = None,
    seconds: Annotated[float | None, Option(help="Begin no further picture after so many seconds.")] = None,
    where: Where = "local",
    ray_address: RayAddress = None,
    ray_actors: RayActors = None,
    yes: Yes = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """List the pictures that show something, the surest first.

    codevqa select photos/ "a red car at night" prints one path a line.
    """
    *words, description = pictures
    check_ray(where, ray_address, ray_actors)
    if print0 and json:
        raise InputError("--print0 does not go with --json.", hint="Give one of them.")
    if not words and listed is None:
        raise InputError("There are no pictures, or no description.", hint='Such as: select photos/ "a red car"')
    check_out(out)
    if copy_to is not None and os.path.lexists(copy_to) and not copy_to.is_dir():
        raise InputError(f"{copy_to} is no folder for copies.", hint="Give --copy-to another.")
    choice = choice.but(exact=exact, seconds=seconds)
    settings = choice.configure().settings
    if exact is False and settings.sets.rule_out <= -1:
        warn("--fast does nothing until a threshold is set: --set sets.rule_out=NUMBER.")
    from ..collections.collection import picture_path
    from .collections import carry_out, expand_paths, open_collection
    from .set_answers import SetAnswer

    choice.check_question(description)
    collection = open_collection(expand_paths(words, listed), recursive, quiet)
    if where == "ray":
        with _pool(choice, quiet, ray_actors, ray_address) as pool:
            answer = pool.select(collection, description)
    else:
        with open_engine(choice, quiet) as vqa:
            do = partial(_select_pictures, vqa, collection, description)
            answer = carry_out(vqa, [collection], do, yes=yes, quiet=quiet)
    set_answer = SetAnswer(answer, collection, answer.selections)
    stored = collection.open()
    picked = [stored[pick.image.index - 1] for part in set_answer.selections[:1] for pick in part.picked[:limit]]
    print_warnings(set_answer.answer)
    if copy_to is not None:
        _copy(picked, copy_to)
    save_rows(out, "selected", description, "yes_no", set_answer.rows)
    if json:
        print_json(set_answer.to_dict())
    else:
        print_text(*map(picture_path, picked), end="\0" if print0 else "\n", exact=print0)
    raise Exit(_report_selection(set_answer, quiet))


def _report_selection(selected: SetAnswer, quiet: bool) -> int:
    """Says how sure a selection is; returns the exit status, 1 where it is not whole."""
    failed = selected.answer.error
    for part in selected.selections:
        if not quiet or failed is not None or part.left:
            warn(selected.count_text(part))
        if part.unread:
            names = ", ".join(map(selected.path, part.unread[:NAMED]))
            more = f" and {len(part.unread) - NAMED:,} more" if len(part.unread) > NAMED else ""
            warn(f"{len(part.unread):,} could not be read, and may be either: {names}{more}")
    if failed is not None:
        warn(failed.message)
    return int(failed is not None or selected.answer.declined)


def _select_pictures(vqa: CodeVQA, collection: Collection, description: str, memory: Memory) -> Answer:
    """Returns what was selected, also where it ended early."""
    try:
        return vqa.select(collection, description, memory=memory)
    except ProgramError as error:
        if error.answer is None or not error.answer.selections:
            raise
        answer: Answer = error.answer
        return answer


def _pool(choice: Chosen, quiet: bool, actors: int | None, address: str | None) -> closing[ActorPool]:
    """Opens an engine in each of many processes."""
    from ..engine.codevqa import CodeVQA
    from ..eval.ray import ActorPool

    factory = partial(CodeVQA.from_configuration, check_choice(choice, quiet))
    return closing(ActorPool(factory, actors=actors, address=address))


def group(
    pictures: Pictures = None,
    *,
    question: QuestionOption,
    choice: Chosen,
    recursive: Recursive = False,
    listed: From = None,
    out: Out = None,
    yes: Yes = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Ask each picture one question, and group them by the answer."""
    check_out(out)
    from ..collections.collection import picture_path
    from .collections import carry_out, expand_paths, open_collection
    from .set_answers import SetAnswer

    choice.check_question(question)
    collection = open_collection(expand_paths(pictures or (), listed), recursive, quiet)
    with open_engine(choice, quiet) as vqa:
        do = lambda memory: vqa.group(collection, question, memory=memory)  # noqa: E731
        groups = carry_out(vqa, [collection], do, yes=yes, quiet=quiet)
    print_warnings(groups.answer)
    stored = collection.open()
    rows = [(row.answer, [picture_path(stored[picture.index - 1]) for picture in row.pictures]) for row in groups]
    whole = SetAnswer(groups.answer, collection, ())
    save_rows(out, "answer", question, question_kind(question).kind, whole.rows)
    if json:
        records = [{"answer": text, "count": len(of), "pictures": of} for text, of in rows]
        print_json({"question": question, "groups": records})
        return
    wide = max(len(text or "-") for text, _ in rows)
    print_text(*(f"{text or '-':{wide}}  {len(of):>6,}  {', '.join(of[:3])}" for text, of in rows))


def compare(
    pictures: Annotated[list[str], Argument(metavar="A B...", help="Folders or zip files.")],
    question: QuestionOption,
    *,
    choice: Chosen,
    recursive: Recursive = False,
    out: Out = None,
    yes: Yes = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Ask several folders one question, with one program for all of them."""
    check_out(out)
    if len(pictures) < 2:
        raise InputError("One folder cannot be compared.", hint="Give two or more.")
    from .collections import carry_out, expand_paths, open_collection
    from .set_answers import SetAnswer, compare_answers

    choice.check_question(question)
    sets = [open_collection(expand_paths([word]), recursive, quiet) for word in pictures]
    with open_engine(choice, quiet) as vqa:
        do = lambda memory: vqa.compare(sets, question, memory=memory)  # noqa: E731
        answers = carry_out(vqa, sets, do, yes=yes, quiet=quiet)
    set_answers = [
        SetAnswer(answer, pictures_of_set, answer.selections)
        for answer, pictures_of_set in zip(answers, sets, strict=True)
    ]
    print_warnings(answers[0])
    save_rows(
        out,
        "answer",
        question,
        "open",
        lambda column: [
            row for word, answer in zip(pictures, set_answers, strict=True) for row in answer.rows(column, word)
        ],
    )
    if json:
        records = [
            {"pictures_of": word, **set_answer.to_dict()}
            for word, set_answer in zip(pictures, set_answers, strict=True)
        ]
        print_json({"question": question, "answers": records})
        return
    if not quiet and answers[0].program is not None:
        print_text(answers[0].program.source, error=True)
    print_text(*compare_answers(pictures, set_answers))


def index(
    pictures: Pictures = None,
    *,
    choice: Chosen,
    recursive: Recursive = False,
    listed: From = None,
    drop: Annotated[bool, Option("--drop", help="Delete the index instead.")] = False,
    where: Where = "local",
    ray_address: RayAddress = None,
    ray_actors: RayActors = None,
    quiet: Quiet = False,
) -> None:
    """Index pictures ahead: questions about them then begin at once.

    What is done stays where it is interrupted, and is not done again.
    """
    check_ray(where, ray_address, ray_actors)
    from ..collections.collection import Collection
    from .collections import Pace, expand_paths, open_collection

    sources = expand_paths(pictures or (), listed)
    if drop:
        dropped = Collection(sources)
        dropped.drop_index()
        print_text(f"deleted {dropped.index}")
        return
    collection = open_collection(sources, recursive, quiet)
    if where == "ray":
        with _pool(choice, quiet, ray_actors, ray_address) as pool:
            pace = Pace()
            pool.index(collection)
            pace.tell(len(collection), len(collection))
    else:
        with open_engine(choice, quiet) as vqa:
            pace = Pace()
            with pace.show(quiet):
                vqa.index(collection, pace.tell)
    pictures_kept = collection.open()
    size = pictures_kept[0].memory.feature_bytes([picture.key for picture in pictures_kept])
    print_text(f"{pace.done:,} pictures, {pace.rate:.1f}/s: {size / 1e6:,.1f} MB in {collection.index}")


def _copy(pictures: Sequence[StoredPicture], folder: Path) -> None:
    """Copies pictures into a folder, each under a name that is free."""
    folder.mkdir(parents=True, exist_ok=True)
    for picture in pictures:
        name = Path(picture.member) if picture.member else picture.path
        free, number = folder / name.name, 1
        while os.path.lexists(free):
            number += 1
            free = folder / f"{name.stem}-{number}{name.suffix}"
        source = zipfile.Path(picture.path, picture.member) if picture.member else picture.path
        free.write_bytes(source.read_bytes())
    warn(f"{len(pictures):,} {'picture' if len(pictures) == 1 else 'pictures'} copied to {folder}")

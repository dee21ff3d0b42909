"""``codevqa check``: rules about pictures that pass or fail, with an exit status that says which."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option

from ..core.errors import CodeVQAError, InputError
from .options import Chosen, From, Json, Quiet, Recursive, Yes
from .printing import print_json, print_text
from .tables import Seconds, follow
from .terminal import open_engine, warn

if TYPE_CHECKING:
    from ..collections.collection import Collection
    from ..core.rules import Rule, Verdict
    from ..engine.checking import Checked, Lock
    from ..engine.codevqa import CodeVQA

LISTED = 20
"""Pictures of a rule that are listed; the others are counted."""
SHOWN = 48
"""Pictures of a page that are shown with their evidence."""
CANNOT = 3
"""Exit status where nothing could be checked; 1 and 2 are verdicts."""


def check(
    rules: Annotated[Path, Argument(metavar="RULES.toml", help="The rules.")],
    pictures: Annotated[
        list[str] | None, Argument(metavar="PICTURES...", help="Folders, zip files and pictures.")
    ] = None,
    *,
    choice: Chosen,
    update: Annotated[
        bool, Option("--update", help="Write the programs again, and say which pictures change sides.")
    ] = False,
    page: Annotated[
        Path | None, Option(metavar="FILE.html", help="Write a page with the failing and the unsure pictures.")
    ] = None,
    junit: Annotated[Path | None, Option(metavar="FILE.xml", help="Write the verdicts as JUnit XML.")] = None,
    labels: Annotated[
        Path | None, Option(metavar="FILE.csv", help="Truths in its columns NAME_truth: how often a rule is right.")
    ] = None,
    recursive: Recursive = False,
    listed: From = None,
    seconds: Seconds = None,
    yes: Yes = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Check rules on each picture.

    Exit status: 0 all pass, 1 some fail, 2 some are to be looked at, 3 it could not be done. A rule's program is
    written once and kept beside the rules, in RULES.lock.
    """
    from ..core.rules import exit_status

    say = warn if json else print_text
    try:
        for file in filter(None, (page, junit)):
            check_folder(file)
        with ExitStack() as opened:
            engines: list[CodeVQA] = []

            def engine() -> CodeVQA:
                if not engines:
                    engines.append(opened.enter_context(open_engine(choice, quiet)))
                return engines[0]

            collection = _open_pictures(rules, pictures or (), listed, recursive, quiet)
            checked = _check(choice, rules, collection, engine, update, seconds, yes, quiet, say)
            if labels is not None:
                _print_precision(checked, labels, say)
            if json:
                print_json(_plain_verdicts(checked.verdicts))
            else:
                _print_verdicts(checked.verdicts, quiet)
            if junit is not None:
                _write_junit(junit, rules, checked.verdicts)
            if page is not None:
                _write_page(page, checked, collection, engine)
    except CodeVQAError as error:
        warn(str(error))
        raise Exit(CANNOT) from None
    raise Exit(exit_status(checked.verdicts))


def _open_pictures(rules: Path, words: Sequence[str], listed: str | None, recursive: bool, quiet: bool) -> Collection:
    from ..core.rules import read_rules
    from .collections import expand_paths, open_collection

    read_rules(rules)  # a mistake in it is told before pictures are read
    return open_collection(expand_paths(words, listed), recursive, quiet)


def _check(
    choice: Chosen,
    file: Path,
    collection: Collection,
    engine: Callable[[], CodeVQA],
    update: bool,
    seconds: float | None,
    yes: bool,
    quiet: bool,
    say: Callable[[str], None],
) -> Checked:
    """Checks the rules of a file, and keeps their programs beside it."""
    from ..core.rules import read_rules
    from ..engine.checking import Lock, RuleCheck
    from ..engine.tables import Budget
    from ..presets.assembly import names_of
    from ..presets.identity import identity_of
    from .collections import Pace

    rules, place = read_rules(file), file.with_suffix(".lock")
    for rule in rules:
        choice.check_question(rule.ask)
    configuration = choice.configure()
    here = configuration.here()
    blank = Lock(names_of(here), here.settings.prompts or f"those of {here.preset}")
    try:
        old = Lock.read(place)
        if old is not None and not update:
            old.check(blank, place)
    except InputError as error:
        if not update:
            raise
        warn(str(error.message))
        old = None
    known = blank if old is None else replace(blank, questions=old.questions, programs=old.programs)
    identity, budget, pace = identity_of(configuration), Budget(seconds=seconds), Pace()
    progress = follow(pace, budget, agreed=yes or seconds is not None)
    with pace.show(quiet):
        what = blank if update else known
        how = {"fresh": here.settings.fresh, "reads": "pnpvqa" in here.methods and "eyes" not in here.parts}
        checked = RuleCheck(rules, collection, what, identity, engine, rewrite=update, **how).run(budget, progress)
        same = [rule for rule in rules if update and old is not None and _asks_the_same(rule, old)]
        before = RuleCheck(same, collection, known, identity, engine, **how).run(budget, progress) if same else None
    if before is not None:
        _print_changes(before, checked, same, say)
    if checked.lock != old:
        checked.lock.save(place)
        if not quiet:
            _print_programs(checked, known, place)
    if checked.left:
        warn(f"{checked.left:,} pictures were not reached: run the same again to go on.")
    return checked


def _asks_the_same(rule: Rule, old: Lock) -> bool:
    columns = [rule.column] if rule.condition is None else [rule.column, rule.condition]
    return rule.about == "picture" and all(old.questions.get(column.name) == column.question for column in columns)


def _print_programs(checked: Checked, known: Lock, place: Path) -> None:
    for name, program in checked.lock.programs.items():
        if known.programs.get(name) != program:
            shown = program or "(none could be written: each picture is asked for itself)"
            warn(f"{name}: {checked.lock.questions[name]}")
            print_text(*(f"    {line}" for line in shown.splitlines()), error=True)
    warn(f"programs kept in {place}")


def _print_changes(before: Checked, after: Checked, rules: Sequence[Rule], say: Callable[[str], None]) -> None:
    """Says which pictures change sides where programs were written anew, and whether that is more than chance."""
    from ..core.rules import changed_sides
    from ..eval.statistics import mcnemar

    for rule in rules:
        if before.lock.programs.get(rule.name) == after.lock.programs.get(rule.name):
            say(f"{rule.name}: the program is the same")
            continue
        changed, better, worse = changed_sides(before.tables[rule.name], after.tables[rule.name], rule)
        if not changed:
            say(f"{rule.name}: another program, and no picture changes sides")
            continue
        say(f"{rule.name}: {better:,} begin to pass and {worse:,} cease to (McNemar p = {mcnemar(better, worse):.3g})")
        for name in changed[:LISTED]:
            say(f"  {shown_file(name)}")
        if len(changed) > LISTED:
            say(f"  and {len(changed) - LISTED:,} more")


def check_folder(file: Path) -> None:
    """Checks, before anything is asked, that a file can be written.

    Raises:
        InputError: there is no such folder.
    """
    if not file.parent.is_dir():
        raise InputError(f"There is no folder {str(file.parent)!r}.", hint="Make it, or give another.")


def _print_verdicts(verdicts: Sequence[Verdict], quiet: bool) -> None:
    from ..engine.checking import picture_verdicts

    wide = max(len(verdict.rule.name) for verdict in verdicts)

    def lines() -> Iterator[str]:
        for verdict in verdicts:
            yield f"{verdict.side.upper():4}  {verdict.rule.name:{wide}}  {verdict.summary}"
            if quiet:
                continue
            shown = [picture for picture in picture_verdicts(verdict, LISTED) if verdict.rule.about == "picture"]
            for picture in shown:
                why = picture.why or f"{verdict.rule.column.question} {picture.cell.value}"
                yield f"      {picture.side}  {shown_file(picture.picture)}: {why}"
            rest = len(verdict.of("fail")) + len(verdict.of("look")) - len(shown)
            if rest > 0 and verdict.rule.about == "picture":
                yield f"      and {rest:,} more (--page, --json)"

    print_text(*lines())


def shown_file(path: str) -> str:
    """Returns a path from the working folder on, if it is in there."""
    from ..core.images import shown_path

    place = Path(path)
    return shown_path(str(place.relative_to(Path.cwd())) if place.is_relative_to(Path.cwd()) else path)


def _plain_verdicts(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Returns verdicts as plain data."""

    def plain(verdict: Verdict) -> dict[str, Any]:
        pictures = [
            {
                "picture": picture.picture,
                "side": picture.side,
                "value": picture.cell.value,
                "chance": None if picture.cell.chance is None else round(picture.cell.chance, 4),
                "why": picture.why,
            }
            for picture in verdict.pictures
        ]
        return {
            "rule": verdict.rule.name,
            "side": verdict.side,
            "summary": verdict.summary,
            "program": verdict.program,
            "pictures": pictures,
        }

    return {"rules": [plain(verdict) for verdict in verdicts]}


def _write_junit(file: Path, rules: Path, verdicts: Sequence[Verdict]) -> None:
    """Writes a suite for each rule and a case for each picture: to be looked at is an error, not a failure."""
    from xml.etree import ElementTree as Tree

    from ..core.table import written_whole
    from ..core.text import visible

    root = Tree.Element("testsuites", name=visible(rules.name))
    for verdict in verdicts:
        cases = [picture for picture in verdict.pictures if picture.side != "skip"]
        counts = {side: str(sum(picture.side == side for picture in cases)) for side in ("fail", "look")}
        suite = Tree.SubElement(
            root,
            "testsuite",
            name=visible(verdict.rule.name),
            tests=str(len(cases)),
            failures=counts["fail"],
            errors=counts["look"],
        )
        for picture in cases:
            case = Tree.SubElement(
                suite, "testcase", name=visible(picture.picture), classname=visible(verdict.rule.name)
            )
            if picture.side in ("fail", "look"):
                message = picture.why or f"{verdict.rule.column.question} {picture.cell.value}"
                Tree.SubElement(case, "failure" if picture.side == "fail" else "error", message=visible(message))
    Tree.indent(root)
    with written_whole(file) as opened:
        opened.write(Tree.tostring(root, encoding="unicode", xml_declaration=True) + "\n")


def _print_precision(checked: Checked, file: Path, say: Callable[[str], None]) -> None:
    """Says how often what a rule says of a picture is right, by labels."""
    from ..core.labels import with_truths
    from ..eval.statistics import wilson
    from .labels import read_labels

    columns = [verdict.rule.column for verdict in checked.verdicts if verdict.rule.about == "picture"]
    truths = read_labels(file, columns)
    for verdict in checked.verdicts:
        rule = verdict.rule
        table = checked.tables.get(rule.name)
        if table is None or not table.columns or rule.each:
            continue
        known = {row.picture for row in table.pictures}
        labelled = with_truths(table, {name: truth for name, truth in truths.items() if name in known})
        cells = {row.picture: row.cells.get(rule.name) for row in labelled.pictures if row.picked == "random"}
        for side, passes in (("fail", False), ("pass", True)):
            judged = [cells.get(picture.picture) for picture in verdict.of(side)]  # type: ignore[arg-type]
            known_cells = [cell for cell in judged if cell is not None and cell.truth is not None]
            right = sum(rule.passes(cell.truth) is passes for cell in known_cells)
            if known_cells:
                interval = wilson(right, len(known_cells))
                say(
                    f"{rule.name}: right on {right} of {len(known_cells)} labelled pictures that {side},"
                    f" {100 * interval.low:.0f} to {100 * interval.high:.0f} %"
                )


def _write_page(file: Path, checked: Checked, collection: Collection, engine: Callable[[], CodeVQA]) -> None:
    """Writes the page of the failing and the unsure pictures."""
    from ..core.table import written_whole
    from ..engine.checking import evidence_of
    from ..pages.check_page import rules_page

    doubtful = any(verdict.of("fail") or verdict.of("look") for verdict in checked.verdicts)
    evidence = evidence_of(engine(), collection, checked, SHOWN) if doubtful else {}
    with written_whole(file) as opened:
        opened.write(rules_page(checked.verdicts, evidence))

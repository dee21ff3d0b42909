"""``codevqa doctor``: an eye chart for the model that answers about pictures."""

from __future__ import annotations

import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Exit, Option

from ..core.errors import CodeVQAError, InputError
from .options import Chosen, Json, Quiet
from .printing import print_json, print_text
from .terminal import Bar, check_choice, open_engine, warn

if TYPE_CHECKING:
    from ..engine.chart import Chart, Finding
    from ..engine.codevqa import CodeVQA
    from ..models.protocols import LookRequest, Sight
    from ..presets.configuration import Configuration

_ROW = "{:<14}  {:<7}  {:<44}  {}"


def doctor(
    choice: Chosen,
    save: Annotated[
        Path | None, Option(metavar="FILE.toml", help="Write a preset file with the limits that follow.")
    ] = None,
    seconds: Annotated[float, Option(min=1, help="Send no further request after so many seconds.")] = 600.0,
    seed: Annotated[int, Option(help="Seed of the cards.")] = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Test whether a model looks at each picture, and at how many.

    Sends at most 50 requests. Use the saved file as --preset: it limits what
    --method direct shows at once, and reports name the chart.
    """
    from dataclasses import asdict

    from ..engine.chart import Chart, Examination, OutOfTimeError
    from ..presets.configuration import Layer

    _check_file(save, choice)
    everything = Chosen(choice.preset, (*choice.layers, Layer("doctor", {"strict_domain": False})))
    configuration = check_choice(everything, quiet)
    findings: list[Finding] = []
    began, stopped, status = time.monotonic(), "", 0
    with ExitStack() as stack:
        eyes = _open_eyes(stack, choice, configuration, quiet)
        tokens = configuration.settings.query.max_tokens
        exam = Examination(eyes, seed=seed, max_tokens=tokens, seconds=seconds)
        if not quiet:
            exam.tell = warn
        if not json:
            print_text(_ROW.format("test", "", "measured", "what it means"))
        try:
            with Bar(quiet):
                for finding in exam.findings():
                    findings.append(finding)
                    if not json:
                        print_text(_ROW.format(finding.test, finding.verdict, finding.measured, finding.meaning))
        except (CodeVQAError, KeyboardInterrupt) as error:
            if not findings and isinstance(error, CodeVQAError) and not isinstance(error, OutOfTimeError):
                raise
            stopped = str(error) or "interrupted"
            status = 130 if isinstance(error, KeyboardInterrupt) else 1
        server, name = getattr(eyes, "address", ""), eyes.name
    today = datetime.now(UTC).date().isoformat()
    spent = round(time.monotonic() - began, 1)
    chart = Chart(name, server, today, seed, exam.requests, spent, tuple(findings), stopped)
    if json:
        print_json({**asdict(chart), "result": chart.result, "settings": chart.settings()})
    else:
        print_text(f"{name}{f' at {server}' if server else ''}, {chart.result}")
    if stopped:
        warn(f"{stopped} What was measured until then is kept: {exam.requests} requests.")
    if save is not None and findings:
        _save(save, choice, chart)
    raise Exit(status or int(bool(chart.failed)))


class _Captioned:
    """Few-shot PnP-VQA as eyes: what a preset with BLIP answers by."""

    def __init__(self, vqa: CodeVQA) -> None:
        self.name = f"PnP-VQA with {vqa.model_names['captioner']}"
        self._vqa = vqa

    def look(self, requests: list[LookRequest]) -> list[Sight]:
        from ..models.protocols import Sight

        questions = [request.text.partition("\n")[0] for request in requests]
        answers = [
            self._vqa.ask(request.pictures, question, method="pnpvqa")
            for request, question in zip(requests, questions, strict=True)
        ]
        return [Sight(answer.text) for answer in answers]


def _open_eyes(stack: ExitStack, choice: Chosen, configuration: Configuration, quiet: bool) -> Any:
    if (spec := configuration.parts.get("eyes")) is None:
        return _Captioned(stack.enter_context(open_engine(choice, quiet, configuration)))
    from ..presets.assembly import load, quiet_libraries

    quiet_libraries()
    eyes = load("eyes", spec, **configuration.options.get("eyes", {}))
    stack.callback(getattr(eyes, "close", lambda: None))
    return eyes


def _check_file(save: Path | None, choice: Chosen) -> None:
    """Refuses a file that cannot be written, before anything is asked."""
    if save is None:
        return
    if save.suffix != ".toml" or not save.parent.is_dir():
        raise InputError(f"Cannot save to {save}.", hint="Give a name that ends in .toml, in a folder that exists.")
    if save.exists() and str(save) != choice.preset:
        raise InputError(f"{save} is there already.", hint="Give another name, or measure that preset: --preset FILE.")


def _save(save: Path, choice: Chosen, chart: Chart) -> None:
    from ..core.table import written_whole
    from ..presets.configuration import Layer
    from .models import config_lines

    layer = Layer(f"codevqa doctor {chart.date}", chart.settings())
    lines = config_lines(Chosen(choice.preset, (*choice.layers, layer)).configure())
    with written_whole(save) as file:
        file.write("\n".join(lines) + "\n")
    warn(f"wrote {save}: use it as --preset {save}")

"""What tests of properties share: how long they are tried, what is typed, and a cheap engine that is real otherwise.

``HYPOTHESIS_PROFILE=campaign`` tries :data:`FUZZ_EXAMPLES` examples of each property, chosen anew every time; what it
finds is kept as an ``@example`` or as a file in ``corpus/``. Without it, the same few are tried in seconds.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from engine_kit import NARROW, engine
from hypothesis import HealthCheck, settings
from PIL import Image

from codevqa import CodeVQA, QuerySettings
from codevqa.core.errors import CodeVQAError, InternalError

FUZZ_EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "2000"))
CORPUS = Path(__file__).with_name("corpus")
PICTURES = [Image.new("RGB", (40, 30), colour) for colour in ("red", "green", "blue")]

# A slow machine is no failure, and fixtures here hold no state that an example changes.
_HEALTH = (HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large)
_COMMON = settings(deadline=None, report_multiple_bugs=False, suppress_health_check=_HEALTH)
settings.register_profile("few", _COMMON, max_examples=25, derandomize=True)
settings.register_profile("campaign", _COMMON, max_examples=FUZZ_EXAMPLES)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "few"))


@contextmanager
def typed_only() -> Iterator[None]:
    """Takes errors of ours, which have to be one line of bounded length, and lets all others through."""
    try:
        yield
    except InternalError:
        raise
    except CodeVQAError as error:
        assert "\n" not in str(error) and 0 < len(str(error)) < 1500, error


def cheap_engine(program: str = "answer = query(img, 'Is it red?')") -> CodeVQA:
    """Returns an engine over fake models: real prompts, real sandbox, real batching."""
    return engine(program, settings=replace(NARROW, query=QuerySettings(witness=True)))

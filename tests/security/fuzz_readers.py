"""A campaign of Atheris over the readers of :mod:`readers`: ``make fuzz``, or

    python tests/security/fuzz_readers.py [--seconds 60] [READER ...]

Each begins with what ``corpus/READER.json`` keeps, and what found new ways through the code is kept there after it,
within :data:`KEPT` and :data:`LONGEST`. A test gives them to the
readers again without Atheris, which exists for Linux alone. The status is 1 where anything was found.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

KEPT = 40
"""Inputs of each reader."""
LONGEST = 900
"""Bytes of one."""


def child(name: str, given: list[str]) -> None:
    """Runs libFuzzer, which ends the process."""
    import atheris

    with atheris.instrument_imports(include=["codevqa"]):
        import readers
    atheris.Setup([sys.argv[0], *given], readers.READERS[name])
    atheris.Fuzz()


def campaign(name: str, seconds: int) -> bool:
    """Looks for a finding, and keeps what is worth keeping; says whether there is none."""
    from readers import seeds

    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder)
        for data in seeds(name):
            (found / hashlib.sha256(data).hexdigest()).write_bytes(data)
        itself = [sys.executable, __file__, "--child", name]
        limits = [f"-max_total_time={seconds}", "-max_len=4096", "-timeout=10", "-rss_limit_mb=4096"]
        done = subprocess.run([*itself, *limits, f"-artifact_prefix={name}-", str(found)], check=False)
        texts = sorted((one.read_bytes() for one in found.iterdir()), key=lambda data: (len(data), data))
    short = [data.decode("latin-1") for data in texts if len(data) <= LONGEST]
    kept = short[:: -(-len(short) // KEPT) or 1]  # of all lengths
    file = Path(__file__).with_name("corpus") / f"{name}.json"
    file.write_text(json.dumps(kept, indent=0) + "\n")
    return done.returncode == 0


def main() -> int:
    """Runs the campaigns."""
    from readers import READERS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("readers", nargs="*", default=list(READERS), metavar="READER")
    parser.add_argument("--seconds", type=int, default=60)
    given = parser.parse_args()
    sound = [campaign(name, given.seconds) for name in given.readers]
    return 0 if all(sound) else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3:])
    else:
        raise SystemExit(main())

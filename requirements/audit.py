"""Looks the locked versions up among known vulnerabilities, with pip-audit.

Ends with 1 where one is known, and with 2 where the database could not be asked: nothing is known then, which
pip-audit alone would call "no known vulnerabilities".
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FILES = ("torch", "base", "smoke", "demo", "test", "release")
COMMAND = (
    sys.executable,
    "-m",
    "pip_audit",
    "--disable-pip",
    "--require-hashes",
    "--format=json",
    "--progress-spinner=off",
)


def main() -> int:
    """Asks, prints what is known; returns the exit status."""
    files = [f"--requirement={Path(__file__).with_name(name)}.txt" for name in FILES]
    done = subprocess.run([*COMMAND, *files], capture_output=True, text=True, timeout=600)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except ValueError:
        print(f"Not audited: {(done.stderr.strip() or 'pip-audit said nothing').splitlines()[-1]}")
        return 2
    known = [(one["name"], one["version"], found) for one in packages for found in one.get("vulns", ())]
    for name, version, found in known:
        print(f"{name} {version}: {found['id']}, mended in {', '.join(found['fix_versions']) or 'no version'}")
    unasked = [one for one in packages if "skip_reason" in one]
    if unasked:
        print(f"Not audited: {len(unasked)} of {len(packages)} packages. {unasked[0]['skip_reason']}")
    print(f"{len(known)} known vulnerabilities in {len(packages) - len(unasked)} packages looked up.")
    return 1 if known else 2 if unasked else 0


if __name__ == "__main__":
    sys.exit(main())

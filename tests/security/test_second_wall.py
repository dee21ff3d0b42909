"""The second wall: what the operating system refuses a worker, should a program break out of the interpreter.

A worker cannot be made to misbehave, so most of it is shown on Perl, which may do anything, started in its place.
"""

import asyncio
import contextlib
import logging
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from sandbox_kit import IMAGES, PRIMITIVES, answering

from codevqa.core.errors import ProgramError, SetupError
from codevqa.core.settings import Limits
from codevqa.sandbox import Sandbox, launcher, workers

PERL = shutil.which("perl")
MACHINE = platform.machine()


def lacking() -> str:
    if sys.platform != "linux":
        return "the second wall is Linux's"
    if MACHINE not in ("x86_64", "aarch64"):
        return f"system calls of {MACHINE} are not known"
    if "Seccomp:" not in Path("/proc/self/status").read_text():
        return "this kernel has no seccomp"
    return "" if launcher.landlock_version() else "this kernel has no Landlock"


LACKING = lacking()
walled = pytest.mark.skipif(bool(LACKING), reason=LACKING)
with_perl = pytest.mark.skipif(PERL is None, reason="Perl stands in for the worker")


def perl(code: str, *, behind: bool) -> subprocess.CompletedProcess[str]:
    """Runs Perl, behind the wall or not."""
    return subprocess.run(command(behind), input=code, capture_output=True, text=True, timeout=500, close_fds=False)


def command(behind: bool) -> list[str]:
    assert PERL is not None
    return [sys.executable, "-IS", launcher.__file__, PERL] if behind else [PERL]


PRLIMIT = {"x86_64": 302, "aarch64": 261}
PRCTL = {"x86_64": 157, "aarch64": 167}

DEEDS = {
    "read a file": 'open(F, "<", "FOLDER/secret") or die $!; print <F>',
    "write a file": 'open(F, ">", "FOLDER/new") or die $!',
    "write to a file that is there": 'open(F, ">>", "FOLDER/secret") or die $!',
    "list a folder": 'opendir(D, "FOLDER") or die $!',
    "change a file's mode": 'chmod(0600, "FOLDER/secret") or die $!',
    "remove a file": 'unlink("FOLDER/other") or die $!',
    "open a socket of the internet": "socket(S, 2, 1, 0) or die $!",
    "open a socket of the machine": "socket(S, 1, 1, 0) or die $!",
    "make a pair of sockets": "socketpair(S, T, 1, 1, 0) or die $!",
    "start a process": "defined(fork) or die $!",
    "signal its parent": "kill(0, PARENT) or die $!",
    "read its parent's memory": 'open(F, "<", "/proc/PARENT/mem") or die $!',
    "set a limit of its own": f'$l = pack("QQ", 0, 0); syscall({PRLIMIT.get(MACHINE)}, 0, 4, $l, 0) == 0 or die $!',
    "change how it is treated": f"syscall({PRCTL.get(MACHINE)}, 4, 1, 0, 0, 0) == 0 or die $!",  # dumpable, by prctl
}


@walled
@with_perl
@pytest.mark.parametrize("deed", DEEDS)
def test_behind_the_wall_nobody_can(deed: str, tmp_path: Path) -> None:
    for name in ("secret", "other"):
        (tmp_path / name).write_text("the host's")
    code = DEEDS[deed].replace("FOLDER", str(tmp_path)).replace("PARENT", str(os.getpid()))
    refused = perl(code, behind=True)
    assert refused.returncode > 0, refused.stdout
    assert "denied" in refused.stderr or "not permitted" in refused.stderr, refused.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "secret"]
    outside = perl(code, behind=False)
    assert outside.returncode == 0, f"the deed itself is wrong: {outside.stderr}"


@walled
@with_perl
def test_starting_another_program_ends_the_process() -> None:
    code = 'exec "/bin/true"; die $!'
    assert perl(code, behind=True).returncode == -signal.SIGSYS
    assert perl(code, behind=False).returncode == 0


@walled
@with_perl
@pytest.mark.parametrize(
    "deed, message",
    [
        ('open(F, "<", "/etc/ld.so.cache") or die $!', "Too many open files"),
        ('$x = "a" x (600 << 20)', "Out of memory"),
    ],
)
def test_once_shut_a_process_opens_no_file_and_its_memory_is_bounded(deed: str, message: str) -> None:
    fence = workers.WorkerConfinement(0)
    ended = {}
    for shut in (True, False):
        code = f'$| = 1; print "ready\\n"; <STDIN>; {deed}\n__END__\n'
        with subprocess.Popen(
            command(behind=True), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(code)
            process.stdin.flush()
            assert process.stdout.readline() == "ready\n"
            if shut:
                fence.shut(process.pid)
            ended[shut] = process.communicate("go\n", timeout=500)[1], process.returncode
    fence.close()
    assert message in ended[True][0]
    assert ended[True][1] > 0
    assert ended[False] == ("", 0)


def worker_processes() -> set[psutil.Process]:
    processes = set()
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):  # another test's, which is just ending
            processes |= {child} if child.name() == "monty" else set()
    return processes


def state(worker: psutil.Process) -> dict[str, str]:
    lines = Path(f"/proc/{worker.pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


class Seen:
    """A sandbox whose programs' workers are looked at while a call of theirs is answered."""

    def __init__(self, limits: Limits) -> None:
        self.runner = asyncio.Runner()
        self.before = worker_processes()
        self.box = Sandbox(PRIMITIVES, limits, workers=1)

    def ask(self, program: str = "answer = query(img, 'x')") -> None:
        self.runner.run(self.box.check(program))
        self.runner.run(self.box.run(program, self.look, images=IMAGES[:1]))

    async def look(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], line: int | None) -> object:
        self.workers = worker_processes() - self.before
        return await answering(name, args, kwargs, line)

    def close(self) -> None:
        self.runner.run(self.box.aclose())
        self.runner.close()


@pytest.fixture(name="seen")
def _seen(request: pytest.FixtureRequest) -> Iterator[Seen]:
    seen = Seen(getattr(request, "param", Limits(second_wall=True)))
    yield seen
    seen.close()


def assert_shut_in(worker: psutil.Process) -> None:
    status = state(worker)
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert int(status["CapBnd"], 16) == 0 or os.getuid() != 0
    descriptors = {int(path.name): path.readlink() for path in Path(f"/proc/{worker.pid}/fd").iterdir()}
    assert sorted(descriptors) == [0, 1, 2]
    assert descriptors[2] == Path("/dev/null")
    assert Path(f"/proc/{worker.pid}/environ").read_bytes() == b""
    for what in (psutil.RLIMIT_NOFILE, psutil.RLIMIT_NPROC, psutil.RLIMIT_FSIZE, psutil.RLIMIT_CORE):
        assert worker.rlimit(what) == (0, 0)
    assert worker.rlimit(psutil.RLIMIT_AS)[1] < 1 << 30


@walled
def test_workers_that_check_and_that_run_are_shut_in_and_so_is_what_replaces_them(seen: Seen) -> None:
    with tempfile.TemporaryFile() as file:
        os.set_inheritable(file.fileno(), True)
        seen.ask()
        first = seen.workers
        assert len(first) == 2
        for worker in first:
            assert_shut_in(worker)
            worker.kill()
            with contextlib.suppress(ChildProcessError):  # the pool was first
                os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
        with contextlib.suppress(ProgramError):  # a check whose worker is found dead
            seen.ask("answer = [query(img, 'x')]")
        with contextlib.suppress(ProgramError):  # a run whose worker is
            seen.ask("answer = (query(img, 'x'),)")
        seen.ask("answer = {'x': query(img, 'x')}")
        assert len(seen.workers) == 2
        assert not seen.workers & first
        for worker in seen.workers:
            assert_shut_in(worker)


@pytest.mark.parametrize("seen", [Limits(second_wall=False)], indirect=True)
def test_switched_off_workers_are_not_shut_in_and_nothing_is_said(seen: Seen, caplog: pytest.LogCaptureFixture) -> None:
    seen.ask()
    assert len(seen.workers) == 2
    if not LACKING:
        assert {state(worker)["NoNewPrivs"] for worker in seen.workers} == {state(psutil.Process())["NoNewPrivs"]}
    assert not caplog.records


# A filter of system calls of its own takes from a process what an old kernel, or a container, would not offer.
POORER = """
import asyncio, ctypes, struct, sys
sys.path.insert(0, sys.argv[1])
from sandbox_kit import IMAGES, PRIMITIVES, answering
from codevqa.core.errors import SetupError
from codevqa.core.settings import Limits
from codevqa.sandbox import Sandbox
from test_second_wall import state
import psutil

call, argument, errno = map(int, sys.argv[2:5])
lines = [(0x20, 0, 0, 0), (0x15, 0, 3, call), (0x20, 0, 0, 16), (0x15, 0, 1, argument), (6, 0, 0, 0x50000 + errno),
         (6, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in lines))
program = ctypes.create_string_buffer(struct.pack("@HP", len(lines), ctypes.addressof(code)))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.c_void_p(ctypes.addressof(program)), 0, 0) == 0

async def main():
    async def look(*call):
        print([state(child)["Seccomp_filters"] for child in psutil.Process().children()], flush=True)
        return await answering(*call)
    for mode in ("auto", "auto", True):
        async with Sandbox(PRIMITIVES, Limits(second_wall=mode), workers=1) as box:
            print((await box.run("answer = query(img, 'x')", look, images=IMAGES[:1])).value, flush=True)

try:
    asyncio.run(main())
except SetupError as error:
    print(error)
"""


@walled
@pytest.mark.parametrize(
    "call, argument, errno, filters, message",
    [
        (PRCTL.get(MACHINE), 22, 22, 1, "without a second wall: seccomp: Invalid argument."),
        (444, 0, 38, 2, "has a gap: this system has no Landlock."),
    ],
    ids=["no seccomp", "no Landlock"],
)
def test_where_it_is_missing_the_log_says_so_once(
    call: int, argument: int, errno: int, filters: int, message: str
) -> None:
    here = Path(__file__).resolve()
    python = [sys.executable, "-c", POORER, str(here.parents[1]), str(call), str(argument), str(errno)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here.parent), str(here.parents[2])])}
    done = subprocess.run(python, capture_output=True, text=True, timeout=500, env=environment)
    warnings = [line for line in done.stderr.splitlines() if "SECURITY.md" in line]
    assert len(warnings) == 1, done.stderr
    assert message in warnings[0]
    *ran, refused = done.stdout.splitlines()
    assert ran == [f"['{filters}']", "x 1"] * 2, done.stdout
    assert "Limits.second_wall" in refused


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_other_systems_say_so(system: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(sys, "platform", system)

    async def main(limits: Limits) -> None:
        async with Sandbox(PRIMITIVES, limits, workers=1) as box:
            assert (await box.run("answer = 1", answering)).value == 1

    with caplog.at_level(logging.WARNING, logger="codevqa"):
        asyncio.run(main(Limits()))
        asyncio.run(main(Limits()))
    assert [record.message for record in caplog.records] == [
        f"Workers of the sandbox run without a second wall: {system} offers none. See SECURITY.md."
    ]
    with pytest.raises(SetupError, match=f"{system} offers none"):
        asyncio.run(main(Limits(second_wall=True)))

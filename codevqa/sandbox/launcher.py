"""Shuts its own process in, then becomes the worker: ``python -IS launcher.py BINARY ARGUMENTS``.

Linux only, and a file that stands alone: it runs without the package, once for each worker, before any program is near.
What is allowed is a list, of system calls and of folders; all else is refused. A step that fails ends the process.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

TYPE_CHECKING = False  # each start of a worker pays for what is imported: typing takes as long as all that is here
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

# Name, number on x86_64, number on aarch64: what a worker, its loader and its C library need. Most frequent first.
_ALLOWED = """
read 0 63, write 1 64, mprotect 10 226, futex 202 98, mmap 9 222, munmap 11 215, mremap 25 216, madvise 28 233,
brk 12 214, clock_gettime 228 113, getrandom 318 278, poll 7 -, ppoll 271 73, readv 19 65, writev 20 66,
pread64 17 67, lseek 8 62, open 2 -, openat 257 56, close 3 57, access 21 -, faccessat 269 48, stat 4 -,
fstat 5 80, newfstatat 262 79, statx 332 291, rt_sigaction 13 134, rt_sigprocmask 14 135,
rt_sigreturn 15 139, sigaltstack 131 132, set_tid_address 218 96, set_robust_list 273 99, rseq 334 293,
arch_prctl 158 -, gettid 186 178, getpid 39 172, sched_yield 24 124, sched_getaffinity 204 123, nanosleep 35 101,
clock_nanosleep 230 115, restart_syscall 219 128, uname 63 160, sysinfo 99 179, exit 60 93, exit_group 231 94
"""
# These only as _filter says.
_BOUNDED = "clone 56 220, clone3 435 435, prctl 157 167, prlimit64 302 261, execve 59 221"
_MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""The kernel's names for machines, as :func:`os.uname` and as a filter have them."""

READABLE = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/nix/store", "/etc/ld.so.cache")
"""Where programs have their shared libraries."""

_SET_NAME, _SET_SECCOMP, _DROP_CAPABILITY, _NO_NEW_PRIVILEGES = 15, 22, 24, 38  # of prctl
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # Landlock's calls, on every machine
_EXECUTE, _READ = 1 << 0, 1 << 2
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""How many rights to files each version of Landlock knows; later ones know as many as the fifth."""

_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06  # instructions of a filter
_ALLOW, _REFUSE, _UNKNOWN, _KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000  # EPERM, ENOSYS
_THREAD = 0x10000  # CLONE_THREAD


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _system_error(what: str) -> OSError:
    return OSError(f"{what}: {os.strerror(ctypes.get_errno())}")


def _syscall(what: str, number: int, *arguments: int) -> int:
    result = _libc().syscall(*(ctypes.c_long(value) for value in (number, *arguments)))
    if result < 0:
        raise _system_error(what)
    return int(result)


def _prctl(what: str, *arguments: int) -> None:
    if _libc().prctl(*(ctypes.c_ulong(value) for value in (*arguments, *[0] * (5 - len(arguments))))) < 0:
        raise _system_error(what)


def landlock_version() -> int:
    """Returns the version of Landlock that the kernel offers, 0 where it offers none."""
    try:
        return _syscall("Landlock", _CREATE_RULESET, 0, 0, 1)
    except OSError:
        return 0


def _numbers(listed: str, machine: str) -> dict[str, int]:
    """Returns the numbers that system calls of a list have on a machine.

    Raises:
        OSError: nothing is known of such a machine.
    """
    if machine not in _MACHINES:
        raise OSError(f"system calls of {machine} are not known here")
    rows = [row.split() for row in listed.split(",")]
    column = 1 + list(_MACHINES).index(machine)
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


def _filter(machine: str, path: int) -> bytes:
    """Returns the filter of system calls: lines of code, jumps if true and if false, and operand.

    Args:
        machine: whose numbers.
        path: the address that the one program to be started is named at. It is as good as random, this process's
            memory is gone when the worker begins, and a wrong guess is the last.
    """

    def only(argument: int, value: int, otherwise: int) -> list[tuple[int, int, int, int]]:
        halves = (0, value & 0xFFFFFFFF), (4, value >> 32)
        tests = [
            line
            for at, half in halves
            for line in ((_LOAD, 0, 0, 16 + 8 * argument + at), (_EQUAL, 1, 0, half), (_RETURN, 0, 0, otherwise))
        ]
        return [*tests, (_RETURN, 0, 0, _ALLOW)]

    bounded = {
        "clone": [(_LOAD, 0, 0, 16), (_ANY_BIT, 0, 1, _THREAD), (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)],
        # Its flags lie in memory, which a filter does not see; libraries then take clone.
        "clone3": [(_RETURN, 0, 0, _UNKNOWN)],
        "prctl": only(0, _SET_NAME, _REFUSE),
        "prlimit64": only(2, 0, _REFUSE),  # to ask, not to set
        "execve": only(0, path, _KILL),
    }
    lines = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, _MACHINES[machine]), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    for number in _numbers(_ALLOWED, machine).values():
        lines += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    for name, number in _numbers(_BOUNDED, machine).items():
        lines += [(_EQUAL, 0, len(bounded[name]), number), *bounded[name]]
    lines.append((_RETURN, 0, 0, _REFUSE))
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def _close_descriptors() -> None:
    with os.scandir("/proc/self/fd") as entries:
        numbers = [int(entry.name) for entry in entries]
    for number in numbers:
        if number > 2:
            os.closerange(number, number + 1)  # which passes over that of the listing, closed already


def _drop_capabilities() -> None:
    # Up to the first that the kernel does not know. It refuses to drop any for a process that has none.
    libc, number = _libc(), 0
    while libc.prctl(_DROP_CAPABILITY, ctypes.c_ulong(number), 0, 0, 0) == 0:
        number += 1


def _hide_files(version: int, readable: Sequence[str]) -> None:
    """Leaves of all files some, to be read and run, and of the network nothing."""
    known = (1 << _RIGHTS[min(version, 5)]) - 1
    ruleset = struct.pack("=QQQ", known, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    held = ctypes.create_string_buffer(ruleset)
    rules = _syscall("Landlock", _CREATE_RULESET, ctypes.addressof(held), size, 0)
    for path in readable:
        if os.access(path, os.F_OK):
            at = os.open(path, os.O_RDONLY)
            rule = ctypes.create_string_buffer(struct.pack("=Qi", _EXECUTE | _READ, at))
            _syscall(f"Landlock for {path}", _ADD_RULE, rules, 1, ctypes.addressof(rule), 0)
            os.close(at)
    _syscall("Landlock", _RESTRICT_SELF, rules, 0)
    os.close(rules)


def become(binary: str, arguments: Sequence[str]) -> NoReturn:
    """Becomes a program that reads its input, writes its output, computes, and can do nothing else.

    Args:
        binary: the program.
        arguments: it is given these.

    Raises:
        OSError: the system does not offer this, or the program does not start.
    """
    _close_descriptors()
    _drop_capabilities()
    _prctl("no new privileges", _NO_NEW_PRIVILEGES, 1)
    version = landlock_version()
    if version:
        _hide_files(version, (binary, *READABLE))
    path = ctypes.create_string_buffer(os.fsencode(binary))
    words = [os.fsencode(word) for word in (binary, *arguments)]
    argv = (ctypes.c_char_p * (len(words) + 1))(*words, None)
    nothing = (ctypes.c_char_p * 1)(None)
    code = ctypes.create_string_buffer(_filter(os.uname().machine, ctypes.addressof(path)))
    # struct sock_fprog: how many lines, of eight bytes and the zero that ctypes adds, and where
    program = ctypes.create_string_buffer(struct.pack("@HP", len(code) // 8, ctypes.addressof(code)))
    _prctl("seccomp", _SET_SECCOMP, 2, ctypes.addressof(program))
    _libc().execve(path, argv, nothing)  # os.execve would name the program at another address
    raise _system_error(binary)


if __name__ == "__main__":
    try:
        become(sys.argv[1], sys.argv[2:])
    except OSError as error:
        sys.exit(str(error))

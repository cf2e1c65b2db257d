"""Child processes of tests: signals at their defaults, a session of their own, none left behind.

A signal that is ignored stays ignored in child processes, and a shell ignores SIGINT for what it
starts in the background. So a test that sends SIGINT gives its children their signals itself.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

DEADLINE = 240.0
"""Seconds until a test gives up. Starting torch takes 3 s of a core, so 30 s at a load of 10."""

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/maps").exists(), reason="this system has no /proc to look into"
)

_SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)


def start(words: list[Any], **options: Any) -> subprocess.Popen[str]:
    """Start a process in a session of its own, with signals at their defaults.

    The caller ends it, by `end`; `started` does that by itself.

    Args:
        words: The command and its arguments.
        options: Further arguments of `subprocess.Popen`.
    """
    with _signals_not_ignored():
        return subprocess.Popen(
            [str(word) for word in words], start_new_session=True, text=True, **options
        )


@contextmanager
def started(words: list[Any], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Start a process as `start` does; kill and reap it, and its children, when the block ends."""
    process = start(words, **options)
    try:
        yield process
    finally:
        end(process)


def end(process: subprocess.Popen[str]) -> None:
    """Kill a process that `start` began and all processes of its session; close its pipes."""
    with suppress(ProcessLookupError, PermissionError):  # macOS: EPERM for a group of zombies
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with suppress(BrokenPipeError):
                stream.close()


def run(
    words: list[Any], timeout: float = DEADLINE, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a process to its end as `started` does, and return its exit code and what it wrote."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with started(words, **{**pipes, **options}) as process:
        out, err = process.communicate(timeout=timeout)
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def wait_until(condition: Callable[[], Any], what: str, seconds: float = DEADLINE) -> None:
    """Return when the condition is true; fail, saying what did not happen, after some seconds."""
    end_time = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end_time, f"not within {seconds:g} s: {what}"
        time.sleep(0.01)


def has_loaded(pid: int, library: str) -> bool:
    """True if the process has this library in its memory. Needs /proc."""
    try:
        return library in Path(f"/proc/{pid}/maps").read_text()
    except OSError:  # it has ended
        return False


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used: its progress, on a busy machine too."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user_time = int(fields[11])
    system_time = int(fields[12])
    return (user_time + system_time) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _signals_not_ignored() -> Iterator[None]:
    """Handle the signals that this process ignores: a new process has its defaults for these."""
    ignored = []
    for number in _SIGNALS:
        if signal.getsignal(number) is signal.SIG_IGN:
            ignored.append(number)
    for number in ignored:
        signal.signal(number, _do_nothing)
    try:
        yield
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """Handle a signal as if it were ignored."""

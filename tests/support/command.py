"""The command `gossamer` as tests run it: in this process, which is quick, or as a process of its
own, which is real.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from gossamer.cli import main
from support import processes

REAL = [sys.executable, "-m", "gossamer"]


@dataclass(frozen=True)
class Result:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str


def gossamer(*words: object) -> Result:
    """Run the command in this process."""
    out = io.StringIO()
    err = io.StringIO()
    with (
        redirect_stdout(out),
        redirect_stderr(err),
        mock.patch.object(sys, "argv", ["gossamer", *map(str, words)]),
    ):
        try:
            main()
        except SystemExit as end:
            return Result(int(end.code or 0), out.getvalue(), err.getvalue())


def real(*words: object, env: Mapping[str, str] | None = None, **options: Any) -> Result:
    """Run the command as a process of its own."""
    done = processes.run([*REAL, *words], env={**os.environ, **(env or {})}, **options)
    return Result(done.returncode, done.stdout, done.stderr)


def files(folder: Path | str = ".") -> dict[str, bytes]:
    """Every file below a folder, so that a test can say that nothing was lost or left behind.

    Python's own __pycache__ does not count: whether it is written depends on the environment.
    """
    found = {}
    for path in sorted(Path(folder).rglob("*")):
        if "__pycache__" in path.parts:
            continue
        found[str(path)] = b"a folder"
        if path.is_file():
            found[str(path)] = path.read_bytes()
    return found


def assert_refused(result: Result, *parts: str, code: int = 2) -> None:
    """Assert one sentence on standard error with these parts, no output, and the exit code."""
    assert result.err.startswith("gossamer: "), result.err
    assert result.err.count("\n") == 1, result.err
    assert "Traceback" not in result.err
    assert result.out == ""
    for part in parts:
        assert part in result.err, f"{part!r} is not in {result.err!r}"
    assert result.code == code

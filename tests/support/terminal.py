"""Specs for tests of the command, and the command in a pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import termios

from support.command import REAL
from support.processes import DEADLINE, started

SPEC = """
rounds = 12
batch = 8
[network]
kind = "random"
devices = 10
density = 0.2
[measure]
every = 6
[algorithm]
kind = "wpm"
p = 3
eta = 0.05
"""


SEVERAL = (
    SPEC.replace("[algorithm]", "[[algorithm]]") + '[[algorithm]]\nkind = "d-psgd"\neta = 0.05\n'
)


ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def in_a_terminal(*words: str, columns: int = 80, **env: str) -> str:
    """What the real command writes to a terminal of this width."""
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    kept = {}
    for k, v in os.environ.items():
        if k not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TTY_COMPATIBLE", "CI"):
            kept[k] = v
    environment = {**kept, "TERM": "xterm-256color", **env}
    written = b""
    with started(
        [*REAL, *words], stdin=inner, stdout=inner, stderr=inner, env=environment
    ) as process:
        os.close(inner)
        while True:
            try:
                part = os.read(outer, 65536)
            except OSError:  # how Linux says that the other end is closed
                break
            if not part:
                break
            written += part
        os.close(outer)
        assert process.wait(DEADLINE) == 0
    return written.decode()


COLOUR = re.compile(r"\x1b\[(?:[0-9;]*;)?(?:3[0-8]|9[0-7])[0-9;]*m")

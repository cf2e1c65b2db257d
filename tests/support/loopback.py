"""Run commands in a network namespace that has the loopback interface only.

Ray must not reach other machines from a test, and a test must not leave processes behind.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from support.processes import DEADLINE, end, start

_LOOPBACK_UP = 'ip link set lo up 2>/dev/null || exit 97; exec "$@"'
TESTS = Path(__file__).parents[1]


@cache
def namespace() -> list[str]:
    """Return the prefix that runs a command in such a namespace, or skip the test."""
    for unshare in (["unshare", "--net"], ["unshare", "--user", "--map-root-user", "--net"]):
        prefix = [*unshare, "sh", "-c", _LOOPBACK_UP, "sh"]
        try:
            if subprocess.run([*prefix, "true"], capture_output=True).returncode == 0:
                return prefix
        except FileNotFoundError:
            break
    pytest.skip("needs a network namespace (root, or user namespaces) and iproute2")


class Script:
    """A command in its own network namespace.

    A variable in the environment marks all of its processes, also those that it leaves behind.
    """

    def __init__(self, command: list[str], folder: Path) -> None:
        self.mark = f"GOSSAMER_TEST={uuid.uuid4().hex}"
        name, value = self.mark.split("=")
        environment = {
            **os.environ,
            name: value,
            "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
            "OMP_NUM_THREADS": "1",
            "HOME": str(folder),
            "RAY_TMPDIR": "/tmp",
        }
        self.process = start(
            [*namespace(), *command],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def __enter__(self) -> Script:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        end(self.process)

    def wait(self, timeout: float = 2 * DEADLINE) -> tuple[int, str, str]:
        """Wait for the end of the command. Return its exit code, stdout and stderr."""
        try:
            out, err = self.process.communicate(timeout=timeout)
        except BaseException:
            self.kill()
            end(self.process)
            raise
        return self.process.returncode, out, err

    def processes(self, containing: str = "") -> list[int]:
        """Return the running processes of this command whose command line contains a string."""
        found = []
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit() or int(folder.name) == os.getpid():
                continue
            try:
                marked = self.mark.encode() in (folder / "environ").read_bytes()
            except OSError:
                continue
            command_line = _command_line(int(folder.name))  # empty for a zombie
            if marked and command_line and containing in command_line:
                found.append(int(folder.name))
        return found

    def assert_no_processes(self, seconds: float = DEADLINE, except_for: str = "nothing") -> None:
        """Wait until no process is left, except those with a string in their command line."""
        deadline = time.monotonic() + seconds
        while True:
            left = [_command_line(pid)[:80] for pid in self.processes()]
            left = [line for line in left if line and except_for not in line]
            if not left:
                return
            assert time.monotonic() < deadline, f"still running: {left}"
            time.sleep(0.2)

    def kill(self) -> None:
        """Kill all processes of this command."""
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def python(code: str, folder: Path, *, seconds: float = 2 * DEADLINE, **given: Any) -> Any:
    """Run Python code in its own process and network namespace.

    Args:
        code: The code. It finds the arguments in the dictionary `given`, and assigns `result`.
        folder: The working directory.
        seconds: After which the test gives up.
        **given: Arguments that JSON can represent.

    Returns:
        The value of `result`, which JSON must be able to represent.
    """
    lines = [
        "import json",
        f"given = json.loads({json.dumps(given)!r})",
        *code.splitlines(),
        "print('RESULT', json.dumps(result))",
    ]
    body = "".join(f"    {line}\n" for line in lines)
    script = folder / "script.py"
    script.write_text(f"def main():\n{body}\nif __name__ == '__main__':\n    main()\n")
    running = Script([sys.executable, str(script)], folder)
    exit_code, out, err = running.wait(seconds)
    assert exit_code == 0, f"{out[-2000:]}\n{err[-6000:]}"
    running.assert_no_processes()
    return json.loads(out.rpartition("RESULT ")[2])

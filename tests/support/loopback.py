"""Python scripts in a network that has nothing but loopback, and that leave no process behind."""

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

_UP = 'ip link set lo up 2>/dev/null || exit 97; exec "$@"'
TESTS = Path(__file__).parents[1]


@cache
def namespace() -> list[str]:
    """What goes before a command so that it sees only loopback; skips the test where that cannot be had."""
    for unshare in (["unshare", "--net"], ["unshare", "--user", "--map-root-user", "--net"]):
        words = [*unshare, "sh", "-c", _UP, "sh"]
        try:
            if subprocess.run([*words, "true"], capture_output=True).returncode == 0:
                return words
        except FileNotFoundError:
            break
    pytest.skip(
        "needs a network namespace (root, or user namespaces) and iproute2: Ray is not to reach beyond loopback here"
    )


class Script:
    """A command in such a network, with a mark by which all its processes are known."""

    def __init__(self, words: list[str], folder: Path) -> None:
        self.mark = f"GOSSAMER_TEST={uuid.uuid4().hex}"
        name, value = self.mark.split("=")
        paths = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
        more = {
            name: value,
            "PYTHONPATH": paths,
            "OMP_NUM_THREADS": "1",
            "HOME": str(folder),
            "RAY_TMPDIR": "/tmp",
        }
        environment = {**os.environ, **more}
        command = [*namespace(), *words]
        self.process = start(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def __enter__(self) -> Script:
        return self

    def __exit__(self, *error: object) -> None:
        self.clear()
        end(self.process)

    def ended(self, timeout: float = 2 * DEADLINE) -> tuple[int, str, str]:
        """Exit code, stdout, stderr."""
        try:
            out, err = self.process.communicate(timeout=timeout)
        except BaseException:
            self.clear()
            end(self.process)
            raise
        return self.process.returncode, out, err

    def left(self, containing: str = "") -> list[int]:
        """The processes of this command that are there now, zombies aside."""
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and int(folder.name) != os.getpid():
                try:
                    marked = self.mark.encode() in (folder / "environ").read_bytes()
                    words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                except OSError:
                    continue
                if marked and words and containing in words:
                    found.append(int(folder.name))
        return found

    def assert_gone(self, seconds: float = DEADLINE, but: str = "nothing") -> None:
        """Wait until no process is left."""
        deadline = time.monotonic() + seconds
        while words := [words for pid in self.left() if but not in (words := _words(pid))]:
            assert time.monotonic() < deadline, f"still there: {words}"
            time.sleep(0.2)

    def clear(self) -> None:
        """End what is left of this command."""
        for pid in self.left():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _words(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:80]
    except OSError:
        return ""


def python(code: str, folder: Path, **given: Any) -> Any:
    """Run Python code, with what it is given as JSON in `given`; what it leaves in `result` comes back the same way."""
    script = folder / "script.py"
    lines = [
        "import json",
        f"given = json.loads({json.dumps(given)!r})",
        *code.splitlines(),
        "print('RESULT', json.dumps(result))",
    ]
    script.write_text(
        "def main():\n"
        + "".join(f"    {line}\n" for line in lines)
        + "\nif __name__ == '__main__':\n    main()\n"
    )
    running = Script([sys.executable, str(script)], folder)
    code_, out, err = running.ended()
    assert code_ == 0, f"{out[-2000:]}\n{err[-6000:]}"
    running.assert_gone()
    return json.loads(out.rpartition("RESULT ")[2])

"""Machines of a cluster as namespaces of this one: network, processes, shared memory, /tmp/ray.

They are joined by a bridge in a namespace of its own. Nothing remains when their first processes
end, and nothing of them is visible in the network of this machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.loopback import TESTS
from support.processes import DEADLINE, end, start, wait_until

_NETWORK = "10.231.77"
_GATEWAY = 254
_UNSHARE = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
_PREPARE = (
    "mount --make-rprivate / && mount -t tmpfs tmpfs /dev/shm && mkdir -p /tmp/ray && "
    "mount -t tmpfs tmpfs /tmp/ray && ip link set lo up && exec sleep infinity"
)
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
    "RAY_worker_register_timeout_seconds": "600",
    "RAY_gcs_server_port_wait_time_s": "600",
}


class Machine:
    """One machine of a cluster.

    Args:
        number: From 1 to 99; the last part of its address.
        folder: Its home folder, in which its commands run.
    """

    def __init__(self, number: int, folder: Path) -> None:
        self.address = f"{_NETWORK}.{number}"
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._outer = start([*_UNSHARE, "sh", "-c", _PREPARE])
        children = Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children")
        wait_until(
            lambda: self._outer.poll() is not None or children.read_text().split(),
            "the namespaces exist",
        )
        if self._outer.poll() is not None:
            pytest.skip("needs network, mount and process namespaces (root)")
        self._first = int(children.read_text().split()[0])
        wait_until(
            lambda: Path(f"/proc/{self._first}/comm").read_text().strip() == "sleep",
            "the namespaces are prepared",
        )

    def prefix(self) -> list[str]:
        """Return the words that run a command on this machine."""
        first = str(self._first)
        return ["nsenter", "--target", first, "--net", "--mount", "--pid", "--wdns=" + self._cwd]

    @property
    def _cwd(self) -> str:
        return str(self.folder)

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment of a command."""
        path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
        programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        own = {"HOME": self._cwd, "PYTHONPATH": path, "PATH": programs}
        return {**os.environ, **_SETTINGS, **own, **more}

    def start(self, words: list[Any], **more: str) -> subprocess.Popen[str]:
        """Start a command. The caller ends it, by `support.processes.end`."""
        return start(
            [*self.prefix(), *words],
            env=self.environment(**more),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, words: list[Any], timeout: float = 2 * DEADLINE, **more: str) -> tuple[int, str]:
        """Run a command to its end. Return its exit code, and its output and errors."""
        process = self.start(words, **more)
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            end(process)
        return process.returncode, out + err

    def shell(self, line: str) -> str:
        """Run a line of a page. Return what it prints; fail if it fails."""
        code, text = self.run(["sh", "-c", line])
        assert code == 0, f"{line}\n{text[-4000:]}"
        return text

    def start_ray(self, line: str, attempts: int = 6) -> None:
        """Run a line that starts Ray; again if a busy machine was too slow for Ray's limits.

        The processes of Ray are in the session of the line, and go on when it has ended. They end
        with the machine.
        """
        for _ in range(attempts):
            process = self.start(["sh", "-c", line])
            try:
                out, err = process.communicate(timeout=2 * DEADLINE)
            except BaseException:
                end(process)
                raise
            if process.returncode == 0:
                return
            end(process)
            self.run(["ray", "stop", "--force"])
            time.sleep(2)
        raise AssertionError(f"{line}\n{(out + err)[-4000:]}")

    def processes(self, containing: str) -> list[int]:
        """Return the processes of this machine, by their numbers outside of its namespace."""
        inside = os.readlink(f"/proc/{self._first}/ns/pid")
        found = []
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if containing in command and os.readlink(folder / "ns" / "pid") == inside:
                    found.append(int(folder.name))
            except OSError:
                continue
        return found

    def connect(self, up: bool = True) -> None:
        """Plug the machine into the network, or unplug it."""
        if up:
            _inside(self, "ip link set eth0 up")
            _inside(self, f"ip route replace default via {_NETWORK}.{_GATEWAY}")
        else:
            _inside(self, "ip link set eth0 down")

    def close(self) -> None:
        """End all processes of the machine."""
        end(self._outer)


@contextmanager
def machines(count: int, folder: Path) -> Iterator[list[Machine]]:
    """Start machines that reach each other; skip the test where that is not allowed."""
    if os.geteuid() != 0:
        pytest.skip("needs network, mount and process namespaces (root)")
    with ExitStack() as cleanup:
        hub = Machine(_GATEWAY, folder / "hub")
        cleanup.callback(hub.close)
        hub_pid = str(hub._first)
        _inside(hub, "ip link add br0 type bridge && ip link set br0 up")
        _inside(hub, f"ip address add {hub.address}/24 dev br0")
        found = []
        for number in range(1, count + 1):
            machine = Machine(number, folder / f"machine{number}")
            cleanup.callback(machine.close)
            peer = f"type veth peer name port{number} netns {hub_pid}"
            _inside(machine, f"ip link add eth0 {peer}")
            _inside(hub, f"ip link set port{number} master br0 up")
            _inside(machine, f"ip address add {machine.address}/24 dev eth0")
            machine.connect()
            found.append(machine)
        yield found


def _inside(machine: Machine, line: str) -> None:
    """Configure the network of a machine. The numbers of processes are those outside of it."""
    words = ["nsenter", "--target", str(machine._first), "--net", "sh", "-c", line]
    subprocess.run(words, check=True)

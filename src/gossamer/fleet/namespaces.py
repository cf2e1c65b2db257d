"""A virtual network on one machine: each device in a namespace, links that are cut and healed.

A device is a network namespace, and a link is a virtual cable between two of them. There is no
bridge and no route to the machine's own network: two devices without a cable cannot reach each
other. Device i has the one address `address(i)`, whichever cable is used. Needs Linux, root, and
the commands ip, tc (iproute2) and nft (nftables).
"""

from __future__ import annotations

import ipaddress
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from gossamer._core import checks
from gossamer.errors import GossamerError, InputError

_COMMAND_SECONDS = 30  # timeout of one command of ip, tc or nft
_MAX_DEVICES = 1000
_PREFIX = re.compile(r"[a-z][a-z0-9-]{0,30}(?<![0-9])")  # the device's number follows
_LOSS_STEPS = 100_000  # loss is a multiple of one over these
_BURSTS_PER_SECOND = 50  # a burst is 20 ms at the rate of the link
_QUEUES_PER_SECOND = 10  # the queue holds 100 ms at the rate of the link
_MIN_BURST = 4000  # bytes: a few packets
_MIN_QUEUE = 64_000  # bytes: the buffer of a radio


def address(device: int) -> str:
    """Return the address of a device.

    Args:
        device: Number of the device.

    Example:
        >>> address(0), address(299)
        ('10.0.0.1', '10.0.1.44')
    """
    return str(ipaddress.IPv4Address("10.0.0.1") + device)


def unavailable_reason() -> str | None:
    """Return why this machine can have no virtual network, in one sentence; None if it has."""
    missing = [command for command in ("ip", "tc", "nft") if shutil.which(command) is None]
    if missing:
        return (
            "a rehearsal in namespaces needs Linux with iproute2 and nftables:"
            f" {', '.join(missing)} not found"
        )
    if os.geteuid() != 0:
        return "a rehearsal in namespaces needs root: only root can make network namespaces"
    return None


class VirtualNetwork:
    """Devices in network namespaces, without links until `link` makes some.

    Everything is removed at the end, and leftovers of the same prefix at the start.

    Args:
        devices: Number of devices.
        prefix: Prefix of the names of the namespaces.

    Raises:
        InputError: If an argument is out of range.

    Example:
        with VirtualNetwork(3, "rehearsal-") as network:
            network.link(0, 1, up=True)
            network.rate(0, 1, 10e6)
            process = network.run(0, ["gossamer", "node", "n0.toml"])
    """

    def __init__(self, devices: int, prefix: str) -> None:
        checks.whole("devices", devices, 1, _MAX_DEVICES)
        if not _PREFIX.fullmatch(prefix):
            raise InputError(
                "prefix", prefix, "at most 31 of a-z, 0-9 and '-', from a letter to no digit"
            )
        self.devices = devices
        self.prefix = prefix
        self._links: set[tuple[int, int]] = set()
        self._limited: set[tuple[int, int]] = set()
        self._losses: dict[int, dict[int, float]] = {device: {} for device in range(devices)}
        self._processes: list[subprocess.Popen[Any]] = []
        self._stack = ExitStack()

    def __enter__(self) -> VirtualNetwork:
        if reason := unavailable_reason():
            raise GossamerError(reason)
        lock = self._stack.enter_context(socket.socket(socket.AF_UNIX))
        if not _locks(lock, self.prefix):
            self._stack.close()
            raise GossamerError(
                f"another rehearsal with the prefix {self.prefix!r} is running: give another prefix"
            )
        self._stack.callback(self._clear)
        try:
            self._clear()
            for device in range(self.devices):
                _command("ip", "netns", "add", self.name(device))
                self._ip(device, "link", "set", "lo", "up")
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def processes(self) -> list[subprocess.Popen[Any]]:
        """The processes started by `run`."""
        return list(self._processes)

    def name(self, device: int) -> str:
        """Return the namespace of a device."""
        return f"{self.prefix}{device}"

    def link(self, a: int, b: int, up: bool) -> None:
        """Heal or cut the link between two devices, and make it if it does not exist.

        The kernel takes up to a second to pass the first packet over a link that was cut for less
        than that.

        Args:
            a: One device.
            b: The other device.
            up: True to heal, False to cut.
        """
        self._make_cable(a, b)
        for here, there in ((a, b), (b, a)):
            self._ip(here, "link", "set", f"to{there}", "up" if up else "down")

    def rate(self, a: int, b: int, bits: float | None) -> None:
        """Limit the rate of a link, each way.

        Args:
            a: One device.
            b: The other device.
            bits: Bits per second; None: no limit.
        """
        if bits is not None and not 1e3 <= bits <= 1e12:
            raise InputError("bits", bits, "bits a second from 1e3 to 1e12, or None")
        self._make_cable(a, b)
        for here, there in ((a, b), (b, a)):
            interface = ("dev", f"to{there}", "root")
            if bits is not None:
                burst = max(_MIN_BURST, round(bits / 8 / _BURSTS_PER_SECOND))
                queue = max(_MIN_QUEUE, round(bits / 8 / _QUEUES_PER_SECOND))
                limit = ("rate", f"{round(bits)}bit", "burst", f"{burst}b", "limit", f"{queue}b")
                _command("tc", "-n", self.name(here), "qdisc", "replace", *interface, "tbf", *limit)
                self._limited.add((here, there))
            elif (here, there) in self._limited:
                _command("tc", "-n", self.name(here), "qdisc", "del", *interface)
                self._limited.discard((here, there))

    def loss(self, a: int, b: int, share: float, one_way: bool = False) -> None:
        """Lose a share of the packets between two devices at random.

        Args:
            a: One device.
            b: The other device.
            share: Share of the packets, from 0 to 1.
            one_way: True to lose only packets from a to b.
        """
        checks.probability("share", share)
        self._make_cable(a, b)
        self._set_loss(b, a, share)
        if not one_way:
            self._set_loss(a, b, share)

    def run(self, device: int, command: Sequence[str], **popen: Any) -> subprocess.Popen[Any]:
        """Start a command in the namespace of a device. It is killed at the end if it still runs.

        Args:
            device: Number of the device.
            command: The command and its arguments.
            **popen: Arguments of `subprocess.Popen`.
        """
        self._check_devices(device)
        process = subprocess.Popen(["ip", "netns", "exec", self.name(device), *command], **popen)
        self._processes.append(process)
        return process

    def _check_devices(self, *devices: int) -> None:
        for device in devices:
            checks.whole("device", device, 0, self.devices - 1)

    def _make_cable(self, a: int, b: int) -> None:
        """Make the cable between two devices on first use, with its ends in the namespaces."""
        self._check_devices(a, b)
        if a == b:
            raise InputError("device", b, "two different devices")
        if (min(a, b), max(a, b)) in self._links:
            return
        this_end = (f"to{b}", "netns", self.name(a))
        other_end = ("name", f"to{a}", "netns", self.name(b))
        _command("ip", "link", "add", *this_end, "type", "veth", "peer", *other_end)
        for here, there in ((a, b), (b, a)):
            self._ip(
                here, "address", "add", address(here), "peer", address(there), "dev", f"to{there}"
            )
        self._links.add((min(a, b), max(a, b)))

    def _set_loss(self, device: int, sender: int, share: float) -> None:
        """Replace the rules of a device by which it drops packets."""
        self._losses[device][sender] = share
        rules = []
        for neighbour, lost in self._losses[device].items():
            steps = round(lost * _LOSS_STEPS)
            if lost == 1:
                rules.append(f'iifname "to{neighbour}" drop')
            elif steps:
                condition = f"numgen random mod {_LOSS_STEPS} < {steps}"
                rules.append(f'iifname "to{neighbour}" {condition} drop')
        table = "table inet gossamer"
        lines = [
            f"{table} {{ }}",  # creates the table if it is missing, so that `delete` succeeds
            f"delete {table}",
            f"{table} {{",
            "chain input {",
            "type filter hook input priority 0",
            *rules,
            "}",
            "}",
            "",
        ]
        # One transaction, so that there is no moment without rules.
        _command("ip", "netns", "exec", self.name(device), "nft", "-f", "-", stdin="\n".join(lines))

    def _ip(self, device: int, *words: str) -> None:
        _command("ip", "-n", self.name(device), *words)

    def _clear(self) -> None:
        """Kill every process in namespaces of this prefix, and remove them with their cables."""
        for process in self._processes:
            with suppress(ProcessLookupError):
                process.kill()
        _remove(_namespaces(re.escape(self.prefix)), self._processes)
        for process in self._processes:
            process.wait(_COMMAND_SECONDS)
        self._processes.clear()


def remove_abandoned(prefix: str) -> list[str]:
    """Remove the namespaces that killed processes have left, with all that runs in them.

    A namespace is abandoned if its name has the number of a process that has ended, and nobody
    holds the lock of its network.

    Args:
        prefix: What the names begin with; PROCESS-NUMBER-DEVICE follows.

    Returns:
        The names.
    """
    removed = []
    found = _namespaces(rf"{re.escape(prefix)}\d+-\d+-")
    for network in sorted({name[: name.rindex("-") + 1] for name in found}):
        process = network.removeprefix(prefix).partition("-")[0]
        with socket.socket(socket.AF_UNIX) as lock:
            if not Path("/proc", process).exists() and _locks(lock, network):
                names = _namespaces(re.escape(network))  # another process may have removed some
                _remove(names)
                removed += names
    return removed


def _locks(lock: socket.socket, prefix: str) -> bool:
    """Lock a network; return False if another process has.

    An abstract socket ends with its process, so a network without one is a leftover.
    """
    try:
        lock.bind(f"\0gossamer-network-{prefix}")
    except OSError:
        return False
    return True


def _namespaces(pattern: str) -> list[str]:
    """Return the existing namespaces whose names are the pattern and the number of a device."""
    found = []
    for line in _command("ip", "netns", "list").splitlines():
        name = line.split()[0] if line.strip() else ""
        if re.fullmatch(rf"{pattern}\d+", name):
            found.append(name)
    return found


def _remove(names: list[str], children: Sequence[subprocess.Popen[Any]] = ()) -> None:
    """Kill every process in namespaces, and remove them with their cables.

    Args:
        names: The namespaces.
        children: Processes of this one: a killed child stays in its namespace until it is reaped.
    """
    until = time.monotonic() + _COMMAND_SECONDS
    while (pids := _pids(names)) and time.monotonic() < until:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for child in children:
            child.poll()
        time.sleep(0.02)
    for name in names:
        _command("ip", "netns", "delete", name)


def _pids(namespaces: list[str]) -> list[int]:
    pids: list[int] = []
    for name in namespaces:
        pids.extend(int(pid) for pid in _command("ip", "netns", "pids", name).split())
    return pids


def _command(*words: str, stdin: str | None = None) -> str:
    """Run a command; return what it prints."""
    try:
        done = subprocess.run(
            words,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise GossamerError(f"`{' '.join(words)}` did not end in {_COMMAND_SECONDS} s") from None
    if done.returncode:
        raise GossamerError(f"`{' '.join(words)}` failed: {done.stderr.strip() or done.returncode}")
    return done.stdout

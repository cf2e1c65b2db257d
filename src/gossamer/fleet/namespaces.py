"""The rehearsal ground: a fleet on one machine, each device in a network of its own, with links that are cut and healed.

A device is a network namespace; a link is a virtual cable between two of them. There is no bridge and no way out: nothing
reaches the machine's own network, and two devices without a cable cannot hear each other. Device i has the one address
`address(i)`, whichever cable is used. Needs Linux, root, and the commands ip, tc (iproute2) and nft (nftables).
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
from types import TracebackType
from typing import Any

from gossamer._core import checks
from gossamer.errors import GossamerError, InputError

_SECONDS = 30  # for one command of ip, tc or nft
_MOST = 1000
_NAME = re.compile(
    r"[a-z][a-z0-9-]{0,30}(?<![0-9])"
)  # ends in no digit: the device's number follows
_PARTS = 100_000  # loss is counted in these


def address(device: int) -> str:
    """Where a device is, for its neighbours.

    >>> address(0), address(299)
    ('10.0.0.1', '10.0.1.44')
    """
    return str(ipaddress.IPv4Address("10.0.0.1") + device)


def refusal() -> str | None:
    """Why there can be no such ground here, in one sentence; None where there can."""
    missing = [command for command in ("ip", "tc", "nft") if shutil.which(command) is None]
    if missing:
        return f"a rehearsal in namespaces needs Linux with iproute2 and nftables: {', '.join(missing)} not found"
    if os.geteuid() != 0:
        return "a rehearsal in namespaces needs root: only root can make network namespaces"
    return None


class Ground:
    """Devices without links, until `link` makes some. All is gone at the end; what an earlier one left, at the start.

    with Ground(3, "rehearsal-") as ground:
        ground.link(0, 1, up=True)
        ground.rate(0, 1, 10e6)
        process = ground.run(0, ["gossamer", "node", "n0.toml"])
    """

    def __init__(self, devices: int, prefix: str) -> None:
        checks.whole("devices", devices, 1, _MOST)
        if not _NAME.fullmatch(prefix):
            raise InputError(
                "prefix", prefix, "at most 31 of a-z, 0-9 and '-', from a letter to no digit"
            )
        self.devices, self.prefix = devices, prefix
        self._links: set[tuple[int, int]] = set()
        self._limited: set[tuple[int, int]] = set()
        self._losses: dict[int, dict[int, float]] = {device: {} for device in range(devices)}
        self._started: list[subprocess.Popen[Any]] = []
        self._stack = ExitStack()

    def __enter__(self) -> Ground:
        if sentence := refusal():
            raise GossamerError(sentence)
        # A name in the kernel that goes with this process: what belongs to a living ground is nobody's leftover.
        lock = self._stack.enter_context(socket.socket(socket.AF_UNIX))
        try:
            lock.bind(f"\0gossamer-ground-{self.prefix}")
        except OSError:
            self._stack.close()
            raise GossamerError(
                f"another rehearsal with the prefix {self.prefix!r} is under way: give another prefix"
            ) from None
        self._stack.callback(self._clear)
        try:
            self._clear()
            for device in range(self.devices):
                _do("ip", "netns", "add", self.name(device))
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

    def name(self, device: int) -> str:
        """The namespace of a device."""
        return f"{self.prefix}{device}"

    def link(self, a: int, b: int, up: bool) -> None:
        """Heal or cut the link between two devices; the first time, make it.

        The kernel takes up to a second to let the first packet through a link that was cut for less than that.
        """
        self._cable(a, b)
        for here, there in ((a, b), (b, a)):
            self._ip(here, "link", "set", f"to{there}", "up" if up else "down")

    def rate(self, a: int, b: int, bits: float | None) -> None:
        """Let no more than so many bits a second through, each way; None: as many as will go."""
        if bits is not None and not 1e3 <= bits <= 1e12:
            raise InputError("bits", bits, "bits a second from 1e3 to 1e12, or None")
        self._cable(a, b)
        for here, there in ((a, b), (b, a)):
            device = ("dev", f"to{there}", "root")
            if bits is not None:
                burst = max(
                    4000, round(bits / 8 / 50)
                )  # 20 ms of it, and never less than a few packets
                queue = max(
                    64_000, round(bits / 8 / 10)
                )  # 100 ms of it, and never less than a radio's own buffer
                limit = ("rate", f"{round(bits)}bit", "burst", f"{burst}b", "limit", f"{queue}b")
                _do("tc", "-n", self.name(here), "qdisc", "replace", *device, "tbf", *limit)
                self._limited.add((here, there))
            elif (here, there) in self._limited:
                _do("tc", "-n", self.name(here), "qdisc", "del", *device)
                self._limited.discard((here, there))

    def loss(self, a: int, b: int, share: float, one_way: bool = False) -> None:
        """Lose this share of the packets between two devices, at random; `one_way`: only of those from a to b."""
        checks.probability("share", share)
        self._cable(a, b)
        for here, there in ((b, a),) if one_way else ((b, a), (a, b)):
            self._losses[here][there] = share
            rules = [
                f'iifname "to{neighbour}" '
                + ("" if lost == 1 else f"numgen random mod {_PARTS} < {round(lost * _PARTS)} ")
                + "drop"
                for neighbour, lost in self._losses[here].items()
                if round(lost * _PARTS)
            ]
            table = "table inet gossamer"
            chain = ["chain input {", "type filter hook input priority 0", *rules, "}"]
            # In one go, so that no moment is without rules; the first line lets the second find something to delete.
            script = "\n".join(
                [f"{table} {{ }}", f"delete {table}", f"{table} {{", *chain, "}", ""]
            )
            _do("ip", "netns", "exec", self.name(here), "nft", "-f", "-", given=script)

    def run(self, device: int, command: Sequence[str], **popen: Any) -> subprocess.Popen[Any]:
        """Start a command on a device: `subprocess.Popen` with its arguments. What still runs at the end is killed."""
        self._known(device)
        process = subprocess.Popen(["ip", "netns", "exec", self.name(device), *command], **popen)
        self._started.append(process)
        return process

    def _known(self, *devices: int) -> None:
        for device in devices:
            checks.whole("device", device, 0, self.devices - 1)

    def _cable(self, a: int, b: int) -> None:
        """The cable between two devices, made on first use and not yet up; its ends are born inside the namespaces."""
        self._known(a, b)
        if a == b:
            raise InputError("device", b, "two different devices")
        if (min(a, b), max(a, b)) in self._links:
            return
        ends = (
            "netns",
            self.name(a),
            "type",
            "veth",
            "peer",
            "name",
            f"to{a}",
            "netns",
            self.name(b),
        )
        _do("ip", "link", "add", f"to{b}", *ends)
        for here, there in ((a, b), (b, a)):
            self._ip(
                here, "address", "add", address(here), "peer", address(there), "dev", f"to{there}"
            )
        self._links.add((min(a, b), max(a, b)))

    def _ip(self, device: int, *words: str) -> None:
        _do("ip", "-n", self.name(device), *words)

    def _clear(self) -> None:
        """End every process in namespaces of this prefix, and remove them; their cables go with them."""
        for process in self._started:
            with suppress(ProcessLookupError):
                process.kill()
        names = [
            line.split()[0] for line in _do("ip", "netns", "list").splitlines() if line.strip()
        ]
        mine = [name for name in names if re.fullmatch(rf"{re.escape(self.prefix)}\d+", name)]
        until = time.monotonic() + _SECONDS
        while (
            pids := [int(pid) for name in mine for pid in _do("ip", "netns", "pids", name).split()]
        ) and time.monotonic() < until:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for process in self._started:
                process.poll()  # a killed child stays in its namespace until it is asked for
            time.sleep(0.02)
        for process in self._started:
            process.wait(_SECONDS)
        self._started.clear()
        for name in mine:
            _do("ip", "netns", "delete", name)


def _do(*words: str, given: str | None = None) -> str:
    try:
        done = subprocess.run(
            words, input=given, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise GossamerError(f"`{' '.join(words)}` did not end in {_SECONDS} s") from None
    if done.returncode:
        raise GossamerError(f"`{' '.join(words)}` failed: {done.stderr.strip() or done.returncode}")
    return done.stdout

"""Processes of `zenoh_device.py` in the namespaces of a virtual network, and certificates."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gossamer.fleet import keys
from gossamer.fleet.namespaces import VirtualNetwork, address
from support.processes import DEADLINE

SCRIPT = Path(__file__).parent / "zenoh_device.py"
NAMES = ("n0", "n1", "n2", "n3")
MODEL = 31_400  # bytes of a message
LARGE = 4_000_000  # bytes of a message of several chunks


class Device:
    """A process of `support/zenoh_device.py` in a namespace.

    Args:
        network: The virtual network.
        folder: The folder with the certificates.
        device: Number of the device; None: an observer.
        at: The namespace; by default that of the device.
        **given: Settings of its links.
    """

    def __init__(
        self,
        network: VirtualNetwork,
        folder: Path,
        device: int | None,
        at: int | None = None,
        **given: Any,
    ) -> None:
        defaults = {"run": "r1", "names": NAMES, "connect": [], "multicast": False}
        given = {"device": device, **defaults, **given}
        if "certificates" not in given and not given.get("insecure"):
            given["certificates"] = str(folder / ("observer" if device is None else f"n{device}"))
        place = device if at is None else at
        assert place is not None
        self.process = network.run(
            place,
            [sys.executable, str(SCRIPT), json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def read(self) -> str:
        return str(self.process.stdout.readline()).strip()  # type: ignore[union-attr]

    def start(self, *words: Any) -> None:
        """Start a command; `read` returns its result."""
        self.process.stdin.write(json.dumps(words) + "\n")  # type: ignore[union-attr]
        self.process.stdin.flush()  # type: ignore[union-attr]

    def __call__(self, *words: Any) -> Any:
        """Execute a command, and return its result."""
        self.start(*words)
        return json.loads(self.read())

    def sees(self, *others: int) -> bool:
        """Return True once its neighbours are exactly these."""
        return becomes_true(lambda: self("neighbours") == sorted(others))

    def leave(self, kill: bool = False) -> None:
        if kill:
            self.process.kill()
        self.process.stdin.close()  # type: ignore[union-attr]
        try:
            output = self.process.stdout.read()  # type: ignore[union-attr]
            assert kill or output.endswith("closed\n")
            assert self.process.wait(DEADLINE) == (-9 if kill else 0)
        finally:
            self.process.stdout.close()  # type: ignore[union-attr]


def becomes_true(condition: Callable[[], object]) -> bool:
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


def endpoints(*devices: int) -> list[str]:
    return [f"{address(device)}:7447" for device in devices]


def make_certificates(made: Path) -> Path:
    """Write the certificates of a fleet, and invalid ones."""
    past = datetime.now(UTC) - timedelta(days=100)
    keys.make_authority(made / "authority", "fleet", days=200, now=past)
    keys.make_authority(made / "another", "fleet", days=100)
    for name in (*NAMES, "observer"):
        keys.make_certificate(made / name, made / "authority", name, days=50)
    keys.make_certificate(made / "expired", made / "authority", "n3", days=50, now=past)
    keys.make_certificate(made / "foreign", made / "another", "n3", days=50)
    return made

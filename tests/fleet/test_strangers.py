"""Strangers without a certificate, who open and drop connections, and devices that must link."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.processes import DEADLINE
from support.zenoh_processes import Device, endpoints, make_certificates

from gossamer.fleet import namespaces
from gossamer.fleet.namespaces import VirtualNetwork

pytest.importorskip("zenoh", reason="needs the extra gossamer[peer]")

pytestmark = pytest.mark.slow

FLOOD = Path(__file__).parents[1] / "support" / "flood.py"
RATE = 200  # connections per second to each device


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("fleet"))


@pytest.fixture
def network() -> Iterator[VirtualNetwork]:
    """Devices 0 and 1, and a stranger in the namespace of device 3 who reaches both."""
    if reason := namespaces.unavailable_reason():
        pytest.skip(reason)
    with VirtualNetwork(4, f"test-{os.getpid()}-strangers-") as made:
        for a, b in ((0, 1), (0, 3), (1, 3)):
            made.link(a, b, up=True)
        yield made


@contextmanager
def flooded(network: VirtualNetwork, kind: str, *devices: int) -> Iterator[None]:
    """Flood devices from the namespace of device 3; the flood has begun when this returns."""
    command = [sys.executable, str(FLOOD), kind, str(RATE * len(devices)), *endpoints(*devices)]
    process = network.run(3, command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        process.stdout.readline()
        process.stdout.readline()
        yield
        assert process.poll() is None, "the flood lasts until the end"
    finally:
        process.kill()
        process.wait(DEADLINE)
        process.stdout.close()


@pytest.mark.parametrize("kind", ["drop", "hello", "silent", "garbage"])
def test_devices_link_while_a_stranger_floods_both(
    network: VirtualNetwork, folder: Path, kind: str
) -> None:
    first = Device(network, folder, 0)
    assert first.read() == "ready"
    with flooded(network, kind, 0, 1):
        begin = time.monotonic()
        second = Device(network, folder, 1, connect=endpoints(0))
        assert second.read() == "ready"
        ready = time.monotonic()
        assert first.sees(1)
        assert second.sees(0)
        now = time.monotonic()
        print(f"{kind}: linked {now - ready:.1f} s after device 1 was ready, {now - begin:.1f} s")
        second.leave()
    first.leave()

"""The virtual network: who hears whom, what is cut, slowed or lost, and that nothing is left."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.processes import DEADLINE

from gossamer.errors import GossamerError, InputError
from gossamer.fleet import namespaces
from gossamer.fleet.namespaces import VirtualNetwork, address, remove_abandoned

pytestmark = pytest.mark.slow

DEVICES = 3
PREFIX = f"test-{os.getpid()}-network-"
needs_namespaces = pytest.mark.skipif(
    namespaces.unavailable_reason() is not None, reason=str(namespaces.unavailable_reason())
)

# Echoes every datagram.
ECHO = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("0.0.0.0", 7))
print("ready", flush=True)
while True:
    data, sender = s.recvfrom(2000)
    s.sendto(data, sender)
"""
# Sends numbered datagrams, each when the one before was echoed or after `wait` seconds; prints how
# many were echoed, some late: on a busy machine a process may sleep longer than `wait`.
PING = """
import socket, sys
address, count, wait = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
echoed = set()
def receive(seconds):
    s.settimeout(seconds)
    try:
        echoed.add(s.recvfrom(2000)[0])
    except OSError:
        return False
    return True
for i in range(count):
    number = i.to_bytes(10)
    try:
        s.sendto(number, (address, 7))
    except OSError:
        continue
    while number not in echoed and receive(wait):
        pass
while len(echoed) < count and receive(1):
    pass
print(len(echoed))
"""
# Receives until the sender closes; prints the number of bytes.
RECEIVE = """
import socket
server = socket.create_server(("0.0.0.0", 8))
print("ready", flush=True)
connection = server.accept()[0]
count = 0
while data := connection.recv(65536):
    count += len(data)
print(count)
"""
# Sends 100 kB; prints the seconds until the receiver has closed.
SEND = """
import socket, sys, time
begin = time.monotonic()
s = socket.create_connection((sys.argv[1], 8))
s.sendall(bytes(100_000))
s.shutdown(1)
s.recv(1)
print(time.monotonic() - begin)
"""
# Makes a network with a process in it, and sleeps.
LEFTOVER = """
import sys, time
from gossamer.fleet.namespaces import VirtualNetwork
network = VirtualNetwork(3, sys.argv[1]).__enter__()
network.run(2, ["sleep", "600"])
print("ready", flush=True)
time.sleep(600)
"""


def output(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def existing(prefix: str) -> list[str]:
    """Return the namespaces of a prefix."""
    lines = output("ip", "netns", "list").splitlines()
    return [line.split()[0] for line in lines if line.startswith(prefix)]


def start(network: VirtualNetwork, device: int, *words: str) -> subprocess.Popen[str]:
    return network.run(device, words, stdout=subprocess.PIPE, text=True)


def start_script(network: VirtualNetwork, device: int, script: str) -> subprocess.Popen[str]:
    """Start a script, and wait until it is ready."""
    process = start(network, device, sys.executable, "-c", script)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def echoes(
    network: VirtualNetwork, device: int, other: int, count: int = 1, wait: float = 0.2
) -> int:
    """Return how many of so many datagrams another device has echoed."""
    words = [sys.executable, "-c", PING, address(other), str(count), str(wait)]
    return int(start(network, device, *words).communicate(timeout=DEADLINE)[0])


def connected(network: VirtualNetwork, device: int, other: int) -> bool:
    """Return True if packets pass within the time that the kernel needs for a new link."""
    return any(echoes(network, device, other) for _ in range(30))


@pytest.fixture(scope="module")
def network() -> Iterator[VirtualNetwork]:
    if reason := namespaces.unavailable_reason():
        pytest.skip(reason)
    with VirtualNetwork(DEVICES, PREFIX) as made:
        for device in range(DEVICES):
            start_script(made, device, ECHO)
        yield made
        processes = made.processes
    assert not existing(PREFIX)
    for process in processes:
        assert process.returncode is not None
        if process.stdout is not None:
            process.stdout.close()


def test_links_are_cut_and_healed_and_nobody_forwards(network: VirtualNetwork) -> None:
    assert not echoes(network, 0, 1)
    network.link(0, 1, up=True)
    network.link(1, 2, up=True)
    assert connected(network, 0, 1)
    assert connected(network, 2, 1)
    assert not echoes(network, 0, 2, count=5)
    network.link(1, 0, up=False)
    assert not echoes(network, 0, 1, count=5)
    assert echoes(network, 2, 1)
    network.link(1, 0, up=True)
    assert connected(network, 0, 1)


def test_nothing_reaches_the_machine_itself(network: VirtualNetwork) -> None:
    network.link(0, 1, up=True)
    addresses = {address(device) for device in range(DEVICES)}
    for device in range(DEVICES):
        process = start(network, device, "ip", "-json", "route")
        routes = json.loads(process.communicate(timeout=DEADLINE)[0])
        assert {route["dst"] for route in routes} <= addresses
    interfaces = {link["ifname"] for link in json.loads(output("ip", "-json", "link"))}
    assert not interfaces & {"to0", "to1", "to2"}


def test_loss_both_ways_one_way_and_none(network: VirtualNetwork) -> None:
    network.link(0, 1, up=True)
    assert connected(network, 0, 1)
    network.loss(0, 1, 1.0)
    assert echoes(network, 0, 1, count=5) == 0
    network.loss(0, 1, 0.0)
    assert echoes(network, 0, 1, count=20) == 20
    network.loss(0, 1, 0.3)
    # Datagram and echo pass with probability 0.7² each: 49 % of 200, ± 5 standard deviations.
    assert 200 * 0.49 - 36 < echoes(network, 0, 1, count=200, wait=0.05) < 200 * 0.49 + 36
    network.loss(0, 1, 0.0)
    network.loss(1, 0, 1.0, one_way=True)  # device 0 receives nothing, device 1 everything
    before = received_datagrams(network, 1)
    assert echoes(network, 0, 1, count=5) == 0
    assert received_datagrams(network, 1) >= before + 5
    network.loss(1, 0, 0.0, one_way=True)
    assert echoes(network, 0, 1, count=20) == 20


def received_datagrams(network: VirtualNetwork, device: int) -> int:
    process = start(network, device, "cat", "/proc/net/snmp")
    lines = process.communicate(timeout=DEADLINE)[0].splitlines()
    names, counts = (line.split() for line in lines if line.startswith("Udp:"))
    return int(counts[names.index("InDatagrams")])


def test_a_rate_is_kept_to(network: VirtualNetwork) -> None:
    """100 kB at 1 Mbit/s take 0.8 s, less what goes in a burst."""
    network.link(0, 1, up=True)
    assert connected(network, 0, 1)
    network.rate(0, 1, 1e6)
    receiver = start_script(network, 1, RECEIVE)
    sender = start(network, 0, sys.executable, "-c", SEND, address(1))
    seconds = float(sender.communicate(timeout=DEADLINE)[0])
    assert receiver.communicate(timeout=DEADLINE)[0] == "100000\n"
    assert seconds > 0.7
    network.rate(0, 1, None)
    network.rate(0, 1, None)  # there is no limit any more
    process = start(network, 0, "tc", "qdisc", "show", "dev", "to1")
    assert "tbf" not in process.communicate(timeout=DEADLINE)[0]


def has_ended(pid: int) -> bool:
    """Return True if a process ends soon, or is a zombie that init has yet to reap."""
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        try:
            text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        except OSError:
            return True
        if text.rpartition(") ")[2].startswith("Z"):
            return True
        time.sleep(0.05)
    return False


@needs_namespaces
def test_everything_is_removed_after_an_error() -> None:
    prefix = f"{PREFIX}error-"
    process = None
    pids: list[str] = []

    def fail() -> None:
        nonlocal process, pids
        with VirtualNetwork(2, prefix) as network:
            network.link(0, 1, up=True)
            process = network.run(0, ["sh", "-c", "sleep 600 & sleep 600"])
            deadline = time.monotonic() + DEADLINE
            while len(pids) < 2 and time.monotonic() < deadline:  # the shell and its child
                pids = output("ip", "netns", "pids", network.name(0)).split()
            assert existing(prefix)
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        fail()
    assert process is not None
    assert process.returncode == -9
    assert not existing(prefix)
    assert len(pids) >= 2
    assert all(has_ended(int(pid)) for pid in pids)


@needs_namespaces
def test_leftovers_are_removed_but_not_what_is_in_use() -> None:
    prefix = f"{PREFIX}left-"
    with subprocess.Popen(
        [sys.executable, "-c", LEFTOVER, prefix], stdout=subprocess.PIPE, text=True
    ) as earlier:
        assert earlier.stdout is not None
        assert earlier.stdout.readline() == "ready\n"
        with pytest.raises(GossamerError, match="is running"), VirtualNetwork(1, prefix):
            pass
        assert len(existing(prefix)) == 3
        earlier.kill()
    assert len(existing(prefix)) == 3, "a killed process removes nothing"
    pid = int(output("ip", "netns", "pids", f"{prefix}2"))
    with VirtualNetwork(1, prefix):
        assert existing(prefix) == [f"{prefix}0"]
    assert not existing(prefix)
    assert has_ended(pid)


ABANDONED = """
import os, sys, time
from gossamer.fleet.namespaces import VirtualNetwork
with VirtualNetwork(2, f"{sys.argv[1]}{os.getpid()}-0-") as network:
    network.run(1, ["sleep", "600"])
    print("ready", flush=True)
    time.sleep(600)
"""


@needs_namespaces
def test_what_killed_processes_have_left_is_removed() -> None:
    prefix = f"gone-{os.getpid()}-"
    command = [sys.executable, "-c", ABANDONED, prefix]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as killed,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as runs,
    ):
        try:
            for process in (killed, runs):
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
            killed.kill()
            killed.wait()
            left = [f"{prefix}{killed.pid}-0-{i}" for i in range(2)]
            used = [f"{prefix}{runs.pid}-0-{i}" for i in range(2)]
            pid = int(output("ip", "netns", "pids", left[1]))
            assert sorted(remove_abandoned(prefix)) == left
            assert has_ended(pid)
            assert sorted(existing(prefix)) == used
        finally:
            runs.kill()
            runs.wait()
    assert sorted(remove_abandoned(prefix)) == used


def test_invalid_arguments_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for devices, prefix, field in (
        (0, "a-", "devices"),
        (1001, "a-", "devices"),
        (2, "a1", "prefix"),
        (2, "A", "prefix"),
    ):
        with pytest.raises(InputError, match=field):
            VirtualNetwork(devices, prefix)
    network = VirtualNetwork(2, PREFIX)
    for call, field in (
        (lambda: network.link(0, 2, up=True), "device"),
        (lambda: network.link(1, 1, up=True), "device"),
        (lambda: network.run(-1, ["true"]), "device"),
        (lambda: network.rate(0, 1, 0.0), "bits"),
        (lambda: network.loss(0, 1, 1.5), "share"),
    ):
        with pytest.raises(InputError, match=field):
            call()
    monkeypatch.setattr(shutil, "which", lambda command: None if command == "nft" else command)
    with pytest.raises(GossamerError, match="nft not found"), network:
        pass
    monkeypatch.setattr(shutil, "which", lambda command: command)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(GossamerError, match="needs root"), network:
        pass

"""The rehearsal ground: who hears whom, what is cut, slowed or lost, and that nothing is left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gossamer.errors import GossamerError, InputError
from gossamer.fleet import namespaces
from gossamer.fleet.namespaces import Ground, address

pytestmark = pytest.mark.slow

PREFIX = f"test-{os.getpid()}-ground-"
needs_namespaces = pytest.mark.skipif(
    namespaces.refusal() is not None, reason=str(namespaces.refusal())
)

# Answers what it hears, with how many bytes it was; and asks: how many of so many questions were answered.
ANSWER = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("0.0.0.0", 7))
print("ready", flush=True)
while True:
    data, who = s.recvfrom(2000)
    s.sendto(data, who)
"""
ASK = """
import socket, sys
address, count, wait = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(wait)
came = 0
for i in range(count):
    try:
        s.sendto(bytes(10), (address, 7))
        came += len(s.recvfrom(2000)[0]) == 10
    except OSError:
        pass
print(came)
"""


def there(prefix: str) -> list[str]:
    listed = subprocess.run(
        ["ip", "netns", "list"], capture_output=True, text=True, check=True
    ).stdout
    return [line.split()[0] for line in listed.splitlines() if line.startswith(prefix)]


def asked(ground: Ground, device: int, other: int, count: int = 1, wait: float = 0.2) -> int:
    process = ground.run(
        device,
        [sys.executable, "-c", ASK, address(other), str(count), str(wait)],
        stdout=subprocess.PIPE,
        text=True,
    )
    return int(process.communicate(timeout=60)[0])


def answers(ground: Ground, device: int, other: int) -> bool:
    """Within a time that is ample for the kernel to let packets through a link that came up."""
    return any(asked(ground, device, other) for _ in range(30))


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    if sentence := namespaces.refusal():
        pytest.skip(sentence)
    with Ground(3, PREFIX) as made:
        for device in range(3):
            process = made.run(
                device, [sys.executable, "-c", ANSWER], stdout=subprocess.PIPE, text=True
            )
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        yield made
        processes = list(made._started)
    assert not there(PREFIX)
    for process in processes:
        assert process.returncode is not None
        if process.stdout is not None:
            process.stdout.close()


def test_links_are_cut_and_healed_and_nobody_passes_anything_on(ground: Ground) -> None:
    assert not asked(ground, 0, 1)
    ground.link(0, 1, up=True)
    ground.link(1, 2, up=True)
    assert answers(ground, 0, 1)
    assert answers(ground, 2, 1)
    assert not asked(ground, 0, 2, count=5)
    ground.link(1, 0, up=False)
    assert not asked(ground, 0, 1, count=5)
    assert asked(ground, 2, 1)
    ground.link(1, 0, up=True)
    assert answers(ground, 0, 1)


def test_nothing_reaches_the_machine_itself(ground: Ground) -> None:
    ground.link(0, 1, up=True)
    for device in range(3):
        process = ground.run(device, ["ip", "-json", "route"], stdout=subprocess.PIPE, text=True)
        routes = json.loads(process.communicate(timeout=30)[0])
        assert {route["dst"] for route in routes} <= {address(other) for other in range(3)}, (
            "no way out"
        )
    own = subprocess.run(["ip", "-json", "link"], capture_output=True, text=True, check=True).stdout
    assert not {link["ifname"] for link in json.loads(own)} & {"to0", "to1", "to2"}, "born inside"


def test_loss_both_ways_one_way_and_none(ground: Ground) -> None:
    ground.link(0, 1, up=True)
    assert answers(ground, 0, 1)
    ground.loss(0, 1, 1.0)
    assert asked(ground, 0, 1, count=5) == 0
    ground.loss(0, 1, 0.0)
    assert asked(ground, 0, 1, count=20) == 20
    ground.loss(
        0, 1, 0.3
    )  # either the question or its answer: 51 % of 200, ± 5 standard deviations
    assert 200 * 0.49 - 36 < asked(ground, 0, 1, count=200, wait=0.05) < 200 * 0.49 + 36
    ground.loss(0, 1, 0.0)
    ground.loss(
        1, 0, 1.0, one_way=True
    )  # 0 hears nothing; 1 hears all: seen by what its end of the cable counts
    before = heard(ground, 1)
    assert asked(ground, 0, 1, count=5) == 0
    assert heard(ground, 1) >= before + 5
    ground.loss(1, 0, 0.0, one_way=True)
    assert asked(ground, 0, 1, count=20) == 20


def heard(ground: Ground, device: int) -> int:
    """UDP datagrams that came through to a device."""
    process = ground.run(device, ["cat", "/proc/net/snmp"], stdout=subprocess.PIPE, text=True)
    lines = [
        line.split()
        for line in process.communicate(timeout=30)[0].splitlines()
        if line.startswith("Udp:")
    ]
    return int(dict(zip(*lines, strict=True))["InDatagrams"])


def test_a_rate_is_kept_to(ground: Ground) -> None:
    """100 kB at 1 Mbit/s are 0.8 s, less what goes in a burst; without the limit there is no such lower bound."""
    ground.link(0, 1, up=True)
    assert answers(ground, 0, 1)
    take = "import socket\ns = socket.create_server(('0.0.0.0', 8))\nprint('ready', flush=True)\nc = s.accept()[0]\nn = 0\n"
    take += "while d := c.recv(65536): n += len(d)\nprint(n)"
    give = "import socket, time\nt = time.monotonic()\ns = socket.create_connection(('%s', 8))\ns.sendall(bytes(100_000))\n"
    give += "s.shutdown(1)\ns.recv(1)\nprint(time.monotonic() - t)"
    ground.rate(0, 1, 1e6)
    receiver = ground.run(1, [sys.executable, "-c", take], stdout=subprocess.PIPE, text=True)
    assert receiver.stdout is not None
    assert receiver.stdout.readline() == "ready\n"
    sender = ground.run(
        0, [sys.executable, "-c", give % address(1)], stdout=subprocess.PIPE, text=True
    )
    seconds = float(sender.communicate(timeout=60)[0])
    assert receiver.communicate(timeout=60)[0] == "100000\n"
    assert seconds > 0.7
    ground.rate(0, 1, None)
    ground.rate(0, 1, None)  # nothing to lift
    process = ground.run(
        0, ["tc", "qdisc", "show", "dev", "to1"], stdout=subprocess.PIPE, text=True
    )
    assert "tbf" not in process.communicate(timeout=30)[0]


def ended(pid: int) -> bool:
    """Gone, or soon gone: one whose parent is gone too stays as a zombie until init asks for it."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if (
                Path(f"/proc/{pid}/stat")
                .read_text(encoding="utf-8")
                .rpartition(") ")[2]
                .startswith("Z")
            ):
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


@needs_namespaces
def test_all_is_removed_after_an_error_with_every_process() -> None:
    prefix = f"{PREFIX}error-"
    process, pids = None, []

    def fail() -> None:
        nonlocal process, pids
        with Ground(2, prefix) as ground:
            ground.link(0, 1, up=True)
            process = ground.run(0, ["sh", "-c", "sleep 600 & sleep 600"])
            deadline = time.monotonic() + 10
            while (
                len(pids) < 2 and time.monotonic() < deadline
            ):  # the shell, and the first of its children
                listed = subprocess.run(
                    ["ip", "netns", "pids", ground.name(0)],
                    capture_output=True,
                    text=True,
                    check=True,
                )
                pids = listed.stdout.split()
            assert there(prefix)
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        fail()
    assert process is not None
    assert process.returncode == -9
    assert not there(prefix)
    assert len(pids) >= 2
    assert all(ended(int(pid)) for pid in pids)


@needs_namespaces
def test_what_an_earlier_run_left_is_removed_but_not_what_is_in_use() -> None:
    prefix = f"{PREFIX}left-"
    script = f"import os, time\nfrom gossamer.fleet.namespaces import Ground\ng = Ground(3, {prefix!r}).__enter__()\n"
    script += "g.run(2, ['sleep', '600'])\nprint('ready', flush=True)\ntime.sleep(600)"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as earlier:
        assert earlier.stdout is not None
        assert earlier.stdout.readline() == "ready\n"
        with pytest.raises(GossamerError, match="is under way"), Ground(1, prefix):
            pass
        assert len(there(prefix)) == 3
        earlier.kill()
    assert len(there(prefix)) == 3, "nobody was there to remove them"
    pid = int(
        subprocess.run(
            ["ip", "netns", "pids", f"{prefix}2"], capture_output=True, text=True, check=True
        ).stdout
    )
    with Ground(1, prefix):
        assert there(prefix) == [f"{prefix}0"]
    assert not there(prefix)
    assert ended(pid), "its process is gone too"


def test_bad_input_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for devices, prefix, field in (
        (0, "a-", "devices"),
        (1001, "a-", "devices"),
        (2, "a1", "prefix"),
        (2, "A", "prefix"),
    ):
        with pytest.raises(InputError, match=field):
            Ground(devices, prefix)
    ground = Ground(2, PREFIX)
    for call, field in (
        (lambda: ground.link(0, 2, up=True), "device"),
        (lambda: ground.link(1, 1, up=True), "device"),
        (lambda: ground.run(-1, ["true"]), "device"),
        (lambda: ground.rate(0, 1, 0.0), "bits"),
        (lambda: ground.loss(0, 1, 1.5), "share"),
    ):
        with pytest.raises(InputError, match=field):
            call()
    monkeypatch.setattr(
        namespaces.shutil, "which", lambda command: None if command == "nft" else command
    )
    with pytest.raises(GossamerError, match="nft not found"), ground:
        pass
    monkeypatch.setattr(namespaces.shutil, "which", lambda command: command)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(GossamerError, match="needs root"), ground:
        pass

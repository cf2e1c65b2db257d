"""The transport on zenoh: who is a neighbour, what arrives, and who is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.processes import DEADLINE
from support.zenoh_processes import (
    LARGE,
    MODEL,
    NAMES,
    Device,
    becomes_true,
    endpoints,
    make_certificates,
)

from gossamer.fleet import namespaces
from gossamer.fleet.namespaces import VirtualNetwork

pytest.importorskip("zenoh", reason="needs the extra gossamer[peer]")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of a fleet, and invalid ones."""
    return make_certificates(tmp_path_factory.mktemp("fleet"))


@pytest.fixture(scope="module")
def network() -> Iterator[VirtualNetwork]:
    if reason := namespaces.unavailable_reason():
        pytest.skip(reason)
    with VirtualNetwork(4, f"test-{os.getpid()}-zenoh-") as made:
        yield made
        processes = made.processes
    assert all(process.returncode is not None for process in processes)


@pytest.fixture(scope="module")
def _three(network: VirtualNetwork, folder: Path) -> Iterator[list[Device]]:
    # Device 0 dials 1 and 2. Devices 1 and 2 dial each other, which must work as well.
    made = []
    for i, dialled in enumerate([(1, 2), (2,), (1,)]):
        device = Device(network, folder, i, connect=endpoints(*dialled), largest=2 * LARGE)
        made.append(device)
    assert [device.read() for device in made] == ["ready"] * 3
    yield made
    for device in made:
        device.leave()


@pytest.fixture
def three(network: VirtualNetwork, _three: list[Device]) -> list[Device]:
    """Three devices, all linked, with nothing left to receive."""
    for a, b in ((0, 1), (0, 2), (1, 2)):
        network.rate(a, b, None)
        network.loss(a, b, 0)
        network.link(a, b, up=True)
    for device, others in ((0, (1, 2)), (1, (0, 2)), (2, (0, 1))):
        assert _three[device].sees(*others)
    for receiver in _three:
        while receiver("receive", 0.05):
            pass
    return _three


def test_messages_are_exchanged(three: list[Device]) -> None:
    assert three[0]("links") == ["n1", "n2"]
    for sender, to, size in ((0, 1, MODEL), (1, 0, LARGE), (2, 1, 1), (1, 2, 2 * LARGE)):
        three[sender]("send", to, size, sender + 1)
        assert three[to]("receive", DEADLINE) == [sender, size, sender + 1, True]
    three[0].start("echo", 50)
    assert three[1]("ping", 0, 50, MODEL) == 50
    assert three[0].read() == "true"


def test_messages_of_a_sender_arrive_in_order(three: list[Device]) -> None:
    for mark, size in ((1, LARGE), (2, 10), (3, MODEL), (4, LARGE)):
        three[0]("send", 1, size, mark)
    for expected in (1, 2, 3, 4):
        sender, _, mark, complete = three[1]("receive", DEADLINE)
        assert (sender, mark, complete) == (0, expected, True)


def test_a_link_is_cut_and_healed_and_nobody_forwards(
    network: VirtualNetwork, three: list[Device]
) -> None:
    for cut, heal in (
        (lambda: network.link(0, 1, up=False), lambda: network.link(0, 1, up=True)),
        (lambda: network.loss(0, 1, 1), lambda: network.loss(0, 1, 0)),
    ):
        cut()
        assert three[0].sees(2)
        assert three[1].sees(2)
        assert three[2].sees(0, 1)
        three[0]("send", 1, MODEL, 5)  # though device 2 is linked to both
        three[0]("put", "gossamer/r1/from/0/to/1", 10, 10**6, 0, 0, 10)
        three[0]("send", 2, MODEL, 6)
        assert three[2]("receive", DEADLINE) == [0, MODEL, 6, True]
        assert three[1]("receive", 1) is None
        heal()
        assert three[0].sees(1, 2)
        assert three[1].sees(0, 2)
        three[0]("send", 1, MODEL, 7)
        assert three[1]("receive", DEADLINE) == [0, MODEL, 7, True]


def test_a_slow_link_delays_no_other(network: VirtualNetwork, three: list[Device]) -> None:
    network.rate(0, 1, 10e6)
    lost = three[0]("counts")["lost"]
    three[0]("send", 1, LARGE, 9)  # takes 3.2 s
    three[2].start("echo", 20)
    assert three[0]("ping", 2, 20, MODEL) == 20
    assert three[1]("receive", 0) is None, "still in flight when the others are done"
    assert three[1]("receive", DEADLINE) == [0, LARGE, 9, True]
    assert three[2].read() == "true"
    assert three[0]("counts")["lost"] == lost


def test_a_link_that_dies_during_a_message_delays_no_other(
    network: VirtualNetwork, three: list[Device]
) -> None:
    received = three[0]("counts")["received"]
    for _ in range(4):
        three[0]("send", 1, LARGE, 9)
    network.loss(0, 1, 1)
    three[2].start("echo", 20)
    assert three[0]("ping", 2, 20, MODEL) == 20
    assert three[2].read() == "true"
    assert three[0].sees(2)
    assert three[0]("counts")["received"] == received + 20
    network.loss(0, 1, 0)
    assert three[0].sees(1, 2)


def test_waiting_messages_are_bounded_at_both_ends(three: list[Device]) -> None:
    before = [three[0]("peak_memory"), three[1]("peak_memory")]
    overflow = three[1]("counts")["overflow"]
    three[0]("flood", 1, 3.0, LARGE)  # four messages may wait at each end: twice the largest size
    three[2]("send", 1, MODEL, 3)
    assert becomes_true(lambda: three[1]("counts")["overflow"] > overflow)
    assert three[0]("counts")["dropped"] > 0
    dropped = -1
    while dropped != (dropped := three[0]("counts")["dropped"]):  # until the flood is over
        time.sleep(1)
    arrived = list(iter(lambda: three[1]("receive", 2), None))
    assert [2, MODEL, 3, True] in arrived, "a flood does not push out the messages of others"
    assert sum(sender == 0 for sender, *_ in arrived) <= 4 + 5
    assert three[0]("peak_memory") - before[0] < 100_000
    assert three[1]("peak_memory") - before[1] < 100_000


def test_nobody_sends_in_the_name_of_another(three: list[Device]) -> None:
    """Device 1 has a valid certificate, and puts with zenoh itself."""
    refused = three[0]("counts")["refused"]
    for key in (
        "gossamer/r1/from/2/to/0",
        "gossamer/r1/from/*/to/0",
        "gossamer/r1/from/2/to/0/*",
        "gossamer/r1/from/**",
        "gossamer/r1/**",
        "gossamer/r2/from/1/to/0",
        "gossamer/r1/from/1/to/*/*",
    ):
        three[1]("put", key, 10, 10**6, 0, 0, 10)
    three[1]("put", "gossamer/r1/from/1/to/0", 10, 10**6, 0, 0, 10)  # in its own name
    assert three[0]("receive", DEADLINE) == [1, 10, 0, True]
    assert three[0]("receive", 1) is None
    assert three[0]("counts")["refused"] == refused, "zenoh drops them before they arrive"
    assert three[2]("receive", 0) is None


def test_malformed_packets_are_refused_and_counted(three: list[Device]) -> None:
    key = "gossamer/r1/from/1/to/0"
    refused = three[0]("counts")["refused"]
    packets = [  # bytes; number, ack, offset, size
        (10, 1, 0, 0, 2**32 - 1),  # larger than any message
        (10, 1, 0, 0, 5),  # more bytes than announced
        (10, 1, 0, 10, 20),  # a second half without the first
        (0, 1, 0, 0, 5),
    ]
    for size, *header in packets:
        three[1]("put", key, size, *header)
    three[1]("put", key, 50_000_000, 1, 0, 0, 50_000_000)  # zenoh itself refuses this one
    assert becomes_true(lambda: three[0]("counts")["refused"] == refused + len(packets))
    for _ in range(3):
        three[1]("send", 0, MODEL, 8)
    assert three[0].sees(1, 2)
    assert becomes_true(lambda: three[0]("receive", 1) == [1, MODEL, 8, True])


@pytest.mark.parametrize("size", [1, MODEL, 50_000_000])
def test_packets_beyond_the_window_delay_no_other(three: list[Device], size: int) -> None:
    """Device 1 ignores its window. zenoh itself refuses packets larger than a chunk."""
    before = three[0]("peak_memory")
    three[1].start("put_many", "gossamer/r1/from/1/to/0", 1.0, size)
    three[2].start("echo", 20)
    assert three[0]("ping", 2, 20, MODEL) == 20
    assert three[2].read() == "true"
    assert int(three[1].read()) > 0
    three[0]("send", 1, MODEL, 5)
    assert three[1]("receive", DEADLINE) == [0, MODEL, 5, True]
    assert three[0].sees(1, 2)
    assert three[0]("peak_memory") - before < 50_000


def test_a_device_that_does_not_read_delays_no_other(
    network: VirtualNetwork, folder: Path, three: list[Device]
) -> None:
    network.link(0, 3, up=True)
    fourth = Device(network, folder, 3, connect=endpoints(0))
    assert fourth.read() == "ready"
    assert three[0].sees(1, 2, 3)
    assert fourth.sees(0)
    fourth("stop_reading", 0)
    lost = three[0]("counts")["lost"]
    for _ in range(4):
        three[0]("send", 3, LARGE, 1)
    fourth.start("put_many", "gossamer/r1/from/3/to/0", 1.0, MODEL)  # and it reads no acks
    three[2].start("echo", 20)
    assert three[0]("ping", 2, 20, LARGE) == 20
    assert three[2].read() == "true"
    assert int(fourth.read()) > 0
    assert three[0]("neighbours") == [1, 2, 3], "the link stays alive"
    assert three[0]("counts")["lost"] == lost
    fourth.leave(kill=True)
    assert three[0].sees(1, 2)


def test_a_killed_device_comes_back(
    network: VirtualNetwork, folder: Path, three: list[Device]
) -> None:
    network.link(0, 3, up=True)
    for end in ("killed", "killed while cut off", "left"):
        fourth = Device(network, folder, 3, connect=endpoints(0), largest=2 * LARGE)
        assert fourth.read() == "ready"
        assert three[0].sees(1, 2, 3)
        assert fourth.sees(0)
        fourth("send", 0, MODEL, 4)
        assert three[0]("receive", DEADLINE) == [3, MODEL, 4, True]
        if end == "left":
            fourth("send", 0, MODEL, 5)
        if end == "killed while cut off":
            network.loss(0, 3, 1)  # so that device 0 is not notified
        fourth.leave(kill=end != "left")
        network.loss(0, 3, 0)
    assert three[0]("receive", DEADLINE) == [3, MODEL, 5, True], "messages before leaving arrive"
    assert three[0].sees(1, 2)


INTRUDERS: dict[str, dict[str, Any]] = {
    "of another authority": {"certificates": "foreign"},
    "of another authority, which trusts ours": {
        "certificates": "foreign",
        "config_changes": {"transport/link/tls/root_ca_certificate": "n3/ca.pem"},
    },
    "with an expired certificate": {"certificates": "expired"},
    "without a certificate": {
        "certificates": "n3",
        "config_changes": {
            "transport/link/tls/connect_certificate": None,
            "transport/link/tls/connect_private_key": None,
        },
    },
    "on plain TCP": {"insecure": True},
    "with another's certificate": {"certificates": "n2"},
    "of another run": {"certificates": "n3", "run": "r2"},
}
LINKED = {"with another's certificate", "of another run"}  # they get a link on which nothing passes


def start_intruder(network: VirtualNetwork, folder: Path, who: str, port: int) -> Device:
    given = dict(INTRUDERS[who])
    changes: dict[str, Any] = {"access_control/enabled": False}
    for path, value in given.pop("config_changes", {}).items():
        changes[path] = str(folder / value) if value else value
    if "certificates" in given:
        given["certificates"] = str(folder / given["certificates"])
    listen = [f"0.0.0.0:{port}"]
    return Device(
        network, folder, 3, connect=endpoints(0), config_changes=changes, listen=listen, **given
    )


def test_intruders_are_refused(network: VirtualNetwork, folder: Path, three: list[Device]) -> None:
    """All dial device 0 at once, from the namespace of device 3, which then dials itself."""
    network.link(0, 3, up=True)
    intruders = {}
    for port, who in enumerate(INTRUDERS, start=7500):
        intruders[who] = start_intruder(network, folder, who, port)
    for who, device in intruders.items():
        assert device.read() == "ready", who
    end = time.monotonic() + 4  # they dial about once a second
    while time.monotonic() < end:
        assert three[0]("neighbours") == [1, 2]
        for who, device in intruders.items():
            run = INTRUDERS[who].get("run", "r1")
            device("put", f"gossamer/{run}/from/3/to/0", 10, 1, 0, 0, 10)
            assert three[0]("receive", 0.05) is None, who
    three[2].start("echo", 5)
    assert three[0]("ping", 2, 5, MODEL) == 5, "also while another has its certificate"
    assert three[2].read() == "true"
    for who, device in intruders.items():
        if who not in LINKED:
            assert device("links") == [], who
    for device in intruders.values():
        device.leave(kill=True)
    fourth = Device(network, folder, 3, connect=endpoints(0))
    assert fourth.read() == "ready"
    assert three[0].sees(1, 2, 3)
    fourth.leave()


# -- observers -------------------------------------------------------------------------------------

LAWLESS = {"access_control/enabled": False}


@pytest.fixture
def observer(network: VirtualNetwork, folder: Path, three: list[Device]) -> Iterator[Device]:
    """An observer that is linked to devices 0 and 1, without access rules of its own."""
    for device in (0, 1):
        network.link(device, 3, up=True)
    made = Device(network, folder, None, at=3, connect=endpoints(0, 1), config_changes=LAWLESS)
    assert made.read() == "ready"
    assert becomes_true(lambda: made("links") == ["n0", "n1"])
    yield made
    made.leave()


def published(three: list[Device], observer: Device, size: int, mark: int) -> list[list[Any]]:
    """Publish the status of all devices until the observer has those of 0 and 1; return them."""
    arrived: list[Any] = []

    def publish() -> bool:
        for device in three:
            assert device("publish_status", size, mark) is None
        arrived.extend(observer("statuses"))
        return {0, 1} <= {status[0] for status in arrived}

    assert becomes_true(publish)
    return [list(status) for status in sorted({tuple(status) for status in arrived})]


def test_an_observer_receives_status_and_is_no_neighbour(
    three: list[Device], observer: Device
) -> None:
    assert published(three, observer, 4096, 7) == [[0, 4096, 7], [1, 4096, 7]]
    assert [device("neighbours") for device in three] == [[1, 2], [0, 2], [0, 1]]
    assert "status" in three[0]("publish_status", 4097, 1)
    assert "status" in three[0]("publish_status", 0, 1)


def test_an_observer_receives_nothing_else_and_can_send_nothing(
    three: list[Device], observer: Device
) -> None:
    everything = ("gossamer/r1/from/0/to/1/*", "gossamer/r1/from/**", "gossamer/r1/**", "**")
    observer("subscribe", *everything)
    observer("declare_token", "gossamer/r1/alive/3")
    observer("declare_token", "gossamer/r1/alive/0")
    refused = three[0]("counts")["refused"]
    for device in (0, 1, 3):
        observer("put", f"gossamer/r1/from/{device}/to/0", 10, 10**6, 0, 0, 10)
        observer("put", f"gossamer/r1/status/{device}", 10, 0, 0, 0, 0)
    three[0]("send", 1, MODEL, 1)
    assert three[1]("receive", DEADLINE) == [0, MODEL, 1, True]
    statuses = {"gossamer/r1/status/0", "gossamer/r1/status/1"}
    overheard: set[str] = set()

    def both_are_overheard() -> bool:  # once both devices know the subscriptions
        published(three, observer, 10, 1)
        overheard.update(observer("overheard"))
        return statuses <= overheard

    assert becomes_true(both_are_overheard)
    assert overheard == statuses
    assert three[0]("receive", 1) is None
    assert three[0]("counts")["refused"] == refused
    assert [device("neighbours") for device in three] == [[1, 2], [0, 2], [0, 1]]


def test_only_the_device_itself_publishes_its_status(
    network: VirtualNetwork, folder: Path, three: list[Device]
) -> None:
    """Device 3 has no access rules. An observer in the namespace of 1 is linked to 0 and 3."""
    for a, b in ((0, 3), (1, 3)):
        network.link(a, b, up=True)
    fourth = Device(network, folder, 3, connect=endpoints(0), config_changes=LAWLESS)
    assert fourth.read() == "ready"
    observer = Device(network, folder, None, at=1, connect=endpoints(0, 3))
    assert observer.read() == "ready"
    assert becomes_true(lambda: observer("links") == ["n0", "n3"])
    assert fourth.sees(0)
    fourth("subscribe", "gossamer/r1/status/*", "gossamer/r1/status/0", "gossamer/r1/**")
    received: set[tuple[int, int]] = set()

    def publish() -> bool:
        three[0]("publish_status", 10, 1)
        fourth("put", "gossamer/r1/status/3", 5000, 0, 0, 0, 0)
        fourth("put", "gossamer/r1/status/0", 20, 0, 0, 0, 0)
        fourth("put", "gossamer/r1/status/*", 20, 0, 0, 0, 0)
        fourth("put", "gossamer/r1/status/03", 20, 0, 0, 0, 0)
        fourth("put", "gossamer/r1/from/3/to/0", 20, 0, 0, 0, 0)
        fourth("put", "gossamer/r1/status/3", 30, 0, 0, 0, 0)
        received.update((device, size) for device, size, _ in observer("statuses"))
        return len(received) >= 2

    assert becomes_true(publish)
    assert received == {(0, 10), (3, 30)}
    assert fourth("overheard") == []
    for device in (observer, fourth):
        device.leave()
    assert three[0].sees(1, 2)


def test_a_stopped_observer_delays_nobody(three: list[Device], observer: Device) -> None:
    published(three, observer, 4096, 1)
    lost = three[0]("counts")["lost"]
    observer.process.send_signal(signal.SIGSTOP)
    try:
        three[2].start("echo", 20)
        three[0].start("ping", 2, 20, LARGE)
        for _ in range(500):
            three[1]("publish_status", 4096, 1)
        assert three[0].read() == "20"
        assert three[2].read() == "true"
        for _ in range(500):
            three[0]("publish_status", 4096, 1)
        assert three[0]("counts")["lost"] == lost
        assert three[0]("neighbours") == [1, 2]
    finally:
        observer.process.send_signal(signal.SIGCONT)


@pytest.mark.skipif(
    namespaces.unavailable_reason() is not None, reason=str(namespaces.unavailable_reason())
)
def test_a_bench_without_certificates_finds_devices_by_multicast(folder: Path) -> None:
    with VirtualNetwork(2, f"test-{os.getpid()}-bench-") as bench:
        bench.link(0, 1, up=True)
        for device in (0, 1):  # zenoh looks for interfaces once, at its start
            assert becomes_true(lambda device=device: is_up(bench, device, f"to{1 - device}"))
        devices = []
        for device in (0, 1):
            devices.append(Device(bench, folder, device, insecure=True, multicast=True))
        assert [device.read() for device in devices] == ["ready"] * 2
        assert devices[0].sees(1)
        assert devices[1].sees(0)
        devices[0]("send", 1, LARGE, 1)
        assert devices[1]("receive", DEADLINE) == [0, LARGE, 1, True]
        observer = Device(bench, folder, None, at=1, insecure=True, multicast=True)
        assert observer.read() == "ready"

        def is_observed() -> bool:
            devices[0]("publish_status", 10, 3)
            return [0, 10, 3] in observer("statuses")

        assert becomes_true(is_observed)
        assert [device("neighbours") for device in devices] == [[1], [0]]
        for process in (*devices, observer):
            process.leave()


def is_up(network: VirtualNetwork, device: int, interface: str) -> bool:
    words = ["ip", "-n", network.name(device), "-brief", "link", "show", "up", "dev", interface]
    return " UP " in subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_a_port_in_use_is_reported(network: VirtualNetwork, three: list[Device]) -> None:
    script = f"""
from gossamer.errors import GossamerError
from gossamer.fleet.transport.configuration import LinkSettings
from gossamer.fleet.transport.zenoh import Zenoh
try:
    Zenoh(3, LinkSettings("r", {NAMES!r}, insecure=True))
except GossamerError as error:
    print(error)
"""
    process = network.run(0, [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert "device 3 cannot listen on 0.0.0.0:7447" in process.communicate(timeout=DEADLINE)[0]


@pytest.mark.parametrize("missing", [False, True])
def test_a_gate_needs_no_privilege_and_a_system_without_one_says_so(
    network: VirtualNetwork, folder: Path, missing: bool
) -> None:
    script = f"""
import sys
from pathlib import Path
from gossamer.fleet.notices import Notices
from gossamer.fleet.transport import zenoh
from gossamer.fleet.transport.configuration import LinkSettings

def no_gate(*args):
    raise OSError

if {missing}:
    zenoh.Gate = no_gate
notices = Notices()
settings = LinkSettings("r", {NAMES!r}, Path({str(folder / "n3")!r}), multicast=False)
device = zenoh.Zenoh(3, settings, notices)
[privileges] = [line for line in open("/proc/self/status") if line.startswith("CapEff")]
print(int(privileges.split()[1], 16), [one["kind"] for one in notices.entries()])
device.close()
"""
    without = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
    words = [*without, sys.executable, "-c", script]
    process = network.run(3, words, stdout=subprocess.PIPE, text=True)
    expected = ["no gate"] if missing else []
    assert process.communicate(timeout=DEADLINE)[0] == f"0 {expected}\n"

"""The transport on zenoh: who is a neighbour, what arrives, who is refused, and that no link holds up another."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.errors import DataError, GossamerError, InputError, MissingExtra
from gossamer.fleet import keys, namespaces
from gossamer.fleet.line import _ROOM, ANSWERS, CHUNK, HEADER, Line, _batches
from gossamer.fleet.namespaces import Ground, address
from gossamer.fleet.zenoh import Settings, Zenoh, access, configuration
from gossamer.fleet.zenoh import _chosen as chosen
from gossamer.fleet.zenoh import _Link as Link

pytest.importorskip("zenoh", reason="needs the extra gossamer[peer]")

pytestmark = pytest.mark.slow

NAMES = ("n0", "n1", "n2", "n3")
MODEL, LARGE = 31_400, 4_000_000
LIMIT = 60.0  # seconds until something that must come is said never to come: generous, for a busy machine

# One device: reads commands, one JSON a line, and answers each. The package's own imports (torch) would take most of the time.
DEVICE = """
import json, os, sys, time, zlib
from pathlib import Path
import gossamer
import zenoh as library
from gossamer.fleet import keys, observer, zenoh
from gossamer.fleet.line import HEADER
from gossamer.errors import InputError
assert "torch" not in sys.modules
given = json.loads(sys.argv[1])
if "unchecked" in given:  # a stranger: its certificate is not what this device would accept of itself
    keys.check_folder = lambda *_: None
    plain, changes = zenoh.configuration, given.pop("unchecked")
    def changed(device, settings):
        whole = plain(device, settings)
        for path, value in changes.items():
            *outer, last = path.split("/")
            inner = whole
            for name in outer:
                inner = inner.setdefault(name, {})
            inner[last] = value
        return whole
    zenoh.configuration = observer.configuration = changed
device = given.pop("device")
folder = given.pop("certificates", None)
settings = zenoh.Settings(**{**given, "names": tuple(given["names"]), "connect": tuple(given["connect"])},
                          certificates=Path(folder) if folder else None)
heard, overheard, declared = [], set(), []
if device is None:
    transport = observer.Observer(settings, lambda *came: heard.append([came[0], len(came[1]), came[1][0]]))
else:
    transport = zenoh.Zenoh(device, settings)

def message(size, mark):
    return bytes([mark]) * size

def ask(do, *words):
    if do == "neighbours":
        return sorted(transport.neighbours())
    if do == "send":
        to, size, mark = words
        return transport.send(to, message(size, mark))
    if do == "receive":
        came = transport.receive(words[0])
        return came and [came[0], len(came[1]), came[1][0], came[1] == message(len(came[1]), came[1][0])]
    if do == "talk":  # so many messages to one who answers; how many came back
        to, count, size = words
        back = 0
        for number in range(count):
            transport.send(to, message(size, number % 251))
            while (came := transport.receive(20)) and came[0] != to:
                pass
            back += came == (to, message(size, number % 251))
        return back
    if do == "answer":
        for _ in range(words[0]):
            came = transport.receive(20)
            if came is None:
                return False
            transport.send(*came)
        return True
    if do == "flood":  # until so many seconds are over
        to, seconds, size = words
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            transport.send(to, message(size, 7))
            time.sleep(0.002)
        return None
    if do == "put":  # past all manners
        key, size, *header = words
        for link in transport._session.info.links():  # .../to/0 means the session that device 0 has
            key = key + f"/{link.zid}" if key.endswith(f"/to/{(link.auth_identifier or '-')[1:]}") else key
        return transport._session.put(key, bytes(size), attachment=HEADER.pack(*header), express=True)
    if do == "storm":  # packets, each a message, as fast as they go
        key, seconds, size = words
        until, count = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            ask("put", key, size, count % 2**32, 0, 0, size)
            count += 1
        return count
    if do == "deafen":  # takes no packet of another any more, and so reads nothing from that link: which stays alive
        transport._lines[words[0]].heard = lambda *_: time.sleep(10**6)
        return None
    if do == "listen":  # past all manners, too
        hear = library.handlers.Callback(lambda sample: overheard.add(str(sample.key_expr)), indirect=False)
        remote = library.Locality.REMOTE
        declared.extend(transport._session.declare_subscriber(key, hear, allowed_origin=remote) for key in words)
        return None
    if do == "claim":
        return declared.append(transport._session.liveliness().declare_token(words[0]))
    if do == "overheard":
        return sorted(overheard)
    if do == "tell":
        try:
            return transport.tell(message(*words))
        except InputError as error:
            return str(error)
    if do == "heard":
        came = list(heard)
        del heard[: len(came)]
        return came
    if do == "counts":
        return dict(transport.counts)
    if do == "peak":  # kB that this process had at most
        return [int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")][0]
    if do == "links":
        return sorted({link.auth_identifier for link in transport._session.info.links()}, key=str)

print("ready", flush=True)
for line in sys.stdin:
    print(json.dumps(ask(*json.loads(line))), flush=True)
transport.close()
print("closed", flush=True)
"""


class Device:
    """One such process in its namespace."""

    def __init__(
        self, ground: Ground, folder: Path, device: int | None, at: int | None = None, **given: Any
    ) -> None:
        given = {
            "device": device,
            "run": "r1",
            "names": NAMES,
            "connect": [],
            "multicast": False,
            **given,
        }
        if "certificates" not in given and not given.get("insecure"):
            given["certificates"] = str(folder / ("observer" if device is None else f"n{device}"))
        place = device if at is None else at
        assert place is not None
        self.process = ground.run(
            place,
            [sys.executable, str(folder / "device.py"), json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def read(self) -> str:
        return str(self.process.stdout.readline()).strip()  # type: ignore[union-attr]

    def tell(self, *words: Any) -> None:
        """Ask, and get the answer later by `read`."""
        self.process.stdin.write(json.dumps(words) + "\n")  # type: ignore[union-attr]
        self.process.stdin.flush()  # type: ignore[union-attr]

    def __call__(self, *words: Any) -> Any:
        self.tell(*words)
        return json.loads(self.read())

    def sees(self, *others: int) -> bool:
        return until(lambda: self("neighbours") == sorted(others))

    def leave(self, kill: bool = False) -> None:
        if kill:
            self.process.kill()
        self.process.stdin.close()  # type: ignore[union-attr]
        try:
            said = self.process.stdout.read()  # type: ignore[union-attr]
            assert kill or said.endswith("closed\n")
            assert self.process.wait(LIMIT) == (-9 if kill else 0)
        finally:
            self.process.stdout.close()  # type: ignore[union-attr]


def until(true: Callable[[], object]) -> bool:
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        if true():
            return True
        time.sleep(0.02)
    return False


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of a fleet, and of others; and what devices run."""
    made = tmp_path_factory.mktemp("fleet")
    (made / "device.py").write_text(DEVICE, encoding="utf-8")
    past = datetime.now(UTC) - timedelta(days=100)
    keys.make_authority(made / "authority", "fleet", days=200, now=past)
    keys.make_authority(made / "another", "fleet", days=100)
    for name in (*NAMES, "observer"):
        keys.make_certificate(made / name, made / "authority", name, days=50)
    keys.make_certificate(made / "expired", made / "authority", "n3", days=50, now=past)
    keys.make_certificate(made / "stranger", made / "another", "n3", days=50)
    return made


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    if sentence := namespaces.refusal():
        pytest.skip(sentence)
    with Ground(4, f"test-{os.getpid()}-zenoh-") as made:
        yield made
        processes = list(made._started)
    assert all(process.returncode is not None for process in processes)


@pytest.fixture(scope="module")
def _three(ground: Ground, folder: Path) -> Iterator[list[Device]]:
    # 0 dials 1 and 2; 1 and 2 dial each other both: as good.
    dialled = {0: [1, 2], 1: [2], 2: [1]}
    made = [
        Device(
            ground, folder, i, connect=[f"{address(j)}:7447" for j in dialled[i]], largest=2 * LARGE
        )
        for i in range(3)
    ]
    assert [device.read() for device in made] == ["ready"] * 3
    yield made
    for device in made:
        device.leave()


@pytest.fixture
def three(ground: Ground, _three: list[Device]) -> list[Device]:
    """Three devices, all linked, with nothing left to receive."""
    for a, b in ((0, 1), (0, 2), (1, 2)):
        ground.rate(a, b, None)
        ground.loss(a, b, 0)
        ground.link(a, b, up=True)
    for device, others in ((0, (1, 2)), (1, (0, 2)), (2, (0, 1))):
        assert _three[device].sees(*others)
    for device in _three:
        while device("receive", 0.05):
            pass
    return _three


def test_models_are_exchanged(three: list[Device]) -> None:
    assert three[0]("links") == ["n1", "n2"]
    for sender, to, size in ((0, 1, MODEL), (1, 0, LARGE), (2, 1, 1), (1, 2, 2 * LARGE)):
        three[sender]("send", to, size, sender + 1)
        assert three[to]("receive", LIMIT) == [sender, size, sender + 1, True]
    three[0].tell("answer", 50)
    assert three[1]("talk", 0, 50, MODEL) == 50
    assert three[0].read() == "true"


def test_messages_of_one_come_in_order(three: list[Device]) -> None:
    for mark, size in ((1, LARGE), (2, 10), (3, MODEL), (4, LARGE)):
        three[0]("send", 1, size, mark)
    came = [three[1]("receive", LIMIT) for _ in range(4)]
    assert [(sender, mark, whole) for sender, _, mark, whole in came] == [
        (0, mark, True) for mark in (1, 2, 3, 4)
    ]


def test_a_link_is_cut_and_healed_and_nobody_passes_anything_on(
    ground: Ground, three: list[Device]
) -> None:
    for cut, heal in (
        (lambda: ground.link(0, 1, up=False), lambda: ground.link(0, 1, up=True)),
        (lambda: ground.loss(0, 1, 1), lambda: ground.loss(0, 1, 0)),
    ):
        cut()
        assert three[0].sees(2)
        assert three[1].sees(2)
        assert three[2].sees(0, 1)
        three[0]("send", 1, MODEL, 5)  # though 2 is linked to both
        three[0]("put", "gossamer/r1/from/0/to/1", 10, 10**6, 0, 0, 10)
        three[0]("send", 2, MODEL, 6)
        assert three[2]("receive", LIMIT) == [0, MODEL, 6, True]
        assert three[1]("receive", 1) is None
        heal()
        assert three[0].sees(1, 2)
        assert three[1].sees(0, 2)
        three[0]("send", 1, MODEL, 7)
        assert three[1]("receive", LIMIT) == [0, MODEL, 7, True]


def test_a_slow_link_holds_up_no_other(ground: Ground, three: list[Device]) -> None:
    ground.rate(0, 1, 10e6)
    lost = three[0]("counts").get("lost", 0)
    three[0]("send", 1, LARGE, 9)  # takes 3.2 s
    three[2].tell("answer", 20)
    assert three[0]("talk", 2, 20, MODEL) == 20
    assert three[1]("receive", 0) is None, "still under way when the others were done"
    assert three[1]("receive", LIMIT) == [0, LARGE, 9, True]
    assert three[2].read() == "true"
    assert three[0]("counts").get("lost", 0) == lost


def test_a_link_that_dies_in_the_middle_holds_up_no_other(
    ground: Ground, three: list[Device]
) -> None:
    received = three[0]("counts")["received"]
    for _ in range(4):
        three[0]("send", 1, LARGE, 9)
    ground.loss(0, 1, 1)
    three[2].tell("answer", 20)
    assert three[0]("talk", 2, 20, MODEL) == 20
    assert three[2].read() == "true"
    assert three[0].sees(2)
    assert three[0]("counts")["received"] == received + 20
    ground.loss(0, 1, 0)
    assert three[0].sees(1, 2)


def test_what_nobody_takes_is_bounded_here_and_there(three: list[Device]) -> None:
    before = [three[0]("peak"), three[1]("peak")]
    count = three[1]("counts")
    three[0]("flood", 1, 3.0, LARGE)  # of 4 MB each, 4 may wait there and 4 here: twice the largest
    three[2]("send", 1, MODEL, 3)
    assert until(lambda: three[1]("counts").get("overflow", 0) > count.get("overflow", 0))
    assert three[0]("counts")["dropped"] > 0
    dropped = -1
    while dropped != (dropped := three[0]("counts")["dropped"]):  # until the flood is over
        time.sleep(1)
    came = list(iter(lambda: three[1]("receive", 2), None))
    assert [2, MODEL, 3, True] in came, "a flood from one does not push out another's"
    assert sum(sender == 0 for sender, *_ in came) <= 4 + 5
    assert three[0]("peak") - before[0] < 100_000
    assert three[1]("peak") - before[1] < 100_000


def test_nobody_speaks_as_another_or_listens_for_another(
    ground: Ground, three: list[Device], folder: Path
) -> None:
    """Device 1 has a valid certificate, and no manners: `put` is zenoh's own."""
    refused = three[0]("counts").get("refused", 0)
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
    three[1]("put", "gossamer/r1/from/1/to/0", 10, 10**6, 0, 0, 10)  # as itself, that one goes
    assert three[0]("receive", LIMIT) == [1, 10, 0, True]
    assert three[0]("receive", 1) is None
    assert three[0]("counts").get("refused", 0) == refused, "thrown away before it came here"
    assert three[2]("receive", 0) is None


def test_nonsense_from_a_neighbour_is_refused_and_counted(three: list[Device]) -> None:
    key, refused = "gossamer/r1/from/1/to/0", three[0]("counts").get("refused", 0)
    packets = [  # bytes; sequence, heard, offset, size
        (10, 1, 0, 0, 2**32 - 1),  # larger than any message may be
        (10, 1, 0, 0, 5),  # more than it says
        (10, 1, 0, 10, 20),  # a second half, without a first
        (0, 1, 0, 0, 5),
    ]
    for size, *header in packets:
        three[1]("put", key, size, *header)
    three[1]("put", key, 50_000_000, 1, 0, 0, 50_000_000)  # zenoh itself does not take that
    assert until(lambda: three[0]("counts")["refused"] == refused + len(packets))
    for _ in range(3):
        three[1]("send", 0, MODEL, 8)
    assert three[0].sees(1, 2)
    assert until(lambda: three[0]("receive", 1) == [1, MODEL, 8, True])


@pytest.mark.parametrize("size", [1, MODEL, 50_000_000])
def test_a_storm_of_packets_holds_up_no_other(three: list[Device], size: int) -> None:
    """Device 1 keeps to no window; what is larger than a chunk zenoh itself does not take."""
    before = three[0]("peak")
    three[1].tell("storm", "gossamer/r1/from/1/to/0", 1.0, size)
    three[2].tell("answer", 20)
    assert three[0]("talk", 2, 20, MODEL) == 20
    assert three[2].read() == "true"
    assert int(three[1].read()) > 0
    three[0]("send", 1, MODEL, 5)
    assert three[1]("receive", LIMIT) == [0, MODEL, 5, True]
    assert three[0].sees(1, 2)
    assert three[0]("peak") - before < 50_000


def test_one_that_reads_nothing_holds_up_no_other(
    ground: Ground, folder: Path, three: list[Device]
) -> None:
    ground.link(0, 3, up=True)
    fourth = Device(ground, folder, 3, connect=[f"{address(0)}:7447"])
    assert fourth.read() == "ready"
    assert three[0].sees(1, 2, 3)
    assert fourth.sees(0)
    fourth("deafen", 0)
    lost = three[0]("counts")["lost"]
    for _ in range(4):
        three[0]("send", 3, LARGE, 1)
    fourth.tell("storm", "gossamer/r1/from/3/to/0", 1.0, MODEL)  # and it hears none of the answers
    three[2].tell("answer", 20)
    assert three[0]("talk", 2, 20, LARGE) == 20
    assert three[2].read() == "true"
    assert int(fourth.read()) > 0
    assert three[0]("neighbours") == [1, 2, 3], "the link is there all the time"
    assert three[0]("counts")["lost"] == lost
    fourth.leave(kill=True)
    assert three[0].sees(1, 2)


def test_a_device_that_was_killed_comes_back(
    ground: Ground, folder: Path, three: list[Device]
) -> None:
    ground.link(0, 3, up=True)
    for end in ("killed", "killed while cut off", "left"):
        fourth = Device(ground, folder, 3, connect=[f"{address(0)}:7447"], largest=2 * LARGE)
        assert fourth.read() == "ready"
        assert three[0].sees(1, 2, 3)
        assert fourth.sees(0)
        fourth("send", 0, MODEL, 4)
        assert three[0]("receive", LIMIT) == [3, MODEL, 4, True]
        if end == "left":
            fourth.tell("send", 0, MODEL, 5)
            fourth.read()
        if end == "killed while cut off":
            ground.loss(0, 3, 1)  # so that 0 is not told
        fourth.leave(kill=end != "left")
        ground.loss(0, 3, 0)
    assert three[0]("receive", LIMIT) == [3, MODEL, 5, True], "what was said before leaving arrives"
    assert three[0].sees(1, 2)


STRANGERS: dict[str, dict[str, Any]] = {
    "of another authority": {"certificates": "stranger"},
    "of another authority, which trusts ours": {
        "certificates": "stranger",
        "unchecked": {"transport/link/tls/root_ca_certificate": "n3/ca.pem"},
    },
    "with an expired certificate": {"certificates": "expired"},
    "without a certificate": {
        "certificates": "n3",
        "unchecked": {
            f"transport/link/tls/{what}": None
            for what in ("connect_certificate", "connect_private_key")
        },
    },
    "on plain TCP": {"insecure": True},
    "with another's certificate": {"certificates": "n2"},
    "of another run": {"certificates": "n3", "run": "r2"},
}


def test_strangers_are_refused(ground: Ground, folder: Path, three: list[Device]) -> None:
    """All dial device 0 at once, from device 3's place, with its number; then one who may."""
    ground.link(0, 3, up=True)
    made = {}
    for port, (who, stranger) in enumerate(STRANGERS.items(), start=7500):
        given = {"unchecked": {}, **stranger, "listen": [f"0.0.0.0:{port}"]}
        if "certificates" in given:
            given["certificates"] = str(folder / given["certificates"])
        given["unchecked"] = {
            path: str(folder / value) if value else value
            for path, value in given["unchecked"].items()
        } | {"access_control/enabled": False}
        made[who] = Device(ground, folder, 3, connect=[f"{address(0)}:7447"], **given)
    assert {who: device.read() for who, device in made.items()} == dict.fromkeys(made, "ready")
    ended = time.monotonic() + 4  # they dial about once a second
    while time.monotonic() < ended:
        assert three[0]("neighbours") == [1, 2]
        for who, device in made.items():
            device(
                "put", f"gossamer/{STRANGERS[who].get('run', 'r1')}/from/3/to/0", 10, 1, 0, 0, 10
            )
            assert three[0]("receive", 0.05) is None, who
    three[2].tell("answer", 5)
    assert three[0]("talk", 2, 5, MODEL) == 5, "also while another has its certificate"
    assert three[2].read() == "true"
    linked = {who: device("links") for who, device in made.items()}
    for who in STRANGERS:
        if who not in (
            "with another's certificate",
            "of another run",
        ):  # those two have a link, on which nothing passes
            assert linked[who] == [], who
    for device in made.values():
        device.leave(kill=True)
    fourth = Device(ground, folder, 3, connect=[f"{address(0)}:7447"])
    assert fourth.read() == "ready"
    assert three[0].sees(1, 2, 3)
    fourth.leave()


DIAL = [f"{address(0)}:7447", f"{address(1)}:7447"]
LAWLESS = {"access_control/enabled": False}


@pytest.fixture
def observer(ground: Ground, folder: Path, three: list[Device]) -> Iterator[Device]:
    """One that is linked to devices 0 and 1, and has no manners."""
    for device in (0, 1):
        ground.link(device, 3, up=True)
    made = Device(ground, folder, None, at=3, connect=DIAL, unchecked=LAWLESS)
    assert made.read() == "ready"
    assert until(lambda: made("links") == ["n0", "n1"])
    yield made
    made.leave()


def told(three: list[Device], observer: Device, size: int, mark: int) -> list[Any]:
    """All devices tell, until the observer has heard of both that it is linked to: what it heard, each once."""
    came: list[Any] = []

    def both() -> bool:
        for device in three:
            assert device("tell", size, mark) is None
        came.extend(observer("heard"))
        return {0, 1} <= {one[0] for one in came}

    assert until(both)
    return [list(one) for one in sorted({tuple(one) for one in came})]


def test_an_observer_hears_those_it_is_linked_to_and_is_no_neighbour(
    three: list[Device], observer: Device
) -> None:
    assert told(three, observer, 4096, 7) == [[0, 4096, 7], [1, 4096, 7]]
    assert [device("neighbours") for device in three] == [[1, 2], [0, 2], [0, 1]]
    assert "status" in three[0]("tell", 4097, 1)
    assert "status" in three[0]("tell", 0, 1)


def test_an_observer_hears_nothing_else_and_can_say_nothing(
    three: list[Device], observer: Device
) -> None:
    observer("listen", "gossamer/r1/from/0/to/1/*", "gossamer/r1/from/**", "gossamer/r1/**", "**")
    observer("claim", "gossamer/r1/alive/3")
    observer("claim", "gossamer/r1/alive/0")
    refused = three[0]("counts").get("refused", 0)
    for device in (0, 1, 3):
        observer("put", f"gossamer/r1/from/{device}/to/0", 10, 10**6, 0, 0, 10)
        observer("put", f"gossamer/r1/status/{device}", 10, 0, 0, 0, 0)
    three[0]("send", 1, MODEL, 1)
    assert three[1]("receive", LIMIT) == [0, MODEL, 1, True]
    overheard: set[str] = set()

    def all_that_is_told() -> bool:  # by those who have learned of its subscriptions by now
        told(three, observer, 10, 1)
        overheard.update(observer("overheard"))
        return {"gossamer/r1/status/0", "gossamer/r1/status/1"} <= overheard

    assert until(all_that_is_told)
    assert overheard == {"gossamer/r1/status/0", "gossamer/r1/status/1"}
    assert three[0]("receive", 1) is None
    assert three[0]("counts").get("refused", 0) == refused
    assert [device("neighbours") for device in three] == [[1, 2], [0, 2], [0, 1]]


def test_only_a_device_itself_says_how_it_is_and_no_device_hears_it_of_another(
    ground: Ground, folder: Path, three: list[Device]
) -> None:
    """Device 3 has no manners, and is linked to device 0 and to an observer, at 1's place, that is linked to both."""
    for a, b in ((0, 3), (1, 3)):
        ground.link(a, b, up=True)
    fourth = Device(ground, folder, 3, connect=DIAL[:1], unchecked=LAWLESS)
    assert fourth.read() == "ready"
    observer = Device(ground, folder, None, at=1, connect=[DIAL[0], f"{address(3)}:7447"])
    assert observer.read() == "ready"
    assert until(lambda: observer("links") == ["n0", "n3"])
    assert fourth.sees(0)
    fourth("listen", "gossamer/r1/status/*", "gossamer/r1/status/0", "gossamer/r1/**")

    def heard() -> set[tuple[int, int]]:
        three[0]("tell", 10, 1)
        fourth("put", "gossamer/r1/status/3", 5000, 0, 0, 0, 0)
        fourth("put", "gossamer/r1/status/0", 20, 0, 0, 0, 0)
        fourth("put", "gossamer/r1/status/*", 20, 0, 0, 0, 0)
        fourth("put", "gossamer/r1/status/03", 20, 0, 0, 0, 0)
        fourth("put", "gossamer/r1/from/3/to/0", 20, 0, 0, 0, 0)
        fourth("put", "gossamer/r1/status/3", 30, 0, 0, 0, 0)
        return {(device, size) for device, size, _ in observer("heard")}

    came: set[tuple[int, int]] = set()
    assert until(lambda: came.update(heard()) or len(came) >= 2)
    assert came == {(0, 10), (3, 30)}
    assert fourth("overheard") == []
    for one in (observer, fourth):
        one.leave()
    assert three[0].sees(1, 2)


def test_an_observer_that_sleeps_holds_nobody_up(three: list[Device], observer: Device) -> None:
    told(three, observer, 4096, 1)
    lost = three[0]("counts").get("lost", 0)
    observer.process.send_signal(signal.SIGSTOP)
    try:
        three[2].tell("answer", 20)
        three[0].tell("talk", 2, 20, LARGE)
        for _ in range(500):
            three[1]("tell", 4096, 1)
        assert three[0].read() == "20"
        assert three[2].read() == "true"
        for _ in range(500):
            three[0]("tell", 4096, 1)
        assert three[0]("counts").get("lost", 0) == lost
        assert three[0]("neighbours") == [1, 2]
    finally:
        observer.process.send_signal(signal.SIGCONT)


@pytest.mark.skipif(namespaces.refusal() is not None, reason=str(namespaces.refusal()))
def test_on_a_bench_without_certificates_and_by_multicast(folder: Path) -> None:
    with Ground(2, f"test-{os.getpid()}-bench-") as bench:
        bench.link(0, 1, up=True)
        for device in (0, 1):  # zenoh looks once, at its start, which interfaces there are
            listed = [
                "ip",
                "-n",
                bench.name(device),
                "-brief",
                "link",
                "show",
                "up",
                "dev",
                f"to{1 - device}",
            ]
            assert until(
                lambda listed=listed: (
                    " UP "
                    in subprocess.run(listed, capture_output=True, text=True, check=True).stdout
                )
            )
        made = [Device(bench, folder, device, insecure=True, multicast=True) for device in (0, 1)]
        assert [device.read() for device in made] == ["ready"] * 2
        assert made[0].sees(1)
        assert made[1].sees(0)
        made[0]("send", 1, LARGE, 1)
        assert made[1]("receive", LIMIT) == [0, LARGE, 1, True]
        made.append(
            Device(bench, folder, None, at=1, insecure=True, multicast=True)
        )  # an observer, beside device 1
        assert made[2].read() == "ready"
        assert until(lambda: made[0]("tell", 10, 3) or [0, 10, 3] in made[2]("heard"))
        assert [device("neighbours") for device in made[:2]] == [[1], [0]]
        for device in made:
            device.leave()


# Without a network.

packets = st.tuples(
    st.integers(0, 40), st.integers(0, 9), st.integers(0, 9), st.integers(0, 60), st.integers(0, 60)
)


def line(
    put: Callable[[bytes, bytes], None] = lambda *_: None, largest: int = 1 << 26, outgoing: int = 4
) -> Line:
    return Line(put, largest, outgoing)


@settings(max_examples=200)
@given(st.lists(packets, max_size=30))
def test_any_packets_are_taken_or_refused_and_never_kept_beyond_the_largest(
    sent: list[tuple[int, int, int, int, int]],
) -> None:
    taken = line(largest=50)
    for length, *header in sent:
        refused = taken.counts["refused"]
        message = taken.heard(bytes(length), *header)
        assert message is None or (
            len(message) == header[3] <= 50 and taken.counts["refused"] == refused
        )
        assert sum(map(len, taken._parts)) == taken._come <= 50


@settings(max_examples=25)
@given(
    st.lists(st.integers(1, 3 * CHUNK), min_size=1, max_size=6),
    st.lists(st.integers(1, 9), max_size=6),
)
def test_messages_pass_whole_and_in_order_and_never_fill_the_queue(
    there: list[int], back: list[int]
) -> None:
    """Two lines, each the other's far end; packets wait in zenoh's queue until they are carried."""
    queues: tuple[deque[tuple[bytes, bytes]], ...] = (deque(), deque())
    lines = [
        line(lambda *packet, queue=queue: queue.append(packet), outgoing=9) for queue in queues
    ]
    came: tuple[list[bytes], list[bytes]] = ([], [])
    sent = tuple([bytes([i]) * size for i, size in enumerate(sizes)] for sizes in (there, back))
    for end in lines:
        end.set_alive(True)
    try:
        for end, messages in zip(lines, sent, strict=True):
            for message in messages:
                end.send(message)

        def carry() -> bool:
            for here, queue in enumerate(queues):
                waiting = [len(chunk) for chunk, _ in list(queue)]
                assert sum(_batches(size) for size in waiting if size) <= _ROOM
                assert waiting.count(0) <= ANSWERS / 2
                if queue:
                    chunk, header = queue.popleft()
                    message = lines[1 - here].heard(chunk, *HEADER.unpack(header))
                    if message is not None:
                        came[here].append(message)
            return tuple(map(len, came)) == (len(there), len(back))

        deadline = time.monotonic() + LIMIT
        while not carry():
            assert time.monotonic() < deadline
            time.sleep(0)
        assert tuple(came) == sent
    finally:
        for end in lines:
            end.close(0)


def test_a_line_that_is_cut_forgets_what_was_on_it() -> None:
    gone = threading.Event()
    cut = line(lambda *_: gone.set(), outgoing=2)
    cut.send(b"before it was there")
    assert cut.counts["lost"] == 1
    cut.set_alive(True)
    cut.send(bytes(20 * CHUNK))
    assert gone.wait(LIMIT)
    for number in range(4):
        cut.send(bytes([number]))
    assert cut.counts["dropped"] == 2
    cut.set_alive(False)
    assert cut.counts["lost"] == 4, "one under way and two that waited"
    cut.close(0)


@settings(max_examples=50)
@given(
    st.lists(st.one_of(st.just("cut"), st.integers(0, 50), st.integers(0, 2**64 - 1)), max_size=40)
)
def test_only_who_has_a_chunk_can_answer_it(said: list[int | str]) -> None:
    """A neighbour that reads nothing guesses, and comes and goes on the same link: the queue is never full."""
    went: list[int] = []
    liar = line(lambda chunk, _: went.append(_batches(len(chunk))), outgoing=2)
    liar.set_alive(True, new_link=True)
    try:
        for guess in said:
            liar.send(bytes(2 * CHUNK))
            if guess == "cut":
                liar.set_alive(False)
                liar.set_alive(True)
            else:
                liar.heard(b"", 0, int(guess), 0, 0)
        liar.send(bytes(2 * CHUNK))
        assert until(lambda: went == [7, 7])
        liar.send(b"no room for this one")
        time.sleep(0.01)
        assert sum(went) == _ROOM
        liar.set_alive(True, new_link=True)
        liar.send(bytes(CHUNK))
        assert until(lambda: went == [7, 7, 7])
    finally:
        liar.close(0)


def test_one_that_never_answers_is_no_neighbour_until_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gossamer.fleet.line._STUCK", 0.05)
    went: list[int] = []
    deaf = line(lambda _, header: went.append(HEADER.unpack(header)[0]))
    deaf.set_alive(True, new_link=True)
    deaf.send(bytes(5 * CHUNK))
    deaf.send(b"more")
    assert until(lambda: not deaf.alive)
    assert deaf.counts["lost"] == 2
    deaf.send(b"to nobody")
    assert deaf.counts["lost"] == 3
    assert len(went) == 2
    deaf.heard(b"", 0, went[-1], 0, 0)
    assert deaf.alive
    deaf.send(bytes(CHUNK))
    assert until(lambda: len(went) == 3)
    deaf.close(0)


def test_a_link_that_takes_the_place_of_another_is_known_for_new() -> None:
    """Whatever comes first: that it is seen to come, or that the other is seen to go."""
    old, new = Link(1, "a", ("x:1", "y:7447")), Link(1, "a", ("x:2", "y:7447"))
    thief = Link(1, "b", ("z:1", "y:7447"))
    assert chosen([], None) is None
    assert chosen([], old) is None
    assert chosen([old], None) == old
    assert chosen([old, new], old) == new
    assert chosen([new], new) == new
    assert chosen([old, thief], old) == old
    assert chosen([thief, new], old) == new
    assert chosen([thief], old) == thief
    assert chosen([old], new) == old, "one of two that were dialled at once is given up"


def test_what_waits_to_be_received_is_bounded_in_bytes_too() -> None:
    transport = object.__new__(Zenoh)
    inbox: deque[tuple[int, bytes]] = deque()
    for name, value in {
        "settings": Settings("r", NAMES, insecure=True, largest=100, incoming=8),
        "_arrived": threading.Condition(),
        "_inbox": inbox,
        "_counts": Counter(),
    }.items():
        setattr(transport, name, value)
    transport._came(2, bytes(100))
    for mark, size in ((1, 90), (2, 100), (3, 20), (4, 1)):
        transport._came(1, bytes([mark]) * size)
    assert [(sender, message[0]) for sender, message in inbox] == [(2, 0), (1, 2), (1, 3), (1, 4)]
    for mark in range(10, 20):
        transport._came(1, bytes([mark]))
    assert [message[0] for sender, message in inbox if sender == 1] == list(range(12, 20))
    assert transport._counts["overflow"] == 6
    assert inbox[0] == (2, bytes(100))


def test_what_cannot_be_is_refused_by_name(tmp_path: Path) -> None:
    good: dict[str, Any] = {"run": "r", "names": ("a", "b"), "insecure": True}
    for bad in (
        {"run": "a/b"},
        {"run": "*"},
        {"names": ("a",)},
        {"names": ("a", "a")},
        {"observer": "b"},
        {"insecure": False},
        {"listen": ()},
        {"listen": ("7447",)},
        {"connect": ("tcp/10.0.0.1:7447",)},
        {"lease": 0.01},
        {"largest": 0},
        {"outgoing": 0},
        {"incoming": 10**6},
    ):
        with pytest.raises(InputError) as error:
            Settings(**{**good, **bad})
        assert error.value.field == ("certificates" if "insecure" in bad else next(iter(bad)))
    with pytest.raises(InputError, match="device"):
        Zenoh(2, Settings(**good))
    with pytest.raises(DataError, match=r"ca\.pem is missing"):
        Zenoh(0, Settings(**{**good, "insecure": False, "certificates": tmp_path}))


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zenoh", None)
    with pytest.raises(MissingExtra, match=r"gossamer\[peer\]"):
        Zenoh(0, Settings("r", ("a", "b"), insecure=True))


def test_zenoh_knows_all_that_it_is_told(folder: Path) -> None:
    """It takes unknown settings without a word: so each of ours has to be there in what it makes of them."""
    import zenoh as library

    told = configuration(0, Settings("r", NAMES, folder / "n0", connect=("10.0.0.2:7447",)))
    known = json.loads(str(library.Config()))
    made = json.loads(str(library.Config.from_json5(json.dumps(told))))

    def paths(tree: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
        for name, inner in tree.items():
            if isinstance(inner, dict) and (*at, name) not in ADVANCED:
                yield from paths(inner, (*at, name))
            else:
                yield (*at, name)

    def value(tree: Any, path: tuple[str, ...]) -> Any:
        for name in path:
            tree = tree[name]
        return tree

    for path in paths(told):
        value(known, path[: 2 if path[:2] in {("connect", "retry")} else None])
        assert value(made, path) is not None


ADVANCED = {("connect", "retry"), ("scouting", "multicast", "autoconnect_strategy")}


def test_rules_are_for_each_name_alone() -> None:
    rules = access(1, Settings("r", NAMES, Path("n1")))
    assert rules["enabled"]
    assert rules["default_permission"] == "deny"
    by_name = {rule["id"]: rule for rule in rules["rules"]}
    assert [policy["subjects"] for policy in rules["policies"]] == [
        ["n0"],
        ["n2"],
        ["n3"],
        ["observer"],
    ]
    for policy, other in zip(rules["policies"][:-1], (0, 2, 3), strict=True):
        allowed = [by_name[name] for name in policy["rules"]]
        says = [
            rule["key_exprs"]
            for rule in allowed
            if rule["flows"] == ["ingress"] and "put" in rule["messages"]
        ]
        assert says == [[f"gossamer/r/from/{other}/to/1/*"]]
        heard = [
            rule["key_exprs"]
            for rule in allowed
            if rule["flows"] == ["egress"] and "put" in rule["messages"]
        ]
        assert heard == [[f"gossamer/r/from/1/to/{other}/*"]]
        listened = [
            rule["key_exprs"]
            for rule in allowed
            if rule["flows"] == ["ingress"] and "declare_subscriber" in rule["messages"]
        ]
        assert listened == heard, "what anybody else could declare would cost this device"
    watching = [by_name[name] for name in rules["policies"][-1]["rules"]]
    assert [(rule["flows"], list(rule["messages"]), rule["key_exprs"]) for rule in watching] == [
        (["ingress"], ["declare_subscriber"], ["gossamer/r/status/*"]),
        (["egress"], ["put"], ["gossamer/r/status/1"]),
    ]
    assert not any(
        {"delete", "query", "reply", "declare_queryable"} & set(rule["messages"])
        for rule in rules["rules"]
    )


def test_a_port_in_use_is_said(ground: Ground, folder: Path, three: list[Device]) -> None:
    script = (
        "from gossamer.fleet.zenoh import Settings, Zenoh\nfrom gossamer.errors import GossamerError\n"
        f"try:\n    Zenoh(3, Settings('r', {NAMES!r}, insecure=True))\n"
        "except GossamerError as error:\n    print(error)"
    )
    process = ground.run(0, [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert "device 3 cannot listen on 0.0.0.0:7447" in process.communicate(timeout=LIMIT)[0]
    assert issubclass(InputError, GossamerError)

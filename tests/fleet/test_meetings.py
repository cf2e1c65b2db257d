"""Meetings of two devices without a shared clock: the mean is invariant, whatever fails."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.edges import RUN, Gossip, initial_models
from support.meetings import MeetingFleet

from gossamer import draws
from gossamer.fleet.protocol.ledger import Ledger
from gossamer.fleet.protocol.messages import Kind, Message
from gossamer.fleet.protocol.wire import pack
from gossamer.fleet.transport.memory import Endpoint, Faults, Memory

pytestmark = pytest.mark.slow

HEALED = 20.0  # when faults end, in seconds
END = 26.0  # when devices end: until then everything is settled


def all_pairs(devices: int) -> list[tuple[int, int]]:
    return list(combinations(range(devices), 2))


def faulty(devices: int, faults: Faults, cuts: float = 0.0, seed: int = 0) -> Memory:
    """Return a network whose links are up or down anew every `cuts` seconds, until it is healed."""
    network = Memory(faults)
    pairs = np.array(all_pairs(devices))

    def change(number: int) -> None:
        up = draws.uniform(seed, "links", number, np.arange(len(pairs))) < 0.6
        network.link([(a, b) for a, b in pairs[up].tolist()])

    def heal() -> None:
        network.faults = Faults()
        network.link(all_pairs(devices))

    network.link(all_pairs(devices))
    if cuts:
        for number in range(int(HEALED / cuts)):
            network.schedule(number * cuts, partial(change, number))
    network.schedule(HEALED, heal)
    return network


FAULTS = {
    "none": Faults(),
    "drops": Faults(seed=1, drop=0.1),
    "many drops": Faults(seed=2, drop=0.3),
    "one way": Faults(one_way=frozenset({(0, 1), (2, 3), (4, 0)})),
    "late": Faults(seed=3, delay=0.2, by=0.6, jitter=0.01),
    "meetings late": Faults(seed=4, delay=0.1, by=2.7, duplicate=0.2),
    "all": Faults(seed=5, drop=0.1, duplicate=0.1, delay=0.1, by=0.4, jitter=0.01),
}


@pytest.mark.parametrize("cuts", [0.0, 0.0313, 0.7])
@pytest.mark.parametrize("name", FAULTS)
def test_the_mean_is_invariant(name: str, cuts: float, tmp_path: Path) -> None:
    p = 15.0 if cuts else 3.0
    network = faulty(5, FAULTS[name], cuts)
    fleet = MeetingFleet(network, tmp_path, initial_models(5), Gossip(p), END)
    fleet.run()
    fleet.check_mean(p)
    counts = fleet.total()
    assert counts["committed"] > 100
    if name == "none" and not cuts:
        assert not counts["in doubt"] + counts["failed"]
    elif name not in ("none", "one way"):
        assert counts["settled"] > 0, "nothing was settled late, so this was not tested"
    assert not any(key.startswith("refused") for key in counts)


def test_late_settlement_matters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the mean drifts, so the tests above can fail."""
    monkeypatch.setattr(Ledger, "settle", lambda self, message: None)
    fleet = MeetingFleet(faulty(4, FAULTS["many drops"]), tmp_path, initial_models(4), until=END)
    fleet.run()
    drift = (fleet.stacked("y").mean(0) - fleet.start.mean(0)).norm() / fleet.start.mean(0).norm()
    assert drift > 1e-5


def test_no_clock_is_shared(tmp_path: Path) -> None:
    """Clocks that are off by hours, either way, make no difference to a bit."""
    hours = {0: -7200.0, 1: 3 * 3600.0, 3: 1e6}
    ends = []
    for name, clocks in (("right", {}), ("wrong", hours)):
        network = faulty(4, FAULTS["drops"], 0.7)
        # Binary fractions, so that adding an offset is exact.
        network.latency = 2.0**-10
        fleet = MeetingFleet(
            network, tmp_path / name, initial_models(4), until=END, clocks=clocks, timeout=0.5
        )
        fleet.step = dict.fromkeys(range(4), 0.125)
        fleet.run()
        fleet.check_mean(3)
        ends.append(fleet.stacked("w"))
        assert fleet.total()["committed"] > 100
    torch.testing.assert_close(*ends, rtol=1e-6, atol=1e-12)


def test_a_fast_device_takes_more_steps(tmp_path: Path) -> None:
    """The slow one delays nobody for longer than the patience of the others."""
    network = Memory()
    network.link(all_pairs(3))
    fleet = MeetingFleet(network, tmp_path, initial_models(3), until=40.0, patience=0.3)
    fleet.step = {0: 0.05, 1: 2.0, 2: 0.05}
    fleet.run()
    fleet.check_mean(3)
    rounds = {i: len(met) for i, met in fleet.met.items()}
    assert rounds[1] <= 20
    assert min(rounds[0], rounds[2]) > 10 * rounds[1]
    assert sum(bool(met) for met in fleet.met[1]) >= rounds[1] - 1, "the slow one meets every time"


def test_two_devices_of_different_speed_go_on_alone(tmp_path: Path) -> None:
    network = Memory()
    network.link([(0, 1)])
    fleet = MeetingFleet(network, tmp_path, initial_models(2), until=20.0, patience=0.2)
    fleet.step = {0: 0.1, 1: 1.0}
    fleet.run()
    alone = sum(not met for met in fleet.met[0])
    together = sum(bool(met) for met in fleet.met[0])
    assert together >= 15
    assert alone > together
    fleet.check_mean(3)


def test_nobody_is_left_out(tmp_path: Path) -> None:
    """In a clique every device meets every other, though those of equal speed meet more often."""
    network = Memory()
    network.link(all_pairs(6))
    fleet = MeetingFleet(network, tmp_path, initial_models(6), until=30.0)
    fleet.step = {i: 0.1 + 0.013 * i for i in range(6)}
    fleet.run()
    for i, met in fleet.met.items():
        times = {j: sum(j in partners for partners in met) for j in range(6) if j != i}
        assert min(times.values()) >= 5
    y = fleet.stacked("y")
    torch.testing.assert_close(y, y.mean(0).expand_as(y), rtol=1e-6, atol=0)


def test_a_silent_neighbour_costs_no_more_than_patience(tmp_path: Path) -> None:
    network = Memory(Faults(one_way=frozenset({(1, 0), (0, 1)})))
    network.link([(0, 1)])
    fleet = MeetingFleet(network, tmp_path, initial_models(2), until=10.5, patience=1.0)
    fleet.run()
    assert len(fleet.met[0]) == 10
    assert torch.equal(fleet.stacked("y"), fleet.start)


# -- crashes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("away", [0.0, 1.5])
def test_a_device_killed_at_any_point(away: float, tmp_path: Path) -> None:
    """Killed at every send, receive and write of a round, it resumes from its journal."""
    killed = 0
    for calls in range(1, 40):  # a round makes about thirty
        network = Memory()
        network.link(all_pairs(3))
        fleet = MeetingFleet(
            network,
            tmp_path / str(calls),
            initial_models(3),
            until=4.0,
            kills={1: [(2, calls)]},
            away=away,
        )
        fleet.run()
        fleet.check_mean(3)
        killed += fleet.killed
    assert killed > 20


def test_both_devices_of_a_meeting_are_killed(tmp_path: Path) -> None:
    """The number of a meeting is on disk before it is used, so no vector takes another's place."""
    faults = Faults(seed=9, duplicate=0.5, delay=0.3, by=1.1, jitter=0.01)
    for seed in range(6):
        kills: dict[int, list[tuple[int, int]]] = {}
        for i in range(2):
            fuses = [1 + int(draws.below(16, seed, "fuse", i, t)) for t in range(30)]
            kills[i] = list(enumerate(fuses, start=1))
        fleet = MeetingFleet(
            faulty(2, faults), tmp_path / str(seed), initial_models(2), until=END, kills=kills
        )
        fleet.away = 0.01
        fleet.run()
        assert fleet.killed > 15
        fleet.check_mean(3)


def test_devices_killed_repeatedly_among_faults(tmp_path: Path) -> None:
    kills: dict[int, list[tuple[int, int]]] = {}
    for i in range(5):
        kills[i] = [(t, 1 + int(draws.below(40, 7, "fuse", i, t))) for t in range(1, 24, 2)]
    fleet = MeetingFleet(
        faulty(5, FAULTS["all"], 0.7), tmp_path, initial_models(5), until=END, kills=kills
    )
    fleet.run()
    assert fleet.killed > 30
    fleet.check_mean(3)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    drop=st.sampled_from([0.0, 0.1, 0.4]),
    delay=st.sampled_from([0.0, 0.3]),
    by=st.sampled_from([0.2, 0.6, 1.7]),
    jitter=st.sampled_from([0.0, 0.02]),
    duplicate=st.sampled_from([0.0, 0.3]),
    cuts=st.sampled_from([0.0, 0.0017, 0.09, 1.3]),
    p=st.sampled_from([1.0, 2.0, 15.0]),
    patience=st.sampled_from([0.0, 0.05, 1.0]),
    away=st.sampled_from([0.0, 0.4, 3.0]),
    steps=st.lists(st.sampled_from([0.0, 0.03, 0.1, 0.7]), min_size=4, max_size=4),
    kills=st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 14), st.integers(1, 60)), max_size=6
    ),
)
def test_random_faults_and_kills(
    seed: int,
    drop: float,
    delay: float,
    by: float,
    jitter: float,
    duplicate: float,
    cuts: float,
    p: float,
    patience: float,
    away: float,
    steps: list[float],
    kills: list[tuple[int, int, int]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    by_device: dict[int, list[tuple[int, int]]] = {}
    for device, t, calls in sorted(kills):
        by_device.setdefault(device, []).append((t, calls))
    fleet = MeetingFleet(
        faulty(4, Faults(seed, drop, duplicate, delay, by, jitter), cuts, seed),
        tmp_path_factory.mktemp("fleet"),
        initial_models(4),
        Gossip(p),
        END,
        patience=patience,
        kills=by_device,
        away=away,
    )
    fleet.step = {i: max(seconds, 0.02) for i, seconds in enumerate(steps)}
    fleet.run()
    fleet.check_mean(p)


# -- hostile devices -------------------------------------------------------------------------------


def control(kind: Kind, number: int, sender: int = 3) -> bytes:
    return pack(Message(kind, RUN, sender, number))


def model(number: int) -> bytes:
    vector = torch.ones(6).double()
    return pack(Message(Kind.MODEL, RUN, 3, number, degree=1, vector=vector))


LARGEST = (1 << 32) - 1
HOSTILE: dict[str, Callable[[int], list[bytes]]] = {
    "always free": lambda step: [control(Kind.FREE, 1 + step)],
    "always proposes": lambda step: [control(Kind.PROPOSE, 1 + step)],
    "accepts unasked": lambda step: [control(Kind.ACCEPT, 1 + step), model(1 + step)],
    "large numbers": lambda step: [control(Kind.FREE, LARGEST), control(Kind.ACCEPT, LARGEST)],
    "largest number": lambda step: [control(Kind.FREE, 1 << 31), control(Kind.ACCEPT, 1 << 31)],
    "all at once": lambda step: [
        *(control(kind, 1 + step) for kind in (Kind.FREE, Kind.ACCEPT, Kind.BUSY, Kind.BYE)),
        model(1 + step),
    ],
    "garbage": lambda step: [b"GSMR" * 30],
    "another sender": lambda step: [control(Kind.FREE, 1, sender=0)],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_neighbour(name: str, tmp_path: Path) -> None:
    """It takes time, and no more: the others go on meeting each other."""

    def hostile(endpoint: Endpoint) -> None:
        for step in range(40):
            endpoint.sleep_until(0.25 * step)
            for message in HOSTILE[name](step):
                for to in range(3):
                    endpoint.send(to, message)

    network = Memory()
    network.link(all_pairs(4))
    network.schedule(10.0, lambda: network.link(all_pairs(3)))
    fleet = MeetingFleet(network, tmp_path, initial_models(3), until=14.0)
    fleet.run({3: hostile})
    for i in range(3):
        assert sum(bool(met & {0, 1, 2}) for met in fleet.met[i]) > 10
        assert len(fleet.edges[i].pending) <= 60
    if name in ("garbage", "another sender"):
        fleet.check_mean(3)

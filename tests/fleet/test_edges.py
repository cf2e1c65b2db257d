"""The exchange between devices: the mean is invariant under loss, crashes and hostile messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.edges import (
    RUN,
    Gossip,
    GossipFleet,
    initial_models,
    run_in_threads,
)
from torch import Tensor

from gossamer import draws
from gossamer.fleet.protocol.edges import Edges
from gossamer.fleet.protocol.journal import Journal
from gossamer.fleet.protocol.ledger import Ledger
from gossamer.fleet.protocol.messages import Kind, Message
from gossamer.fleet.protocol.wire import Expected, pack
from gossamer.fleet.transport.memory import Endpoint, Faults, Memory
from gossamer.network.weights import Matching, Metropolis, WeightRule

pytestmark = pytest.mark.slow


def all_pairs(devices: int) -> list[tuple[int, int]]:
    return list(combinations(range(devices), 2))


def random_pairs(devices: int, t: int, seed: int, density: float = 0.5) -> list[tuple[int, int]]:
    pairs = np.array(all_pairs(devices))
    linked = draws.uniform(seed, "links", t, np.arange(len(pairs))) < density
    return [(a, b) for a, b in pairs[linked].tolist()]


def flapping_pairs(devices: int, t: int, seed: int, step: int) -> list[tuple[int, int]]:
    """Return the links of round t without a quarter of them, another quarter at every step."""
    return [pair for pair in random_pairs(devices, t, seed) if (sum(pair) + 2 * t + step) % 4]


def faulty(
    devices: int, faults: Faults, rounds: int, flapping: bool = False, seed: int = 0
) -> Memory:
    """Return a network with new links in every round, and faults until the last rounds.

    After `rounds` all devices are linked and nothing is lost, so that everything can be settled.
    """
    network = Memory(faults)
    network.link(random_pairs(devices, 0, seed))

    def set_links(t: int) -> None:
        network.link(random_pairs(devices, t, seed))

    def flap(t: int, step: int) -> None:
        network.link(flapping_pairs(devices, t, seed, step))

    def heal() -> None:
        network.faults = Faults()
        network.link(all_pairs(devices))

    for t in range(rounds):
        network.schedule(t, partial(set_links, t))
        if flapping:  # a MODEL takes a millisecond, and so does its READY
            for step in range(4):
                network.schedule(t + 0.0005 + 0.001 * step, partial(flap, t, step))
    network.schedule(rounds - 0.05, heal)
    return network


# -- faults ----------------------------------------------------------------------------------------

FAULTS = {
    "none": Faults(),
    "jitter": Faults(jitter=0.001),
    "drops": Faults(seed=1, drop=0.05),
    "many drops": Faults(seed=2, drop=0.3),
    "one way": Faults(one_way=frozenset({(0, 1), (2, 3), (4, 0)})),
    "late": Faults(seed=3, delay=0.2, by=0.45, jitter=0.01),
    "rounds late": Faults(seed=4, delay=0.1, by=2.7, duplicate=0.2),
    "all": Faults(
        seed=5, drop=0.1, duplicate=0.1, delay=0.1, by=0.4, jitter=0.01, one_way=frozenset({(1, 0)})
    ),
}


@pytest.mark.parametrize(
    ("name", "flapping"),
    [*((name, False) for name in FAULTS if name != "jitter"), ("jitter", True), ("all", True)],
)
def test_the_mean_is_invariant(name: str, flapping: bool, tmp_path: Path) -> None:
    p = 15.0 if flapping else 3.0
    fleet = GossipFleet(
        faulty(5, FAULTS[name], 50, flapping), tmp_path, initial_models(5), Gossip(p), rounds=54
    )
    fleet.run()
    fleet.check_mean(p)
    counts = fleet.total()
    assert counts["committed"] > 100
    if name == "none":
        assert not counts["in doubt"] + counts["failed"] + counts["late"] + counts["unexpected"]
    elif name != "one way":
        assert counts["settled"] > 0, "nothing was settled late, so this was not tested"
    assert not any(key.startswith("refused") for key in counts)


@pytest.mark.parametrize("wire", [torch.float32, torch.bfloat16], ids=str)
def test_the_mean_is_invariant_in_float32_and_with_bfloat16_on_the_wire(
    wire: torch.dtype, tmp_path: Path
) -> None:
    faults = FAULTS["all"]
    fleet = GossipFleet(
        faulty(5, faults, 50),
        tmp_path,
        initial_models(5, torch.float32),
        Gossip(3),
        rounds=54,
        wire=wire,
    )
    fleet.run()
    fleet.check_mean(3)
    assert fleet.total()["settled"] > 0


class PairGossip(Gossip):
    """Gossip between the two devices of a pair."""

    @property
    def weights(self) -> WeightRule:
        return Matching()


def test_the_mean_is_invariant_with_pairs(tmp_path: Path) -> None:
    """Two devices in doubt need not be paired again: proposals list the applied exchanges too."""
    fleet = GossipFleet(
        faulty(5, FAULTS["many drops"], 30), tmp_path, initial_models(5), PairGossip(3), rounds=34
    )
    fleet.run()
    fleet.check_mean(3)
    assert fleet.total()["settled"] > 0


def test_late_settlement_matters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the mean drifts, so the tests above can fail."""
    monkeypatch.setattr(Ledger, "settle", lambda self, message: None)
    fleet = GossipFleet(faulty(4, FAULTS["many drops"], 20), tmp_path, initial_models(4), rounds=24)
    fleet.run()
    drift = (fleet.stacked("y").mean(0) - fleet.start.mean(0)).norm() / fleet.start.mean(0).norm()
    assert drift > 1e-5


def test_a_partition_heals(tmp_path: Path) -> None:
    """Thirty rounds in two halves, cut during an exchange; then everything is settled."""
    network = Memory()
    halves = [(0, 1), (2, 3)]
    network.link(all_pairs(4))
    network.schedule(5.0015, lambda: network.link(halves))
    network.schedule(35.5, lambda: network.link(all_pairs(4)))
    fleet = GossipFleet(network, tmp_path, initial_models(4), rounds=45)
    fleet.run()
    fleet.check_mean(3)
    y = fleet.stacked("y")
    torch.testing.assert_close(y, y.mean(0).expand_as(y), rtol=1e-4, atol=0)


def test_a_silent_neighbour_is_not_waited_for_beyond_the_deadline(tmp_path: Path) -> None:
    """A silent neighbour costs the time until the deadline and no more."""
    network = Memory()
    network.link([(0, 1)])
    fleet = GossipFleet(network, tmp_path, initial_models(1), rounds=3)
    fleet.run(others=[(1, lambda endpoint: endpoint.sleep_until(10))])
    assert fleet.counts[0]["failed"] == 6
    assert torch.equal(fleet.stacked("y"), fleet.start)
    assert not fleet.edges[0].pending


# -- crashes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds_away", [0, 2])
def test_a_device_killed_at_any_point(rounds_away: int, tmp_path: Path) -> None:
    """Killed at every send, receive and write of round 1, it resumes from its journal."""
    killed = 0
    for calls in range(1, 200):
        network = Memory()
        network.link(all_pairs(3))
        fleet = GossipFleet(
            network,
            tmp_path / str(calls),
            initial_models(3),
            rounds=5 + rounds_away,
            kills={1: [(1, calls)]},
            rounds_away=rounds_away,
        )
        fleet.run()
        fleet.check_mean(3)
        if not fleet.killed:
            break
        killed += 1
    assert 20 < killed < 199


def test_devices_killed_repeatedly_among_faults(tmp_path: Path) -> None:
    kills: dict[int, list[tuple[int, int]]] = {}
    for i in range(5):
        kills[i] = [(t, 1 + int(draws.below(30, 7, "fuse", i, t))) for t in range(1, 40, 3)]
    fleet = GossipFleet(
        faulty(5, FAULTS["all"], 50), tmp_path, initial_models(5), rounds=56, kills=kills
    )
    fleet.run()
    assert fleet.killed > 40
    fleet.check_mean(3)


@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    drop=st.sampled_from([0.0, 0.1, 0.4]),
    delay=st.sampled_from([0.0, 0.3]),
    by=st.sampled_from([0.2, 0.5, 1.1]),
    jitter=st.sampled_from([0.0, 0.02]),
    duplicate=st.sampled_from([0.0, 0.3]),
    flapping=st.booleans(),
    p=st.sampled_from([1.0, 2.0, 15.0]),
    rounds_away=st.integers(0, 2),
    kills=st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 14), st.integers(1, 60)), max_size=4
    ),
)
def test_random_faults_and_kills(
    seed: int,
    drop: float,
    delay: float,
    by: float,
    jitter: float,
    duplicate: float,
    flapping: bool,
    p: float,
    rounds_away: int,
    kills: list[tuple[int, int, int]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    faults = Faults(seed, drop, duplicate, delay, by, jitter)
    by_device: dict[int, list[tuple[int, int]]] = {}
    for device, t, calls in sorted(kills):
        by_device.setdefault(device, []).append((t, calls))
    network = faulty(4, faults, 18, flapping, seed)
    fleet = GossipFleet(
        network,
        tmp_path_factory.mktemp("fleet"),
        initial_models(4),
        Gossip(p),
        26,
        kills=by_device,
        rounds_away=rounds_away,
    )
    fleet.run()
    fleet.check_mean(p)


# -- hostile devices -------------------------------------------------------------------------------


def _message(t: int, **changes: Any) -> bytes:
    fields = {
        "kind": Kind.MODEL,
        "run": RUN,
        "sender": 4,
        "round": t,
        "degree": 4,
        "vector": torch.ones(6).double(),
    }
    return pack(Message(**{**fields, **changes}))


HOSTILE: dict[str, Callable[[int], list[bytes]]] = {
    "refused: length": lambda t: [b"", b"GSMR" * 10],
    "refused: magic": lambda t: [draws.bits(0, "garbage", t, np.arange(20)).tobytes()],
    "refused: run": lambda t: [_message(t, run=bytes(16))],
    "refused: sender": lambda t: [_message(t, sender=0)],
    "refused: nan": lambda t: [_message(t, vector=torch.full((6,), torch.nan).double())],
    "refused: infinite": lambda t: [_message(t, vector=torch.full((6,), torch.inf).double())],
    "refused: large": lambda t: [_message(t, vector=torch.full((6,), 1e9).double())],
    "refused: shape": lambda t: [_message(t, vector=torch.ones(7).double())],
    "refused: dtype": lambda t: [_message(t, vector=torch.ones(6).half().float())],
    "refused: part": lambda t: [_message(t, part=9)],
    "refused: checksum": lambda t: [_message(t)[:-1] + b"\x01"],
    "late": lambda t: [_message(max(0, t - k)) for k in range(1, 4)] if t > 3 else [],  # replays
    "unexpected": lambda t: [
        _message(t + 7),
        _message(t, kind=Kind.READY, degree=0, vector=None, checksum=1),
        *[_message(t)] * 30,
    ],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_neighbour(name: str, tmp_path: Path) -> None:
    """It is refused, counted and ignored; the others commit every exchange."""

    def hostile(endpoint: Endpoint) -> None:
        for t in range(7):
            endpoint.sleep_until(t)
            for message in HOSTILE[name](t):
                for to in range(4):
                    endpoint.send(to, message)

    network = Memory(queue=40)
    network.link(all_pairs(5))
    fleet = GossipFleet(network, tmp_path, initial_models(4), rounds=7)
    fleet.run(others=[(4, hostile)])
    for i in range(4):
        assert fleet.counts[i][name] > 0
        assert fleet.counts[i]["committed"] >= 3 * 2 * 7
        if name.startswith("refused"):
            assert fleet.counts[i][name] <= 2, "the sender must be ignored"
        assert len(fleet.edges[i].pending) <= 1
    if name.startswith("refused"):
        fleet.check_mean(3)
    y = fleet.stacked("y")
    torch.testing.assert_close(y, y.mean(0).expand_as(y), rtol=1e-2, atol=1e-9)


def test_a_flood_fills_no_memory(tmp_path: Path) -> None:
    def flood(endpoint: Endpoint) -> None:
        for t in range(4):
            endpoint.sleep_until(t)
            for number in range(500):
                endpoint.send(0, _message(t + number % 3, part=number % 2))

    network = Memory(queue=8)
    network.link([(0, 1), (0, 4)])
    fleet = GossipFleet(network, tmp_path, initial_models(2), rounds=4)
    fleet.run(others=[(4, flood)])
    assert network.counts["overflow"] > 1000
    edges = fleet.edges[0]
    assert sum(len(messages) for messages in edges._mailbox._early.values()) <= 2 * 2
    assert fleet.counts[1]["committed"] == 8


def test_an_ack_for_another_vector_commits_nothing(tmp_path: Path) -> None:
    """READY has the checksum of the vector received."""
    network = Memory()
    network.link([(0, 4)])

    def acknowledge_another(endpoint: Endpoint) -> None:
        endpoint.send(0, _message(0))
        endpoint.send(0, _message(0, kind=Kind.READY, degree=0, vector=None, checksum=12345))
        endpoint.sleep_until(2)

    fleet = GossipFleet(network, tmp_path, initial_models(1), rounds=1)
    fleet.run(others=[(4, acknowledge_another)])
    assert fleet.counts[0]["committed"] == 0
    assert [transfer.neighbour for transfer in fleet.edges[0].pending] == [4]


def test_transfers_in_doubt_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With neighbours that never return, the oldest are forgotten and counted."""
    monkeypatch.setattr("gossamer.fleet.protocol.ledger._MAX_PENDING", 3)
    network = Memory()
    network.link([(0, j) for j in range(1, 6)])

    def silent(j: int) -> Callable[[Endpoint], None]:
        def send_once(endpoint: Endpoint) -> None:
            endpoint.send(0, _message(0, sender=j))
            endpoint.sleep_until(3)

        return send_once

    fleet = GossipFleet(network, tmp_path, initial_models(1), rounds=2)
    fleet.run(others=[(j, silent(j)) for j in range(1, 6)])
    assert len(fleet.edges[0].pending) == 3
    assert fleet.counts[0]["forgotten"] == 2
    assert len(Journal(tmp_path / "0").read().pending) == 3  # type: ignore[union-attr]


def test_a_leaving_device_settles(tmp_path: Path) -> None:
    """BYE lists the applied exchanges: a neighbour that missed a READY can settle."""
    network = Memory()
    network.link([(0, 1)])

    def lose_on(*ways: tuple[int, int]) -> None:
        network.faults = Faults(one_way=frozenset(ways))

    network.schedule(
        0.0005, lambda: lose_on((0, 1))
    )  # the MODELs are in flight; READY of 0 is lost
    network.schedule(0.0015, lose_on)
    fleet = GossipFleet(network, tmp_path, initial_models(2), rounds=2, leaves={0: 1})
    fleet.run()
    assert fleet.counts[1]["in doubt"] == fleet.counts[1]["settled"] == 1
    fleet.check_mean(3)


def test_weights_of_links_are_metropolis() -> None:
    weight = Metropolis().link_weight()
    assert weight(3, 5) == weight(5, 3) == 1 / 6


def test_the_in_memory_network() -> None:
    network = Memory(Faults(seed=1, drop=0.5), latency=0.5)
    network.link([(0, 1)])
    a = network.endpoint(0)
    b = network.endpoint(1)
    for number in range(200):
        a.send(1, bytes([number]))
    a.send(2, b"nobody")
    a.close()
    received = []
    while message := b.receive(1):
        received.append(message[1][0])
    assert 25 < len(received) <= 64  # half are lost, and 64 can wait
    assert received == sorted(received)
    assert b.neighbours() == {0}
    network.link([])
    assert b.neighbours() == frozenset()
    assert replace(network.faults, drop=1.0).delays(0, 1, 0) == []


def test_a_late_device_gets_a_model(tmp_path: Path) -> None:
    """It asks all neighbours and takes the first valid model."""
    network = Memory()
    network.link([(0, 1)])
    received: list[Tensor | None] = []

    def early(endpoint: Endpoint) -> None:
        edges = Edges(endpoint, Journal(tmp_path / "0", sync=False), expected, network.now)
        state = edges.start(lambda: {"w": torch.ones(1, 3)})
        for t in range(3):
            endpoint.sleep_until(t)
            edges.exchange((t, 0), state["w"][0], t + 0.5, Metropolis().peer_weight(None))
            edges.finish(t, state)
            edges.send_models(7 * state["w"][0])
        edges.send_models(state["w"][0])  # nobody has asked, so nothing is sent

    def late(endpoint: Endpoint) -> None:
        edges = Edges(endpoint, Journal(tmp_path / "1", sync=False), expected, network.now)
        endpoint.sleep_until(1.2)
        received.append(edges.request_model(until=4.0))
        endpoint.sleep_until(4.0)
        received.append(edges.request_model(until=5.0))  # the other has ended

    expected = Expected(RUN, frozenset(Kind), ((3,),), torch.float32, 1e6, start=(3,))
    run_in_threads(network, {0: early, 1: late})
    assert torch.equal(received[0], torch.full((3,), 7.0))  # type: ignore[arg-type]
    assert received[1] is None

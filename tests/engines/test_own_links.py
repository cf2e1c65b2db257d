"""A shard computes the links of its own devices, with the same bits as all links."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.methods import M
from support.shards import METHODS, QueueExchange, Queues, ThreadedShards, make_queues, plan_of

import gossamer as gs
from gossamer import draws
from gossamer.engines import Simulator
from gossamer.engines.shard import Shard
from gossamer.network import Links, Network
from gossamer.network.base import Fault
from gossamer.network.weights import ReceivedMean

DEVICES = 60
ROUNDS = (0, 1, 5)
OWNERS = {
    "halves": np.arange(DEVICES) * 2 // DEVICES,
    "shuffled": np.random.default_rng(0).integers(0, 3, DEVICES),
    "one shard is small": np.where(np.arange(DEVICES) == 7, 1, 0),
}


class HalfOf(Fault):
    """Removes every other link: whether one stays depends on the links before it."""

    def apply(self, links: Links, t: int) -> Links:
        return links.keep(np.arange(len(links)) % 2 == t % 2)


NETWORKS: dict[str, Network] = {
    "sparse": gs.Random(DEVICES, 0.02),
    "half of all pairs": gs.Random(2000, 0.45),
    "nearly all pairs": gs.Random(DEVICES, 0.9),
    "no links": gs.Random(DEVICES, 0.0),
    "once": gs.Random(DEVICES, 0.05, every=0),
    "erdos-renyi": gs.ErdosRenyi(DEVICES, 0.05),
    "erdos-renyi, all": gs.ErdosRenyi(DEVICES, 1.0),
    "erdos-renyi, none": gs.ErdosRenyi(DEVICES, 0.0),
    "small-world": gs.SmallWorld(DEVICES, 4, 0.3),
    "small-world, all moved": gs.SmallWorld(DEVICES, 4, 1.0, every=2),
    "small-world, no links": gs.SmallWorld(DEVICES, 0, 0.3),
    "blocks": gs.StochasticBlocks(DEVICES, 7, 0.4, 0.02),
    "epidemic": gs.Epidemic(DEVICES, 3),
    "epidemic, most": gs.Epidemic(DEVICES, 50),
    "random-ring": gs.RandomRing(DEVICES),
    "regular": gs.Regular(DEVICES, 3),
    "torus": gs.Torus(DEVICES),
    "base graph": gs.BaseGraph(DEVICES),
    "equi-dyn": gs.EquiDyn(DEVICES, directed=True),
    "mobility": gs.Mobility(DEVICES, 0.2),
    "mobility, nobody near": gs.Mobility(DEVICES, 0.0),
    "meetings": gs.PoissonMeetings(DEVICES, rate=0.001, duration=5.0),
    "failures": gs.Random(DEVICES, 0.1) & gs.LinkFailure(0.3) & gs.GilbertElliott(0.2, 0.5),
    "churn": gs.SmallWorld(DEVICES, 4, 0.3) & gs.Churn(0.2, 0.5) & gs.Churn(0.1, 0.5, seed=1),
    "own fault": gs.Random(DEVICES, 0.1) & HalfOf(),
    "cycle": gs.Cycle((gs.Ring(DEVICES), gs.Random(DEVICES, 0.1))),
    "callback": gs.Callback(DEVICES, lambda t: [(0, 1 + t), (3, 2)]),
}


def shards_of(owner: np.ndarray) -> list[Shard]:
    count = int(owner.max()) + 1
    queues: Queues = make_queues(count)
    return [Shard(owner, k, QueueExchange(k, count, queues)) for k in range(count)]


def on_all(shards: list[Shard], function: Callable[[Shard], Any]) -> list[Any]:
    """Call a function with every shard, all at the same time."""
    with ThreadPoolExecutor(len(shards)) as pool:
        return list(pool.map(function, shards))


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("owner", OWNERS)
def test_links_of_a_shard(name: str, owner: str) -> None:
    network = NETWORKS[name]
    owners = np.resize(OWNERS[owner], network.devices)
    shards = shards_of(owners)
    for t in ROUNDS:
        expected = network.links(t)
        found = on_all(shards, lambda shard, t=t: network.links_of(t, shard))
        for shard, links in zip(shards, found, strict=True):
            wanted = expected.of_part(shard)
            assert links.pairs.tolist() == wanted.pairs.tolist()
            assert links.directed == wanted.directed
            assert (links.active is None) == (wanted.active is None)
            involved = np.concatenate([shard.devices, links.a, links.b])
            assert np.array_equal(links.active_mask[involved], wanted.active_mask[involved])
            if wanted.weight is not None:
                assert np.array_equal(links.weight, wanted.weight)


def test_links_of_a_shard_in_logs(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    contacts = tmp_path / "contacts.csv"
    rows = ["time,a,b"]
    for time in range(200):
        a, b = rng.choice(20, 2, replace=False)
        rows.append(f"{time},{a},{b}")
    contacts.write_text("\n".join(rows))
    positions = tmp_path / "positions.csv"
    rows = ["time,id,x,y"]
    for time in range(10):
        for device in range(20):
            x, y = rng.integers(0, 10, 2)
            rows.append(f"{time},{device},{x},{y}")
    positions.write_text("\n".join(rows))
    log = gs.network.ContactTrace(contacts, seconds_per_round=20.0, beyond="repeat")
    saved = tmp_path / "links.csv"
    gs.network.save(log, saved, 10)
    networks = [
        log,
        gs.network.ContactTrace(contacts, seconds_per_round=20.0, absent="away", beyond="empty"),
        gs.network.PositionTrace(positions, radius=5.0, seconds_per_round=1.0, beyond="repeat"),
        gs.network.Sequence(saved, beyond="empty"),
    ]
    shards = shards_of(np.arange(20) % 3)
    for network in networks:
        for t in (0, 3, 12):
            expected = network.links(t)
            found = on_all(shards, lambda shard, n=network, t=t: n.links_of(t, shard))
            for shard, links in zip(shards, found, strict=True):
                assert links == expected.of_part(shard)


class Counter:
    """Counts the random numbers that each thread draws."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of_thread: dict[int, int] = {}
        bits = draws.bits

        def counting(*arguments: Any) -> Any:
            drawn = bits(*arguments)
            thread = threading.get_ident()
            self.of_thread[thread] = self.of_thread.get(thread, 0) + drawn.size
            return drawn

        monkeypatch.setattr(draws, "bits", counting)

    def during(self, function: Callable[[], Any]) -> int:
        before = self.of_thread.get(threading.get_ident(), 0)
        function()
        return self.of_thread.get(threading.get_ident(), 0) - before


@pytest.mark.parametrize(
    ("make", "most"),
    [
        (lambda: gs.Random(4000, 0.002), 0.52),
        (lambda: gs.ErdosRenyi(4000, 0.002), 0.52),
        (lambda: gs.StochasticBlocks(4000, 10, 0.01, 0.001), 0.52),
        (lambda: gs.SmallWorld(4000, 8, 0.05), 0.56),  # links that move are drawn by all
        (lambda: gs.Epidemic(4000, 4), 0.52),
        (lambda: gs.Mobility(4000, 0.02), 0.52),
        (lambda: gs.Ring(4000) & gs.LinkFailure(0.1), 0.52),
        (lambda: gs.Ring(4000) & gs.Churn(0.2, 0.5), 0.52),
    ],
    ids=[
        "random",
        "erdos-renyi",
        "blocks",
        "small-world",
        "epidemic",
        "mobility",
        "failures",
        "churn",
    ],
)
def test_two_shards_share_the_draws(
    make: Callable[[], Network], most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each draws about half of what all links take."""
    counter = Counter(monkeypatch)
    whole = counter.during(lambda: make().links(0))
    shards = shards_of(np.arange(4000) // 2000)

    def draw(shard: Shard) -> int:
        return counter.during(lambda: make().links_of(0, shard))

    for drawn in on_all(shards, draw):
        assert 0 < drawn <= most * whole


FAULTY = gs.SmallWorld(M, 2, 0.3) & gs.LinkFailure(0.2) & gs.Churn(0.2, 0.5)
RUNS: dict[str, tuple[gs.Algorithm, Network]] = {
    "d-psgd": (METHODS["d-psgd"], FAULTY),
    "received mean": (gs.Composition(eta=0.05, weights=ReceivedMean()), gs.Epidemic(M, 2)),
    "push-sum": (METHODS["push-sum"], gs.Epidemic(M, 2) & gs.LinkFailure(0.2)),
    "push-sum, weights": (METHODS["push-sum"], gs.EquiDyn(M, directed=True)),
    "laplacian": (METHODS["laplacian"], FAULTY),
    "sizes of messages": (METHODS["choco-sgd"], FAULTY),
    "values of neighbours": (METHODS["guarded"], FAULTY),
    "wpm": (METHODS["wpm"], gs.Mobility(M, 0.4)),
    "tracking": (METHODS["tracking"], gs.BaseGraph(M)),
    "all links: matching": (METHODS["ad-psgd"], FAULTY),
    "all links: clients": (METHODS["all-reduce"], FAULTY),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_on_own_links(name: str) -> None:
    """Models, messages and bytes are those of shards that know all links, and of the simulator."""
    method, network = RUNS[name]
    plan = replace(plan_of(method, "static", 8), network=network, timing=None)
    owner = np.array([2, 0, 1, 1, 0, 2, 0])
    whole = Simulator(plan)
    own = ThreadedShards(plan, owner)
    all_links = ThreadedShards(plan, owner, own_links=False)
    for engine in (whole, own, all_links):
        engine.advance(8)
    assert np.array_equal(own.models(), all_links.models())
    np.testing.assert_allclose(own.models(), whole.models(), 1e-10, 1e-11)
    expected = whole.record()
    for shards in (own, all_links):
        for record in shards.call(Simulator.record):
            assert (record.messages, record.bytes) == (expected.messages, expected.bytes)


def test_a_shard_knows_its_own_links_only() -> None:
    plan = replace(plan_of(METHODS["d-psgd"], "static", 3), timing=None)
    plan = replace(plan, network=gs.Torus(M, rows=1))
    shards = ThreadedShards(plan, np.array([0, 0, 0, 0, 1, 1, 1]))
    shards.advance(3)
    links = [simulator._last_links for simulator in shards.simulators]
    assert [len(found) for found in links if found is not None] == [5, 4]
    timed = ThreadedShards(plan_of(METHODS["d-psgd"], "static", 3), np.arange(M) // 4)
    timed.advance(3)
    known = timed.simulators[0]._last_links
    assert known == timed.simulators[1]._last_links  # all: clocks wait for all devices

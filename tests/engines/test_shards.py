"""A run in several shards equals the run in one process, however the devices are divided."""

from __future__ import annotations

from dataclasses import dataclass, replace

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.listing import attribute
from support.methods import M, takes
from support.shards import METHODS, ON_RAY, ROUNDS, Kind, ThreadedShards, plan_of
from torch import Tensor, nn

import gossamer as gs
from gossamer.engines import Record, Simulator
from gossamer.engines.shard import CsrMatrix, LocalWeights, Shard
from gossamer.errors import Diverged
from gossamer.network import Links, metropolis

OWNERS = {
    "two": np.arange(M) * 2 // M,
    "three, shuffled": np.array([2, 0, 1, 1, 0, 2, 0]),
    "one per device": np.arange(M)[::-1].copy(),
}
NETWORK_OF = {"two": "churn", "three, shuffled": "changing", "one per device": "static"}
ROUNDS_OF = {"two": ROUNDS, "three, shuffled": 10, "one per device": 10}


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("owner", OWNERS)
def test_shards_equal_one_process(name: str, owner: str) -> None:
    """To 1e-12 in float64, as any two engines: sums may be taken in another order.

    Over 50 rounds with two shards; a few rounds show that other divisions are the same.
    """
    rounds = ROUNDS_OF[owner]
    network = NETWORK_OF[owner]
    if network not in takes(name):
        network = "static"
    plan = plan_of(METHODS[name], network, rounds)
    whole = Simulator(plan)
    shards = ThreadedShards(plan, OWNERS[owner])
    whole.advance(rounds)
    shards.advance(rounds)
    models = whole.models()
    torch.testing.assert_close(
        shards.models(), models, rtol=1e-12, atol=1e-12 * float(models.abs().max())
    )
    expected = whole.record()
    records = shards.call(Simulator.record)
    for field in ("loss", "distance", "power_distance"):
        merged = shards.merged([getattr(record, field) for record in records])
        np.testing.assert_allclose(merged, getattr(expected, field), 1e-9, 1e-12)
    for metric, values in expected.metrics.items():
        merged = shards.merged([record.metrics[metric] for record in records])
        np.testing.assert_allclose(merged, values, 1e-9, 1e-12)
    check_merged_models(expected, records, 1e-9)
    for record in records:
        assert record.messages == expected.messages
        assert record.bytes == expected.bytes
        assert record.seconds == expected.seconds


def test_the_methods_of_the_cluster_test_exchange_all_kinds_of_values() -> None:
    """So test_ray.py need not start the processes of a cluster for every method."""
    kinds: dict[str, set[Kind]] = {}
    for name, method in METHODS.items():
        network = "static"
        if network not in takes(name):
            network = takes(name)[0]
        shards = ThreadedShards(plan_of(method, network, 2), OWNERS["two"])
        shards.advance(2)
        shards.models()
        shards.call(Simulator.record)
        kinds[name] = set().union(*(exchange.kinds for exchange in shards.exchanges))
    on_ray = set().union(*(kinds[name] for name in ON_RAY))
    assert on_ray == set().union(*kinds.values())


class Noisy(nn.Module):
    """Attention with dropout, a dropout layer, and noise: draws of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.encoder(self.table(x))
        if self.training:
            hidden = hidden + 0.1 * torch.randn_like(hidden)
        return self.head(hidden)


@pytest.mark.parametrize("owner", ["two", "one per device"])
def test_random_operations_of_a_module_are_those_of_one_process(owner: str) -> None:
    x = torch.arange(60).view(12, 5) % 5
    data = gs.from_arrays(x, x.flip(1), x, x.flip(1))
    study = gs.Study(
        gs.DPSGD(0.1),
        gs.Ring(M),
        data,
        model=gs.Module(Noisy),
        batch=3,
        rounds=4,
        dtype="float64",
    )
    whole = Simulator(study.plan())
    shards = ThreadedShards(study.plan(), OWNERS[owner])
    whole.advance(4)
    shards.advance(4)
    torch.testing.assert_close(shards.models(), whole.models(), rtol=1e-11, atol=1e-12)


def check_merged_models(expected: Record, records: list[Record], tolerance: float) -> None:
    """Check that one shard, that of device 0, has scored the merged model of all."""
    scorers = [record for record in records if record.merged]
    assert len(scorers) == 1
    assert expected.merged.keys() == {"loss", *expected.metrics}
    for field in ("merged", "merged_power"):
        wanted = getattr(expected, field)
        assert getattr(scorers[0], field).keys() == wanted.keys()
        for name, value in wanted.items():
            assert getattr(scorers[0], field)[name] == pytest.approx(value, rel=tolerance), name


@dataclass(frozen=True)
class FewActive(gs.Network):
    """Only devices 0, 4 and 5 take part."""

    devices: int

    def links(self, t: int) -> Links:
        active = np.array([1, 0, 0, 0, 1, 1, 0], bool)
        return replace(Links.of(self.devices, [(0, 4), (4, 5)]), active=active)


@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("p", [1, 3])
def test_shards_merge_the_models_of_the_active_devices(owner: str, p: float) -> None:
    """One of the shards may have no active device at all."""
    plan = replace(plan_of(gs.WPM(p, 0.02), "static", 4), network=FewActive(M))
    whole = Simulator(plan)
    shards = ThreadedShards(plan, OWNERS[owner])
    whole.advance(4)
    shards.advance(4)
    expected = whole.record()
    assert bool(expected.merged_power) == (p != 1)
    check_merged_models(expected, shards.call(Simulator.record), 1e-9)


@pytest.mark.parametrize("name", ["gossip-learning", "push-sum", "fedavg"])
def test_shards_with_one_way_links(name: str) -> None:
    plan = plan_of(METHODS[name], "one-way")
    whole = Simulator(plan)
    shards = ThreadedShards(plan, OWNERS["three, shuffled"])
    whole.advance(ROUNDS)
    shards.advance(ROUNDS)
    torch.testing.assert_close(shards.models(), whole.models(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "network"),
    [
        ("d-psgd", gs.BaseGraph(M)),
        ("tracking", gs.EquiDyn(M) & gs.LinkFailure(0.2)),
        ("push-sum", gs.EquiStatic(M, 2, directed=True)),
    ],
    ids=str,
)
def test_shards_with_weights_of_the_network(name: str, network: gs.Network) -> None:
    plan = replace(plan_of(METHODS[name], "changing"), network=network)
    whole = Simulator(plan)
    shards = ThreadedShards(plan, OWNERS["three, shuffled"])
    whole.advance(20)
    shards.advance(20)
    torch.testing.assert_close(shards.models(), whole.models(), rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@pytest.mark.usefixtures("every_backend")
@pytest.mark.parametrize(
    "model",
    [gs.Softmax(), gs.Cnn((2, 2), norm=True), gs.Mlp((4,), dropout=0.3)],
    ids=["softmax", "norm", "dropout"],
)
def test_shards_with_other_models_in_float32(model: gs.tasks.Model) -> None:
    """To 1e-5 in float32. Each shard has the samples of its own devices and no others."""
    study = gs.Study(
        gs.WPM(3, 0.02),
        gs.Random(10, 0.4, seed=3),
        split=gs.OneLabel(),
        model=model,
        batch=4,
        rounds=20,
    )
    plan = study.plan()
    owner = np.array([0, 1, 0, 1, 0, 1, 0, 1, 1, 1])
    whole = Simulator(plan)
    shards = ThreadedShards(plan, owner)
    whole.advance(20)
    shards.advance(20)
    torch.testing.assert_close(shards.models(), whole.models(), rtol=1e-5, atol=1e-5)
    check_merged_models(whole.record(), shards.call(Simulator.record), 1e-3)
    for shard, simulator in zip(shards.shards, shards.simulators, strict=True):
        samples = set()
        for device in shard.devices:
            samples |= set(plan.task.split.of(device).tolist())
        assert simulator.plan.task.data.samples == len(samples)


def test_a_shard_resumes_from_its_snapshot() -> None:
    method = gs.Composition(
        gs.PowerMap(3), 0.02, step=gs.Constant(), direction=gs.QuasiGlobalMomentum()
    )
    plan = plan_of(method, "churn", 20)
    owner = OWNERS["three, shuffled"]
    uninterrupted = ThreadedShards(plan, owner)
    uninterrupted.advance(20)
    first = ThreadedShards(plan, owner)
    first.advance(9)
    second = ThreadedShards(plan, owner, first.call(Simulator.snapshot))
    second.advance(20)
    assert torch.equal(second.models(), uninterrupted.models())


def test_only_boundary_rows_are_exchanged() -> None:
    """On a ring in two halves, two devices of each half have a neighbour in the other half.

    Their numbers of neighbours are sent once.
    """
    study = gs.Study(gs.DPSGD(0.1), gs.Ring(12), rounds=10)
    shards = ThreadedShards(study.plan(), np.arange(12) // 6)
    shards.advance(10)
    assert attribute(shards.exchanges, "rows_sent") == [22, 22]


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 12), st.floats(0, 1), st.integers(0, 99), st.integers(1, 4), st.data())
def test_local_weights(
    devices: int, density: float, seed: int, count: int, data: st.DataObject
) -> None:
    """A shard has its rows of the matrix, and receives the rows that the others send."""
    graph = nx.gnp_random_graph(devices, density, seed=seed)
    weights = metropolis(Links.of(devices, list(graph.edges)))
    owners = st.lists(st.integers(0, count - 1), min_size=devices, max_size=devices)
    owner = np.array(data.draw(owners))
    shards = [Shard(owner, k, None) for k in range(count)]  # type: ignore[arg-type]
    local = [shard.local_weights(weights) for shard in shards]
    for k in range(count):
        check_local_weights(local[k], k, graph, owner, weights.dense())
        for other in local[k].send:
            assert len(local[k].send[other]) == local[other].receive[k]


def check_local_weights(
    local: LocalWeights, k: int, graph: nx.Graph, owner: np.ndarray, weights: np.ndarray
) -> None:
    own = np.flatnonzero(owner == k)
    senders = own.tolist()
    for other in sorted(set(owner.tolist()) - {k}):
        linked = set()
        for j in own:
            for i in graph[j]:
                if owner[i] == other:
                    linked.add(i)
        assert local.receive.get(other, 0) == len(linked)
        senders += sorted(linked)
        if linked:
            wanted = set()
            for i in linked:
                for j in graph[i]:
                    if owner[j] == k:
                        wanted.add(j)
            assert own[local.send[other]].tolist() == sorted(wanted)
    np.testing.assert_array_equal(local.matrix.dense(), weights[np.ix_(own, senders)])
    np.testing.assert_array_equal(
        np.hstack([block.dense() for block in local.blocks()]), local.matrix.dense()
    )
    # Engines sum in ascending order of the senders.
    order = np.lexsort((np.array(senders, dtype=int)[local.matrix.column], local.matrix.row))
    assert np.array_equal(order, np.arange(len(order)))


def test_a_sparse_matrix_with_empty_rows() -> None:
    row = np.array([0, 0, 2])
    column = np.array([1, 3, 0])
    matrix = CsrMatrix.from_entries(row, column, np.array([1.0, 2.0, 3.0]), shape=(4, 4))
    assert matrix.indptr.tolist() == [0, 2, 2, 3, 3]
    assert matrix.row.tolist() == [0, 0, 2]
    expected = [[0, 1, 0, 2], [0, 0, 0, 0], [3, 0, 0, 0], [0, 0, 0, 0]]
    assert matrix.dense().tolist() == expected
    assert matrix.select_columns(1, 3).dense().tolist() == [[1, 0], [0, 0], [0, 0], [0, 0]]


def test_divergence_in_a_shard_names_round_and_device() -> None:
    plan = replace(plan_of(gs.DPSGD(1e30), "static"), dtype="float64")
    with pytest.raises(Diverged) as expected:
        Simulator(plan).advance(ROUNDS)
    shards = ThreadedShards(plan, np.zeros(M, dtype=int))
    with pytest.raises(Diverged) as found:
        shards.advance(ROUNDS)
    assert found.value.round == expected.value.round
    assert found.value.device == expected.value.device

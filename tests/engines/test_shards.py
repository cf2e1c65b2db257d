"""A run in several parts is the run: every method, every kind of network, any division of the devices."""

from __future__ import annotations

import itertools
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.methods import M, takes
from support.shards import METHODS, ROUNDS, Parts, plan_of

import gossamer as gs
from gossamer.engines import Simulator
from gossamer.engines.part import Part
from gossamer.errors import Diverged
from gossamer.network import Links, metropolis

OWNERS = {
    "two": np.arange(M) * 2 // M,
    "three, mixed up": np.array([2, 0, 1, 1, 0, 2, 0]),
    "one each": np.arange(M)[::-1].copy(),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("owner", OWNERS)
def test_parts_equal_the_whole(name: str, owner: str) -> None:
    """To 1e-12 in float64, as every pair of engines: a sum of the same numbers may be taken in another order."""
    network = {"two": "churn", "three, mixed up": "changing", "one each": "static"}[owner]
    if network not in takes(name):
        network = "static"
    plan = plan_of(METHODS[name], network)
    whole, parts = Simulator(plan), Parts(plan, OWNERS[owner])
    whole.advance(ROUNDS)
    parts.advance(ROUNDS)
    models = whole.models()
    torch.testing.assert_close(
        parts.models(), models, rtol=1e-12, atol=1e-12 * float(models.abs().max())
    )
    one, several = whole.record(), parts.each(Simulator.record)
    for field in ("accuracy", "loss", "distance", "power_distance"):
        np.testing.assert_allclose(
            parts.together([getattr(r, field) for r in several]), getattr(one, field), 1e-9, 1e-12
        )
    for record in several:
        assert (record.messages, record.bytes, record.seconds) == (
            one.messages,
            one.bytes,
            one.seconds,
        )


@pytest.mark.parametrize("name", ["gossip-learning", "push-sum", "fedavg"])
def test_parts_over_one_way_links(name: str) -> None:
    plan = plan_of(METHODS[name], "one-way")
    whole, parts = Simulator(plan), Parts(plan, OWNERS["three, mixed up"])
    whole.advance(ROUNDS)
    parts.advance(ROUNDS)
    torch.testing.assert_close(parts.models(), whole.models(), rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize(
    "model",
    [gs.Softmax(), gs.Cnn((2, 2), norm=True), gs.Mlp((4,), dropout=0.3)],
    ids=["softmax", "norm", "dropout"],
)
def test_parts_with_other_models_in_float32(model: gs.tasks.Model) -> None:
    """1e-5 in float32. Each part has the samples of its own devices and no others."""
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
    whole, parts = Simulator(plan), Parts(plan, owner)
    whole.advance(20)
    parts.advance(20)
    torch.testing.assert_close(parts.models(), whole.models(), rtol=1e-5, atol=1e-5)
    held = [simulator.plan.task.data.samples for simulator in parts.simulators]
    assert held == [
        len({i for d in np.flatnonzero(owner == k) for i in plan.task.split.of(d).tolist()})
        for k in range(2)
    ]


def test_a_part_goes_on_from_its_snapshot() -> None:
    plan = plan_of(
        gs.Composition(
            gs.PowerMap(3), 0.02, step=gs.Constant(), direction=gs.QuasiGlobalMomentum()
        ),
        "churn",
        20,
    )
    owner = OWNERS["three, mixed up"]
    straight, first = Parts(plan, owner), Parts(plan, owner)
    straight.advance(20)
    first.advance(9)
    second = Parts(plan, owner, first.each(Simulator.snapshot))
    second.advance(20)
    assert torch.equal(second.models(), straight.models())


def test_only_boundary_rows_are_exchanged() -> None:
    """On a ring in two halves, two devices of each half have a neighbour in the other: four rows a mix."""
    study = gs.Study(gs.DPSGD(0.1), gs.Ring(12), rounds=10)
    parts = Parts(study.plan(), np.arange(12) // 6)
    parts.advance(10)
    assert [part.exchange.rows for part in parts.parts] == [20, 20]


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 12), st.floats(0, 1), st.integers(0, 99), st.integers(1, 4), st.data())
def test_what_a_part_sees_of_the_weights(
    devices: int, density: float, seed: int, count: int, data: st.DataObject
) -> None:
    """Each part's rows of the whole matrix; what one needs is what the other knows it wants."""
    graph = nx.gnp_random_graph(devices, density, seed=seed)
    weights = metropolis(Links.of(devices, list(graph.edges)))
    owner = np.array(
        data.draw(st.lists(st.integers(0, count - 1), min_size=devices, max_size=devices))
    )
    near = [Part(owner, k, None).near(weights) for k in range(count)]  # type: ignore[arg-type]
    for k, seen in enumerate(near):
        own = np.flatnonzero(owner == k)
        linked = sorted(
            {j for i in own for j in graph[i] if owner[j] != k}, key=lambda j: (owner[j], j)
        )
        columns = [
            own.tolist(),
            *(list(devices) for _, devices in itertools.groupby(linked, key=lambda j: owner[j])),
        ]
        for block, devices in zip(seen.blocks(), columns, strict=True):
            np.testing.assert_array_equal(block.dense(), weights.dense()[np.ix_(own, devices)])
            indptr, column, value = block.csr()
            rebuilt = np.zeros((len(own), len(devices)))
            rebuilt[np.repeat(np.arange(len(own)), np.diff(indptr)), column] = value
            np.testing.assert_array_equal(rebuilt, block.dense())
        senders = np.concatenate(columns).astype(int)[seen.column]
        assert np.array_equal(
            np.lexsort((senders, seen.row)), np.arange(len(senders))
        )  # ascending, as engines sum
        for other, wanted in seen.wanted.items():
            theirs = np.flatnonzero(owner == other)
            assert own[wanted].tolist() == sorted(
                {i for j in theirs for i in graph[j] if owner[i] == k}
            )
            assert len(wanted) == near[other].needed[k]


def test_a_part_that_diverges_names_round_and_device() -> None:
    plan = replace(plan_of(gs.DPSGD(1e30), "static"), dtype="float64")
    with pytest.raises(Diverged) as one:
        Simulator(plan).advance(ROUNDS)
    parts = Parts(plan, np.zeros(M, dtype=int))
    with pytest.raises(Diverged) as other:
        parts.advance(ROUNDS)
    assert (one.value.round, one.value.device) == (other.value.round, other.value.device)

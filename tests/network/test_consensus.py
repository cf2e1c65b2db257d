"""Rounds to consensus, against products of dense matrices."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from gossamer import draws
from gossamer.errors import InputError
from gossamer.network import (
    BaseGraph,
    ContactTrace,
    EquiStatic,
    Full,
    Graph,
    Links,
    Network,
    NetworkWeights,
    PushSum,
    Random,
    Ring,
    consensus_errors,
    rounds_to_consensus,
    spectral_gap,
)


@pytest.mark.parametrize(
    ("network", "rule"),
    [
        (Random(7, 0.4), NetworkWeights()),
        (BaseGraph(7), NetworkWeights()),
        (EquiStatic(7, 2, directed=True), PushSum()),
        (Graph(4, ((0, 1), (1, 2), (2, 3), (3, 0), (0, 2)), directed=True), PushSum()),
    ],
    ids=str,
)
def test_errors_are_those_of_dense_matrices(network: Network, rule: Callable) -> None:
    m = network.devices
    x = draws.normal(5, "consensus", np.arange(m)[:, None], np.arange(8))
    product = np.eye(m)
    wanted = []
    for t in range(12):
        mixed = product @ x / (product @ np.ones((m, 1)))
        wanted.append(np.linalg.norm(mixed - x.mean(0)) / np.linalg.norm(x - x.mean(0)))
        product = rule(network.links(t)).dense() @ product
    found = list(islice(consensus_errors(network, seed=5), 12))
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-14)


def test_rounds_to_consensus() -> None:
    assert rounds_to_consensus(Full(9)) == 1
    assert rounds_to_consensus(Full(1)) == 0
    for m in (5, 12, 31):
        assert rounds_to_consensus(BaseGraph(m, 2)) == BaseGraph(m, 2).period
    assert rounds_to_consensus(Graph(4, ((0, 1), (2, 3))), most=50) is None
    assert rounds_to_consensus(Ring(6), error=2.0) == 0
    # The slowest mode of a ring shrinks by its second eigenvalue per round.
    second = (1 + 2 * np.cos(2 * np.pi / 20)) / 3
    expected = np.log(1e-6) / np.log(second)
    assert abs((rounds_to_consensus(Ring(20)) or 0) / expected - 1) < 0.1


def test_a_network_with_a_last_round(tmp_path: object) -> None:
    path = f"{tmp_path}/contacts.txt"
    with open(path, "w") as file:
        file.write("0 a b\n1 b c\n2 a c\n")
    assert rounds_to_consensus(ContactTrace(path)) is None


@pytest.mark.parametrize(("field", "value"), [("error", 0.0), ("most", -1), ("most", 1.5)])
def test_invalid_arguments_are_refused(field: str, value: float) -> None:
    with pytest.raises(InputError) as caught:
        rounds_to_consensus(Ring(4), **{field: value})  # type: ignore[arg-type]
    assert caught.value.field == field


def test_the_spectral_gap_is_that_of_the_carried_weights() -> None:
    links = Links.of(4, [(0, 1), (1, 2), (2, 3)])
    weight = np.array([0.1, 0.2, 0.3])

    class Weighted(Graph):
        def links(self, t: int) -> Links:
            return Links(4, links.a, links.b, weight=weight)

    w = np.eye(4)
    for a, b, share in zip(links.a, links.b, weight, strict=True):
        w[[a, b], [a, b]] -= share
        w[[a, b], [b, a]] += share
    wanted = 1 - np.linalg.eigvalsh(w @ w)[-2]
    assert spectral_gap(Weighted(4, ()), 1) == pytest.approx(wanted)


def test_the_table_of_the_documentation_is_that_of_its_script() -> None:
    """Some rows, which take no time; `python benchmarks/consensus.py` writes all."""
    folder = Path(__file__).parents[2] / "benchmarks"
    names = runpy.run_path(str(folder / "consensus.py"))
    table = (folder / "results" / "consensus.md").read_text().splitlines()
    for name in ("`base-graph`, degree 2", "`one-peer-exponential`, directed", "`random-ring`"):
        assert names["row"](name, names["NETWORKS"][name]) in table

"""Another place than the processor: with no graphics card at hand, on torch's "meta" device, whose tensors have no numbers.

It refuses what a card refuses: an operation between a tensor that is there and one that has stayed here.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gossamer import DPSGD, METHODS, WPM, ErdosRenyi, Mlp, Ring, Softmax, Svm
from gossamer.algorithms import Algorithm, Composition
from gossamer.algorithms.compression import TopK
from gossamer.engines.mixing import StackedMix, Traffic
from gossamer.engines.simulate import BatchGradient
from gossamer.mirror import PowerMap
from gossamer.network.base import Network
from gossamer.tasks import Digits, Iid, Model, Task

THERE = torch.device("meta")
DATA = Digits().load()
# What looks at a number to decide (whether a dual fits into float64), or needs links or data of another kind.
ASKS = {
    "adom",
    "dabmd",
    "fedavg",
    "gossip-learning",
    "swarm-sgd",
    *(name for name in METHODS if name.startswith("wpm")),
}


def after_a_round(
    algorithm: Algorithm, model: Model, network: Network, dtype: torch.dtype
) -> dict[str, torch.Tensor]:
    m = network.devices
    task = Task(DATA, Iid().make(DATA.y.numpy(), m, seed=0), model, batch=8)
    worker = task.worker(np.arange(m), 0, dtype, THERE)
    links = network.links(0)
    mix = StackedMix(
        algorithm.weights(links, 0, 0), torch.arange(m, device=THERE), dtype.itemsize, Traffic()
    )
    state = algorithm.init(worker.start().expand(m, -1))
    state = algorithm.round(state, BatchGradient(worker, 0), mix, 0)
    scores = worker.scores(algorithm.models(state))
    return state | {"loss": scores.loss, "accuracy": scores.accuracy}


@pytest.mark.parametrize("name", sorted(set(METHODS) - ASKS))
def test_a_round_of_every_method(name: str) -> None:
    found = after_a_round(METHODS[name].make(), Softmax(), Ring(10), torch.float32)
    assert {x.device for x in found.values()} == {THERE}


@pytest.mark.parametrize(
    "model", [Softmax(0.1), Svm(), Mlp((8,), dropout=0.2)], ids=["softmax", "svm", "mlp"]
)
@pytest.mark.parametrize(
    ("network", "dtype"),  # not sparse in float64: torch has no sparse product on its meta device
    [
        (Ring(90), torch.float32),
        (ErdosRenyi(10, 0.5), torch.float32),
        (ErdosRenyi(10, 0.5), torch.float64),
    ],
    ids=["sparse", "dense", "dense float64"],
)
def test_every_way_to_mix_and_learn(model: Model, network: Network, dtype: torch.dtype) -> None:
    for algorithm in (DPSGD(0.1), Composition(eta=0.1, compress=TopK(0.1))):
        found = after_a_round(algorithm, model, network, dtype)
        assert {x.device for x in found.values()} == {THERE}


def test_the_means_of_powers() -> None:
    mix = StackedMix(
        WPM(anchor=False).weights(Ring(10).links(0), 0, 0),
        torch.arange(10, device=THERE),
        4,
        Traffic(),
    )
    w = torch.empty(10, 7, device=THERE)
    for mean in (
        mix.mean(w, PowerMap(3)),
        mix(w, torch.float64),
        mix._scaled_power_mean(w, 101),
        mix.all_reduce(w),
        mix.neighbours(w).value,
    ):
        assert mean.device == THERE

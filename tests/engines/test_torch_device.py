"""Torch devices other than the CPU, tested without a GPU on torch's "meta" device.

Its tensors have no values, but as on a GPU, operations with tensors of another device fail.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.listing import attribute

from gossamer import DPSGD, METHODS, ErdosRenyi, Mlp, Ring, Softmax, Svm
from gossamer.algorithms import Algorithm, Composition
from gossamer.algorithms.compression import TopK
from gossamer.engines.batch_gradient import BatchGradient
from gossamer.engines.mixing import StackedMix, Traffic
from gossamer.mirror import PowerMap
from gossamer.network import metropolis
from gossamer.network.base import Network
from gossamer.tasks import Accuracy, Digits, Iid, Model, Task

META = torch.device("meta")
DATA = Digits().load()
# These read values (for example to see whether a dual fits into float64), or need other links or
# data.
NOT_ON_META = {
    "adom",
    "aims",
    "dabmd",
    "divshare",
    "fedavg",
    "gossip-learning",
    "swarm-sgd",
    *(name for name in METHODS if name.startswith("wpm")),
}


def tensors_after_a_round(
    algorithm: Algorithm, model: Model, network: Network, dtype: torch.dtype
) -> dict[str, torch.Tensor]:
    """Return the state and the scores after one round on the meta device."""
    m = network.devices
    task = Task(DATA, Iid().make(DATA.y.numpy(), m, seed=0), model, batch=8)
    worker = task.worker(np.arange(m), 0, dtype, META)
    links = network.links(0)
    mix = StackedMix(
        algorithm.weights(links, 0, 0), torch.arange(m, device=META), dtype.itemsize, Traffic()
    )
    state = algorithm.first_state(worker.start().expand(m, -1))
    state = algorithm.next_state(state, BatchGradient(worker, 0), mix, 0)
    scores = worker.scores(algorithm.models(state), (Accuracy(),))
    return state | {"loss": scores.loss, "accuracy": scores.metrics["accuracy"]}


@pytest.mark.parametrize("name", sorted(set(METHODS) - NOT_ON_META))
def test_a_round_of_every_method(name: str) -> None:
    found = tensors_after_a_round(METHODS[name].make(), Softmax(), Ring(10), torch.float32)
    assert set(attribute(found.values(), "device")) == {META}


@pytest.mark.parametrize(
    "model", [Softmax(0.1), Svm(), Mlp((8,), dropout=0.2)], ids=["softmax", "svm", "mlp"]
)
@pytest.mark.parametrize(
    ("network", "dtype"),  # torch has no sparse float64 product on its meta device
    [
        (Ring(90), torch.float32),
        (ErdosRenyi(10, 0.5), torch.float32),
        (ErdosRenyi(10, 0.5), torch.float64),
    ],
    ids=["sparse", "dense", "dense float64"],
)
def test_every_format_of_weights_and_every_gradient(
    model: Model, network: Network, dtype: torch.dtype
) -> None:
    for algorithm in (DPSGD(0.1), Composition(eta=0.1, compress=TopK(0.1))):
        found = tensors_after_a_round(algorithm, model, network, dtype)
        assert set(attribute(found.values(), "device")) == {META}


def test_every_method_of_a_mix() -> None:
    weights = metropolis(Ring(10).links(0))
    mix = StackedMix(weights, torch.arange(10, device=META), 4, Traffic())
    assert mix.products is not None
    w = torch.empty(10, 7, device=META)
    for mean in (
        mix.mean(w, PowerMap(3)),
        mix(w, torch.float64),
        mix.products.scaled_power_means(w, 101),
        mix.all_reduce(w),
        mix.neighbours(w).value,
    ):
        assert mean.device == META

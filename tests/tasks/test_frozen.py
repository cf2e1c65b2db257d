"""Frozen parts of a module: one copy for all devices and threads, and none in the results."""

from __future__ import annotations

import copy
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

import gossamer as gs


class Recorder(nn.Module):
    """A frozen layer and a trained one; notes where the frozen weights are in memory."""

    addresses: ClassVar[set[int]] = set()
    shift: Tensor

    def __init__(self, convolution: bool) -> None:
        super().__init__()
        self.frozen = nn.Linear(64, 32).requires_grad_(False)
        self.filter = nn.Conv2d(1, 1, 1) if convolution else nn.Identity()
        self.head = nn.Linear(32, 10)
        self.register_buffer("shift", torch.ones(32), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if not torch._C._functorch.is_batchedtensor(self.frozen.weight):
            self.addresses.add(self.frozen.weight.data_ptr())
        return self.head((self.frozen(self.filter(x).flatten(1)) + self.shift).relu())


def study(module: nn.Module, **fields) -> gs.Study:
    return gs.Study(
        gs.DPSGD(eta=0.1), gs.Ring(6), model=gs.Module(module), rounds=3, threads=2, **fields
    )


@pytest.mark.parametrize("convolution", [False, True], ids=["stacked", "one by one"])
def test_all_devices_and_threads_use_one_copy_of_frozen_weights(convolution: bool) -> None:
    module = Recorder(convolution)
    Recorder.addresses.clear()
    gs.run(study(module))
    assert Recorder.addresses == {module.frozen.weight.data_ptr()}


@pytest.mark.parametrize("convolution", [False, True], ids=["stacked", "one by one"])
def test_another_type_needs_one_more_copy(convolution: bool) -> None:
    module = Recorder(convolution)
    before = copy.deepcopy(module.state_dict())
    Recorder.addresses.clear()
    gs.run(study(module, dtype="float64"))
    # One in float32, which the module is tried in before the run.
    assert len(Recorder.addresses - {module.frozen.weight.data_ptr()}) == 1
    for name, x in module.state_dict().items():
        assert x.dtype == torch.float32
        assert torch.equal(x, before[name])


def test_frozen_weights_and_constant_buffers_are_not_in_the_result() -> None:
    assert set(gs.run(study(Recorder(False))).models) == {"head.weight", "head.bias"}


class Counter(nn.Module):
    """Counts its passes in a buffer that it does not save."""

    passes: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, 10)
        self.register_buffer("passes", torch.zeros(()), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.passes += 1
        return self.head(x.flatten(1))


def test_a_buffer_that_changes_stays_with_its_device() -> None:
    passes = gs.run(study(Counter())).models["passes"]
    assert torch.equal(passes, torch.full((6,), 3.0))


def test_a_frozen_embedding_of_tokens() -> None:
    torch.manual_seed(0)
    y = torch.arange(120) % 3
    x = torch.stack([y, torch.randint(3, 7, (120,))], 1)
    data = gs.from_arrays(x, y, x, y)
    table = nn.Embedding(7, 8).requires_grad_(False)
    model = gs.Module(lambda: nn.Sequential(table, nn.Flatten(), nn.Linear(16, 3)))
    tokens = gs.Study(gs.DPSGD(eta=0.5), gs.Ring(6), data, model=model, rounds=60)
    assert gs.run(tokens).summary["accuracy"] > 0.95


class Vocabulary(nn.Module):
    """A language model with large outputs; notes the largest batch that it evaluates."""

    largest: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(50, 4)
        self.outputs = nn.Linear(4, 4096)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            Vocabulary.largest = max(Vocabulary.largest, len(x))
        return self.outputs(self.tokens(x))


def test_few_samples_at_once_where_tokens_become_large_outputs() -> None:
    x = torch.randint(50, (80, 16))
    learner = gs.Module(Vocabulary).learner(gs.from_arrays(x, x, x, x))
    w = learner.init(0).expand(16, -1)
    Vocabulary.largest = 0
    learner.scores(w, x, x, {})
    assert 16 * Vocabulary.largest * 16 * 4096 <= 1 << 24
    assert learner.at_once * 4096 <= 1 << 26

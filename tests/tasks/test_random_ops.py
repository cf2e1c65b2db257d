"""Random operations of torch are drawn by name: equal for a stack and for each device alone."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.nn import functional as F

import gossamer as gs
from gossamer import draws
from gossamer.tasks.modules import ModuleLearner
from gossamer.tasks.random_ops import RandomOps

KEYS = torch.from_numpy(draws.bits(0, "keys", np.arange(3)).view(np.int64))

Operation = Callable[[Tensor], Tensor]


def attention(x: Tensor) -> Tensor:
    q = x.view(2, 2, 3, 2)
    return F.scaled_dot_product_attention(q, q, q, dropout_p=0.3)


# Functions of a tensor [4, 6]. Those that torch cannot run stacked are run one by one.
OPERATIONS: dict[str, Operation] = {
    "dropout": lambda x: torch.dropout(x, 0.4, True),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.4, True),
    "feature_alpha_dropout": lambda x: F.feature_alpha_dropout(x[None], 0.4, True),
    "rrelu": lambda x: F.rrelu(x, training=True),
    "rrelu_": lambda x: F.rrelu(x.clone(), training=True, inplace=True),
    "gumbel_softmax": lambda x: F.gumbel_softmax(x),
    "fractional_max_pool2d": lambda x: F.fractional_max_pool2d(
        x.view(1, 2, 3, 4).repeat(1, 1, 3, 3), 2, output_size=3
    ),
    "attention": attention,
    "rand": lambda x: x + torch.rand(6),
    "rand_like": lambda x: x + torch.rand_like(x),
    "randn": lambda x: x + torch.randn(4, 6),
    "randn_like": lambda x: x + torch.randn_like(x),
    "randint": lambda x: x + torch.randint(2, 9, (4, 6)),
    "randint_like": lambda x: x + torch.randint_like(x, 5),
    "randperm": lambda x: x[torch.randperm(4)],
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid()),
    "bernoulli_": lambda x: torch.empty_like(x).bernoulli_(0.3),
    "multinomial": lambda x: torch.multinomial(x.exp(), 3),
    "multinomial with replacement": lambda x: torch.multinomial(x.exp(), 9, replacement=True),
    "normal": lambda x: torch.normal(x, 2.0),
    "normal of a size": lambda x: x + torch.normal(1.0, 2.0, (4, 6)),
    "normal of two tensors": lambda x: torch.normal(x, x.abs()),
    "normal_": lambda x: torch.empty_like(x).normal_(1, 2),
    "normal_ of a new tensor": lambda x: x + torch.empty(4, 6).normal_(),
    "uniform_": lambda x: torch.empty_like(x).uniform_(-1, 3),
    "exponential_": lambda x: torch.empty_like(x).exponential_(2),
    "log_normal_": lambda x: torch.empty_like(x).log_normal_(),
    "cauchy_": lambda x: torch.empty_like(x).cauchy_(),
    "geometric_": lambda x: torch.empty_like(x).geometric_(0.3),
    "twice": lambda x: torch.rand_like(x) - torch.rand_like(x),
    "a distribution": lambda x: torch.distributions.Normal(x, 1.0).rsample(),
}
ONE_BY_ONE = (
    "a distribution",
    "fractional_max_pool2d",
    "normal_ of a new tensor",
    "randperm",
    "rrelu",
    "rrelu_",
)


def drawn(operation: Operation, x: Tensor, keys: Tensor) -> Tensor:
    with RandomOps(keys, "test"):
        if keys.dim():
            return vmap(operation, randomness="different")(x)
        return operation(x)


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_draw_depends_on_key_number_and_element_alone(name: str) -> None:
    operation = OPERATIONS[name]
    state = torch.random.get_rng_state()
    x = torch.linspace(-2, 2, 72, dtype=torch.float64).view(3, 4, 6)
    alone = torch.stack([drawn(operation, x[i], KEYS[i]) for i in range(3)])
    again = torch.stack([drawn(operation, x[i], KEYS[i]) for i in range(3)])
    assert torch.equal(alone, again)
    assert (drawn(operation, x[0], KEYS[1]) != alone[0]).any()
    if name not in ONE_BY_ONE:
        stacked = drawn(operation, x, KEYS)
        torch.testing.assert_close(stacked, alone, rtol=1e-12, atol=1e-12)
    assert torch.equal(state, torch.random.get_rng_state())


N = 20_000
MEANS: dict[str, tuple[Operation, float, float]] = {
    # Function, mean and standard deviation.
    "rand": (lambda x: torch.rand(N), 1 / 2, math.sqrt(1 / 12)),
    "uniform_": (lambda x: torch.empty(N).uniform_(-1, 3), 1, 4 / math.sqrt(12)),
    "randn": (lambda x: torch.randn(N), 0, 1),
    "squares of randn": (lambda x: torch.randn(N).square(), 1, math.sqrt(2)),
    "randint": (lambda x: torch.randint(1, 7, (N,)), 3.5, math.sqrt(35 / 12)),
    "bernoulli": (lambda x: torch.bernoulli(torch.full((N,), 0.2)), 0.2, 0.4),
    "exponential_": (lambda x: torch.empty(N).exponential_(0.5), 2, 2),
    "geometric_": (lambda x: torch.empty(N).geometric_(0.25), 4, math.sqrt(12)),
    "log_normal_": (
        lambda x: torch.empty(N).log_normal_(0, 0.5).log(),
        0,
        0.5,
    ),
    "cauchy_": (lambda x: (torch.empty(N).cauchy_(1, 2) > 3).float(), 0.25, math.sqrt(3) / 4),
    "multinomial": (
        lambda x: torch.multinomial(torch.tensor([3.0, 1.0]), N, replacement=True),
        0.25,
        math.sqrt(3) / 4,
    ),
    # The first of two out of (3, 1, 0) is the second with probability 1/4.
    "first of multinomial": (
        lambda x: torch.multinomial(torch.tensor([3.0, 1.0, 0.0]).expand(N, 3), 2)[:, 0],
        0.25,
        math.sqrt(3) / 4,
    ),
    "randperm": (lambda x: (torch.randperm(N) > torch.arange(N)).float(), 0.5, 0.5),
    "rrelu": (lambda x: -F.rrelu(-torch.ones(N), 0.1, 0.5, True), 0.3, 0.4 / math.sqrt(12)),
    "dropout": (lambda x: torch.dropout(torch.ones(N), 0.3, True), 1, math.sqrt(0.3 / 0.7)),
}


@pytest.mark.parametrize("name", MEANS)
def test_draws_have_torchs_distribution(name: str) -> None:
    operation, mean, deviation = MEANS[name]
    values = drawn(operation, torch.zeros(1), KEYS[0]).double()
    five_sigma = 5 * deviation / math.sqrt(N)
    assert abs(values.mean().item() - mean) < five_sigma


def test_what_draws_nothing_is_left_alone() -> None:
    x = torch.randn(2, 2, 3, 4)
    with RandomOps(None, "test"):
        F.scaled_dot_product_attention(x, x, x)
        F.rrelu(x)
        F.dropout(x, training=False)


class Encoder(nn.Module):
    """Attention with dropout, as torch has it, and a branch that needs a value if asked for."""

    def __init__(self, branch: bool) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)
        self.branch = branch

    def forward(self, x: Tensor) -> Tensor:
        if self.branch and x.sum().item() > 1e9:
            return x
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=x.dtype)
        return self.head(self.encoder(x, mask=mask, is_causal=True).mean(1))


def test_attention_dropout_is_equal_stacked_and_one_by_one() -> None:
    torch.manual_seed(0)
    x = torch.randn(12, 5, 8)
    y = torch.arange(12) % 3
    data = gs.from_arrays(x, y, x, y)
    state = Encoder(branch=False).state_dict()
    found = []
    for branch in (False, True):
        module = Encoder(branch)
        module.load_state_dict(state)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", gs.SpeedWarning)  # of the branch
            learner = gs.Module(module).learner(data)
        assert isinstance(learner, ModuleLearner)
        w = learner.init(0).double().expand(3, -1).contiguous()
        gradient = torch.empty_like(w)
        batches = x.double().view(3, 4, 5, 8)
        learner.gradient(w, batches, y.view(3, 4), {}, KEYS, gradient)
        found.append(gradient)
        again = torch.empty_like(w)
        learner.gradient(w, batches, y.view(3, 4), {}, KEYS + 1, again)
        assert (again != gradient).any()
    torch.testing.assert_close(found[0], found[1], rtol=1e-9, atol=1e-12)


def test_dropout_between_recurrent_layers_is_drawn_by_name() -> None:
    class Lstm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(8, 4, 2, dropout=0.5, batch_first=True)
            self.head = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.lstm(x)[0][:, -1])

    x = torch.randn(12, 5, 8)
    y = torch.arange(12) % 3
    with pytest.warns(gs.SpeedWarning, match=r"one device at a time.*aten::lstm"):
        learner = gs.Module(Lstm()).learner(gs.from_arrays(x, y, x, y))
    w = learner.init(0).expand(3, -1).contiguous()
    found = []
    for keys in (KEYS, KEYS, KEYS + 1):
        gradient = torch.empty_like(w)
        learner.gradient(w, x.view(3, 4, 5, 8), y.view(3, 4), {}, keys, gradient)
        found.append(gradient)
    assert torch.equal(found[0], found[1])
    assert (found[0] != found[2]).any()

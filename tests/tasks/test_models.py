"""Models against oracles: closed forms against autograd, modules against loops over modules."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.learners import Batch, buffers_of, data, flat, plain_modules, shapes, typed
from torch import Tensor, nn
from torch.nn import functional as F

from gossamer.errors import InputError
from gossamer.tasks import (
    Accuracy,
    Cnn,
    LinearRegression,
    LogisticRegression,
    Mlp,
    Module,
    Softmax,
    Svm,
    from_arrays,
    linear,
    modules,
)
from gossamer.tasks.metrics import default_metrics

NO_KEYS = torch.zeros(0, dtype=torch.int64)


# -- closed forms -


def softmax_loss(outputs: Tensor, label: int) -> Tensor:
    return -torch.log(torch.exp(outputs[label]) / torch.exp(outputs).sum())


def hinge_loss(outputs: Tensor, label: int) -> Tensor:
    rivals = []
    for j in range(len(outputs)):
        if j != label:
            rivals.append(outputs[j])
    return torch.stack(
        [torch.zeros_like(outputs[0]), *(1 + rival - outputs[label] for rival in rivals)]
    ).max()


def squared_loss(outputs: Tensor, target: float) -> Tensor:
    return 0.5 * (outputs[0] - target) ** 2


def logistic_loss(outputs: Tensor, label: int) -> Tensor:
    return torch.log(1 + torch.exp(-outputs[0] if label else outputs[0]))


# Each model, the loss of one sample's outputs, the classes of its data, whether it has a bias.
CLOSED: dict[str, Any] = {
    "softmax": (Softmax, softmax_loss, 4, True),
    "svm": (Svm, hinge_loss, 4, True),
    "least-squares": (LinearRegression, squared_loss, None, False),
    "logistic": (LogisticRegression, logistic_loss, 2, False),
}


def naive(
    w: Tensor, x: Tensor, y: Tensor, loss: Callable[..., Tensor], bias: bool, l2: float
) -> Tensor:
    """Return a device's mean loss, sample by sample: w [outputs, columns], x [batch, features]."""
    weight, constant = (w[:, :-1], w[:, -1]) if bias else (w, 0.0)
    losses = []
    for sample, target in zip(x, y, strict=True):
        losses.append(loss(weight @ sample + constant, target.item()))
    return torch.stack(losses).mean() + l2 / 2 * (w**2).sum()


@pytest.mark.parametrize("kind", sorted(CLOSED))
@settings(max_examples=12)
@given(
    l2=st.sampled_from([0.0, 0.3]),
    devices=st.integers(1, 4),
    batch=st.integers(1, 9),
    features=st.integers(1, 6),
    seed=st.integers(0, 99),
)
def test_closed_form_equals_autograd(
    kind: str, l2: float, devices: int, batch: int, features: int, seed: int
) -> None:
    model, loss, classes, bias = CLOSED[kind]
    source = data(classes, (features,), seed=seed)
    learner = model(l2).learner(source)
    stack = Batch.of(learner, source, devices, batch, seed)
    gradient = stack.gradient(learner)
    losses = stack.loss(learner)
    for i in range(devices):
        w = stack.w[i].view(-1, features + bias).clone().requires_grad_()
        expected = naive(w, stack.x[i, :, :features], stack.y[i], loss, bias, l2)
        expected.backward()
        # Twelve digits: sums of a few dozen float64 values differ by their order.
        torch.testing.assert_close(losses[i], expected.detach(), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(gradient[i], w.grad.reshape(-1), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", sorted(CLOSED))
def test_a_device_alone_equals_its_row_in_a_stack(kind: str) -> None:
    model, _, classes, _ = CLOSED[kind]
    source = data(classes)
    learner = model(0.1).learner(source)
    stack = Batch.of(learner, source, devices=5)
    together = stack.gradient(learner)
    losses = stack.loss(learner)
    for rows in ([3], [0, 4], [4, 2, 1]):  # of several sizes, in the same buffers
        some = Batch(stack.w[rows], stack.x[rows], stack.y[rows], stack.keys[rows])
        torch.testing.assert_close(some.gradient(learner), together[rows], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(some.loss(learner), losses[rows], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", sorted(CLOSED))
def test_scores_equal_a_loop_over_the_samples(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, loss, classes, bias = CLOSED[kind]
    source = data(classes)
    learner = model(0.2).learner(source)
    w = Batch.of(learner, source, devices=5).w
    x = learner.features(source.x_test.double())
    y = typed(source.y_test)
    metrics = default_metrics(source)
    scores = learner.scores(w, x, y, {}, metrics)
    for i in range(5):
        rows = w[i].view(-1, 5 + bias)
        expected = naive(rows, x[:, :5], y, loss, bias, 0.2)
        torch.testing.assert_close(scores.loss[i], expected, rtol=1e-12, atol=1e-12)
        if classes is None:
            errors = x[:, :5] @ rows[0] - y
            expected = errors.square().mean().sqrt()
            torch.testing.assert_close(scores.metrics["rmse"][i], expected, rtol=1e-12, atol=0)
            continue
        outputs = (x[:, :5] @ rows[:, :5].T + (rows[:, -1] if bias else 0)).tolist()
        chosen = []
        for o in outputs:
            chosen.append(int(o[0] > 0) if kind == "logistic" else int(np.argmax(o)))
        right = sum(label == target for label, target in zip(chosen, y.tolist(), strict=True))
        assert scores.metrics["accuracy"][i].item() == pytest.approx(right / len(y), abs=1e-15)
    for limit in (
        1,
        2 * len(x) * learner.shapes["weight"][0],
    ):  # one device at a time, two at a time
        monkeypatch.setattr(linear, "_OUTPUTS_AT_ONCE", limit)
        again = learner.scores(w, x, y, {}, metrics)
        torch.testing.assert_close(again.loss, scores.loss, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(again.metrics, scores.metrics, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("classes", [1, 2, 5])
def test_the_first_of_equal_outputs_counts(classes: int) -> None:
    """As torch.argmax does: a model of zeros classifies everything as class 0."""
    y = torch.arange(20) % classes
    data = from_arrays(torch.rand(20, 3), y, torch.rand(20, 3), y)
    learner = Softmax().learner(data)
    w = torch.zeros(3, learner.parameters)
    w[1, -1] = 1.0  # the bias of the last class
    w[2, 4 * (classes - 1) : 4 * classes] = -1.0
    scores = learner.scores(w, learner.features(data.x_test), data.y_test, {}, (Accuracy(),))
    outputs = (
        data.x_test @ w.view(3, classes, 4)[..., :-1].mT + w.view(3, classes, 4)[:, None, :, -1]
    )
    assert scores.metrics["accuracy"].tolist() == (outputs.argmax(2) == y).float().mean(1).tolist()
    expected = torch.stack([torch.nn.functional.cross_entropy(row, y) for row in outputs])
    torch.testing.assert_close(scores.loss, expected)


def test_losses_and_gradients_are_finite_for_large_weights() -> None:
    for kind, (model, _, classes, _) in CLOSED.items():
        source = data(classes)
        learner = model().learner(source)
        for scale in (1e4, -1e4):
            stack = Batch.of(learner, source)
            stack.w = stack.w * scale
            assert stack.gradient(learner).isfinite().all(), kind
            assert stack.loss(learner).isfinite().all(), kind


def test_logistic_loss_is_exact_for_confident_outputs() -> None:
    learner = LogisticRegression().learner(data(2, (1,)))
    x = torch.ones(1, 1, 1, dtype=torch.float64)
    y = torch.ones(1, 1, dtype=torch.int64)
    for margin, label, expected in (
        (30, 1, math.log1p(math.exp(-30))),
        (30, 0, 30 + math.exp(-30)),
        (-800, 0, 0),
        (-800, 1, 800),
    ):
        loss = learner.loss(torch.tensor([[float(margin)]]).double(), x, y * label, {}, NO_KEYS)
        assert loss.item() == pytest.approx(expected, rel=1e-15, abs=0)


def test_start_is_uniform_and_by_name() -> None:
    learner = Softmax().learner(data(10, (1, 28, 28)))
    start = learner.init(0)
    assert start.shape == (7850,)
    assert torch.equal(start, learner.init(0))
    assert (start != learner.init(1)).all()
    farthest = max(learner.init(seed).abs().max().item() for seed in range(5))
    assert 0.9995 / 28 < farthest <= 1 / 28  # the bias is not counted: 1/√785 is less
    # a uniform variable on ±a has variance a²/3; its empirical quantiles are within 3/√n of the
    # line
    assert start.var().item() == pytest.approx((1 / 28) ** 2 / 3, rel=0.05)
    ideal = (torch.arange(7850) + 0.5) / 7850 * 2 - 1
    assert (start.sort().values * 28 - ideal).abs().max() < 2 * 1.5 / math.sqrt(7850)


def test_unstack_gives_names_and_shapes() -> None:
    source = data(3, (2, 2))
    learner = Softmax().learner(source)
    assert learner.parameters == 3 * 5
    row = torch.arange(15.0)
    parts = learner.unstack(torch.stack([row, row + 100]))
    assert shapes(parts) == {
        "weight": (2, 3, 4),
        "bias": (2, 3),
    }
    # Outputs computed from the parts equal those of the row.
    x = torch.cat([learner.features(source.x), torch.ones(len(source.x), 1)], 1)
    torch.testing.assert_close(
        source.x.flatten(1) @ parts["weight"][1].T + parts["bias"][1], x @ (row + 100).view(3, 5).T
    )
    assert list(LogisticRegression().learner(data(2)).unstack(torch.zeros(5))) == ["weight"]
    named = Mlp((4,)).learner(source).unstack(torch.zeros(7, Mlp((4,)).learner(source).parameters))
    assert shapes(named) == {
        "1.weight": (7, 4, 4),
        "1.bias": (7, 4),
        "3.weight": (7, 3, 4),
        "3.bias": (7, 3),
    }


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Softmax(-1.0), "l2"),
        (lambda: Svm(math.nan), "l2"),
        (lambda: Softmax().learner(data(None)), "model"),
        (lambda: LogisticRegression().learner(data(3)), "model"),
        (
            lambda: LinearRegression().learner(
                from_arrays(np.eye(3), np.eye(3), np.eye(3), np.eye(3))
            ),
            "model",
        ),
        (lambda: Mlp(()), "hidden"),
        (lambda: Mlp((0,)), "hidden"),
        (lambda: Mlp(dropout=1.0), "dropout"),
        (lambda: Cnn((0, 3)), "channels"),
        (lambda: Cnn().learner(data(3)), "model"),
        (lambda: Module("resnet"), "module"),  # type: ignore[arg-type]
    ],
)
def test_invalid_settings_are_refused(make: Callable[[], object], field: str) -> None:
    with pytest.raises(InputError) as refusal:
        make()
    assert refusal.value.field == field


# -- modules -


def test_a_linear_module_equals_the_closed_form() -> None:
    source = data(4, (2, 3))
    closed = Softmax().learner(source)
    module = Module(nn.Sequential(nn.Flatten(), nn.Linear(6, 4))).learner(source)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-6)):
        stack = Batch.of(closed, source, devices=4)
        w = stack.w.to(dtype)
        x = stack.x.to(dtype)
        parts = closed.unstack(w)
        w_module = torch.cat([parts["weight"].reshape(4, -1), parts["bias"]], 1)
        images = x[..., :6].reshape(4, -1, 2, 3)
        expected = torch.empty_like(w)
        found = torch.empty_like(w)
        closed.gradient(w, x, stack.y, {}, stack.keys, expected)
        module.gradient(w_module, images, stack.y, {}, stack.keys, found)
        exact = closed.unstack(expected)
        other = module.unstack(found)
        torch.testing.assert_close(
            other["1.weight"], exact["weight"], rtol=tolerance, atol=tolerance
        )
        torch.testing.assert_close(other["1.bias"], exact["bias"], rtol=tolerance, atol=tolerance)
        losses = (
            module.loss(w_module, images, stack.y, {}, stack.keys),
            closed.loss(w, x, stack.y, {}, stack.keys),
        )
        torch.testing.assert_close(*losses, rtol=tolerance, atol=tolerance)
        x_test = source.x_test.to(dtype)
        metrics = (Accuracy(),)
        scores = closed.scores(w, closed.features(x_test), source.y_test, {}, metrics)
        others = module.scores(w_module, x_test, source.y_test, {}, metrics)
        torch.testing.assert_close(scores.loss, others.loss, rtol=tolerance, atol=tolerance)
        assert torch.equal(scores.metrics["accuracy"], others.metrics["accuracy"])


class Tokens(nn.Module):
    """Embedding, tied weights: the same table reads the words and scores them."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(6, 4)
        self.norm = nn.LayerNorm(4)
        self.head = nn.Linear(4, 6, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.table(x.abs().clamp(max=2).mul(2).long()).mean(1)))


class Remembers(nn.Module):
    """Buffers: one is replaced, one is counted up in place, one (named key) is only read."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 3)
        self.average: Tensor
        self.calls: Tensor
        self.key: Tensor
        self.register_buffer("average", torch.zeros(5))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("key", torch.linspace(0, 1, 5))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.average = 0.9 * self.average + 0.1 * x.mean(0)
        self.calls.add_(1)
        return self.layer((x - self.average) * self.key)


class Recurrent(nn.Module):
    """Cannot run stacked: torch's recurrent layers have no batching rule."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(2, 4, batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.gru(x)[0][:, -1])


class Branches(nn.Module):
    """Cannot run stacked: a branch depends on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(5, 3)
        self.other = nn.Linear(5, 3)
        self.norm = nn.BatchNorm1d(3, momentum=None)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.one(x) if x.sum() > 0 else self.other(x) * x.max().item())


class Shared(nn.Module):
    """One layer under two names, applied twice; one parameter under two names of its layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 5)
        self.second = self.first
        self.last = nn.Linear(5, 3)
        self.last.offset = self.last.bias

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.second(torch.tanh(self.first(x))))) + self.last.offset


class Layers(nn.Module):
    """Linear layers with and without bias, also of sequences; outputs viewed and overwritten."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Linear(2, 4)
        self.all = nn.Linear(12, 6, bias=False)
        self.offset = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        words = torch.tanh(self.words(x.view(-1, 3, 2)))
        whole = self.all(words.flatten(1)).view(-1, 2, 3).sum(1)
        return F.linear(whole, self.words.weight[:3, :1].expand(3, 3), self.offset).mul_(2)


IMAGE = (3, 4, 4)
MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int | None]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)), (5,), 3),
    "regression": (lambda: nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 1)), (5,), None),
    "cnn": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, 3)
        ),
        IMAGE,
        3,
    ),
    "layer norm": (lambda: nn.Sequential(nn.LayerNorm(5), nn.Linear(5, 3)), (5,), 3),
    "group norm": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(16, 3)
        ),
        IMAGE,
        3,
    ),
    "batch norm": (
        lambda: nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 3)),
        (5,),
        3,
    ),
    "batch norm 2d": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, momentum=0.3), nn.Flatten(), nn.Linear(16, 3)
        ),
        IMAGE,
        3,
    ),
    "tied": (Tokens, (7,), 6),
    "shared": (Shared, (5,), 3),
    "own buffers": (Remembers, (5,), 3),
    "linear layers": (Layers, (6,), 3),
    "recurrent": (Recurrent, (6, 2), 3),
    "branches": (Branches, (5,), 3),
}


def plain_loss(module: nn.Module, x: Tensor, y: Tensor, classes: int | None) -> Tensor:
    outputs = module(x)
    return F.cross_entropy(outputs, y) if classes else 0.5 * ((outputs[:, 0] - y) ** 2).mean()


@pytest.mark.filterwarnings("ignore::gossamer.SpeedWarning")
@pytest.mark.parametrize("kind", MODULES)
def test_modules_equal_a_plain_loop(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients, losses, buffers and scores agree over several steps, to 1e-10."""
    make, shape, classes = MODULES[kind]
    torch.manual_seed(0)
    module = make()
    before = copy.deepcopy(module.state_dict())
    source = data(classes, shape)
    learner = Module(module).learner(source)
    buffers = buffers_of(learner, 3)
    w = Batch.of(learner, source, spread=0.3).w
    plain = plain_modules(learner, lambda: module, w)
    for step in range(4):
        stack = Batch.of(learner, source, seed=step)
        stack.w = w
        losses = stack.loss(learner, buffers)
        gradient = stack.gradient(learner, buffers)
        for i, own in enumerate(plain):
            own.train().zero_grad()
            loss = plain_loss(own, stack.x[i], stack.y[i], classes)
            loss.backward()
            slopes = []
            for p in own.parameters():
                slopes.append(p.grad if p.grad is not None else torch.zeros_like(p))
            torch.testing.assert_close(losses[i], loss.detach(), rtol=1e-10, atol=1e-12)
            torch.testing.assert_close(gradient[i], flat(slopes), rtol=1e-10, atol=1e-12)
            for name, b in own.named_buffers():
                torch.testing.assert_close(buffers[name][i], b, rtol=1e-10, atol=1e-12)
            for p, g in zip(own.parameters(), slopes, strict=True):
                p.data -= 0.1 * g
        w = w - 0.1 * gradient
    kept = copy.deepcopy(buffers)
    metrics = default_metrics(source)
    scores = learner.scores(w, source.x_test.double(), typed(source.y_test), buffers, metrics)
    # Scoring changes nothing.
    for name, b in buffers.items():
        assert torch.equal(kept[name], b)
    for i, own in enumerate(plain):
        own.eval()
        expected = plain_loss(own, source.x_test.double(), typed(source.y_test), classes)
        torch.testing.assert_close(scores.loss[i], expected.detach(), rtol=1e-10, atol=1e-12)
        if classes:
            right = (own(source.x_test.double()).argmax(1) == source.y_test).double().mean()
            torch.testing.assert_close(scores.metrics["accuracy"][i], right)
        else:
            outputs = own(source.x_test.double())
            errors = outputs.detach().reshape(source.y_test.shape) - source.y_test.double()
            expected = errors.square().mean().sqrt()
            torch.testing.assert_close(scores.metrics["rmse"][i], expected, rtol=1e-9, atol=0)
    monkeypatch.setattr(
        modules, "_EVALUATION_ELEMENTS", 3 * 3 * 4 * math.prod(shape)
    )  # three samples at a time
    if kind != "branches":  # whose outputs depend on the whole batch
        again = learner.scores(w, source.x_test.double(), typed(source.y_test), buffers, metrics)
        torch.testing.assert_close(again.loss, scores.loss, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(again.metrics, scores.metrics, rtol=1e-10, atol=1e-12)
    # The user's module is unchanged.
    for name, value in module.state_dict().items():
        assert torch.equal(before[name], value)
    assert module.training


def test_batch_norm_statistics_stay_with_their_device() -> None:
    source = data(3)
    learner = Module(lambda: nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 3))).learner(source)
    assert sorted(learner.buffers()) == ["0.num_batches_tracked", "0.running_mean", "0.running_var"]
    assert sorted(learner.shapes) == [
        "0.bias",
        "0.weight",
        "1.bias",
        "1.weight",
    ]  # the statistics are not mixed
    stack = Batch.of(learner, source)
    buffers = buffers_of(learner, 3)
    stack.x[1] += 10
    stack.gradient(learner, buffers)
    stack.gradient(learner, buffers)
    assert buffers["0.num_batches_tracked"].tolist() == [2, 2, 2]
    assert (buffers["0.running_mean"][1] > 1).all()
    assert (buffers["0.running_mean"][[0, 2]] < 1).all()
    # A device is scored with its own statistics: other buffers give other scores.
    same = stack.w[:1].expand(3, -1)
    loss = learner.scores(same, source.x_test.double(), source.y_test, buffers).loss
    assert len(set(loss.tolist())) == 3

"""Losses equal torch's own, for one model and for a stack of models, and in parts."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import gossamer as gs
from gossamer.tasks.losses import FunctionLoss, loss_of

SEEDS = st.integers(0, 2**31)
SIZES = st.integers(1, 5)


def normal(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def classes(seed: int, count: int, *shape: int, ignored: int | None = None) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(count, shape, generator=generator)
    if ignored is not None:
        drawn[torch.rand(shape, generator=generator) < 0.3] = ignored
    return drawn


def check(loss: gs.Loss, outputs: Tensor, targets: Tensor, expected: Tensor) -> None:
    """Compare the value and the gradient of a loss with torch's, stacked and in two parts too."""
    expected_slope = torch.zeros_like(outputs)
    if expected.requires_grad:
        (expected_slope,) = torch.autograd.grad(expected, outputs, retain_graph=True)
    found = loss(outputs, targets)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    (slope,) = torch.autograd.grad(found, outputs)
    torch.testing.assert_close(slope, expected_slope, rtol=1e-10, atol=1e-12)
    total, count = loss.stacked_terms(torch.stack([outputs] * 3), torch.stack([targets] * 3))
    stacked = total / count.clamp_min(1)
    torch.testing.assert_close(stacked, expected.expand(3), rtol=1e-10, atol=1e-12)
    total_of_parts = torch.zeros((), dtype=torch.float64)
    terms = torch.zeros((), dtype=torch.float64)
    for part, part_targets in zip(outputs.split(2), targets.split(2), strict=True):
        part_total, part_count = loss.terms(part, part_targets)
        total_of_parts += part_total
        terms += part_count
    in_parts = total_of_parts / terms.clamp_min(1)
    torch.testing.assert_close(in_parts, expected, rtol=1e-10, atol=1e-12)


@given(SEEDS, SIZES, SIZES, st.sampled_from([-100, 0, 255]), st.sampled_from([0.0, 0.1]))
def test_cross_entropy_of_labels(
    seed: int, batch: int, count: int, ignored: int, smoothing: float
) -> None:
    outputs = normal(seed, batch, count).requires_grad_()
    targets = classes(seed, count, batch, ignored=ignored)
    expected = F.cross_entropy(
        outputs, targets, ignore_index=ignored, label_smoothing=smoothing, reduction="sum"
    )
    expected = expected / (targets != ignored).sum().clamp_min(1)
    check(gs.CrossEntropy(ignored, smoothing), outputs, targets, expected)


@given(SEEDS, SIZES, SIZES, st.lists(SIZES, min_size=1, max_size=3), st.booleans())
def test_cross_entropy_of_positions(
    seed: int, batch: int, count: int, positions: list[int], last: bool
) -> None:
    """Classes are along axis 1, as in torch, or along the last one, as in transformers."""
    first_fits = count == positions[0] and len(set(positions)) == 1
    if first_fits:  # both layouts have this shape
        last = len(positions) == 1
    outputs = normal(seed, batch, count, *positions).requires_grad_()
    targets = classes(seed, count, batch, *positions, ignored=-100)
    expected = F.cross_entropy(outputs, targets, reduction="sum")
    expected = expected / (targets != -100).sum().clamp_min(1)
    check_layout(outputs, targets, expected, last)


def check_layout(outputs: Tensor, targets: Tensor, expected: Tensor, last: bool) -> None:
    loss = gs.CrossEntropy()
    if not last:
        check(loss, outputs, targets, expected)
        return
    moved = outputs.detach().movedim(1, -1).clone().requires_grad_()
    again = F.cross_entropy(moved.movedim(-1, 1), targets, reduction="sum")
    again = again / (targets != -100).sum().clamp_min(1)
    torch.testing.assert_close(again, expected)
    check(loss, moved, targets, again)


@given(SEEDS, SIZES, st.lists(SIZES, min_size=1, max_size=3), st.floats(0.1, 10))
def test_losses_of_values(seed: int, batch: int, shape: list[int], parameter: float) -> None:
    outputs = (3 * normal(seed, batch, *shape)).requires_grad_()
    targets = normal(seed + 1, batch, *shape)
    check(gs.AbsoluteError(), outputs, targets, F.l1_loss(outputs, targets))
    huber = F.huber_loss(outputs, targets, delta=parameter)
    check(gs.Huber(parameter), outputs, targets, huber)
    squares = F.mse_loss(outputs, targets, reduction="sum") / (2 * batch)
    check(gs.SquaredError(), outputs, targets, squares)
    yes = (targets > 0).double()
    weight = torch.tensor(parameter, dtype=torch.float64)
    entropy = F.binary_cross_entropy_with_logits(outputs, yes, pos_weight=weight)
    check(gs.BinaryCrossEntropy(parameter), outputs, yes, entropy)
    check(FunctionLoss(nn.L1Loss(reduction="mean")), outputs, targets, F.l1_loss(outputs, targets))


def test_binary_cross_entropy_of_large_logits_is_finite() -> None:
    outputs = torch.tensor([[1e4, -1e4]], requires_grad=True)
    loss = gs.BinaryCrossEntropy()(outputs, torch.tensor([[0.0, 1.0]]))
    loss.backward()
    assert loss.item() == 1e4
    assert outputs.grad is not None
    assert outputs.grad.tolist() == [[0.5, -0.5]]


@given(SEEDS, SIZES)
def test_a_function_per_sample_or_of_the_batch(seed: int, batch: int) -> None:
    outputs = normal(seed, batch, 4).requires_grad_()
    targets = classes(seed, 4, batch)
    expected = F.cross_entropy(outputs, targets)
    check(FunctionLoss(nn.CrossEntropyLoss()), outputs, targets, expected)
    check(FunctionLoss(nn.CrossEntropyLoss(reduction="none")), outputs, targets, expected)


def test_the_default_follows_from_the_targets() -> None:
    x = torch.rand(4, 3)

    def default(y: object) -> type:
        data = gs.from_arrays(x, y, x, y)  # type: ignore[arg-type]
        return type(loss_of(None, data))

    assert default([0, 1, 2, 0]) is gs.CrossEntropy
    assert default(torch.zeros(4, 5, dtype=torch.int64)) is gs.CrossEntropy
    assert default(torch.tensor([[True, False]] * 4)) is gs.BinaryCrossEntropy
    assert default(torch.tensor([[1.0, 0.0]] * 4)) is gs.BinaryCrossEntropy
    assert default([0.0, 1.0, 1.0, 0.0]) is gs.SquaredError
    assert default(torch.rand(4, 2)) is gs.SquaredError


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: gs.CrossEntropy(label_smoothing=1.0), "label_smoothing"),
        (lambda: gs.BinaryCrossEntropy(0.0), "positive_weight"),
        (lambda: gs.Huber(-1.0), "delta"),
        (lambda: gs.Module(nn.Linear(2, 2), loss="mse").learner(gs.Digits().load()), "loss"),
    ],
)
def test_invalid_losses_are_refused(make: object, field: str) -> None:
    with pytest.raises(gs.InputError) as refusal:
        make()  # type: ignore[operator]
    assert refusal.value.field == field

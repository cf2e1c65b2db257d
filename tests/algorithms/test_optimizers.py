"""Optimisers, weight decay and clipping: as torch's, and as fields of every method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.methods import made
from torch import Tensor

import gossamer as gs
from gossamer import testing
from gossamer.algorithms import METHODS, Algorithm, Gradient, Mix, State, local_step
from gossamer.algorithms.local_step import LocalStep
from gossamer.engines import Measure, Plan, Simulator
from gossamer.engines.batch_gradient import BatchGradient
from gossamer.errors import GossamerError, InputError
from gossamer.network import Churn, Graph, Random
from gossamer.study import spec
from gossamer.tasks import Task
from gossamer.tasks.split_rules import Iid

STEPS = 200
ETA = 0.01


def one_device(algorithm: Algorithm, dtype: str = "float64") -> Plan:
    """Return a plan for a single device that trains a small network."""
    data = gs.Digits().load()
    task = Task(data, Iid().make(data.y.numpy(), devices=1, seed=0), gs.Mlp((8,)), 16)
    return Plan(task, Graph(1, ()), algorithm, STEPS, seed=3, dtype=dtype)


def torch_run(
    plan: Plan,
    make: Callable[[list[Tensor]], torch.optim.Optimizer],
    clip_norm: float | None = None,
) -> Tensor:
    """Return the weights after the plan's batches with an optimiser of torch."""
    dtype = getattr(torch, plan.dtype)
    worker = plan.task.worker(np.array([0]), plan.seed, dtype, torch.device("cpu"))
    w = worker.start().clone()
    optimizer = make([w])
    for t in range(plan.rounds):
        with torch.no_grad():
            w.grad = BatchGradient(worker, t)(w).clone()
        if clip_norm is not None:
            torch.nn.utils.clip_grad_norm_([w], clip_norm)
        optimizer.step()
    return w.detach()


CASES: dict[str, tuple[dict[str, Any], Callable[[list[Tensor]], torch.optim.Optimizer]]] = {
    "sgd": ({}, lambda w: torch.optim.SGD(w, ETA)),
    "momentum": (
        {"optimizer": gs.SGD(0.9)},
        lambda w: torch.optim.SGD(w, ETA, momentum=0.9),
    ),
    "nesterov, decay": (
        {"optimizer": gs.SGD(0.8, nesterov=True), "weight_decay": 0.02},
        lambda w: torch.optim.SGD(w, ETA, momentum=0.8, nesterov=True, weight_decay=0.02),
    ),
    "adam": ({"optimizer": gs.Adam()}, lambda w: torch.optim.Adam(w, ETA)),
    "adam, decay": (
        {"optimizer": gs.Adam(0.5, 0.9, 1e-4), "weight_decay": 0.1},
        lambda w: torch.optim.Adam(w, ETA, (0.5, 0.9), 1e-4, weight_decay=0.1),
    ),
    "adamw": (
        {"optimizer": gs.AdamW(weight_decay=0.3)},
        lambda w: torch.optim.AdamW(w, ETA, weight_decay=0.3),
    ),
}


@pytest.mark.parametrize("clip_norm", [None, 0.5])
@pytest.mark.parametrize("name", CASES)
def test_on_one_device_the_steps_are_those_of_torch(name: str, clip_norm: float | None) -> None:
    fields, make = CASES[name]
    plan = one_device(gs.DPSGD(ETA, clip_norm=clip_norm, **fields))
    simulator = Simulator(plan)
    simulator.advance(STEPS)
    expected = torch_run(plan, make, clip_norm)
    torch.testing.assert_close(simulator.models(), expected, rtol=1e-6, atol=1e-6)
    assert (expected - plan.task.learner.init(plan.seed)).abs().max() > 0.01


def test_adam_equals_torch_in_float32() -> None:
    plan = one_device(gs.DPSGD(1e-3, optimizer=gs.Adam()), "float32")
    simulator = Simulator(plan)
    simulator.advance(STEPS)
    expected = torch_run(plan, lambda w: torch.optim.Adam(w, 1e-3))
    torch.testing.assert_close(simulator.models(), expected, rtol=1e-4, atol=1e-5)


# -- memory --


OPTIMIZERS = [gs.SGD(0.9), gs.SGD(0.5, nesterov=True), gs.Adam(), gs.AdamW(weight_decay=0.1)]


@given(st.sampled_from(OPTIMIZERS), st.data())
def test_some_rows_are_updated_as_if_they_were_alone(optimizer: Any, data: Any) -> None:
    """Directions of some rows, call by call, equal those of each device by itself."""
    devices = 4
    w = torch.arange(12, dtype=torch.float64).reshape(devices, 3) / 7 - 1
    local_step = LocalStep(optimizer, 0.1, 2.0)
    stacked = local_step.gradient(_Quadratic(), local_step.init(w))
    alone = [local_step.gradient(_Quadratic(), local_step.init(w[:1])) for _ in range(devices)]
    for _ in range(5):
        rows = sorted(data.draw(st.sets(st.integers(0, devices - 1), min_size=1)))
        d = stacked(w[rows], 0, torch.tensor(rows))
        for row, found in zip(rows, d, strict=True):
            torch.testing.assert_close(found[None], alone[row](w[row : row + 1]))


class _Quadratic:
    """The gradient of ‖w‖²/2."""

    def __call__(self, w: Tensor, step: int = 0, rows: Tensor | None = None) -> Tensor:
        return w.clone()

    def loss(self, w: Tensor, step: int = 0) -> Tensor:
        return (w**2).sum(1) / 2

    def conjugate(self, z: Tensor) -> Tensor:
        return z


def test_a_device_that_is_away_keeps_its_memory_and_counts_its_own_steps() -> None:
    network = Random(testing.DEVICES, 0.5) & Churn(0.3, 0.5)
    plan = testing.conformance_plan(gs.DPSGD(0.01, optimizer=gs.Adam()), network, 20)
    simulator = Simulator(plan)
    steps = np.zeros(testing.DEVICES)
    for t in range(20):
        before = simulator.snapshot().tensors
        simulator.advance(t + 1)
        after = simulator.snapshot().tensors
        active = plan.network.links(t).active
        assert active is not None
        steps += active
        for name, x in after.items():
            if name.startswith("optimizer."):
                assert torch.equal(x[~active], before[name][~active]), name
    np.testing.assert_array_equal(after["optimizer.steps"][:, 0], steps)
    assert 0 < steps.min() < 20


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda optimizer: optimizer.label)
@pytest.mark.parametrize(
    "name", ["d-psgd", "wpm", "quasi-global", "local-sgd", "swarm-sgd", "fedavg", "push-sum"]
)
def test_the_conformance_suite_passes_with_every_optimiser(name: str, optimizer: Any) -> None:
    assert testing.check(made(name, eta=0.01, optimizer=optimizer, clip_norm=5.0), rounds=6)


def test_guards_and_broken_devices_pass_the_local_step_on() -> None:
    inside = gs.DPSGD(0.01, optimizer=gs.Adam())
    guarded = gs.Guarded(inside, gs.Checked(1e6))
    network = Random(testing.DEVICES, 0.5)
    ends = []
    for algorithm in (inside, guarded, gs.Broken(guarded, devices=())):
        simulator = Simulator(testing.conformance_plan(algorithm, network, 9))
        simulator.advance(9)
        ends.append(simulator.snapshot().tensors)
    for end in ends[1:]:
        for name, x in ends[0].items():
            torch.testing.assert_close(end[name], x)
    with pytest.raises(TypeError, match="optimizer"):
        gs.Guarded(inside, gs.Median(), optimizer=gs.Adam())  # type: ignore[call-arg]


def test_measuring_halfway_leaves_the_memory_alone() -> None:
    algorithm = gs.LocalSGD(0.01, 3, optimizer=gs.AdamW())
    plan = testing.conformance_plan(algorithm, Random(testing.DEVICES, 0.5), 6)
    plan = replace(plan, measure=Measure(at="after_step"))
    measured = Simulator(plan)
    silent = Simulator(plan)
    for t in range(6):
        measured.advance(t + 1)
        measured.record()
    silent.advance(6)
    for name, x in silent.snapshot().tensors.items():
        assert torch.equal(x, measured.snapshot().tensors[name]), name


# -- fields of every method --


@dataclass(frozen=True)
class Mine(gs.Algorithm):
    """A method of one's own, as the documentation shows it."""

    eta: float = 0.01

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        w = state["w"]
        return {"w": mix(w) - self.eta * grad(w)}

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        return mix(state["w"])


def test_a_method_of_ones_own_has_the_fields() -> None:
    assert testing.check(Mine(0.05, optimizer=gs.Adam(), weight_decay=0.1, clip_norm=1.0))
    assert Mine(0.05, optimizer=gs.Adam(), clip_norm=2.0).label == "Mine Adam clip 2"
    assert repr(Mine(0.05)) == "Mine(eta=0.05)"
    assert repr(Mine(weight_decay=0.1)) == "Mine(eta=0.01, weight_decay=0.1)"
    built_in = gs.DPSGD(0.05, optimizer=gs.Adam())
    ends = []
    for algorithm in (built_in, Mine(0.05, optimizer=gs.Adam())):
        plan = testing.conformance_plan(algorithm, Random(testing.DEVICES, 0.5), 9)
        simulator = Simulator(plan)
        simulator.advance(9)
        ends.append(simulator.models())
    torch.testing.assert_close(ends[0], ends[1])


def test_the_label_says_what_differs() -> None:
    assert gs.DPSGD(optimizer=gs.Adam()).label == "D-PSGD Adam"
    assert gs.DPSGD(optimizer=gs.Adam(beta1=0.5)).label == "D-PSGD Adam beta1=0.5"
    assert gs.DiLoCo().label == "DiLoCo"
    assert gs.DiLoCo(optimizer=gs.SGD()).label == "DiLoCo SGD"
    assert gs.DPSGD(clip_norm=1.0).label == "D-PSGD clip 1"
    assert gs.WPM(p=3, optimizer=gs.SGD(0.9, nesterov=True)).label == "WPM p=3 Nesterov 0.9"
    assert gs.Composition(weight_decay=0.01).label == "Composition decay 0.01"
    guarded = gs.Guarded(gs.DPSGD(optimizer=gs.AdamW()), gs.Median())
    assert guarded.label == "D-PSGD AdamW, median"


@pytest.mark.parametrize("name", METHODS)
def test_every_method_takes_an_optimiser_or_says_why_not(name: str) -> None:
    refusals = {"adom": "nothing"}
    for own in ("momentum", "d-adam"):
        refusals[own] = "none"
    for tracking in ("tracking", "gain-tracking", "fading-gain-tracking", "wpm-tracking", "k-gt"):
        refusals[tracking] = "SGD without momentum"
    for other in ("dabmd", "d2", "extra", "nids", "quasi-global-adam"):
        refusals[other] = "SGD without momentum"
    make = METHODS[name].make
    if name in refusals:
        with pytest.raises(InputError, match=f"give {refusals[name]}: ") as refusal:
            make(optimizer=gs.SGD(0.5))
        assert refusal.value.field == "optimizer"
    else:
        assert make(optimizer=gs.SGD(0.5)).local_step.optimizer == gs.SGD(0.5)


def test_without_a_local_step_the_engine_s_gradient_is_passed_on_as_it_is() -> None:
    seen: list[Gradient] = []

    @dataclass(frozen=True)
    class Sees(Mine):
        def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
            seen.append(grad)
            return super().round(state, grad, mix, t)

    plan = testing.conformance_plan(Sees(), Random(testing.DEVICES, 0.5), 1)
    Simulator(plan).advance(1)
    assert all(isinstance(grad, BatchGradient) for grad in seen)


# -- specs and refusals --


@pytest.mark.parametrize(
    "algorithm",
    [
        gs.DPSGD(optimizer=gs.AdamW(0.8, 0.99, 1e-6, 0.2), weight_decay=0.1, clip_norm=2.0),
        gs.WPM(optimizer=gs.SGD(0.9, nesterov=True)),
        gs.Guarded(gs.LocalSGD(optimizer=gs.Adam()), gs.Median()),
    ],
    ids=repr,
)
def test_a_spec_has_the_local_step(algorithm: Algorithm) -> None:
    study = gs.Study(algorithm)
    assert spec.studies(spec.parse(spec.dumps(study))) == [study]


def test_a_kind_alone_is_an_optimiser() -> None:
    table = {"algorithm": {"kind": "d-psgd", "optimizer": "adam"}}
    assert spec.studies(table)[0].algorithm == gs.DPSGD(optimizer=gs.Adam())
    changed = spec.with_settings(table, ["algorithm.optimizer.beta1=0.5"])
    assert spec.studies(changed)[0].algorithm == gs.DPSGD(optimizer=gs.Adam(0.5))


COEFFICIENT = "a number of at least 0 and below 1"
REFUSED: list[tuple[Callable[[], Any], dict[str, Any], str]] = [
    (
        lambda: gs.Adam(beta1=-0.1),
        {"optimizer": {"kind": "adam", "beta1": -0.1}},
        f"beta1 = -0.1 is not accepted: give {COEFFICIENT}",
    ),
    (
        lambda: gs.AdamW(beta2=1.0),
        {"optimizer": {"kind": "adamw", "beta2": 1.0}},
        f"beta2 = 1.0 is not accepted: give {COEFFICIENT}",
    ),
    (
        lambda: gs.Adam(eps=0.0),
        {"optimizer": {"kind": "adam", "eps": 0.0}},
        "eps = 0.0 is not accepted: give a number above 0",
    ),
    (
        lambda: gs.AdamW(weight_decay=-1.0),
        {"optimizer": {"kind": "adamw", "weight_decay": -1.0}},
        "weight_decay = -1.0 is not accepted: give a number of at least 0",
    ),
    (
        lambda: gs.SGD(momentum=1.5),
        {"optimizer": {"kind": "sgd", "momentum": 1.5}},
        f"momentum = 1.5 is not accepted: give {COEFFICIENT}",
    ),
    (
        lambda: gs.SGD(nesterov=True),
        {"optimizer": {"kind": "sgd", "nesterov": True}},
        "nesterov = True is not accepted: give a momentum above 0 with it, or false",
    ),
    (
        lambda: gs.DPSGD(weight_decay=-0.5),
        {"weight_decay": -0.5},
        "weight_decay = -0.5 is not accepted: give a number of at least 0",
    ),
    (
        lambda: gs.DPSGD(clip_norm=0.0),
        {"clip_norm": 0.0},
        "clip_norm = 0.0 is not accepted: give a number above 0",
    ),
    (
        lambda: gs.DPSGD(clip_norm=float("nan")),
        {"clip_norm": -1.0},
        "is not accepted: give a number above 0",
    ),
]


@pytest.mark.parametrize(("make", "table", "message"), REFUSED, ids=[m for _, _, m in REFUSED])
def test_a_value_that_is_not_accepted_is_one_sentence(
    make: Callable[[], Any], table: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as in_python:
        make()
    assert message in str(in_python.value)
    with pytest.raises(GossamerError) as in_toml:
        spec.studies({"algorithm": {"kind": "d-psgd", **table}})
    assert message in str(in_toml.value)
    assert "algorithm." in str(in_toml.value)
    assert "\n" not in str(in_toml.value)


def test_the_keys_of_wrappers_have_no_local_step() -> None:
    table = {"kind": "guarded", "rule": "median", "algorithm": "d-psgd", "optimizer": "adam"}
    with pytest.raises(GossamerError, match=r"algorithm\.optimizer is not a known key"):
        spec.studies({"algorithm": table})


def test_a_method_without_gradient_steps_refuses_each_field() -> None:
    for field, value in {"optimizer": gs.Adam(), "weight_decay": 0.1, "clip_norm": 1.0}.items():
        with pytest.raises(InputError) as refusal:
            gs.ADOM(**{field: value})
        assert refusal.value.field == field


# -- warm-up --


@given(st.integers(1, 30), st.floats(0, 10), st.integers(1, 50))
def test_warmup_rises_in_equal_steps_and_then_runs_the_schedule(
    rounds: int, start: float, length: int
) -> None:
    cosine = gs.Cosine(start, length, end=start / 10)
    warm = gs.Warmup(rounds, cosine)
    values = [float(warm(t)) for t in range(rounds + length + 3)]  # type: ignore[arg-type]
    steps = np.diff([0, *values[:rounds]])
    np.testing.assert_allclose(steps, start / rounds, rtol=1e-9, atol=1e-12)
    assert values[rounds:] == [cosine(t) for t in range(length + 3)]
    assert min(values) >= warm.lowest


def test_warmup_takes_numbers_and_rates_per_device() -> None:
    assert [gs.Warmup(4, 0.8)(t) for t in (0, 3, 4, 99)] == [0.2, 0.8, 0.8, 0.8]
    per_device = gs.Warmup(2, lambda t: [0.1, 0.2 + t])
    assert per_device(0) == [0.05, 0.1]
    assert per_device(3) == [0.1, 1.2]


def test_warmup_is_a_nested_table() -> None:
    then = {"kind": "cosine", "start": 0.1, "rounds": 90, "end": 0.01}
    table = {"algorithm": {"kind": "d-psgd", "eta": {"kind": "warmup", "rounds": 9, "then": then}}}
    (study,) = spec.studies(table)
    assert study.algorithm == gs.DPSGD(gs.Warmup(9, gs.Cosine(0.1, 90, 0.01)))
    assert spec.studies(spec.parse(spec.dumps(study))) == [study]
    table["algorithm"]["eta"] = {"kind": "warmup", "rounds": 0, "then": 0.1}  # type: ignore[index]
    with pytest.raises(InputError, match=r"eta\.rounds = 0 is not accepted: give a number above 0"):
        spec.studies(table)


@given(devices=st.integers(1, 7), size=st.integers(1, 9), at_once=st.integers(1, 20))
def test_directions_of_large_models_are_computed_in_parts(
    devices: int, size: int, at_once: int
) -> None:
    torch.manual_seed(0)
    w = torch.randn(devices, size)
    for optimizer in (gs.SGD(momentum=0.9, nesterov=True), gs.AdamW()):
        whole = LocalStep(optimizer)
        found = []
        for limit in (1 << 22, at_once):
            gradient = whole.gradient(lambda w, step, rows: w * w, whole.init(w))
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(local_step, "_ELEMENTS_AT_ONCE", limit)
                found.append([gradient(w).clone(), gradient(w - 0.3).clone()])
        assert torch.equal(found[0][0], found[1][0])
        assert torch.equal(found[0][1], found[1][1])

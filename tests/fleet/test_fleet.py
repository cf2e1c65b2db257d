"""Fleets of real processes equal the simulator; devices join late, leave and come back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from support.fleets import (
    Fleets,
    Outcome,
    Trial,
    drift,
    dual_end,
    dual_start,
    initial_models,
    leftovers,
    require_namespaces,
    simulated,
    spread,
    write_initial_models,
)
from torch import Tensor

import gossamer as gs
from gossamer.algorithms import Algorithm
from gossamer.engines import Simulator
from gossamer.fleet.collect import LINKS, collect
from gossamer.fleet.files import HISTORY
from gossamer.fleet.rehearsal import Event, Rehearsal
from gossamer.fleet.settings import Fleet
from gossamer.mirror import signed_power
from gossamer.network import Network, Sequence
from gossamer.network.weights import metropolis

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.fleet]

M, ROUNDS = 6, 24
# About seven links at a time; three change in every round.
TRACE = gs.Full(M) & gs.GilbertElliott(fail=0.2, recover=0.2, seed=3)
SHORT_SLOTS = Fleet(slot=2.2, lease=0.7, sync=False)
LONG_SLOTS = Fleet(slot=5.0, lease=1.5, sync=False)

METHODS: dict[str, Algorithm] = {
    "wpm p=1": gs.WPM(1, 0.05, anchor=False),
    "wpm p=3": gs.WPM(3, 0.05),
    "swarm-sgd": gs.SwarmSGD(0.05, local_steps=2, pairs="matching"),
    "quasi-global": gs.Composition(
        eta=0.05, direction=gs.QuasiGlobalMomentum(0.9), order="adapt-then-combine"
    ),
    "wpm p=15": gs.WPM(
        15, 0.05, anchor=False
    ),  # not anchored, so that a model is all there is of a state
}


NETWORKS = {"quasi-global": gs.BaseGraph(M)}  # a schedule; the others: TRACE


def equal_trial(name: str) -> Trial:
    method = METHODS[name]
    network = NETWORKS.get(name, TRACE)
    every = 1 if isinstance(method, gs.WPM) and method.p == 15 else 0
    measure = gs.Measure(every, "after_step" if method.ends_with == "step" else "after_mix")
    study = gs.Study(method, network, gs.Digits(), gs.Labels(3), rounds=ROUNDS, measure=measure)
    return Trial(study, SHORT_SLOTS)


# -- trials of devices that come and go, without steps, so that models tell their origin -----------

FEW, SHORT, P = 4, ROUNDS, 3
LINE = gs.Graph(FEW, tuple((i, i + 1) for i in range(FEW - 1)))


def coming(rehearsal: Rehearsal) -> Iterator[Event]:
    yield 9.5, partial(rehearsal.launch, 3)


def going(rehearsal: Rehearsal) -> Iterator[Event]:
    yield 6.4, partial(rehearsal.stop, 2)
    yield 14.4, partial(rehearsal.launch, 2)


def few(
    network: Network,
    fleet: Fleet,
    events: Callable[[Rehearsal], Iterator[Event]],
    absent: tuple[int, ...] = (),
) -> Trial:
    study = gs.Study(
        gs.WPM(P, 0.0, gs.Constant(), anchor=False),
        network,
        rounds=SHORT,
        measure=gs.Measure(every=1),
    )
    return Trial(study, fleet, events, partial(write_initial_models, absent=absent), absent=absent)


# A late device's own start is a hundred times shorter than the models of the others here.
UNGUARDED = replace(SHORT_SLOTS, guard=0.0)

TRIALS = {name: equal_trial(name) for name in METHODS} | {
    "late, neighbour": few(gs.Full(FEW), UNGUARDED, coming, absent=(3,)),
    "late, own": few(gs.Full(FEW), replace(UNGUARDED, join="own"), coming, absent=(3,)),
    "leaves": few(LINE, SHORT_SLOTS, going),
}


@pytest.fixture(scope="module")
def fleets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Outcome]]:
    """All fleets at once; those that a busy machine has disturbed run again in longer slots."""
    require_namespaces()
    outcomes = run_all(TRIALS, tmp_path_factory.mktemp("fleets"))
    again = {
        name: replace(TRIALS[name], fleet=LONG_SLOTS)
        for name in METHODS
        if disturbed(outcomes[name])
    }
    if again:
        outcomes |= run_all(again, tmp_path_factory.mktemp("again"))
    yield outcomes
    assert not leftovers()


def run_all(trials: dict[str, Trial], folder: Path) -> dict[str, Outcome]:
    running = Fleets(trials, folder)
    try:
        return {name: running[name] for name in trials}
    finally:
        running.close()


def disturbed(outcome: Outcome) -> list[str]:
    """Return the exchanges in which the fleet differs from its trace, and counts of failures."""
    run = outcome.folder / "run"
    study = outcome.trial.study
    if not run.exists():
        assert collect(outcome.folder, run).devices == list(outcome.devices)
    network = Sequence(run / LINKS, beyond="empty")
    rule = study.algorithm.weights
    committed: set[tuple[int, int, int]] = set()
    expected: set[tuple[int, int, int]] = set()
    for t in range(study.rounds):
        weights = rule(study.network.links(t), t, study.seed)
        committed |= {(t, a, b) for a, b in network.links(t).pairs.tolist()}
        expected |= {(t, a, b) for a, b in zip(weights.a.tolist(), weights.b.tolist(), strict=True)}
    counts = outcome.counts()
    failures = [f"{counts[key]} {key}" for key in ("failed", "in doubt", "missed") if counts[key]]
    return [f"round {t}: {a}-{b}" for t, a, b in sorted(committed ^ expected)] + failures


@pytest.mark.parametrize("name", [name for name in METHODS if name != "wpm p=15"])
def test_devices_equal_the_simulator(name: str, fleets: dict[str, Outcome]) -> None:
    """In float32, to 1e-5 over all rounds."""
    outcome = fleets[name]
    assert not disturbed(outcome)
    simulator = simulated(outcome.trial.study)
    models = torch.stack([outcome.model(i) for i in range(M)])
    expected = simulator.models()
    torch.testing.assert_close(models, expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))
    if outcome.trial.study.network.weighted:
        collected = Sequence(outcome.folder / "run" / LINKS)
        assert list(collected) == [NETWORKS[name].links(t) for t in range(ROUNDS)]
    assert outcome.accuracy() == pytest.approx(
        simulator.record().metrics["accuracy"].mean(), abs=1e-3
    )


def test_p_15_equals_the_simulator_round_by_round(fleets: dict[str, Outcome]) -> None:
    """From equal states, to 8·p·eps in the dual."""
    outcome = fleets["wpm p=15"]
    p = 15
    assert not disturbed(outcome)
    plan = outcome.trial.study.plan()
    initial = Simulator(plan).snapshot()

    def models(t: int) -> Tensor:
        return torch.stack([outcome.model(i, f"{HISTORY}/{t:06}.safetensors") for i in range(M)])

    assert torch.equal(models(0), initial.tensors["w"])
    for t in range(ROUNDS):
        w = models(t)
        simulator = Simulator(plan, replace(initial, round=t, tensors={**initial.tensors, "w": w}))
        simulator.advance(t + 1)
        here, there = models(t + 1), simulator.models()
        a = torch.from_numpy(metropolis(TRACE.links(t)).dense())
        for i in range(M):
            scale = torch.cat([w[a[i] > 0], here[i : i + 1]]).double().abs().amax(0)
            z, z_here, z_there = (
                signed_power(x.double() / scale, p) for x in (w, here[i], there[i])
            )
            bound = 8 * p * torch.finfo(torch.float32).eps * (a[i] @ z.abs() + z_there.abs())
            assert ((z_here - z_there).abs() <= bound).all()


# -- devices that come and go ----------------------------------------------------------------------


@pytest.mark.parametrize("join", ["neighbour", "own"])
def test_a_late_device_joins(join: str, fleets: dict[str, Outcome]) -> None:
    """It starts from the others' model, once they agree, or its own, as the final mean shows."""
    outcome = fleets[f"late, {join}"]
    w = initial_models(outcome.trial.study).double()
    own = Simulator(outcome.trial.study.plan()).models()[3].double()
    z = signed_power(w[:3], P).mean(0)
    if join == "own":
        z = (3 * z + signed_power(own, P)) / 4
    end = signed_power(
        torch.cat([outcome.checkpoint(i).state["w"] for i in range(FEW)]).double(), P
    )
    assert ((end - z).abs() <= P * 1e-6 * (w.abs().amax(0) + own.abs()) ** P).all()
    log = outcome.log(3)
    assert 10 <= log[0]["round"] <= 18
    assert log[-1]["round"] == SHORT
    # On a busy machine an exchange may end too late, also in the last round.
    met = [device for line in log[-4:] for device in line["met"]]
    assert set(met) == {0, 1, 2}


def test_devices_leave_and_come_back(fleets: dict[str, Outcome]) -> None:
    """The others continue without it; then it resumes, and nothing is lost."""
    outcome = fleets["leaves"]
    away = range(9, 15)
    assert not [line for line in outcome.log(2) if line["round"] in away]
    for i in (1, 3):
        lines = {line["round"]: line for line in outcome.log(i)}
        assert all(2 not in lines[t]["near"] for t in away)
        assert 2 in lines[6]["met"]
        assert 2 in lines[SHORT]["met"]
    met = [line["met"] for line in outcome.log(0) if line["round"] in away]
    # On a busy machine an exchange may end too late.
    assert all(devices in ([1], []) for devices in met)
    assert met.count([1]) > len(away) / 2
    start = dual_start(outcome, P)
    end = dual_end(outcome, P)
    assert drift(start, end) <= P * 2e-7
    assert spread(end, start) < 0.2 * spread(start, start)
    assert {outcome.status(i)["doing"] for i in range(FEW)} == {"done"}

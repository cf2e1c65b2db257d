"""Energy: joules in rounds and without, and batteries that run empty."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import gossamer as gs
from gossamer.engines import Events
from gossamer.engines.events import start_events
from gossamer.study import Study, spec

ENERGY = gs.Energy(step=0.5, byte=1e-6)


def study(algorithm: gs.Algorithm, **changes: object) -> Study:
    """Return a small study with a timing and an energy."""
    made = Study(
        algorithm,
        gs.Ring(10),
        rounds=6,
        dtype="float64",
        timing=gs.Timing(compute=0.2, rate=1e6),
        energy=ENERGY,
        measure=gs.Measure(every=2, test=50, targets=("accuracy >= 0.2",)),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def test_joules_in_rounds() -> None:
    run = gs.run(study(gs.LocalSGD(eta=0.1, local_steps=3)))
    steps = np.asarray(run.metrics["round"]) * 10 * 3
    expected = 0.5 * steps + 1e-6 * np.asarray(run.metrics["bytes"])
    assert run.metrics["joules"] == pytest.approx(expected)
    assert run.summary["joules_to"]["accuracy >= 0.2"] is not None


def test_devices_that_are_away_take_no_steps() -> None:
    network = gs.Ring(10) & gs.Churn(0.5, 0.5)
    made = study(gs.DPSGD(0.1), network=network)
    away = sum(int((~network.links(t).active).sum()) for t in range(6))
    run = gs.run(made)
    assert away > 0
    expected = 0.5 * (60 - away) + 1e-6 * run.summary["bytes"]
    assert run.summary["joules"] == pytest.approx(expected)


@pytest.mark.parametrize("method", [gs.DPSGD(0.1), gs.ADPSGD(0.1)])
def test_joules_without_rounds(method: gs.Algorithm) -> None:
    run = gs.run(study(method), engine=Events())
    expected = 0.5 * np.asarray(run.metrics["steps"]) + 1e-6 * np.asarray(run.metrics["bytes"])
    assert run.metrics["joules"] == pytest.approx(expected)


@pytest.mark.parametrize("method", [gs.DPSGD(0.1), gs.ADPSGD(0.1), gs.DivShare(0.1)])
def test_an_empty_battery(method: gs.Algorithm) -> None:
    """Two steps, then five seconds of charging: fewer steps, and the same bits in waves."""
    empty = replace(ENERGY, battery=1.0, charge=0.2, byte=0.0)
    made = study(method, energy=empty, events=Events(), rounds=20)
    engine = start_events(made.plan())
    naive = start_events(made.plan(), batched=False)
    engine.advance(20)
    naive.advance(20)
    assert torch.equal(engine.models(), naive.models())
    steps = engine.record().steps
    assert steps is not None
    # Two steps every five seconds and two steps' time, in 20 s; some wait for a neighbour.
    assert 10 * 4 <= steps <= 10 * 8
    resumed = start_events(made.plan(), snapshot=_at(made, 7))
    resumed.advance(20)
    assert torch.equal(resumed.models(), engine.models())


def _at(made: Study, t: int) -> gs.Snapshot:
    engine = start_events(made.plan())
    engine.advance(t)
    return engine.snapshot()


def test_a_resumed_run_has_the_same_joules(tmp_path: object) -> None:
    plan = study(gs.DPSGD(0.1)).plan()
    first = gs.Simulator(plan)
    first.advance(3)
    second = gs.Simulator(plan, first.snapshot())
    second.advance(6)
    whole = gs.Simulator(plan)
    whole.advance(6)
    assert second.record().joules == whole.record().joules


def test_the_spec() -> None:
    made = study(gs.DPSGD(0.1), events=Events(), energy=gs.Energy(0.5, 1e-6, 10.0, 2.0))
    assert spec.studies(spec.parse(spec.dumps(made))) == [made]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"step": -1.0, "byte": 0.0}, "step"),
        ({"step": 1.0, "byte": float("nan")}, "byte"),
        ({"step": 1.0, "byte": 0.0, "battery": 1.0}, "charge"),
    ],
)
def test_bad_settings(settings: dict[str, float], message: str) -> None:
    with pytest.raises(gs.InputError, match=message):
        gs.Energy(**settings)


def test_in_rounds_there_are_no_batteries() -> None:
    with pytest.raises(gs.InputError, match=r"energy\.battery"):
        study(gs.DPSGD(), energy=gs.Energy(1.0, 0.0, 5.0, 1.0)).plan()


def test_tuning_for_joules_needs_an_energy() -> None:
    from gossamer.study.tune.goals import parse_goal

    made = study(gs.DPSGD(), energy=None)
    with pytest.raises(gs.InputError, match="energy"):
        parse_goal(made, made.plan().measure, "joules", None)

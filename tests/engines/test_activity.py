"""What devices of the events engine do over time, against a recount from the events."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gossamer as gs
from gossamer.engines import Events
from gossamer.engines.events import start_events

STATES = ("computing", "exchanging", "waiting", "away")
METHODS = [gs.DPSGD(0.1), gs.ADPSGD(0.1), gs.SwarmSGD(0.1, on_cut="keep"), gs.DivShare(0.1)]
TIMING = gs.Timing(gs.LogUniform(0.05, 0.5), rate=gs.LogUniform(3e3, 1e5), latency=0.01)
ROUNDS = 8


def study(method: gs.Algorithm, **changes: object) -> gs.Study:
    """Return a run in which contacts are cut and devices come and go."""
    network = gs.Random(10, density=0.3) & gs.Churn(0.2, 0.5)
    made = gs.Study(method, network, batch=4, rounds=ROUNDS, timing=TIMING, events=Events())
    return replace(made, **changes)  # type: ignore[arg-type]


def activity(made: gs.Study, rounds: int = ROUNDS) -> dict[str, np.ndarray]:
    """Return the seconds by state after some rounds."""
    engine = start_events(made.plan())
    engine.advance(rounds)
    return engine.record().activity


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_the_states_fill_the_time(method: gs.Algorithm) -> None:
    in_pairs = isinstance(method, gs.DPSGD)
    before = dict.fromkeys(STATES, np.zeros(10))
    for rounds in range(1, ROUNDS + 1):
        found = activity(study(method), rounds)
        assert set(found) == set(STATES)
        for name, seconds in found.items():
            assert (seconds >= before[name] - 1e-9).all(), name
            assert (seconds - before[name] <= 1 + 1e-9).all(), name
        total = found["computing"] + found["waiting"] + found["away"]
        if in_pairs:
            total = total + found["exchanging"]
        np.testing.assert_allclose(total, rounds, rtol=0, atol=1e-9)
        before = found
    assert all(before[name].sum() > 0.1 for name in ("computing", "exchanging", "away"))


@pytest.mark.parametrize("method", [gs.DPSGD(0.1), gs.ADPSGD(0.1)], ids=repr)
def test_devices_are_away_when_the_network_says_so(method: gs.Algorithm) -> None:
    made = study(method)
    absent = np.zeros(10)
    for t in range(ROUNDS):
        active = made.network.links(t).active
        if active is not None:
            absent += ~active
    np.testing.assert_allclose(activity(made)["away"], absent, rtol=0, atol=1e-9)


@pytest.mark.parametrize("method", [gs.DPSGD(0.1), gs.ADPSGD(0.1)], ids=repr)
def test_alone_a_device_computes_until_its_battery_is_empty(method: gs.Algorithm) -> None:
    """A step of 0.25 s costs 1 J of 3; charging takes 1.5 s: a cycle of 2.25 s."""
    made = study(
        method,
        network=gs.Random(4, density=0.0),
        timing=gs.Timing(compute=0.25, rate=1e6),
        energy=gs.Energy(step=1.0, byte=0.0, battery=3.0, charge=2.0),
    )
    engine = start_events(made.plan(), patience=0.0)
    engine.advance(ROUNDS)
    found = engine.record().activity
    # 3 whole cycles are 6.75 s; then three steps, and half a second of charging.
    np.testing.assert_allclose(found["computing"], 4 * 0.75)
    np.testing.assert_allclose(found["away"], 8 - 4 * 0.75)


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_a_device_that_is_never_away_is_away_for_exactly_no_time(method: gs.Algorithm) -> None:
    timing = gs.Timing(gs.LogUniform(0.03, 0.1), rate=1e5, latency=0.01)
    found = activity(study(method, network=gs.RandomRing(10), timing=timing))
    assert (found["away"] == 0).all()


def test_seconds_of_an_exchange() -> None:
    """A step takes 1 s, a message 0.5 s: two thirds of the time are computing."""
    pairs = gs.Callback(2, lambda t: [(0, 1)])
    timing = gs.Timing(compute=1.0, rate=1e12, latency=0.5)
    found = activity(study(gs.DPSGD(0.1), network=pairs, timing=timing), 6)
    np.testing.assert_allclose(found["computing"], 4.0)
    np.testing.assert_allclose(found["exchanging"], 2.0)
    found = activity(study(gs.ADPSGD(0.1), network=pairs, timing=timing), 6)
    np.testing.assert_allclose(found["computing"], 6.0)
    np.testing.assert_allclose(found["exchanging"], 2.5)  # after each of the first five steps


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_after_a_resume_it_is_the_same(method: gs.Algorithm) -> None:
    made = study(method, energy=gs.Energy(step=0.7, byte=1e-5, battery=3.0, charge=4.0))
    first = start_events(made.plan())
    first.advance(3)
    second = start_events(made.plan(), snapshot=first.snapshot())
    second.advance(ROUNDS)
    found = second.record().activity
    for name, seconds in activity(made).items():
        np.testing.assert_array_equal(found[name], seconds)


def test_the_columns_of_a_run(tmp_path: Path) -> None:
    """The metrics have the seconds of each device; those of the round engine do not."""
    made = study(gs.DPSGD(0.1), measure=gs.Measure(every=4))
    metrics = gs.run(made, tmp_path).metrics
    for name in STATES:
        assert metrics[f"device_{name}"].shape == (3, 10)
    in_rounds = gs.run(replace(made, events=None)).metrics
    assert "device_computing" not in in_rounds


def test_more_devices_than_have_columns() -> None:
    network = gs.RandomRing(1001)
    made = study(gs.DPSGD(0.1), network=network, split=gs.Drawn())
    assert activity(made, 1) == {}

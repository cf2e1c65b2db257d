"""The events engine predicts when devices at the pace of contacts reach a target.

The devices' code runs in simulated time. `python benchmarks/contacts.py` measures the same in
network namespaces, in real time.
"""

from __future__ import annotations

import runpy
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gossamer as gs
from gossamer.engines.events import start_events
from gossamer.fleet.rehearsal import Rehearsal
from gossamer.fleet.settings import Fleet
from gossamer.fleet.simulation.replay import Log, Replay, seconds_to

DEVICES = 5
ROUNDS = 30
WITHIN = 0.2
TARGETS = (0.5, 0.6, 0.7)
MANY_ROUNDS = 2000  # more than a device takes of its own
FLEET = Fleet(
    pace="contacts", slot=4.0, patience=1.0, timeout=1.0, lease=0.5, join="own", history=0.0
)
BUSIEST = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "busiest_period.py"))


def study(network: gs.Network, **changes: object) -> gs.Study:
    """Return D-PSGD on labels that differ, with steps of half a second to five."""
    made = gs.Study(
        gs.DPSGD(0.3),
        network,
        split=gs.Dirichlet(0.3),
        batch=8,
        rounds=ROUNDS,
        measure=gs.Measure(every=1, test=100),
        timing=gs.Timing(gs.LogUniform(0.5, 5.0), rate=1e6, latency=0.02, seed=12),
        seed=1,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def step_seconds(made: gs.Study) -> list[float]:
    """Return how long the steps of the devices take."""
    assert made.timing is not None
    seconds: list[float] = made.timing.of("compute", 0, np.arange(DEVICES)).tolist()
    return seconds


def predicted(made: gs.Study) -> dict[float, float]:
    """Return the seconds to each target by the events engine."""
    engine = start_events(made.plan(), FLEET.slot, patience_seconds=FLEET.patience)
    found: dict[float, float] = {}
    for t in range(1, ROUNDS + 1):
        engine.advance(t)
        accuracy = engine.record().metrics["accuracy"].mean()
        for target in TARGETS:
            if accuracy >= target:
                found.setdefault(target, t * FLEET.slot)
    return found


def replayed(made: gs.Study) -> list[Log]:
    """Return the logs of the devices' code in simulated time."""
    plan = replace(made, rounds=MANY_ROUNDS).plan()
    return Replay(plan, FLEET, step_seconds(made)).run(ROUNDS)


def check_prediction(made: gs.Study) -> None:
    """Assert that the engine predicts the devices' seconds to all targets that it reaches."""
    logs = replayed(made)
    assert sum(bool(line["met"]) for log in logs for line in log) > 40
    expected = predicted(made)
    assert len(expected) >= 2
    for target, seconds in expected.items():
        found = seconds_to(logs, "accuracy", target, FLEET.slot, ROUNDS)
        assert found is not None, target
        assert seconds == pytest.approx(found, rel=WITHIN, abs=FLEET.slot), target


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize("algorithm", [gs.DPSGD(0.3), gs.QuasiGlobal(eta=0.1)], ids=repr)
def test_random_meetings(algorithm: gs.Algorithm) -> None:
    network = gs.PoissonMeetings(DEVICES, rate=0.4, duration=4.0)
    check_prediction(study(network, algorithm=algorithm))


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.no_cover
@pytest.mark.parametrize("name", BUSIEST["TRACES"])
def test_published_traces(name: str, outside: Path, tmp_path: Path) -> None:
    """The contacts of the five people who meet most in ten minutes, five times as fast."""
    path = outside / "traces" / BUSIEST["TRACES"][name]
    log = tmp_path / "contacts.csv"
    lines = [f"{t * FLEET.slot},{a},{b}\n" for t, a, b in BUSIEST["busiest"](path, DEVICES, ROUNDS)]
    log.write_text("time,a,b\n" + "".join(lines))
    network = gs.ContactTrace(
        log, devices=DEVICES, seconds_per_round=FLEET.slot, start=0.0, beyond="empty"
    )
    check_prediction(study(network))


def test_fast_devices_take_more_rounds() -> None:
    """Each takes as long as it is said to, beside the waiting."""
    made = study(gs.Full(DEVICES))
    plan = replace(made, rounds=MANY_ROUNDS).plan()
    before = threading.active_count()
    logs = Replay(plan, FLEET, [0.5, 0.5, 5.0, 5.0, 5.0]).run(5)
    assert threading.active_count() == before
    rounds = [log[-1]["round"] for log in logs]
    assert min(rounds[:2]) > 3 * max(rounds[2:])
    assert max(rounds[2:]) <= 20.0 / 5.0
    assert max(rounds[:2]) <= 20.0 / 0.5
    assert all(log[-1]["seconds"] <= 20.0 for log in logs)


def test_the_same_seed_gives_the_same_logs() -> None:
    made = study(gs.RandomRing(DEVICES))
    plan = replace(made, rounds=MANY_ROUNDS).plan()
    first, second = (Replay(plan, FLEET, step_seconds(made), seed=3).run(4) for _ in range(2))
    assert first == second


def test_a_rehearsal_takes_as_long_as_the_study_says(tmp_path: Path) -> None:
    made = study(gs.Full(DEVICES))
    assert Rehearsal(made, FLEET, tmp_path)._step_seconds() == step_seconds(made)
    for other, fleet in ((replace(made, timing=None), FLEET), (made, Fleet())):
        assert Rehearsal(other, fleet, tmp_path)._step_seconds() == [0.0] * DEVICES


def test_slots_are_refused() -> None:
    with pytest.raises(gs.InputError, match="pace"):
        Replay(study(gs.Full(DEVICES)).plan(), Fleet(), [1.0] * DEVICES)

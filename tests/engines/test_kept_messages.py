"""Messages that are cut and continue when the same two devices meet again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gossamer as gs
from gossamer.algorithms.asynchronous import Asynchronous
from gossamer.engines.events import start_events
from gossamer.engines.events.background import BackgroundTimeline
from gossamer.engines.events.event_list import FORGET, KEEP, RESUME, SEND, STEP, UNDO
from gossamer.engines.events.timeline_state import PREFIX
from gossamer.engines.events.without_rounds import AsynchronousEngine
from gossamer.study import Study

BYTES = 5200.0
TOO_SMALL_TO_MOVE = 1e-300


@dataclass(frozen=True)
class KeptPushSum(gs.PushSum):
    """A device that begins to send has given half of its mass away: forgetting must return it."""

    on_cut: Literal["drop", "keep"] = "keep"


@dataclass(frozen=True)
class KeptGossip(gs.GossipLearning):
    """Only one device of an exchange sends."""

    on_cut: Literal["drop", "keep"] = "keep"


METHODS = (gs.ADPSGD(on_cut="keep"), gs.SwarmSGD(on_cut="keep"), KeptPushSum(), KeptGossip())
KEEP_THE_MEAN = METHODS[:3]


def study(algorithm: gs.Algorithm, **changes: object) -> Study:
    """Return a small study in float64 with links that are often too slow for a contact."""
    made = Study(
        algorithm,
        gs.Random(10, density=0.35) & gs.Churn(0.1, 0.5),
        gs.Digits(),
        gs.OneLabel(),
        gs.Softmax(),
        batch=4,
        rounds=16,
        dtype="float64",
        timing=gs.Timing(gs.LogUniform(0.05, 0.5), rate=gs.LogUniform(2e3, 1e5), latency=0.01),
        measure=gs.Measure(every=3, test=50),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def kinds(made: Study, rounds: int = 16) -> list[int]:
    """Return the kinds of what happens in some rounds."""
    line = BackgroundTimeline(made.plan(), BYTES, 1.0)
    return np.concatenate([line.advance(t).kind for t in range(rounds)]).tolist()


@pytest.mark.parametrize("algorithm", METHODS, ids=repr)
def test_waves_equal_one_event_after_the_other(algorithm: gs.Algorithm) -> None:
    plan = study(algorithm).plan()
    together = start_events(plan)
    naive = start_events(plan, batched=False)
    together.advance(16)
    naive.advance(16)
    assert torch.equal(together.models(), naive.models())
    assert together.record().bytes == naive.record().bytes
    assert {KEEP, RESUME, FORGET} <= set(kinds(study(algorithm)))
    assert UNDO not in kinds(study(algorithm))


@pytest.mark.parametrize("algorithm", METHODS, ids=repr)
@pytest.mark.parametrize("until", [3, 8])
def test_a_resumed_run_is_the_same(algorithm: gs.Algorithm, until: int) -> None:
    plan = study(algorithm).plan()
    whole = start_events(plan)
    whole.advance(16)
    first = start_events(plan)
    first.advance(until)
    second = start_events(plan, snapshot=first.snapshot())
    second.advance(16)
    assert torch.equal(whole.models(), second.models())
    assert whole.record().bytes == second.record().bytes


@pytest.mark.parametrize("algorithm", KEEP_THE_MEAN, ids=repr)
@pytest.mark.parametrize("seed", range(3))
def test_the_mean_is_kept(algorithm: gs.Algorithm, seed: int) -> None:
    made = study(replace(algorithm, eta=0.1), seed=seed)  # type: ignore[call-arg]
    first = start_events(made.plan())
    first.advance(4)
    frozen = replace(algorithm, eta=TOO_SMALL_TO_MOVE)  # type: ignore[call-arg]
    still = replace(made, algorithm=frozen)
    engine = start_events(still.plan(), snapshot=first.snapshot())
    assert isinstance(engine, AsynchronousEngine)
    before = _sums(engine)
    for until in range(5, 17):
        engine.advance(until)
        assert _sums(engine) == pytest.approx(before, rel=1e-12, abs=1e-12)
    assert RESUME in kinds(still)


def _sums(engine: AsynchronousEngine) -> np.ndarray:
    """Return the sum of the models, with what push-sum has on its way and in store."""
    state = engine._state
    if "weight" not in state:
        return state["w"].sum(0).numpy()
    times = engine._timeline.tensors()
    travelling = engine._sent[times[PREFIX + "partner"] >= 0].sum(0)
    kept = engine._messages_kept[times[PREFIX + "kept_partner"] >= 0].sum(0)
    return (torch.cat([state["x"], state["weight"]], 1).sum(0) + travelling + kept).numpy()


class _OnAndOff(gs.Network):
    """Two devices that are linked in even rounds."""

    devices = 2
    period = 2

    def links(self, t: int) -> gs.Links:
        return gs.Links.of(2, [(0, 1)] if t % 2 == 0 else [])


def test_a_message_continues_where_it_stopped() -> None:
    """Both devices end a step at 1 s, and begin to send when they next step in contact."""
    rate = BYTES / 1.4  # a model takes 1.4 s, a contact lasts 1 s
    timing = gs.Timing(compute=2.0, rate=rate, latency=0.1)
    made = study(
        gs.ADPSGD(eta=0.1, on_cut="keep"), network=_OnAndOff(), split=gs.Iid(), timing=timing
    )
    line = BackgroundTimeline(made.plan(), BYTES, 1.5)
    found = []
    for t in range(6):
        events = line.advance(t)
        moments = zip(events.time.tolist(), events.kind.tolist(), events.a.tolist(), strict=True)
        found += [(time, kind, a) for time, kind, a in moments if kind != STEP]
    # Links last from 0 to 1.5, 3 to 4.5, 6 to 7.5. The exchange begins at 4; in the 0.5 s that
    # are left, of which 0.1 are latency, 0.4 of 1.4 s are carried; 1 s and the latency are left.
    assert [(time, kind) for time, kind, _ in found] == [
        (4.0, SEND), (4.0, SEND), (4.5, KEEP), (4.5, KEEP), (6.0, RESUME), (6.0, RESUME),
        (pytest.approx(7.1), 3),
    ]  # fmt: skip


def test_bytes_are_counted_once() -> None:
    timing = gs.Timing(compute=2.0, rate=BYTES / 1.4, latency=0.1)
    made = study(
        gs.ADPSGD(eta=0.1, on_cut="keep"), network=_OnAndOff(), split=gs.Iid(), timing=timing
    )
    kept = start_events(made.plan(), seconds_per_round=1.5)
    dropped = start_events(replace(made, algorithm=gs.ADPSGD(eta=0.1)).plan(), 1.5)
    kept.advance(5)
    dropped.advance(5)
    assert kept.record().messages == 2
    assert kept.record().bytes == 2 * BYTES
    assert dropped.record().messages == 0
    assert dropped.record().bytes == pytest.approx(2 * BYTES * 0.4 / 1.4, abs=1)


@given(
    seed=st.integers(0, 1000),
    seconds=st.floats(0.3, 3.0),
    latency=st.floats(0.0, 0.5),
    carried=st.floats(0.1, 5.0),
    algorithm=st.sampled_from(METHODS),
)
@settings(max_examples=60, deadline=None)
def test_timeline(
    seed: int, seconds: float, latency: float, carried: float, algorithm: Asynchronous
) -> None:
    """A message arrives when its contacts have carried it; a device keeps one at most."""
    timing = gs.Timing(gs.LogUniform(0.1, 1.0), rate=1000 / carried, latency=latency, seed=seed)
    plan = study(algorithm, timing=timing, seed=seed).plan()
    line = BackgroundTimeline(plan, 1000.0, seconds)
    sending: dict[int, tuple[float, float]] = {}  # since when, and seconds carried before
    kept: dict[int, float] = {}  # seconds carried before
    for t in range(12):
        events = line.advance(t)
        for time, kind, a, b in zip(events.time, events.kind, events.a, events.b, strict=True):
            if kind == SEND:
                assert a not in sending
                sending[a] = (time, 0.0)
            elif kind == KEEP:
                assert time == t * seconds
                assert a not in kept
                began, before = sending.pop(a)
                kept[a] = before + max(0.0, time - began - latency)
            elif kind == RESUME:
                assert a not in sending
                sending[a] = (time, kept.pop(a))
            elif kind == FORGET:
                del kept[a]
            elif kind != STEP:
                for device in (a, b) if algorithm.exchange == "both" else (a,):
                    began, before = sending.pop(device)
                    left = max(0.0, carried - before)
                    assert time - began == pytest.approx(latency + left, abs=1e-6)


def test_a_wrong_choice_is_refused() -> None:
    for make in (gs.ADPSGD, gs.SwarmSGD):
        with pytest.raises(gs.InputError, match="on_cut = 'wait' is not accepted"):
            make(on_cut="wait")  # type: ignore[arg-type]

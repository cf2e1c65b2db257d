"""SWIFT on the events engine: stored models of the neighbours, beside a loop over mailboxes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import gossamer as gs
from gossamer.engines.events import start_events
from gossamer.engines.events.background import BackgroundTimeline
from gossamer.engines.events.event_list import RECEIVE, SEND, STEP
from gossamer.study import Study

PARAMETERS = 3
ETA = 0.1


def gradient(w: Tensor, step: int = 0, rows: Tensor | None = None) -> Tensor:
    """Return the gradient of ½·Σ(w − 1)²."""
    return w - 1


@given(
    received=st.lists(
        st.tuples(st.integers(0, 5), st.floats(-9, 9)) | st.none(), min_size=1, max_size=25
    ),
    memory=st.integers(1, 4),
    local_steps=st.integers(1, 3),
)
@settings(deadline=None)
def test_a_device_beside_its_mailbox(
    received: list[tuple[int, float] | None], memory: int, local_steps: int
) -> None:
    """Steps (None) and models that arrive (sender, value), in any order."""
    method = gs.SWIFT(eta=ETA, local_steps=local_steps, memory=memory)
    w = torch.zeros(1, PARAMETERS, dtype=torch.float64)
    state = method.init_asynchronous(w)
    mailbox: dict[int, float] = {}  # by sender; the one that was heard longest ago is first
    value = 0.0
    steps = 0
    for event in received:
        if event is None:
            steps += 1
            read = torch.full_like(w, value)
            state = method.step(state, read, gradient, torch.zeros(1, dtype=torch.int64), 0)
            mean = value
            if steps % local_steps == 0:
                mean = (value + sum(mailbox.values())) / (1 + len(mailbox))
            value = mean - ETA * (value - 1)
        else:
            sender, model = event
            message = torch.tensor([[model] * PARAMETERS + [float(sender)]], dtype=torch.float64)
            state = method.receive(state, message, message)
            if sender not in mailbox and len(mailbox) == memory:
                del mailbox[next(iter(mailbox))]
            mailbox.pop(sender, None)
            mailbox[sender] = model
        assert state["w"].squeeze(0).tolist() == pytest.approx([value] * PARAMETERS, abs=1e-12)


def study(network: gs.Network, timing: gs.Timing, **arguments: int) -> Study:
    """Return a small study in float64."""
    return Study(
        gs.SWIFT(eta=ETA, **arguments),
        network,
        split=gs.Iid(),
        batch=8,
        rounds=30,
        dtype="float64",
        timing=timing,
    )


def test_every_neighbour_receives_one_model_per_step() -> None:
    instant = gs.Timing(compute=0.25, rate=1e300)
    plan = study(gs.Ring(6), instant).plan()
    line = BackgroundTimeline(plan, 1000.0, 1.0)
    events = line.advance(0)
    assert (events.kind == STEP).sum() == 6 * 4
    arrived = events.kind == RECEIVE
    pairs, counts = np.unique(events.a[arrived] * 6 + events.b[arrived], return_counts=True)
    assert len(pairs) == 12
    assert set(counts.tolist()) == {4}


def test_slow_links_carry_what_they_can_in_turn() -> None:
    timing = gs.Timing(compute=1.0, rate=1000.0)
    plan = study(gs.Random(5, density=1.0), timing).plan()
    line = BackgroundTimeline(plan, 1500.0, 1.0)
    partners = []
    for t in range(14):
        events = line.advance(t)
        own = (events.kind == RECEIVE) & (events.a == 0)
        partners += events.b[own].tolist()
        assert (events.kind[events.a == 0] == SEND).sum() <= 1
    assert partners == ([1, 2, 3, 4] * 3)[: len(partners)]
    assert len(partners) >= 8


@pytest.mark.parametrize("rate", [1e4, 1e300])
def test_devices_agree_and_learn(rate: float) -> None:
    timing = gs.Timing(compute=gs.LogUniform(0.1, 1.0), rate=rate, latency=0.01)
    engine = start_events(study(gs.Ring(6), timing, local_steps=2).plan())
    engine.advance(30)
    record = engine.record()
    alone = start_events(study(gs.Ring(6), gs.Timing(compute=0.3, rate=1.0)).plan())
    alone.advance(30)
    assert record.messages > 100
    assert record.distance.max() < 0.5 * alone.record().distance.max()


def test_instant_links_do_not_keep_a_device_from_computing() -> None:
    """DivShare sends all the time; where this takes no time, it must still end."""
    made = Study(
        gs.DivShare(eta=ETA),
        gs.Ring(6),
        split=gs.Iid(),
        batch=8,
        rounds=3,
        timing=gs.Timing(compute=0.25, rate=1e300),
    )
    engine = start_events(made.plan())
    engine.advance(3)
    assert engine.record().steps == 6 * 12
    assert engine.record().messages == 6 * 12


@pytest.mark.parametrize("memory", [0, 1001, 2.5])
def test_wrong_memory_is_refused(memory: float) -> None:
    with pytest.raises(gs.InputError, match=r"memory = .* is not accepted"):
        gs.SWIFT(memory=memory)  # type: ignore[arg-type]

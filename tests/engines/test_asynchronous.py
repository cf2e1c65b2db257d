"""Methods without rounds on the events engine: stale gradients, messages that travel, lost ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gossamer as gs
from gossamer.algorithms.asynchronous import Asynchronous
from gossamer.backend import average_pairs
from gossamer.engines import Simulator
from gossamer.engines.events import EventEngine, start_events
from gossamer.engines.events.background import BackgroundTimeline
from gossamer.engines.events.event_list import EXCHANGE, RECEIVE, SEND, STEP, UNDO
from gossamer.engines.events.timeline_state import PREFIX
from gossamer.engines.events.without_rounds import AsynchronousEngine
from gossamer.study import Study

ASYNCHRONOUS = sorted(
    name for name, method in gs.METHODS.items() if isinstance(method.make(), Asynchronous)
)
KEEP_THE_MEAN = ("ad-psgd", "swarm-sgd", "push-sum")
TOO_SMALL_TO_MOVE = 1e-300


def study(algorithm: gs.Algorithm, **changes: object) -> Study:
    """Return a small study in float64 with links that are often too slow for a contact."""
    made = Study(
        algorithm,
        gs.Random(12, density=0.3) & gs.Churn(0.1, 0.5),
        gs.Digits(),
        gs.OneLabel(),
        gs.Softmax(),
        batch=4,
        rounds=12,
        dtype="float64",
        timing=gs.Timing(gs.LogUniform(0.05, 0.5), rate=gs.LogUniform(3e3, 1e6), latency=0.01),
        measure=gs.Measure(every=3, test=50),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def test_the_methods() -> None:
    assert {"ad-psgd", "gossip-learning", "push-sum", "swarm-sgd"} <= set(ASYNCHRONOUS)


@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_waves_equal_one_event_after_the_other(name: str) -> None:
    plan = study(gs.METHODS[name].make()).plan()
    together = start_events(plan)
    naive = start_events(plan, batched=False)
    together.advance(6)
    naive.advance(6)
    assert torch.equal(together.models(), naive.models())
    assert together.record().messages == naive.record().messages > 0


@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_a_resumed_run_is_the_same(name: str) -> None:
    plan = study(gs.METHODS[name].make(optimizer=gs.SGD(momentum=0.5))).plan()
    whole = start_events(plan)
    whole.advance(8)
    first = start_events(plan)
    first.advance(3)
    second = start_events(plan, snapshot=first.snapshot())
    second.advance(8)
    assert torch.equal(whole.models(), second.models())
    assert whole.record().bytes == second.record().bytes
    assert whole.snapshot().tensors.keys() == second.snapshot().tensors.keys()


@pytest.mark.parametrize("name", KEEP_THE_MEAN)
@pytest.mark.parametrize("seed", range(3))
def test_the_mean_is_kept_when_contacts_are_cut(name: str, seed: int) -> None:
    make = gs.METHODS[name].make
    made = study(make(eta=0.1), seed=seed)
    first = start_events(made.plan())
    first.advance(4)
    still = replace(made, algorithm=make(eta=TOO_SMALL_TO_MOVE))
    engine = start_events(still.plan(), snapshot=first.snapshot())
    before = _sums(engine)
    distance = engine.record().distance.max()
    engine.advance(12)
    assert _sums(engine) == pytest.approx(before, rel=1e-13, abs=1e-13)
    assert engine.record().distance.max() < distance
    assert _cuts(still) > 0


def _sums(engine: EventEngine) -> np.ndarray:
    """Return the sum of the models, with what push-sum has on its way."""
    assert isinstance(engine, AsynchronousEngine)
    state = engine._state
    if "weight" not in state:
        return state["w"].sum(0).numpy()
    travelling = engine._timeline.tensors()[PREFIX + "partner"] >= 0
    mass = torch.cat([state["x"], state["weight"]], 1)
    return (mass.sum(0) + engine._sent[travelling].sum(0)).numpy()


def _cuts(made: Study) -> int:
    """Return how many messages did not arrive."""
    line = BackgroundTimeline(made.plan(), 5200.0, 1.0)
    return sum(int((line.advance(t).kind == UNDO).sum()) for t in range(12))


class _Pairs(gs.Network):
    """The same pairs in every round."""

    devices = 10
    period = 1

    def links(self, t: int) -> gs.Links:
        return gs.Links.of(10, np.arange(10).reshape(5, 2))


def test_equal_steps_and_instant_links_give_the_rounds_of_the_simulator() -> None:
    """AD-PSGD in rounds mixes first; so the events are half a round ahead."""
    instant = gs.Timing(compute=1.0, rate=1e300)
    made = study(gs.ADPSGD(eta=0.1), network=_Pairs(), timing=instant)
    events = start_events(made.plan(), seconds_per_round=1.0)
    rounds = Simulator(made.plan())
    events.advance(6)
    rounds.advance(6)
    w = rounds.models().view(5, 2, -1)
    mixed = (w + (w.flip(1) - w) / 2).view(10, -1)
    assert torch.allclose(events.models(), mixed, rtol=1e-13, atol=1e-15)
    assert events.record().bytes == rounds.record().bytes


@given(
    seed=st.integers(0, 1000),
    seconds=st.floats(0.3, 3.0),
    latency=st.floats(0.0, 2.0),
    name=st.sampled_from(ASYNCHRONOUS),
)
@settings(max_examples=60, deadline=None)
def test_timeline(seed: int, seconds: float, latency: float, name: str) -> None:
    """Steps follow each other; a device sends one message at a time, over links that last."""
    method = gs.METHODS[name].make()
    assert isinstance(method, Asynchronous)
    both = method.exchange == "both"
    timing = gs.Timing(gs.LogUniform(0.1, 1.0), rate=1e6, latency=latency, seed=seed)
    plan = study(method, timing=timing, seed=seed).plan()
    line = BackgroundTimeline(plan, 1000.0, seconds)
    assert plan.timing is not None
    compute = plan.timing.of("compute", 0, np.arange(12))
    last = np.zeros(12)
    steps = np.zeros(12, dtype=np.int64)
    sending: dict[int, float] = {}  # the devices whose message is on its way, since when
    now = 0.0
    for t in range(8):
        linked = set(map(tuple, plan.network.links(t).pairs.tolist()))
        events = line.advance(t)
        for time, kind, a, b, count in zip(
            events.time, events.kind, events.a, events.b, events.a_count, strict=True
        ):
            assert now <= time <= (t + 1) * seconds
            now = time
            if kind == STEP:
                assert count == steps[a]
                assert time >= last[a] + compute[a] - 1e-9
                steps[a] += 1
                last[a] = time
            elif kind == SEND:
                assert a not in sending
                sending[a] = time
            elif kind == UNDO:
                assert time == t * seconds
                del sending[a]
            else:
                assert kind == (EXCHANGE if both else RECEIVE)
                assert (min(a, b), max(a, b)) in linked
                assert time == pytest.approx(sending.pop(a) + latency + 1000.0 / 1e6)
                if both:
                    del sending[b]


def test_gradients_are_stale_when_devices_exchange_while_they_compute() -> None:
    """A device steps along the gradient at the model that it had when it began to compute."""
    timing = gs.Timing(compute=1.0, rate=1e6, latency=0.5)
    made = study(gs.ADPSGD(eta=0.1), network=gs.Ring(3), split=gs.Iid(), timing=timing)
    engine = start_events(made.plan(), seconds_per_round=1.0)
    assert isinstance(engine, AsynchronousEngine)
    engine.advance(2)
    assert (engine._read != engine.models()).any(1).tolist() == (engine._staleness > 0).tolist()
    engine.advance(4)
    record = engine.record()
    assert record.steps == 3 * 4
    assert record.staleness is not None
    assert 0 < record.staleness < 3


def test_one_way_links_are_refused() -> None:
    directed = gs.Exponential(12, directed=True)
    with pytest.raises(gs.InputError, match="symmetric links"):
        start_events(study(gs.PushSum(), network=directed).plan())


@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_the_message_is_the_one_of_send(name: str) -> None:
    """A method that names its message sends just that, and keeps its state."""
    method = gs.METHODS[name].make()
    assert isinstance(method, Asynchronous)
    state = method.first_asynchronous_state(torch.randn(3, 5))
    devices = torch.arange(3)
    after, message = method.send(state, devices, devices)
    assert (method.message is not None) == any(message is x for x in state.values())
    if method.message is not None:
        assert message is state[method.message]
        assert all(after[key] is x for key, x in state.items())


@pytest.mark.parametrize("name", ASYNCHRONOUS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_the_average_is_the_one_of_receive(
    name: str, dtype: torch.dtype, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit, for a method that says that `receive` only averages."""
    monkeypatch.setenv("GOSSAMER_BACKEND", backend)
    method = gs.METHODS[name].make()
    assert isinstance(method, Asynchronous)
    assert (method.averaged is None) == (name != "ad-psgd")
    if method.averaged is None:
        return
    w = torch.randn(6, 101, dtype=dtype)
    sent = torch.randn(6, 101, dtype=dtype)
    a = torch.tensor([4, 0])
    b = torch.tensor([1, 5])
    expected = w.clone()
    for i, j in ((a, b), (b, a)):
        state = {"w": w[i], "other": w[j]}
        after = method.receive(dict(state), sent[j], sent[i])
        assert after["other"] is state["other"]
        expected[i] = after[method.averaged]
    average_pairs(w, a, b, sent)
    assert torch.equal(w, expected)

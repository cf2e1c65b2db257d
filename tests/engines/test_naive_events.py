"""The events engine equals a naive loop that shares no code with it: every bit of every model.

The loop is `support.reference.events`. Every method runs over every network with every fault:
contacts are cut, messages have very different lengths and may be kept or be fragments, batteries
run empty, and samples arrive over time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.reference.events import NaiveBackground, NaivePairs

import gossamer as gs
from gossamer.algorithms.asynchronous import Asynchronous
from gossamer.engines.events import start_events
from gossamer.study import Study

DEVICES = 8
NETWORKS: dict[str, gs.Network] = {
    "random ring": gs.RandomRing(DEVICES),
    "static": gs.Ring(DEVICES),
    "meetings": gs.PoissonMeetings(DEVICES, rate=0.6, duration=1.5),
    "mobility": gs.Mobility(DEVICES, radius=0.5),
}
TIMING = gs.Timing(gs.LogUniform(0.15, 0.9), rate=gs.LogUniform(3e3, 1e5), latency=0.05)
BATTERY = gs.Energy(step=1.0, byte=1e-4, battery=5.0, charge=5.0)
FAULTS = ("none", "links fail", "devices leave")
DATA = gs.Digits().load()


@dataclass(frozen=True)
class KeptPushSum(gs.PushSum):
    """A device that begins to send has given half of its mass away: forgetting must return it."""

    on_cut: Literal["drop", "keep"] = "keep"


@dataclass(frozen=True)
class KeptGossip(gs.GossipLearning):
    """Only one device of an exchange sends."""

    on_cut: Literal["drop", "keep"] = "keep"


def _methods() -> dict[str, gs.Algorithm]:
    found = {}
    for name, method in gs.METHODS.items():
        if method.without_rounds != "no":
            found[name] = method.make()
    kept = (gs.ADPSGD(on_cut="keep"), gs.SwarmSGD(on_cut="keep"), KeptPushSum(), KeptGossip())
    found |= {f"{method.label}, kept": method for method in kept}
    found["DivShare, four fragments"] = gs.DivShare(0.1, fragments=4)
    found["SwarmSGD, three steps"] = gs.SwarmSGD(0.1, local_steps=3)
    found["AD-PSGD, momentum"] = gs.ADPSGD(0.1, optimizer=gs.SGD(momentum=0.5))
    return found


METHODS = _methods()


def with_fault(network: gs.Network, fault: str) -> gs.Network:
    """Return a network with a fault."""
    if fault == "links fail":
        return network & gs.LinkFailure(0.4)
    if fault == "devices leave":
        return network & gs.Churn(0.2, 0.5)
    return network


def study(method: gs.Algorithm, network: gs.Network, **changes: object) -> Study:
    """Return a small study in float64."""
    made = Study(
        method,
        network,
        split=gs.Iid(),
        batch=4,
        rounds=100,
        dtype="float64",
        timing=TIMING,
        energy=BATTERY,
        measure=gs.Measure(test=20),
        events=gs.Events(),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def check_equal(made: Study, rounds: int, seconds: float = 1.0, wait: float = 0.0) -> int:
    """Compare the engine with the naive loop. Return the number of messages."""
    plan = made.plan(DATA)
    engine = start_events(plan, seconds, patience_seconds=wait)
    engine.advance(rounds)
    record = engine.record()
    naive: NaivePairs | NaiveBackground
    if isinstance(made.algorithm, Asynchronous):
        naive = NaiveBackground(plan, seconds)
        naive.run(rounds)
        assert record.staleness == naive.staleness
    else:
        naive = NaivePairs(plan, seconds, patience_seconds=wait)
        naive.run(rounds)
    assert record.steps == sum(naive.steps)
    assert record.messages == naive.messages
    assert record.bytes == naive.bytes
    if made.energy is not None:
        assert record.joules == naive.total_joules
    assert torch.equal(engine.models(), naive.models)
    return naive.messages


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize("name", METHODS)
def test_every_network_and_fault(name: str) -> None:
    messages = 0
    for links, fault in [(links, fault) for links in NETWORKS for fault in FAULTS]:
        network = with_fault(NETWORKS[links], fault)
        messages += check_equal(study(METHODS[name], network), rounds=4)
    assert messages > 0
    coming = study(METHODS[name], NETWORKS["meetings"], stream=gs.Stream(rate=3.0, start=2))
    check_equal(coming, rounds=4)


SOME = ("d-psgd", "tracking", "wpm", "ad-psgd", "swift", "divshare", "AD-PSGD, kept")


@pytest.mark.parametrize("name", SOME)
def test_some_methods(name: str) -> None:
    network = NETWORKS["meetings"] & gs.LinkFailure(0.3) & gs.Churn(0.2, 0.5)
    assert check_equal(study(METHODS[name], network), rounds=8) > 0


CONTACTS = st.lists(
    st.tuples(
        st.integers(0, 7),  # the round in which a contact begins
        st.integers(0, 4),  # for how many it lasts
        st.tuples(st.integers(0, 4), st.integers(0, 4)),
    ),
    max_size=20,
)
IN_STREAMS = sorted(
    {*SOME, *(name for name in METHODS if name.endswith(", kept")), "quasi-global", "push-sum"}
)
DURATIONS = st.sampled_from([0.0, 0.125, 0.25, 0.3, 1.0, 2.5])


@given(
    contacts=CONTACTS,
    compute=st.lists(st.sampled_from([0.25, 0.3, 0.5, 1.0, 3.0]), min_size=5, max_size=5),
    latency=DURATIONS,
    carried=DURATIONS,
    seconds=st.sampled_from([0.5, 1.0, 1.7]),
    wait=DURATIONS,
    battery=st.sampled_from([None, 2.0, 3.5]),
    stream=st.sampled_from([None, gs.Stream(rate=0.7, start=1)]),
    name=st.sampled_from(IN_STREAMS),
    leaving=st.booleans(),
    seed=st.integers(0, 100),
)
@settings(max_examples=120)
def test_any_stream_of_events(
    contacts: list[tuple[int, int, tuple[int, int]]],
    compute: list[float],
    latency: float,
    carried: float,
    seconds: float,
    wait: float,
    battery: float | None,
    stream: gs.Stream | None,
    name: str,
    leaving: bool,
    seed: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Contacts that begin and end at any round, durations that coincide, and all that at once."""
    method = METHODS[name]
    if isinstance(method, Asynchronous) and method.sending == "always":
        latency = max(latency, 0.125)  # messages that take no time would never end
    pairs: dict[int, list[tuple[int, int]]] = {}
    for begin, length, pair in contacts:
        for t in range(begin, begin + length + 1):
            pairs.setdefault(t, []).append(pair)
    network: gs.Network = gs.Callback(5, lambda t: [(a, b) for a, b in pairs.get(t, []) if a != b])
    if leaving:
        network = network & gs.Churn(0.2, 0.5, seed=seed)
    file = tmp_path_factory.mktemp("compute") / "compute.csv"
    rows = [f"{device},{value}\n" for device, value in enumerate(compute)]
    file.write_text("device,compute\n" + "".join(rows))
    size = 650 * 8 if carried else 0.0
    timing = gs.Timing(gs.TimingTrace(file), rate=size / carried if carried else 1e300)
    energy = None
    if battery is not None:
        energy = gs.Energy(step=0.7, byte=1e-4, battery=battery, charge=2.0)
    made = study(
        method,
        network,
        timing=replace(timing, latency=latency),
        energy=energy,
        stream=stream,
        seed=seed,
    )
    check_equal(made, rounds=10, seconds=seconds, wait=wait)

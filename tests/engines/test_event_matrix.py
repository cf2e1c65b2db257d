"""Every method, network and fault: waves give the bits of one event after the other."""

from __future__ import annotations

import pytest
import torch

import gossamer as gs
from gossamer.engines.events import start_events

# Those that the events engine refuses, see test_events.py.
REFUSED = {
    "adom",
    "all-reduce",
    "diloco",
    "fedavg",
    "choco-sgd",
    "wpm-compressed",
    "d2",
    "extra",
    "nids",
}
DEVICES = 10
ROUNDS = 2
NETWORKS: dict[str, gs.Network] = {
    "random ring": gs.RandomRing(DEVICES),
    "static": gs.Ring(DEVICES),
    "meetings": gs.PoissonMeetings(DEVICES, rate=0.4, duration=1.5),
    "mobility": gs.Mobility(DEVICES, radius=0.5),
}
FAULTS = ("none", "links fail", "devices leave")
# Contacts that are cut, messages of very different length, batteries that run empty.
TIMING = gs.Timing(gs.LogUniform(0.1, 0.6), rate=gs.LogUniform(3e3, 1e5), latency=0.05)
ENERGY = gs.Energy(step=1.0, byte=1e-4, battery=5.0, charge=5.0)


def network(name: str, fault: str) -> gs.Network:
    """Return a network with a fault."""
    made = NETWORKS[name]
    if fault == "links fail":
        return made & gs.LinkFailure(0.4)
    if fault == "devices leave":
        return made & gs.Churn(0.2, 0.5)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(gs.METHODS) - REFUSED))
def test_waves_equal_one_event_after_the_other(name: str) -> None:
    data = gs.Digits().load()
    for links in NETWORKS:
        for fault in FAULTS:
            study = gs.Study(
                gs.METHODS[name].make(),
                network(links, fault),
                split=gs.OneLabel(),
                batch=4,
                rounds=ROUNDS,
                dtype="float64",
                timing=TIMING,
                energy=ENERGY,
                events=gs.Events(),
            )
            plan = study.plan(data)
            together = start_events(plan)
            naive = start_events(plan, batched=False)
            together.advance(ROUNDS)
            naive.advance(ROUNDS)
            assert torch.equal(together.models(), naive.models()), (links, fault)
            assert together.record().bytes == naive.record().bytes, (links, fault)
            assert together.record().joules == naive.record().joules, (links, fault)

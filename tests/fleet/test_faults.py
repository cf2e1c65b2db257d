"""Fleets of real processes under faults: the mean is invariant, and they learn as well."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.fleets import (
    Fleets,
    Outcome,
    Trial,
    drift,
    dual_end,
    dual_start,
    leftovers,
    require_namespaces,
    simulated,
    spread,
    write_initial_models,
)

import gossamer as gs
from gossamer import draws
from gossamer.fleet.protocol.journal import Journal
from gossamer.fleet.rehearsal import Event, Rehearsal
from gossamer.fleet.settings import Fleet
from gossamer.network import Network

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.fleet]

M, ROUNDS, SLOT = 4, 53, 1.2
LOGGED_KILLS: Counter[str] = Counter()  # kills of a fleet with an exchange in the journal
FAULTY = range(2, 38)  # rounds with faults; those after it settle what is in doubt


def drawn(low: float, high: float, purpose: str, *place: int) -> float:
    return low + (high - low) * float(draws.uniform(0, f"faults/{purpose}", *place))


def during_exchange(t: int, *place: int) -> float:
    """Return a time during the exchange of round t, which takes about 10 ms, or just before."""
    return t + drawn(-0.005, 0.025, "moment", t, *place) / SLOT


def pairs(rehearsal: Rehearsal) -> list[tuple[int, int]]:
    return [(a, b) for a, b in rehearsal.study.network.links(0).pairs.tolist()]


def outages(number: int, shortest: float, longest: float) -> Iterator[tuple[float, float]]:
    """Yield when a link fails and recovers, in rounds; more than half begin during an exchange."""
    t = FAULTY.start
    while t < FAULTY.stop - longest:
        begins = t + drawn(0, 1, "begins", t, number)
        if drawn(0, 1, "which", t, number) < 0.6:
            begins = during_exchange(t, number)
        ends = begins + drawn(shortest, longest, "length", t, number)
        yield begins, ends
        t = int(ends) + 1 + int(drawn(0, 2, "pause", t, number))


# -- the faults ------------------------------------------------------------------------------------


def cuts(rehearsal: Rehearsal) -> Iterator[Event]:
    for number, (a, b) in enumerate(pairs(rehearsal)):
        for begins, ends in outages(number, 0.3, 3):
            yield begins, partial(rehearsal.network.link, a, b, up=False)
            yield ends, partial(rehearsal.network.link, a, b, up=True)


def loss(rehearsal: Rehearsal) -> Iterator[Event]:
    for a, b in pairs(rehearsal):
        yield FAULTY.start - 0.5, partial(rehearsal.network.loss, a, b, 0.05)
        yield FAULTY.stop, partial(rehearsal.network.loss, a, b, 0)


def one_way(rehearsal: Rehearsal) -> Iterator[Event]:
    """Lose all packets in one direction, or a third of them in half of the cases."""
    for number, (a, b) in enumerate(pairs(rehearsal)):
        for k, (begins, ends) in enumerate(outages(number, 0.1, 2)):
            sender, receiver = (a, b) if drawn(0, 1, "way", number, k) < 0.5 else (b, a)
            share = 1 / 3 if drawn(0, 1, "share", number, k) < 0.5 else 1.0
            yield begins, partial(rehearsal.network.loss, sender, receiver, share, one_way=True)
            yield ends, partial(rehearsal.network.loss, sender, receiver, 0, one_way=True)


def rate(rehearsal: Rehearsal) -> Iterator[Event]:
    """Limit links to 180 to 450 kbit/s: a model of 308 kbit, or its ack, may miss 1.08 s."""
    for number, (a, b) in enumerate(pairs(rehearsal)):
        for t in range(FAULTY.start, FAULTY.stop, 4):
            yield (
                t - 0.3,
                partial(rehearsal.network.rate, a, b, drawn(180e3, 450e3, "rate", t, number)),
            )
        yield FAULTY.stop, partial(rehearsal.network.rate, a, b, None)


def kill(rehearsal: Rehearsal) -> Iterator[Event]:
    """Kill devices during an exchange, also when the journal has it and no ack may be sent yet."""
    for t in range(FAULTY.start, FAULTY.stop, 4):
        device = (t // 8) % 2 + 1
        if t % 8 == FAULTY.start:
            yield during_exchange(t), partial(rehearsal.kill, device)
        else:
            yield t - 0.01, partial(kill_in_exchange, rehearsal, device)
        yield t + 0.5, partial(rehearsal.launch, device)


def kill_in_exchange(rehearsal: Rehearsal, device: int) -> None:
    folder = rehearsal.folder / f"n{device}"
    until = time.monotonic() + SLOT / 3
    while time.monotonic() < until and not has_logged(folder):
        time.sleep(0.0002)
    rehearsal.kill(device)
    LOGGED_KILLS[rehearsal.folder.name] += has_logged(folder)


def has_logged(folder: Path) -> bool:
    """Return True if the journal has an exchange of the current round."""
    checkpoint = Journal(folder).read()
    if checkpoint is None:
        return False
    return any(transfer.exchange[0] >= checkpoint.round for transfer in checkpoint.pending)


def partition(rehearsal: Rehearsal) -> Iterator[Event]:
    for a, b in pairs(rehearsal):
        if (a < M // 2) != (b < M // 2):
            yield during_exchange(5, a, b), partial(rehearsal.network.link, a, b, up=False)
            yield 35.5, partial(rehearsal.network.link, a, b, up=True)


def no_events(rehearsal: Rehearsal) -> Iterator[Event]:
    return iter(())


FAULTS = {
    "cuts": cuts,
    "loss": loss,
    "one way": one_way,
    "rate": rate,
    "kill": kill,
    "partition": partition,
    "clock": no_events,  # a clock is ahead
}
LINE = gs.Graph(M, tuple((i, i + 1) for i in range(M - 1)))  # mixes slowly, so losses would show


def trial(fault: str, method: gs.WPM, network: Network, **more: Any) -> Trial:
    model = gs.Mlp((128,)) if fault == "rate" else gs.Softmax()
    study = gs.Study(
        method,
        network,
        gs.Digits(),
        gs.Dirichlet(1.0),
        model,
        256,
        ROUNDS,
        measure=gs.Measure(every=0),
    )
    fleet = Fleet(slot=SLOT, lease=1.5 if fault == "rate" else 0.5, sync=False)
    return Trial(
        study, fleet, FAULTS[fault], clocks={1: SLOT / 2} if fault == "clock" else {}, **more
    )


@pytest.fixture(scope="module")
def fleets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleets]:
    require_namespaces()
    trials = {}
    for fault in FAULTS:
        for p in (1, 3):
            trials[f"{fault} p={p}"] = trial(
                fault,
                gs.WPM(p, 0.0, gs.Constant(), anchor=False),
                LINE,
                before=write_initial_models,
            )
        trials[f"{fault} steps"] = trial(fault, gs.WPM(3, 0.2, anchor=False), gs.Full(M))
    running = Fleets(trials, tmp_path_factory.mktemp("fleets"))
    yield running
    running.close()
    assert not leftovers()


# -- assertions ------------------------------------------------------------------------------------


def has_had_effect(fault: str, outcome: Outcome) -> bool:
    """Return True if the fault has disturbed the fleet."""
    counts = outcome.counts()
    if fault == "loss":  # TCP repairs nearly all in time
        return sum(outcome.retransmitted.values()) > 50
    if fault == "rate":
        return counts["late"] > 20 and counts["in doubt"] > 0
    if fault == "partition":
        crossed = {line["round"] - 1 for line in outcome.log(1) if {2, 3} & set(line["met"])}
        return min(crossed) < 5 and not crossed & set(range(6, 36)) and max(crossed) > 36
    if fault == "clock":
        return any(
            glimpse[1]["time"] - glimpse[0]["time"] > 0.3 * SLOT for glimpse in outcome.statuses
        )
    if fault == "kill":
        return LOGGED_KILLS[outcome.folder.name] > 0 and all(
            len(outcome.log(i)) <= ROUNDS - 2 for i in (1, 2)
        )
    return counts["failed"] + counts["in doubt"] > 2  # some cuts fall between two exchanges


def check_all_ended(outcome: Outcome) -> None:
    for i in range(M):
        status = outcome.status(i)
        assert (status["doing"], status["round"]) == ("done", ROUNDS)
        assert not [count for count in status["counts"] if count.startswith("refused")]


@pytest.mark.parametrize("p", [1, 3])
@pytest.mark.parametrize("fault", FAULTS)
def test_the_mean_is_invariant(fault: str, p: int, fleets: Fleets) -> None:
    """Without steps, to p·2e-7 over fifty rounds of float32, each of which rounds to 6e-8."""
    outcome = fleets[f"{fault} p={p}"]
    check_all_ended(outcome)
    assert has_had_effect(fault, outcome), outcome.counts()
    start = dual_start(outcome, p)
    end = dual_end(outcome, p)
    assert spread(end, start) < 0.1 * spread(start, start), "devices have hardly mixed"
    assert drift(start, end) <= p * 2e-7


def test_some_transfers_were_settled_late(fleets: Fleets) -> None:
    """Otherwise the tests above have not tried it."""
    settled = 0
    for fault in FAULTS:
        for p in (1, 3):
            settled += fleets[f"{fault} p={p}"].counts()["settled"]
    assert settled > 0


@pytest.mark.parametrize("fault", FAULTS)
def test_the_accuracy_is_that_of_an_undisturbed_run(fault: str, fleets: Fleets) -> None:
    """To one percentage point. A device alone reaches fourteen points less."""
    outcome = fleets[f"{fault} steps"]
    check_all_ended(outcome)
    assert has_had_effect(fault, outcome), outcome.counts()
    undisturbed = simulated(outcome.trial.study).record().metrics["accuracy"].mean()
    assert outcome.accuracy() >= undisturbed - 0.01

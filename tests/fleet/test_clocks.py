"""Clocks that are wrong, corrected, or jump; and the signal to stop, in every state."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Literal

import pytest
from support.nodes import START, NodeFleet

import gossamer as gs
from gossamer.errors import Unavailable
from gossamer.fleet.files import read_log
from gossamer.fleet.protocol.alone import AloneRounds
from gossamer.fleet.settings import Fleet
from gossamer.fleet.transport.memory import Endpoint

M, ROUNDS = 3, 30
FLEET = Fleet(slot=1.0, sync=False, join="own")
STUDY = gs.Study(
    gs.DPSGD(0.1),
    gs.Full(M),
    gs.Digits(),
    rounds=ROUNDS,
    batch=32,
    measure=gs.Measure(every=0, test=10),
)
HOUR = 3600.0


def run(
    folder: Path,
    offsets: dict[int, Callable[[float], float]],
    fleet: Fleet = FLEET,
    study: gs.Study = STUDY,
) -> NodeFleet:
    nodes = NodeFleet(study, folder, fleet, nodes=M, offsets=offsets)
    nodes.run()
    assert nodes.results == dict.fromkeys(range(M), True)
    assert all(status["round"] == study.rounds for status in nodes.statuses.values())
    return nodes


def test_a_board_that_boots_behind_and_is_corrected_joins_at_once(tmp_path: Path) -> None:
    corrected = START + 8.3
    nodes = run(tmp_path, {2: lambda now: -HOUR if now < corrected else 0.0})
    committed = nodes.statuses[2]["counts"]["committed"]
    assert committed >= 2 * (ROUNDS - 8 - 3), "it takes part from three rounds later at the latest"


def test_a_board_that_boots_ahead_and_is_corrected_joins_at_once(tmp_path: Path) -> None:
    """An hour is 36 rounds. It never again takes part in those that it was in alone."""
    corrected = START + 8.3 * 100
    offsets = {2: lambda now: HOUR if now < corrected else 0.0}
    nodes = run(tmp_path, offsets, replace(FLEET, slot=100.0), replace(STUDY, rounds=60))
    together = rounds_with_exchanges(tmp_path, 2)
    assert set(range(10, 36)) <= together, "it takes part from the correction on"
    assert set(range(46, 60)) <= together
    assert not set(range(38, 44)) & together, "it was in these by its wrong clock"
    assert nodes.statuses[2]["counts"]["committed"] == 2 * len(together)


@pytest.mark.parametrize("began", [6.05, 6.5, 6.95], ids=["step", "exchange", "between rounds"])
def test_a_jump_in_a_round_costs_a_round(tmp_path: Path, began: float) -> None:
    """Whenever it comes: the device does not wait for a deadline by the wrong clock."""
    offsets = {1: lambda now: 15.0 if START + began < now < START + began + 2.3 else 0.0}
    run(tmp_path, offsets)
    committed = rounds_with_exchanges(tmp_path, 1)
    assert set(range(11, 16)) <= committed
    assert len(committed) >= ROUNDS - 7


def test_a_device_that_was_ahead_goes_back_after_a_restart(tmp_path: Path) -> None:
    stops = dict.fromkeys(range(M), 8.5)
    first = NodeFleet(STUDY, tmp_path, FLEET, nodes=M, offsets={2: lambda now: 20.0}, stops=stops)
    first.run()
    alone = set(range(first.checkpoint(2).round - 4, first.checkpoint(2).round))
    assert min(alone) >= 12
    run(tmp_path, dict.fromkeys(range(M), lambda now: 8.6))
    committed = rounds_with_exchanges(tmp_path, 2)
    assert set(range(8, 12)) <= committed
    assert not alone & committed


def rounds_with_exchanges(folder: Path, device: int) -> set[int]:
    return {line["round"] - 1 for line in read_log(folder / str(device)) if line["met"]}


def test_a_jump_beyond_the_last_round_that_is_corrected_ends_no_run(tmp_path: Path) -> None:
    nodes = run(tmp_path, {1: lambda now: HOUR if START + 6.95 < now < START + 11 else 0.0})
    assert nodes.statuses[1]["counts"]["committed"] >= 2 * (ROUNDS - 9)
    assert nodes.ended[1] > START + ROUNDS - 1


def test_a_device_that_boots_beyond_the_end_says_so_and_is_to_try_again(tmp_path: Path) -> None:
    """It has been in 6 of the rounds: it is not done, though its clock is an hour ahead."""
    stops = dict.fromkeys(range(M), START + 6)
    NodeFleet(STUDY, tmp_path, FLEET, nodes=M, stops=stops).run()
    again = NodeFleet(STUDY, tmp_path, FLEET, nodes=M, offsets={2: lambda now: HOUR})
    again.run()
    assert isinstance(again.results[2], Unavailable)
    assert re.search(r"missed 2\d of 30 rounds", str(again.results[2]))
    assert again.results[0] is True


@pytest.mark.parametrize("ahead", [18.0, 26.0], ids=["in the last rounds", "just after the end"])
def test_a_device_that_restarts_ahead_is_not_done(tmp_path: Path, ahead: float) -> None:
    """It was in 6 rounds with others, and then at most in six alone: it tries again."""
    stops = dict.fromkeys(range(M), START + 6)
    NodeFleet(STUDY, tmp_path, FLEET, nodes=M, stops=stops).run()
    now = {i: (lambda now: 8.0) for i in range(M)}  # the others go on where they were
    again = NodeFleet(STUDY, tmp_path, FLEET, nodes=M, offsets={**now, 2: lambda now: 8.0 + ahead})
    again.run()
    assert isinstance(again.results[2], Unavailable)
    assert again.results[0] is True


def test_restarts_with_a_wrong_clock_use_up_no_round(tmp_path: Path) -> None:
    """A service manager restarts a device whose clock is beyond the end again and again."""
    stops = dict.fromkeys(range(M), START + 6)
    NodeFleet(STUDY, tmp_path, FLEET, nodes=M, stops=stops).run()
    before = NodeFleet(STUDY, tmp_path, FLEET, nodes=M).checkpoint(2).round
    for _ in range(5):
        again = NodeFleet(STUDY, tmp_path, FLEET, nodes=M, offsets={2: lambda now: HOUR})
        again.stops = dict.fromkeys(range(M), 0.5)
        again.run()
        assert isinstance(again.results[2], Unavailable)
    assert again.checkpoint(2).round == before


def test_starts_without_a_round_use_up_no_round(tmp_path: Path) -> None:
    """A device is started and stopped again before its next round, by a clock that is ahead."""
    stops = dict.fromkeys(range(M), START + 6)
    NodeFleet(STUDY, tmp_path, FLEET, nodes=M, stops=stops).run()
    for _ in range(5):
        again = NodeFleet(STUDY, tmp_path, FLEET, nodes=M, offsets={2: lambda now: 20.0})
        again.stops = dict.fromkeys(range(M), 0.5)
        again.run()
    checkpoint = again.checkpoint(2)
    assert (checkpoint.round, checkpoint.shared, checkpoint.alone) == (7, 6, ((6, 7),))
    run(tmp_path, dict.fromkeys(range(M), lambda now: 9.0))
    assert rounds_with_exchanges(tmp_path, 2) == set(range(ROUNDS)) - {6, 7}


def test_a_jump_while_a_device_waits_for_its_round_does_not_move_its_deadline(
    tmp_path: Path,
) -> None:
    """The clock goes back by an hour between the choice of a round and its begin."""
    began = START + 6.95
    offsets = {
        1: lambda now: -HOUR if began < now < began + 2.3 else 0.0,
        2: lambda now: -HOUR if START + 4.2 < now < START + 15 else 0.0,  # sends nothing meanwhile
    }
    run(tmp_path, offsets)
    assert set(range(11, ROUNDS)) <= rounds_with_exchanges(tmp_path, 1)


def test_a_device_away_for_the_last_two_rounds_is_done(tmp_path: Path) -> None:
    stops = dict.fromkeys(range(M), START + ROUNDS - 2.5)
    NodeFleet(STUDY, tmp_path, FLEET, nodes=M, stops=stops).run()
    later = NodeFleet(STUDY, tmp_path, FLEET, nodes=M, offsets={2: lambda now: ROUNDS + 3.0})
    later.run()
    assert later.results[2] is True


def test_a_jump_and_a_missed_last_round_do_not_keep_a_device_for_ever(tmp_path: Path) -> None:
    """It boots an hour behind and is corrected; then it is late for the last round."""
    late = START + ROUNDS - 2.5

    def offset(now: float) -> float:
        return -HOUR if now < START + 3.3 else (1.95 if now > late else 0.0)

    nodes = NodeFleet(STUDY, tmp_path, FLEET, nodes=M, offsets={2: offset})
    nodes.run()
    assert nodes.results == dict.fromkeys(range(M), True)
    assert nodes.ended[2] < START + ROUNDS + 5


def test_spans_of_rounds_alone() -> None:
    """Whatever the clock shows, no round is run twice in which a vector was sent."""
    for seed in range(300):
        random = Random(seed)
        alone = AloneRounds()
        t = 0
        sent: set[int] = set()
        shared: set[int] = set()
        clock = 0
        for _ in range(200):
            if random.random() < 0.1:
                clock = max(0, clock + random.randrange(-200, 200))
            t = alone.next_round(t, clock)
            assert t not in sent | shared
            assert not shared or t > max(shared)
            others = random.random() < 0.02
            sends = others or random.random() < 0.7
            alone.add(t, sends, others)
            if sends:
                sent.add(t)
            if others:
                shared.add(t)
            assert len(alone.spans) <= 16
            t += 1
            clock += 1


def test_a_device_alone_whose_clock_jumps_beyond_the_end_waits(tmp_path: Path) -> None:
    """Without neighbours nobody confirms the time: it does not say that it is done."""
    study = replace(STUDY, network=gs.Full(2), rounds=4000)
    offsets = {0: lambda now: 1e6 if now > START + 6.5 else 0.0}
    nodes = NodeFleet(study, tmp_path, FLEET, nodes=1, offsets=offsets, stops={0: START + 60})
    nodes.run({1: lambda endpoint: None})
    assert nodes.results == {0: False}
    assert nodes.statuses[0]["doing"] == "stopped"
    assert nodes.ended[0] < START + 62


def silent(endpoint: Endpoint) -> None:
    """A neighbour whose link is alive, and which answers nothing."""
    endpoint.sleep_until(START + 400)


@pytest.mark.parametrize(
    "when", [0.5, START + 10.0, START + 150.0], ids=["before round 0", "exchange", "between rounds"]
)
@pytest.mark.parametrize("pace", ["slots", "contacts"])
def test_a_device_ends_within_two_seconds_of_the_signal(
    tmp_path: Path, when: float, pace: Literal["slots", "contacts"]
) -> None:
    fleet = Fleet(slot=100.0, sync=False, pace=pace, patience=300, timeout=300)
    study = replace(STUDY, network=gs.Full(2))
    nodes = NodeFleet(study, tmp_path, fleet, nodes=1, stops={0: when})
    nodes.run({1: silent})
    assert nodes.results == {0: False}
    assert nodes.statuses[0]["doing"] == "stopped"
    assert nodes.ended[0] <= when + 2.0

"""Clocks that are wrong, corrected, or jump; and the signal to stop, in every state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from support.nodes import START, NodeFleet

import gossamer as gs
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


def run(folder: Path, offsets: dict[int, Callable[[float], float]]) -> NodeFleet:
    nodes = NodeFleet(STUDY, folder, FLEET, nodes=M, offsets=offsets)
    nodes.run()
    assert nodes.results == dict.fromkeys(range(M), True)
    assert all(status["round"] == ROUNDS for status in nodes.statuses.values())
    return nodes


def test_a_board_that_boots_behind_and_is_corrected_joins_at_once(tmp_path: Path) -> None:
    corrected = START + 8.3
    nodes = run(tmp_path, {2: lambda now: -HOUR if now < corrected else 0.0})
    committed = nodes.statuses[2]["counts"]["committed"]
    assert committed >= 2 * (ROUNDS - 8 - 3), "it takes part from three rounds later at the latest"


def test_a_jump_beyond_the_last_round_that_is_corrected_ends_no_run(tmp_path: Path) -> None:
    nodes = run(tmp_path, {1: lambda now: HOUR if START + 6.95 < now < START + 11 else 0.0})
    assert nodes.statuses[1]["counts"]["committed"] >= 2 * (ROUNDS - 9)
    assert nodes.ended[1] > START + ROUNDS - 1


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

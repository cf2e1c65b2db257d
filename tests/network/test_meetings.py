"""Poisson meetings beside the theory of the Poisson process and of the queue M/G/∞."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gossamer as gs
from gossamer.network import PoissonMeetings

DEVICES = 30
PAIRS = DEVICES * (DEVICES - 1) // 2
LENGTHS = ("exponential", "fixed")


def network(**changes: object) -> PoissonMeetings:
    """Return meetings of 30 devices: every pair once in 500 s, for 20 s."""
    arguments = {"devices": DEVICES, "rate": 0.002, "duration": 20.0} | changes
    return PoissonMeetings(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("lengths", LENGTHS)
def test_meetings_begin_at_the_rate(lengths: str) -> None:
    seconds = 20_000.0
    a, b, begins, ends = network(lengths=lengths).meetings(0.0, seconds)
    inside = begins >= 0
    expected = 0.002 * PAIRS * seconds
    assert inside.sum() == pytest.approx(expected, abs=4 * math.sqrt(expected))
    gaps = np.diff(begins[inside])
    assert (gaps >= 0).all()
    # Exponential gaps: the standard deviation is the mean.
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)
    assert (ends - begins).mean() == pytest.approx(20.0, rel=0.05)
    of_pair = np.bincount(a[inside] * DEVICES + b[inside], minlength=DEVICES**2)
    per_pair = of_pair[of_pair > 0]
    assert len(per_pair) == PAIRS
    # Poisson counts: the variance is the mean.
    assert per_pair.var() == pytest.approx(per_pair.mean(), rel=0.25)


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("seconds", [1.0, 50.0])
def test_the_share_of_linked_pairs(lengths: str, seconds: float) -> None:
    net = network(lengths=lengths, seconds_per_round=seconds)
    every = max(1, int(100 / seconds))  # rounds far enough apart to be nearly independent
    shares = [len(net.links(t)) / PAIRS for t in range(0, 400 * every, every)]
    share = 1 - math.exp(-0.002 * 20.0)
    error = math.sqrt(share / PAIRS / 400)
    assert np.mean(shares) == pytest.approx(share, abs=5 * error)


def test_lengths_of_contacts() -> None:
    """A fixed meeting of 20 s is 20 rounds of 1 s, if no other one of the pair overlaps it."""
    net = network(rate=1e-4, lengths="fixed")
    linked = np.zeros((400, PAIRS), dtype=bool)
    for t in range(400):
        links = net.links(t)
        a = links.a
        linked[t, a * (2 * DEVICES - 1 - a) // 2 + links.b - a - 1] = True
    begins = np.argwhere(~linked[:-1] & linked[1:])
    lengths = [int(np.argmin(linked[t + 1 :, pair])) for t, pair in begins if t < 350]
    assert len(lengths) > 5
    assert np.median(lengths) == 20


@given(
    seed=st.integers(0, 99),
    lengths=st.sampled_from(LENGTHS),
    rounds=st.lists(st.integers(0, 3000), min_size=1, max_size=6),
    seconds=st.sampled_from([0.5, 1.0, 7.0, 1000.0]),
)
@settings(max_examples=50, deadline=None)
def test_links_are_the_meetings_that_last(
    seed: int, lengths: str, rounds: list[int], seconds: float
) -> None:
    """In any order of the rounds, and beside a loop over a long interval."""
    net = network(seed=seed, lengths=lengths, seconds_per_round=seconds)
    for t in rounds:
        fresh = network(seed=seed, lengths=lengths, seconds_per_round=seconds)
        now = t * seconds
        meetings = fresh.meetings(now - 1000, now + 10)
        expected = set()
        for a, b, begin, end in zip(*meetings, strict=True):
            if begin <= now < end:
                expected.add((int(a), int(b)))
        assert set(map(tuple, net.links(t).pairs.tolist())) == expected


def test_without_meetings() -> None:
    assert len(network(rate=0.0).links(5)) == 0
    assert len(network(devices=1).links(5)) == 0


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("devices", {"devices": 0}),
        ("rate", {"rate": -1.0}),
        ("rate", {"rate": 1e9}),
        ("rate", {"devices": 10_000_000, "rate": 1.0}),
        ("duration", {"duration": 0.0}),
        ("duration", {"duration": math.inf}),
        ("lengths", {"lengths": "uniform"}),
        ("seconds_per_round", {"seconds_per_round": 0.0}),
        ("seed", {"seed": 0.5}),
    ],
)
def test_bad_input_is_refused(field: str, changes: dict[str, object]) -> None:
    with pytest.raises(gs.InputError, match=f"{field} = "):
        network(**changes)


def test_the_events_engine_takes_its_seconds() -> None:
    made = gs.Study(
        gs.ADPSGD(0.1),
        network(seconds_per_round=5.0),
        rounds=4,
        timing=gs.Timing(compute=1.0, rate=1e5),
        events=gs.Events(),
    )
    engine = gs.Events().start(made.plan())
    engine.advance(4)
    assert engine.record().seconds == 20.0
    assert engine.record().messages > 0

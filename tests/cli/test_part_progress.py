"""Progress of a reproduction: waves of runs, the time elapsed and the time left."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.cli.part_progress import PartClock, PartProgress
from gossamer.study.sweep import Done


def finish_wave(clock: PartClock, runs: int, now: float, seconds: float = 1.0) -> float:
    """Tell a clock of a wave of equal runs that take some seconds each. Return the time."""
    for done in range(runs + 1):
        clock.update(Done(done, runs, done / runs), now + done * seconds)
    return now + runs * seconds


@given(
    waves=st.lists(st.integers(1, 5), max_size=4),
    kept=st.integers(0, 3),
    made=st.integers(1, 4),
    left=st.integers(1, 4),
    later=st.integers(1, 9),
    seconds=st.floats(0.1, 100),
)
def test_runs_of_equal_length_are_estimated_exactly(
    waves: list[int], kept: int, made: int, left: int, later: int, seconds: float
) -> None:
    """Runs of an earlier command (`kept`) count as done, and their speed is not known."""
    of = kept + made + left
    clock = PartClock(sum(waves) + of + later, 0.0)
    now = 0.0
    for runs in waves:
        now = finish_wave(clock, runs, now, seconds)
    clock.update(Done(kept, of, kept / of), now)
    now += made * seconds
    clock.update(Done(kept + made, of, (kept + made) / of), now)
    assert clock.wave == len(waves) + 1
    assert clock.left_in_wave(now) == pytest.approx(left * seconds)
    assert clock.left_in_part(now) == pytest.approx((left + later) * seconds)


def test_long_runs_first_do_not_distort_the_estimate() -> None:
    """A sweep starts its longest runs first; those of later waves are as long on average."""
    clock = PartClock(expected=20, now=0.0)
    clock.update(Done(0, 10, 0.0), 0.0)
    clock.update(Done(1, 10, 0.5), 50.0)  # one run is half of the work of the wave
    assert clock.left_in_wave(50.0) == pytest.approx(50)
    assert clock.left_in_part(50.0) == pytest.approx(150)


def test_nothing_is_estimated_from_runs_that_were_there() -> None:
    clock = PartClock(10, 0.0)
    clock.update(Done(3, 5, 0.6), 1.0)
    assert clock.text(2.0) == "3/5 runs  elapsed 2 s"


def test_the_last_wave_has_no_estimate_beyond_it() -> None:
    clock = PartClock(4, 0.0)
    now = finish_wave(clock, 2, 0.0)
    clock.update(Done(0, 4, 0.0), now)
    clock.update(Done(1, 4, 0.25), now + 1)
    assert clock.text(now + 1) == "1/4 runs  elapsed 3 s  left 3 s"  # more runs than expected


def test_no_waves_are_expected_after_the_end() -> None:
    clock = PartClock(9, 0.0)
    now = finish_wave(clock, 2, 0.0)
    assert clock.text(now) == "2/2 runs  elapsed 2 s  left in all 7 s"
    clock.end()
    assert clock.text(now) == "2/2 runs  elapsed 2 s"


@pytest.mark.parametrize("has_waves", [True, False])
def test_lines_without_a_terminal(capsys: pytest.CaptureFixture[str], has_waves: bool) -> None:
    with PartProgress("fair", has_waves, None, quiet=False) as progress:
        for wave in (2, 3):
            for done in range(wave + 1):
                progress(Done(done, wave, done / wave))
    lines = re.sub(r"elapsed \d+ s", "elapsed", capsys.readouterr().err).splitlines()
    # A line at the end of each wave, and none between in so short a time.
    expected = ["fair  wave 1  2/2 runs  elapsed", "fair  wave 2  3/3 runs  elapsed"]
    if not has_waves:
        expected = ["fair  2/2 runs  elapsed", "fair  3/3 runs  elapsed"]
    assert lines == expected


def test_quiet_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with PartProgress("fair", True, None, quiet=True) as progress:
        progress(Done(1, 1, 1.0))
    assert capsys.readouterr().err == ""

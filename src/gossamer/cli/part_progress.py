"""Progress of a part of a reproduction, whose runs are asked for in waves."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from gossamer.cli.progress import SHARE_LINE_SECONDS, duration

if TYPE_CHECKING:
    from gossamer.study.sweep import Done

# Characters of the bar at most, and of the text beside it.
_BAR_WIDTH = 20
_TEXT_WIDTH = 64


class PartProgress:
    """Show one line: part, wave, runs done, the time elapsed, and estimates of the time left.

    A wave is what a part asks for at once; a search asks for the next runs when it knows the
    results of those before. On a terminal the line has a bar of the wave and is rewritten;
    elsewhere a line is printed at the end of a wave and now and then.

    Args:
        label: The name of the part.
        has_waves: Whether there may be more than one wave.
        expected: About how many runs all waves have together; None if that is not known.
        quiet: Whether to show no progress.
    """

    def __init__(self, label: str, has_waves: bool, expected: int | None, quiet: bool) -> None:
        self._label = label
        self._has_waves = has_waves
        self._quiet = quiet
        self._clock = PartClock(expected, time.monotonic())
        self._console = Console(stderr=True)
        self._printed = time.monotonic()
        room = self._console.width - len(label) - _TEXT_WIDTH
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(max(4, min(_BAR_WIDTH, room))),
            _ClockColumn(self._clock),
            console=self._console,
        )
        self._task = self._progress.add_task(label, total=1.0)

    def __enter__(self) -> PartProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self._clock.end()
        if self._progress.live.is_started:  # otherwise rich prints an empty line
            self._progress.stop()

    def __call__(self, done: Done) -> None:
        """Show what is done of the current wave."""
        now = time.monotonic()
        self._clock.update(done, now)
        if self._quiet:
            return
        label = self._label
        if self._has_waves:
            label += f"  wave {self._clock.wave}"
        if self._console.is_terminal:
            self._progress.start()
            self._progress.update(self._task, completed=done.share, description=label)
        elif done.runs == done.of or now - self._printed > SHARE_LINE_SECONDS:
            self._printed = now
            text = f"{label}  {self._clock.text(now)}"
            self._console.print(text, highlight=False, soft_wrap=True)


class PartClock:
    """Estimate from the runs of this process how long the wave and the part still take.

    Args:
        expected: About how many runs all waves have together; None if that is not known.
        now: The time in seconds, on any clock.

    Example:
        >>> from gossamer.study.sweep import Done
        >>> clock = PartClock(expected=100, now=0.0)
        >>> clock.update(Done(0, 40, 0.0), now=0.0)
        >>> clock.update(Done(10, 40, 0.25), now=60.0)
        >>> clock.text(now=60.0)
        '10/40 runs  elapsed 60 s  left 3 min, in all 9 min'
    """

    def __init__(self, expected: int | None, now: float) -> None:
        self.wave = 0
        self._expected = expected
        self._begin = now
        self._runs_before = 0  # runs of the waves before
        self._made = 0  # runs that this process made in the waves before
        self._seconds = 0.0  # duration of these runs
        self._last: Done | None = None

    def update(self, done: Done, now: float) -> None:
        """Take note of what is done of a wave; the first call after its end begins the next."""
        if self._last is None or self._last.runs == self._last.of:
            self._end_wave(now)
            self.wave += 1
            self._first = done
            self._wave_begin = now
        self._last = done

    def end(self) -> None:
        """Expect no further waves: the part is done, or was stopped."""
        self._expected = None

    def _end_wave(self, now: float) -> None:
        if self._last is None:
            return
        self._runs_before += self._last.of
        self._made += self._last.of - self._first.runs
        self._seconds += now - self._wave_begin

    def text(self, now: float) -> str:
        """Return the runs done, the time elapsed, and the time left as far as it is known."""
        assert self._last is not None
        words = [
            f"{self._last.runs}/{self._last.of} runs",
            f"elapsed {duration(now - self._begin)}",
        ]
        left = []
        wave = self.left_in_wave(now)
        if wave is not None:
            left.append(duration(wave))
        part = self.left_in_part(now)
        if part is not None:
            left.append(f"in all {duration(part)}")
        if left:
            words.append(f"left {', '.join(left)}")
        return "  ".join(words)

    def left_in_wave(self, now: float) -> float | None:
        """Return the seconds left of the wave; None if it is over or none of it was made."""
        assert self._last is not None
        made = self._last.share - self._first.share
        if made <= 0 or self._last.runs == self._last.of:
            return None
        return (now - self._wave_begin) / made * (1 - self._last.share)

    def left_in_part(self, now: float) -> float | None:
        """Return the seconds left of this wave and those that are expected after it.

        Returns:
            None if no more waves are expected, or no run was made yet to estimate from.
        """
        assert self._last is not None
        later = (self._expected or 0) - self._runs_before - self._last.of
        if later <= 0:
            return None
        # Count the whole wave, with its estimated end: a sweep starts the longest runs first, so
        # those that are done say little about the others.
        made = self._made
        seconds = self._seconds
        left = self.left_in_wave(now) or 0.0
        if left or self._last.runs == self._last.of:
            made += self._last.of - self._first.runs
            seconds += now - self._wave_begin + left
        if made == 0:
            return None
        return left + later * seconds / made


class _ClockColumn(ProgressColumn):
    """The text of a clock, as it is now."""

    def __init__(self, clock: PartClock) -> None:
        super().__init__()
        self._clock = clock

    def render(self, task: Task) -> Text:
        return Text(self._clock.text(time.monotonic()))

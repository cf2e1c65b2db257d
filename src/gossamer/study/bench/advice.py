"""What the measurements of a benchmark say about the settings of a study."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gossamer.study.bench.result import Bench, Evaluation, Threads

# A smaller gain is noise.
_MIN_GAIN = 1.05
# float64 is recommended up to this duration of a round, as a multiple of that in float32.
_CHEAP_FLOAT64 = 1.1


@dataclass(frozen=True)
class Advice:
    """A recommended setting.

    Attributes:
        key: A key of the spec.
        value: Its recommended value.
        sentence: The reason.
    """

    key: str
    value: int | str
    sentence: str


def advice(bench: Bench) -> list[Advice]:
    """Recommend values of `threads`, `dtype`, `measure.every` and `measure.test`.

    Args:
        bench: The measurements.

    Returns:
        One or more recommendations per key.
    """
    return [*_on_threads(bench), _on_dtype(bench.float64), *_on_measuring(bench.evaluations)]


def gains_from(rows: Sequence[Threads]) -> int | None:
    """Return the number of devices from which one thread per core is faster than one thread.

    Args:
        rows: The measured gains, in any order.

    Returns:
        The number of devices; None if there is a gain at none of the sizes.
    """
    first = None
    for row in sorted(rows, key=lambda row: row.devices, reverse=True):
        if row.gain < _MIN_GAIN:
            break
        first = row.devices
    return first


def _on_threads(bench: Bench) -> list[Advice]:
    cores = bench.cores
    if cores == 1:
        reason = "There is one core here: leave threads = 0, there is nothing to choose."
        return [Advice("threads", 0, reason)]
    corrections = []
    for row in bench.threads:
        if row.chosen == 1 and row.gain > _MIN_GAIN:
            reason = (
                f"At {row.devices} devices set threads = {cores}: {cores} threads are "
                f"{row.gain:.1f} times as fast as the one that threads = 0 takes."
            )
            corrections.append(Advice("threads", cores, reason))
        elif row.chosen > 1 and row.gain < 1 / _MIN_GAIN:
            reason = (
                f"At {row.devices} devices set threads = 1: one thread is {1 / row.gain:.1f} "
                f"times as fast as the {row.chosen} that threads = 0 takes."
            )
            corrections.append(Advice("threads", 1, reason))
    if corrections:
        return corrections
    first = gains_from(bench.threads)
    if first is None:
        reason = (
            f"{cores} threads gain nothing over one here: "
            "threads = 1 leaves the other cores to other runs."
        )
        return [Advice("threads", 1, reason)]
    gain = next(row.gain for row in bench.threads if row.devices == first)
    reason = (
        f"{cores} threads gain from {first} devices on, where they are {gain:.1f} times "
        "as fast as one: leave threads = 0."
    )
    return [Advice("threads", 0, reason)]


def _on_dtype(float64: float) -> Advice:
    if float64 > _CHEAP_FLOAT64:
        reason = (
            f"A round in float64 takes {float64:.1f} times as long: "
            'keep dtype = "float32" unless you need the digits.'
        )
        return Advice("dtype", "float32", reason)
    reason = (
        f"A round in float64 takes {max(0.0, float64 - 1):.0%} longer: "
        'dtype = "float64" costs little here.'
    )
    return Advice("dtype", "float64", reason)


def _on_measuring(evaluations: Sequence[Evaluation]) -> list[Advice]:
    every, few = evaluations
    return [
        Advice(
            "measure.every",
            every.every,
            f"Measuring on all {every.test:,} test samples takes as long as {every.rounds:.1f} "
            f"rounds: from measure.every = {every.every} on it costs below 10 % of the time.",
        ),
        Advice(
            "measure.test",
            few.test,
            f"With measure.test = {few.test} it takes as long as {few.rounds:.1f} rounds: "
            f"below 10 % from measure.every = {few.every} on.",
        ),
    ]

"""The sentence that a page begins with: which method is best, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from gossamer._core.columns import Column
from gossamer.report.page_tables import last_values, metrics_of
from gossamer.results.statistics import Interval, interval, paired
from gossamer.results.tables import Method


class _Measured(NamedTuple):
    """A method with the values of its seeds."""

    method: Method
    values: dict[int, float]

    @property
    def mean(self) -> Interval:
        return interval(list(self.values.values()))


def answer(methods: Sequence[Method]) -> str:
    """Return what a page shows in one sentence.

    The best method is the one with the best mean of the first metric. It is compared with the
    second, paired by seed: only if the 95 % interval of the difference is on one side of zero does
    the sentence say that one is better.

    Args:
        methods: The methods of the page.
    """
    metric = metrics_of(methods)[0]
    ranked = _ranked(methods, metric)
    if not ranked:
        return "Nothing has been measured yet."
    best = ranked[0]
    so_far = "" if all(run.finished for run in best.method.runs) else " so far"
    seeds = _seeds(len(best.values))
    value = _with_unit(metric.text(best.mean.mean, best.mean.half), metric)
    if len(ranked) == 1:
        last = max(int(run.metrics["round"][-1]) for run in best.method.measured_runs)
        return (
            f"{best.method.label} has a mean test {metric.name} of {value}{so_far}, "
            f"after {last:,} rounds on {_devices(best.method)} devices ({seeds})."
        )
    superlative = "highest" if metric.rising else "lowest"
    return (
        f"{best.method.label} has the {superlative} mean test {metric.name}{so_far}, {value}: "
        f"{_comparison(best, ranked[1], metric)}."
    )


def _ranked(methods: Sequence[Method], metric: Column) -> list[_Measured]:
    """Return the methods with finite values, the best first; finished ones if there are any."""
    found = []
    for method in methods:
        values = last_values(method.measured_runs, metric.name)
        if values and all(math.isfinite(value) for value in values.values()):
            found.append(_Measured(method, values))
    finished = [one for one in found if any(run.finished for run in one.method.runs)]
    found = finished or found
    return sorted(found, key=lambda one: one.mean.mean, reverse=metric.rising)


def _comparison(best: _Measured, second: _Measured, metric: Column) -> str:
    """Return how far the best method is ahead of the second, and how sure that is."""
    name = second.method.label
    difference = paired(best.values, second.values)
    if difference is None:
        return f"{name} is second, on other seeds"
    size = Interval(abs(difference.mean), difference.half, difference.count)
    unit = metric.printed_unit
    if unit == "%":
        unit = "percentage points"
    ahead = f"{metric.text(size.mean, size.half)} {unit}".strip()
    if difference.mean == 0:
        return f"{name} has the same"
    text = f"{ahead} {'above' if metric.rising else 'below'} {name}, the second"
    if difference.half is None:
        return f"{text}; one seed cannot show whether that is chance"
    if difference.half >= abs(difference.mean):
        return f"{text}, which {_seeds(difference.count)} cannot tell from chance"
    return f"{text} (95 % interval over {_seeds(difference.count)}, paired)"


def _with_unit(text: str, metric: Column) -> str:
    return f"{text} {metric.printed_unit}".strip()


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"


def _devices(method: Method) -> str:
    return f"{method.runs[0].devices:,}"

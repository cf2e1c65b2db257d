"""What the tuned comparisons share: every method at its own best settings, on the same links.

Tuning has seeds of its own and measures on samples held out from the training data; results are
reported on other seeds and on test samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import gossamer as gs
from gossamer.study import Study
from papers.families import AGGREGATE, family
from papers.search import Axis, Family, Point, rates
from papers.tuning import Tuned, tune
from papers.wpm.paper import Key, Results, Scale, number, rounds_to_target, studies, study

_RATES = rates(0.02)
# Below 1.1 is p = 1, which is a method of its own here.
_POWERS = Axis("p", (1.1, 1.25, 1.5, 2, 3, 5, 9, 15, 31, 101, 301), 4)

# Lian's method, with the gradient at w_i, and the p = 1 of the paper.
D_PSGD = replace(family("d-psgd"), name="D-PSGD")
AT_THE_MEAN = replace(family(AGGREGATE), name="D-PSGD at the mean (p = 1)")
# The power mean and its control have the same freedom: how much, and for how many rounds.
_WPM = family("wpm")
ROBUST = replace(
    _WPM,
    name="WPM robust, p and duration tuned",
    axes=(_WPM.axes[0], replace(_POWERS, start=5), _WPM.axes[2]),
)
CONTROL = replace(family("gain-control"), name="p = 1 with a gain, gain and duration tuned")
# Columns with the share of rounds that a method saves, and what it is compared with.
BASES = {"saved": D_PSGD, "saved_to_mean": AT_THE_MEAN, "saved_to_control": CONTROL}


def matched(p: float) -> Family:
    """Return the paper's form with one p: the matched step, no anchor."""
    return Family(f"WPM p = {p:g}, matched", partial(_matched, p=p), (_RATES,))


def matched_any() -> Family:
    """Return the paper's form with p as a setting that is tuned."""
    return Family("WPM matched, p tuned", _matched, (_RATES, _POWERS))


def _matched(eta: float, p: float) -> gs.Algorithm:
    return gs.WPM(p, eta, gs.Matched(), anchor=False)


@dataclass(frozen=True)
class Place:
    """One setting in which methods are compared.

    Attributes:
        scale: The setting whose results are reported.
        devices: Number of devices.
        split: Name of the split.
        target: The accuracy that the settings are tuned for.
    """

    scale: Scale
    devices: int
    split: str
    target: float

    def trial(self, algorithm: gs.Algorithm, seed: int) -> Study:
        """Return a study for tuning, measured on a tenth of the training samples, held out."""
        scale = replace(self.scale, data=gs.Validation(self.scale.data, 0.1))
        return study(scale, algorithm, self.devices, self.split, seed)

    def tuned(self, results: Results, method: Family) -> Tuned:
        """Return the settings of a method, or the runs that tuning needs next."""
        seeds = self.scale.tuning_seeds
        return tune(method, self.trial, results.by_study, self.target, seeds)

    def key(self, algorithm: gs.Algorithm) -> Key:
        """Return the key of the runs that are reported."""
        return (algorithm, self.devices, self.split)


def needed(results: Results, places: Iterable[Place], methods: Sequence[Family]) -> list[Study]:
    """Return the runs that are needed next: for tuning, then those that are reported.

    Args:
        results: The runs so far.
        places: The settings.
        methods: The methods.
    """
    found: list[Study] = []
    for place in places:
        for method in methods:
            tuned = place.tuned(results, method)
            found += tuned.missing
            if tuned.best is not None:
                found += studies(place.scale, [place.key(method.at(tuned.best))])
    return found


def compared(
    results: Results, place: Place, methods: Sequence[Family], targets: Sequence[float] = ()
) -> Iterator[dict[str, object]]:
    """Yield one row of a table per method and target.

    Args:
        results: The runs.
        place: The setting.
        methods: The methods, those of BASES among them.
        targets: The accuracies to reach; the one that was tuned for, unless others are given.
    """
    chosen: dict[str, tuple[Point, Key]] = {}
    for method in methods:
        best = place.tuned(results, method).best
        assert best is not None  # `needed` has asked for all runs that tuning needs
        chosen[method.name] = (best, place.key(method.at(best)))
    for target in targets or (place.target,):
        for method in methods:
            best, key = chosen[method.name]
            row: dict[str, object] = {"split": place.split, "method": method.name}
            row |= {"target": target, "setting": method.text(best)}
            row["at_edge"] = " ".join(method.at_edge(best))
            base_keys = {column: chosen[base.name][1] for column, base in BASES.items()}
            yield row | _measured(results.under(place.scale), key, target, base_keys)


def _measured(
    results: Results, key: Key, target: float, bases: dict[str, Key]
) -> dict[str, object]:
    """Return the rounds to a target, and the shares of the rounds of other runs that are saved."""
    count = rounds_to_target(results.scale, target)
    row = number(results.over_seeds(key, count))
    row["seeds_that_reached"] = sum(count(run) is not None for run in results.cells(key))
    for column, base in bases.items():
        saved = number(results.saved(base, key, count), 1, 100)
        row |= {f"{column}_%": saved["ours"], f"{column}_95": saved["ours_95"]}
    return row

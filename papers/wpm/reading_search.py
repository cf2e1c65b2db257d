"""The search of readings: screening, descent, finals.

The distance of a reading is exp of the mean |log(ours/paper)| over cells of Table 2, as in
`readings`. A criterion that a run does not reach counts as 1,000 rounds; in screening and descent
as fewer the closer it came. The runs of the search end at one and a half times the paper's rounds,
those of the confirmation after 500 rounds.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

import gossamer as gs
from gossamer import draws
from papers.wpm.reading_runs import CRITERIA, Cell, Criterion, Curves, Runs, Setting, table2
from papers.wpm.reading_space import RULES, Reading, drawn, neighbours

NOT_REACHED = 1000.0  # rounds
# A run of the search ends at this multiple of the paper's rounds.
_LONGEST = 1.5
# A criterion that is missed by this much in accuracy or loss counts as not reached at all.
_FAR = 0.2
# The screening runs a second cell from this accuracy on.
_PROMISING = 0.75
# A descent also finishes the runs of readings that are at most this factor worse than its best.
_KEPT = 1.08
# The rules with a mirror step everywhere, as the paper demands: the safe sign takes the plain step
# where a sign would change.
MIRROR = frozenset(RULES) - {"plain step", "the same, safe sign"}
# What the screening reports: the accuracy of p = 15 with one label at the paper's 131 rounds.
_SHOWN = ("after step/device/accuracy", "after mix/device/accuracy", "after step/merged/accuracy")


@dataclass(frozen=True)
class Plan:
    """The size of a search.

    Attributes:
        setting: The size of a run.
        rounds: The longest run.
        screened: Number of readings drawn.
        starts: Number of descents from the best of the screening.
        restarts: Number of descents from further draws.
        looks: The most neighbours that a descent compares.
        finalists: Readings in the finals.
        shown: Readings in the table.
        mirror_finalists: Readings with a mirror step in the finals.
        seed: Seed of the draws, and of the runs of screening, descent and finals.
        fresh_seeds: Seeds of the runs of the confirmation.
    """

    setting: Setting = field(default_factory=Setting)
    rounds: int = 500
    screened: int = 340
    starts: int = 1
    restarts: int = 0
    looks: int = 60
    finalists: int = 17
    shown: int = 10
    mirror_finalists: int = 2
    seed: int = 100
    fresh_seeds: tuple[int, ...] = (200, 201)


TINY = Plan(
    Setting(gs.Digits(), 0.3053, 0.3760, batch=32, test_every=4),
    rounds=20,
    screened=2,
    starts=1,
    restarts=0,
    looks=6,
    finalists=1,
    mirror_finalists=1,
    fresh_seeds=(200,),
)


@dataclass(frozen=True)
class Fit:
    """How close a reading comes to the paper.

    Attributes:
        distance: The typical factor; 1 is a perfect fit.
        criterion: The criterion with which it is reached.
    """

    distance: float
    criterion: Criterion


@dataclass
class Search:
    """The state of a search.

    Attributes:
        plan: Its size.
        runs: Its runs.
    """

    plan: Plan
    runs: Runs

    def __post_init__(self) -> None:
        self.table = table2()
        self.screened: dict[Reading, float] = {}  # accuracy at the paper's rounds
        self.fits: dict[Reading, Fit] = {}  # on the four corners
        self.tried: set[Reading] = set()
        self.descents: list[float] = []  # the distance at which each ended
        self.finals: dict[Reading, Fit] = {}  # on all cells

    @property
    def ranked(self) -> list[Reading]:
        """The readings of the finals, the closest first."""
        return sorted(self.finals, key=lambda reading: self.finals[reading].distance)

    def run(self) -> None:
        """Run all stages."""
        promising = self._screen()
        starts = [Reading(), *promising[: self.plan.starts]]
        for k in range(self.plan.restarts):
            starts.append(drawn(self.plan.seed, self.plan.screened + k))
        for k, start in enumerate(starts):
            self._descend(start, k)
        # With our rule, the best reading has a mirror step.
        self._descend(replace(self._best(1)[0], rule=Reading().rule), 1, MIRROR)
        finalists = self._best(self.plan.finalists) + self._best(self.plan.mirror_finalists, MIRROR)
        for reading in finalists:
            self.finals[reading] = self.on_table(reading)
            self._tell(f"final: {self.finals[reading].distance:.2f}")

    # -- stages -----------------------------------------------------------------------------------

    def _screen(self) -> list[Reading]:
        """Return the readings of the screening, the closest first."""
        hard = self._cell("noniid", 15)
        distances: dict[Reading, float] = {}
        for k in range(self.plan.screened):
            reading = drawn(self.plan.seed, k)
            self.tried.add(reading)
            curves = self.short_run(reading, hard)
            accuracies = [curves.at(name, hard.paper) for name in _SHOWN]
            self.screened[reading] = max(0.0, *accuracies)  # 0 if the run diverged
            if self.screened[reading] >= _PROMISING:
                fit = self._fit(reading, [hard, self._cell("noniid", 1)])
                distances[reading] = fit.distance
            if k % 50 == 49:
                self._tell(f"screening {k + 1} of {self.plan.screened}")
        return sorted(distances, key=lambda reading: distances[reading])

    def _descend(self, start: Reading, number: int, rules: Container[str] = RULES) -> None:
        """Change one axis at a time while that brings the corners closer.

        Args:
            start: The reading to start from.
            number: Which of several orders of the neighbours.
            rules: The step rules that are allowed.
        """
        best = start.canonical()
        fit = self._corners(best)
        left = self._around(best, number, 0)
        for look in range(self.plan.looks):
            while left and left[-1].rule not in rules:
                left.pop()
            if not left:
                break
            candidate = left.pop()
            other = self._corners(candidate, bound=_KEPT * fit.distance)
            if other.distance < fit.distance:
                best = candidate
                fit = other
                left = self._around(best, number, look + 1)
        self.descents.append(fit.distance)
        self._tell(f"descent {len(self.descents)}: {fit.distance:.2f}")

    def _around(self, reading: Reading, number: int, look: int) -> list[Reading]:
        """Return the neighbours of a reading in a random order."""
        around = list(neighbours(reading))
        order = draws.permutation(len(around), self.plan.seed, "descent", number, look)
        return [around[k] for k in order]

    def _best(self, count: int, rules: Container[str] = RULES) -> list[Reading]:
        """Return the readings that are closest on the corners."""
        allowed = [reading for reading in self.fits if reading.rule in rules]
        return sorted(allowed, key=lambda reading: self.fits[reading].distance)[:count]

    # -- distances --------------------------------------------------------------------------------

    def on_table(self, reading: Reading) -> Fit:
        """Return the fit on all cells of Table 2, with the best criterion.

        Args:
            reading: The reading.
        """
        logs = np.zeros(len(CRITERIA))
        for cell in self.table:
            logs += self._log(self.short_run(reading, cell), cell)
        best = int(logs.argmin())
        return Fit(math.exp(logs[best] / len(self.table)), CRITERIA[best])

    def _corners(self, reading: Reading, bound: float = math.inf) -> Fit:
        """Return the fit on the four corners of Table 2, with the best criterion.

        Args:
            reading: The reading.
            bound: The runs end as soon as the distance cannot be smaller than this.
        """
        self.tried.add(reading)
        if reading not in self.fits:
            # The shortest runs first: most readings need no other.
            corners = [("noniid", 15), ("iid", 15), ("iid", 1), ("noniid", 1)]
            fit = self._fit(reading, [self._cell(*corner) for corner in corners], bound)
            if math.isinf(fit.distance):
                return fit
            self.fits[reading] = fit
        return self.fits[reading]

    def _fit(self, reading: Reading, cells: Sequence[Cell], bound: float = math.inf) -> Fit:
        """Return the fit on some cells; the distance is infinite if it exceeds the bound."""
        logs = np.zeros(len(CRITERIA))
        for cell in cells:
            curves = self.short_run(reading, cell)
            logs += self._graded_log(curves, cell)
            if math.exp(logs.min() / len(cells)) > bound:
                return Fit(math.inf, CRITERIA[0])
        best = int(logs.argmin())
        return Fit(math.exp(logs[best] / len(cells)), CRITERIA[best])

    def _log(self, curves: Curves, cell: Cell) -> NDArray[np.float64]:
        """Return |log(ours/paper)| of each criterion."""
        return np.abs(np.log(np.maximum(curves.reached(NOT_REACHED), 1.0) / cell.paper))

    def _graded_log(self, curves: Curves, cell: Cell) -> NDArray[np.float64]:
        """Return the same of a short run, graded by how far a criterion is missed."""
        length = self.length(cell)
        share = np.minimum(curves.missing() / _FAR, 1.0)
        missed = length * (NOT_REACHED / length) ** share
        rounds = np.minimum(curves.reached(math.inf), missed)
        return np.abs(np.log(np.maximum(rounds, 1.0) / cell.paper))

    def length(self, cell: Cell) -> int:
        """Return the rounds of a run of the search.

        Args:
            cell: The cell of Table 2.
        """
        every = self.plan.setting.measured
        longest = math.ceil(_LONGEST * cell.paper / every) * every
        return min(longest, self.plan.rounds)

    def short_run(self, reading: Reading, cell: Cell) -> Curves:
        """Return the curves of a run of the search.

        Args:
            reading: The reading.
            cell: Split and exponent.
        """
        return self.runs.curves(reading, cell, self.plan.seed, self.length(cell))

    def full_run(self, reading: Reading, cell: Cell, seed: int) -> Curves:
        """Return the curves of a run of full length.

        Args:
            reading: The reading.
            cell: Split and exponent.
            seed: Seed of links, batches and start.
        """
        return self.runs.curves(reading, cell, seed, self.plan.rounds, stop=False)

    def _cell(self, split: str, p: int) -> Cell:
        return next(cell for cell in self.table if (cell.split, cell.p) == (split, p))

    def _tell(self, text: str) -> None:
        made = f"{self.runs.made} new runs"
        print(f"search_readings: {text}, {made}", file=sys.stderr, flush=True)

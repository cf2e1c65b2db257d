"""The search of readings: screening, descent, finals.

The distance of a reading is exp of the mean |log(ours/paper)| over cells of Table 2, as in
`readings`. A criterion that a run does not reach counts as 1,000 rounds; in screening and descent,
whose runs are shorter, as fewer the closer it came.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

import gossamer as gs
from gossamer import draws
from papers.wpm.reading_runs import CRITERIA, Cell, Criterion, Curves, Runs, Setting, table2
from papers.wpm.reading_space import Reading, drawn, neighbours

NOT_REACHED = 1000.0  # rounds
# A run of the first two stages ends at this multiple of the paper's rounds.
_LONGEST = 1.5
# A criterion that is missed by this much in accuracy or loss counts as not reached at all.
_FAR = 0.2
# The screening runs a second cell from this accuracy on.
_PROMISING = 0.75
# A descent also finishes the runs of readings that are at most this factor worse than its best.
_KEPT = 1.08
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
        shown: Readings that are confirmed and shown.
        seed: Seed of the draws, and of the runs of screening and descent.
        last_seed: Seed of the runs of the finals.
        fresh_seeds: Seeds of the runs of the confirmation.
    """

    setting: Setting = field(default_factory=Setting)
    rounds: int = 500
    screened: int = 340
    starts: int = 2
    restarts: int = 1
    looks: int = 100
    finalists: int = 12
    shown: int = 10
    seed: int = 100
    last_seed: int = 0
    fresh_seeds: tuple[int, ...] = (200, 201)


TINY = Plan(
    Setting(gs.Digits(), 0.3053, 0.3760, batch=32, test_every=4),
    rounds=20,
    screened=2,
    starts=1,
    restarts=0,
    looks=6,
    finalists=1,
    shown=1,
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
            best = self._descend(start, k)
            self._tell(f"descent {k + 1} of {len(starts)}: {best.distance:.2f}")
        self._run_finals()

    # -- stages -----------------------------------------------------------------------------------

    def _screen(self) -> list[Reading]:
        """Return the readings of the screening, the closest first."""
        hard = self._cell("noniid", 15)
        distances: dict[Reading, float] = {}
        for k in range(self.plan.screened):
            reading = drawn(self.plan.seed, k)
            self.tried.add(reading)
            curves = self._short(reading, hard)
            self.screened[reading] = max(curves.at(name, hard.paper) for name in _SHOWN)
            if self.screened[reading] >= _PROMISING:
                fit = self._fit(reading, [hard, self._cell("noniid", 1)])
                distances[reading] = fit.distance
            if k % 50 == 49:
                self._tell(f"screening {k + 1} of {self.plan.screened}")
        return sorted(distances, key=lambda reading: distances[reading])

    def _descend(self, start: Reading, number: int) -> Fit:
        """Change one axis at a time while that brings the corners closer."""
        best = start
        fit = self._corners(best)
        left = self._around(best, number, 0)
        for look in range(self.plan.looks):
            if not left:
                break
            candidate = left.pop()
            other = self._corners(candidate, bound=_KEPT * fit.distance)
            if other.distance < fit.distance:
                best = candidate
                fit = other
                left = self._around(best, number, look + 1)
        return fit

    def _around(self, reading: Reading, number: int, look: int) -> list[Reading]:
        """Return the neighbours of a reading in a random order."""
        around = list(neighbours(reading))
        order = draws.permutation(len(around), self.plan.seed, "descent", number, look)
        return [around[k] for k in order]

    def _run_finals(self) -> None:
        """Run the best readings on all cells."""
        ranked = sorted(self.fits, key=lambda reading: self.fits[reading].distance)
        for reading in ranked[: self.plan.finalists]:
            logs = np.zeros(len(CRITERIA))
            for cell in self.table:
                logs += self._log(self.full_run(reading, cell, self.plan.last_seed), cell)
            best = int(logs.argmin())
            fit = Fit(math.exp(logs[best] / len(self.table)), CRITERIA[best])
            self.finals[reading] = fit
            self._tell(f"final: {fit.distance:.2f}")

    # -- distances --------------------------------------------------------------------------------

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
            curves = self._short(reading, cell)
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
        length = self._length(cell)
        share = np.minimum(curves.missing() / _FAR, 1.0)
        missed = length * (NOT_REACHED / length) ** share
        rounds = np.minimum(curves.reached(math.inf), missed)
        return np.abs(np.log(np.maximum(rounds, 1.0) / cell.paper))

    def _length(self, cell: Cell) -> int:
        every = self.plan.setting.measured
        longest = math.ceil(_LONGEST * cell.paper / every) * every
        return min(longest, self.plan.rounds)

    def _short(self, reading: Reading, cell: Cell) -> Curves:
        return self.runs.curves(reading, cell, self.plan.seed, self._length(cell))

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

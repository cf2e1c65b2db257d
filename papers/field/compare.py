"""Read the results of the tasks, and compare two methods in a cell, paired by seed.

The rules that every comparison follows:

- A run that diverged reaches no target, and its accuracy is 0.
- Two methods are compared at the hardest target that one of them reaches on all seeds, unless
  another target is named. If they reach none, there is no comparison.
- If the method that is praised misses the target on one seed, there is no comparison: it fails.
- If the other misses it, its cost is that of its whole run, a lower bound: the rounds of the task,
  or its megabytes or seconds per round (of its runs that reached a target in this cell) times those
  rounds. If no run of it reached any target, its bytes and seconds are unknown: there is no
  comparison.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from gossamer.errors import DataError
from gossamer.study import Interval, interval
from papers.field import cells
from papers.field.cells import Cell, Task

# The tasks by the names of their files.
TASKS: dict[str, Task] = {
    "digits": cells.DIGITS,
    "mnist": cells.MNIST,
    "fashion": cells.FASHION,
    "cifar": cells.CIFAR,
}
COSTS = ("rounds", "megabytes", "seconds")
ACCURACIES = ("accuracy", "accuracy_worst", "accuracy_merged")
TARGETS = ("first", "middle", "last")
# In place of a target: the hardest that one of the methods in question reaches on all seeds.
HARDEST = "hardest"

Row = dict[str, str]
Key = tuple[Cell, str]  # cell and method


@dataclass(frozen=True)
class Measured:
    """The results of all tasks that were measured.

    Attributes:
        runs: The rows by cell and method, each by seed.
        central: Names of the methods that need a server or the mean of all devices.
    """

    runs: dict[Key, dict[int, Row]]
    central: frozenset[str]

    @cached_property
    def cells(self) -> list[Cell]:
        """The cells, in the order of the files."""
        return list(dict.fromkeys(cell for cell, _ in self.runs))

    @cached_property
    def tasks(self) -> list[str]:
        """The names of the tasks that were measured."""
        return list(dict.fromkeys(task_name(cell) for cell in self.cells))

    def methods(self, cell: Cell, central: bool = False) -> list[str]:
        """Return the names of the methods that were run on a cell.

        Args:
            cell: The cell.
            central: Whether to include those that need a server.
        """
        found = []
        for where, method in self.runs:
            if where == cell and (central or method not in self.central):
                found.append(method)
        return found


def load(folder: Path) -> Measured:
    """Read the results of the tasks that a folder has.

    Args:
        folder: The folder with `digits.csv`, `mnist.csv`, `fashion.csv` and `cifar.csv`, or some.

    Raises:
        DataError: If it has none of them.
    """
    runs: dict[Key, dict[int, Row]] = {}
    central = set()
    for name, task in TASKS.items():
        path = folder / f"{name}.csv"
        if not path.exists():
            continue
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                cell = Cell(task, row["split"], row["network"], int(row["devices"]))
                runs.setdefault((cell, row["method"]), {})[int(row["seed"])] = row
                if row["central"] == "True":
                    central.add(row["method"])
    if not runs:
        raise DataError(f"{folder} has no results: run `gossamer reproduce field digits` first")
    return Measured(runs, frozenset(central))


def task_name(cell: Cell) -> str:
    """Return the name of a cell's task, as in the names of files."""
    for name, task in TASKS.items():
        if task == cell.task:
            return name
    raise ValueError(cell.task.name)


def cell_name(cell: Cell) -> str:
    """Return a cell as advice.toml names it, such as "digits: iid, random ring, 20"."""
    return f"{task_name(cell)}: {cell.split}, {cell.network}, {cell.devices}"


def compare(
    measured: Measured, cell: Cell, method: str, than: str, quantity: str, target: str
) -> Interval | None:
    """Return how much better a method is than another in a cell: the mean over paired seeds.

    Args:
        measured: The results.
        cell: The cell.
        method: The method that is praised.
        than: The other one.
        quantity: One of COSTS or ACCURACIES.
        target: One of TARGETS, or HARDEST; of no effect on accuracies.

    Returns:
        For a cost, the share that the method saves, in per cent; for an accuracy, the points that
        it has more. None if there is no comparison, see above.
    """
    ours = measured.runs[cell, method]
    others = measured.runs[cell, than]
    if target == HARDEST:
        target = hardest(measured, cell, (method, than))
    better = []
    for seed in sorted(ours.keys() & others.keys()):
        if quantity in ACCURACIES:
            difference = _accuracy(ours[seed], quantity) - _accuracy(others[seed], quantity)
            better.append(100 * difference)
            continue
        cost = _cost(cell, ours[seed], quantity, target)
        other = cost_or_bound(measured, cell, than, seed, quantity, target)
        if cost is None or other is None:
            return None
        better.append(100 * (1 - cost / other))
    if not better:
        return None
    return interval(better)


def hardest(measured: Measured, cell: Cell, methods: Iterable[str]) -> str:
    """Return the hardest target of a cell that one of some methods reaches on all seeds.

    Args:
        measured: The results.
        cell: The cell.
        methods: Names of the methods.

    Returns:
        One of TARGETS; the first if they reach none.
    """
    found = TARGETS[0]
    for target in TARGETS:
        for method in methods:
            if mean_cost(measured, cell, method, "rounds", target) is not None:
                found = target
    return found


def cost_or_bound(
    measured: Measured, cell: Cell, method: str, seed: int, quantity: str, target: str
) -> float | None:
    """Return what a run needs to reach a target, or what the whole run takes if it does not.

    Args:
        measured: The results.
        cell: The cell.
        method: The method.
        seed: The seed.
        quantity: One of COSTS.
        target: One of TARGETS.

    Returns:
        The cost; None if the target is not reached and the cost of a round is not known.
    """
    runs = measured.runs[cell, method]
    found = _cost(cell, runs[seed], quantity, target)
    if found is not None:
        return found
    per_round = _per_round(cell, runs.values(), quantity)
    if per_round is None:
        return None
    return per_round * cell.task.rounds


def ranked(measured: Measured, cell: Cell, quantity: str, target: str) -> list[tuple[str, float]]:
    """Return the methods of a cell that reach a target on all seeds, the cheapest first.

    Args:
        measured: The results; methods that need a server are left out.
        cell: The cell.
        quantity: One of COSTS.
        target: One of TARGETS, or HARDEST of all methods.

    Returns:
        Names and mean costs.
    """
    if target == HARDEST:
        target = hardest(measured, cell, measured.methods(cell))
    found = []
    for method in measured.methods(cell):
        mean = mean_cost(measured, cell, method, quantity, target)
        if mean is not None:
            found.append((method, mean.mean))
    return sorted(found, key=lambda pair: pair[1])


def mean_cost(
    measured: Measured, cell: Cell, method: str, quantity: str, target: str
) -> Interval | None:
    """Return what a method needs to reach a target; None if it misses it on one seed."""
    costs = []
    for row in measured.runs[cell, method].values():
        cost = _cost(cell, row, quantity, target)
        if cost is None:
            return None
        costs.append(cost)
    return interval(costs)


def _cost(cell: Cell, row: Row, quantity: str, target: str) -> float | None:
    """Return what a run needs to reach a target; None if it does not or diverges."""
    value = cell.task.targets[TARGETS.index(target)]
    text = row[f"{quantity}_to_{value:g}"]
    if row["diverged"] == "True" or not text:
        return None
    return float(text)


def _per_round(cell: Cell, rows: Iterable[Row], quantity: str) -> float | None:
    """Return the mean cost of a round, from the runs that reached a target."""
    if quantity == "rounds":
        return 1.0
    spent = 0.0
    rounds = 0.0
    for row in rows:
        for target in TARGETS:
            cost = _cost(cell, row, quantity, target)
            if cost is not None:
                spent += cost
                rounds += _cost(cell, row, "rounds", target) or 0.0
    if not rounds:
        return None
    return spent / rounds


def _accuracy(row: Row, quantity: str) -> float:
    if row["diverged"] == "True":
        return 0.0
    return float(row[quantity])

"""Tables of the pages, made from the results of the tasks.

A page has `<!-- field NAME -->`, a table and `<!-- end -->`; `python -m papers.blocks` fills it by
`table(NAME)`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache

from gossamer._core import checks
from gossamer.algorithms import METHODS
from gossamer.study import Interval
from papers.families import AGGREGATE
from papers.field.advice import RESULTS, claims, summary
from papers.field.cells import SPLIT_NAMES, SPLITS, Cell
from papers.field.compare import (
    HARDEST,
    TARGETS,
    TASKS,
    Measured,
    compare,
    hardest,
    load,
    mean_cost,
    ranked,
    task_name,
)

# What a table about IID data compares.
_IID = ("d-psgd", AGGREGATE, "momentum", "quasi-global", "d-adam", "wpm", "gain-control")
# A power mean and its control.
PAIRS = (("wpm", "gain-control"), ("wpm-quasi-global", "gain-quasi-global"))
# What the table of learning rates lists.
_WITH_RATES = (
    "d-psgd",
    AGGREGATE,
    "momentum",
    "d-adam",
    "quasi-global",
    "tracking",
    "gain-control",
    "fading-gain",
    "wpm",
)
# Names of methods that are listed beside the best one, at most.
_TIES_SHOWN = 3


@cache
def results() -> Measured:
    """Return the committed results."""
    return load(RESULTS)


def table(name: str) -> str:
    """Return a table as Markdown.

    Args:
        name: A key of TABLES.

    Raises:
        InputError: If there is no such table.
    """
    checks.one_of("field", name, TABLES)
    return TABLES[name](results())


def places(measured: Measured) -> list[tuple[str, str, int]]:
    """Return split, network and number of devices of all cells, those of each split together."""
    found = {(cell.split, cell.network, cell.devices) for cell in measured.cells}
    order = {split: k for k, split in enumerate(SPLITS)}
    return sorted(found, key=lambda place: (order[place[0]], place[1] != "random ring", *place[1:]))


def find(measured: Measured, task: str, place: tuple[str, str, int]) -> Cell | None:
    """Return the cell of a task at a place, if it was measured."""
    cell = Cell(TASKS[task], *place)
    if cell in measured.cells:
        return cell
    return None


def ties(measured: Measured, cell: Cell, quantity: str) -> list[str]:
    """Return the best method of a cell, and all that do not need significantly more.

    Args:
        measured: The results.
        cell: The cell.
        quantity: A cost, to the hardest target that any method reaches on all seeds.

    Returns:
        Names, the cheapest first; empty if no method reaches a target on all seeds.
    """
    target = hardest(measured, cell, measured.methods(cell))
    order = ranked(measured, cell, quantity, target)
    if not order:
        return []
    best = order[0][0]
    found = [best]
    for method, _ in order[1:]:
        lead = compare(measured, cell, best, method, quantity, target)
        if lead is None or not is_sure(lead):
            found.append(method)
    return found


def is_sure(lead: Interval) -> bool:
    """Return whether a 95 % interval excludes 0."""
    return lead.half is not None and abs(lead.mean) > lead.half


def percent(cell: Cell, target: str) -> str:
    """Return a target of a cell in per cent."""
    return f"{100 * cell.task.targets[TARGETS.index(target)]:g}"


def _best(quantity: str) -> Callable[[Measured], str]:
    """Return a function that makes the table of the best methods in each cell."""

    def make(measured: Measured) -> str:
        lines = heading("data", "links", "devices", *measured.tasks)
        for place in places(measured):
            row = [SPLIT_NAMES[place[0]], place[1], str(place[2])]
            for task in measured.tasks:
                row.append(_best_in(measured, find(measured, task, place), quantity))
            lines.append(markdown_row(row))
        return joined(lines)

    return make


def _best_in(measured: Measured, cell: Cell | None, quantity: str) -> str:
    """Return the best method of a cell, its cost, and the names of those that are as good."""
    if cell is None:
        return ""
    names = ties(measured, cell, quantity)
    if not names:
        return "–"
    target = hardest(measured, cell, names)
    cost = mean_cost(measured, cell, names[0], quantity, target)
    assert cost is not None  # it reaches the target
    text = f"{names[0]} {cost.mean:.3g}"
    if target != TARGETS[-1]:
        text += f" (to {percent(cell, target)} %)"
    others = names[1:]
    if not others:
        return f"**{text}**"
    shown = ", ".join(others[:_TIES_SHOWN])
    if len(others) > _TIES_SHOWN:
        shown += f" and {len(others) - _TIES_SHOWN} more"
    return f"{text}; {shown}"


def _power_means(measured: Measured) -> str:
    """Return what a power mean saves against its control, in each cell."""
    heads = []
    for task in measured.tasks:
        for power, gain in PAIRS:
            heads.append(f"{task}: {power} against {gain}")
    lines = heading("data", "links", "devices", *heads)
    for place in places(measured):
        row = [SPLIT_NAMES[place[0]], place[1], str(place[2])]
        for task in measured.tasks:
            cell = find(measured, task, place)
            row += [_saved(measured, cell, *pair) for pair in PAIRS]
        lines.append(markdown_row(row))
    return joined(lines)


def _power_verdicts(measured: Measured) -> str:
    """Return in how many cells a power mean or its control needs significantly fewer rounds."""
    titles = ("power mean fewer rounds", "no significant difference", "gain fewer rounds")
    lines = heading("task", "power mean", "control", *titles, "both miss all targets")
    for task in measured.tasks:
        for power, gain in PAIRS:
            counts: Counter[str] = Counter()
            for cell in measured.cells:
                if cell.task == TASKS[task]:
                    counts[_verdict(measured, cell, power, gain)] += 1
            numbers = [str(counts[name]) for name in (power, "neither", gain, "")]
            lines.append(markdown_row([task, power, gain, *numbers]))
    return joined(lines)


def _verdict(measured: Measured, cell: Cell, method: str, than: str) -> str:
    """Return the one of two methods that needs significantly fewer rounds, or "neither".

    Empty if both miss all targets.
    """
    for better, worse in ((method, than), (than, method)):
        lead = compare(measured, cell, better, worse, "rounds", HARDEST)
        if lead is not None:
            if not is_sure(lead):
                return "neither"
            return better if lead.mean > 0 else worse
    return ""


def _saved(measured: Measured, cell: Cell | None, method: str, than: str) -> str:
    """Return the rounds that a method saves against another, in per cent."""
    if cell is None:
        return ""
    target = hardest(measured, cell, (method, than))
    lead = compare(measured, cell, method, than, "rounds", target)
    other = mean_cost(measured, cell, than, "rounds", target)
    if lead is None and other is None:
        return "–"
    to = ""
    if target != TARGETS[-1]:
        to = f" (to {percent(cell, target)} %)"
    if lead is None:
        return f"misses it{to}"
    text = f"{lead.mean:.0f} ± {_half(lead)}"
    if other is None:
        text = f"≥ {text}"
    if is_sure(lead):
        text = f"**{text}**"
    return text + to


def _iid(measured: Measured) -> str:
    """Return rounds to the hardest target that is reached on IID data, by method."""
    lines = heading("task", "links", "devices", "target", *_IID)
    for cell in measured.cells:
        if cell.split != "iid":
            continue
        target = hardest(measured, cell, measured.methods(cell))
        row = [task_name(cell), cell.network, str(cell.devices), f"{percent(cell, target)} %"]
        for method in _IID:
            row.append(rounds_text(mean_cost(measured, cell, method, "rounds", target)))
        lines.append(markdown_row(row))
    return joined(lines)


def _methods(measured: Measured) -> str:
    """Return every method with 20 devices on the random ring, or on the static ring if it must."""
    heads = ["method", "paper", "needs"]
    columns = []
    for split in ("iid", "one label"):
        for task in measured.tasks:
            if find(measured, task, (split, "random ring", 20)) is not None:
                columns.append((task, split))
                heads.append(f"{task}, {SPLIT_NAMES[split]}")
    lines = heading(*heads)
    for name, entry in METHODS.items():
        row = [name, entry.paper, entry.needs]
        row += [_on_a_ring(measured, task, split, name) for task, split in columns]
        lines.append(markdown_row(row))
    return joined(lines)


def ring(measured: Measured, task: str, split: str, method: str) -> Cell | None:
    """Return the random ring of 20 devices, or else the static ring, if a method ran on it."""
    for network in ("random ring", "static ring"):
        cell = find(measured, task, (split, network, 20))
        if cell is not None and method in measured.methods(cell, central=True):
            return cell
    return None


def _on_a_ring(measured: Measured, task: str, split: str, method: str) -> str:
    """Return the result of a method on the random ring, or else on the static ring."""
    cell = ring(measured, task, split, method)
    if cell is None:
        return ""
    mark = " (static)" if cell.network == "static ring" else ""
    return _rounds_and_bytes(measured, cell, method) + mark


def _rounds_and_bytes(measured: Measured, cell: Cell, method: str) -> str:
    """Return rounds and megabytes to the last target, or the final accuracy if it is missed."""
    rounds = mean_cost(measured, cell, method, "rounds", "last")
    if rounds is None:
        rows = measured.runs[cell, method].values()
        accuracy = sum(float(row["accuracy"]) for row in rows) / len(rows)
        return f"– ({accuracy:.1%})".replace("%", " %")
    sent = mean_cost(measured, cell, method, "megabytes", "last")
    assert sent is not None  # it reaches the target
    return f"{rounds_text(rounds)} / {sent.mean:.3g} MB"


def _rates(measured: Measured) -> str:
    """Return the smallest and the largest tuned learning rate of some methods."""
    lines = heading("task", "data", *_WITH_RATES)
    for task in measured.tasks:
        for split in SPLITS:
            row = [task, SPLIT_NAMES[split]]
            row += [_rate(measured, task, split, method) for method in _WITH_RATES]
            lines.append(markdown_row(row))
    return joined(lines)


def _rate(measured: Measured, task: str, split: str, method: str) -> str:
    """Return the range of the tuned rates of a method over the networks of a task and split."""
    rates = []
    for (cell, name), runs in measured.runs.items():
        if name == method and cell.split == split and cell.task == TASKS[task]:
            setting = next(iter(runs.values()))["setting"]
            rates.append(float(setting.split()[0].removeprefix("eta=")))
    if not rates:
        return ""
    if min(rates) == max(rates):
        return f"{rates[0]:g}"
    return f"{min(rates):g} to {max(rates):g}"


def _tasks(measured: Measured) -> str:
    """Return what was measured: targets, cells, methods and seeds of each task."""
    lines = heading("task", "rounds", "batch", "targets", "cells", "methods", "seeds")
    for name in measured.tasks:
        task = TASKS[name]
        cells = [cell for cell in measured.cells if cell.task == task]
        methods = {method for cell, method in measured.runs if cell.task == task}
        seeds = {len(runs) for (cell, _), runs in measured.runs.items() if cell.task == task}
        targets = ", ".join(f"{100 * target:g}" for target in task.targets)
        counts = [str(len(cells)), str(len(methods)), str(min(seeds))]
        lines.append(
            markdown_row([task.name, str(task.rounds), str(task.batch), targets + " %", *counts])
        )
    return joined(lines)


def _edges(measured: Measured) -> str:
    """Return how many tuned settings are at the end of an axis, by task."""
    lines = heading("task", "tuned", "at the end of an axis", "of them")
    for name in measured.tasks:
        tuned = 0
        at_edge = 0
        axes: Counter[str] = Counter()
        for (cell, method), runs in measured.runs.items():
            if cell.task != TASKS[name]:
                continue
            tuned += 1
            edge = next(iter(runs.values()))["at_edge"]
            if edge:
                at_edge += 1
                axes.update(f"{axis} of {method}" for axis in edge.split())
        which = ", ".join(f"{axis} {count}" for axis, count in axes.most_common())
        lines.append(markdown_row([name, str(tuned), str(at_edge), which]))
    return joined(lines)


def rounds_text(mean: Interval | None) -> str:
    if mean is None:
        return "–"
    return f"{mean.mean:.0f} ± {_half(mean)}"


def _half(mean: Interval) -> str:
    """Return half of an interval; a question mark if there is one seed only."""
    if mean.half is None:
        return "?"
    return f"{mean.half:.0f}"


def heading(*titles: str) -> list[str]:
    return [markdown_row(titles), markdown_row("---" for _ in titles)]


def markdown_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def joined(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


TABLES: dict[str, Callable[[Measured], str]] = {
    "advice": summary,
    "claims": claims,
    "tasks": _tasks,
    "best by rounds": _best("rounds"),
    "best by megabytes": _best("megabytes"),
    "best by seconds": _best("seconds"),
    "power means": _power_means,
    "power verdicts": _power_verdicts,
    "iid": _iid,
    "methods": _methods,
    "rates": _rates,
    "edges": _edges,
}

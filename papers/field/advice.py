"""Advice that is a test: every row of docs/how-to-choose.md is checked against the results.

`advice.toml` has the rows: a situation, a method, a reason, and what they rest on:

- `claim`: method A needs at least x % fewer rounds, megabytes or seconds than B, or has at least x
  points more accuracy, in every cell that matches, except in those that `fails` lists. In a cell it
  holds if the mean over the paired seeds is at least x and, where x is above 0, its 95 % interval
  is above 0 too. `papers.field.compare` says what counts if a target is not reached.
- `accepts`: the methods that accept one-way links; all others refuse them. Found by running them.
- `evidence`: a sentence with numbers or checks of other files, see `papers.values`.

`python -m papers.field.verdicts` prints every claim with its lead in every cell, and what is wrong.
"""

from __future__ import annotations

import statistics
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from gossamer.errors import InputError
from gossamer.study import Interval
from papers.field.cells import SPLIT_NAMES, SPLITS, Cell
from papers.field.compare import (
    ACCURACIES,
    COSTS,
    HARDEST,
    TARGETS,
    TASKS,
    Measured,
    cell_name,
    compare,
    hardest,
    ranked,
    task_name,
)

HERE = Path(__file__).parent
RESULTS = HERE / "results"
# In place of a method: the best of the others in the cell.
BEST = "best"
_UNITS = {
    "rounds": "rounds",
    "megabytes": "bytes",
    "seconds": "simulated seconds",
    "accuracy": "accuracy",
    "accuracy_worst": "accuracy of the worst device",
    "accuracy_merged": "accuracy of the merged model",
}


@dataclass(frozen=True)
class Claim:
    """Method A is better than B by at least x, in all cells that match.

    Attributes:
        method: A.
        than: B, or "best" for the best of all others that need no server.
        quantity: One of COSTS, of which A needs less, or ACCURACIES, of which it has more.
        at_least: x in per cent or points. Below 0: A is worse by at most that.
        target: The target to reach: "first", "middle" or "last" of the task, or the "hardest" that
            A or B reaches on all seeds.
        split: The splits; empty for all.
        network: The networks; empty for all.
        devices: The numbers of devices; empty for all.
        task: The tasks, by the names of their files; empty for all.
        fails: The cells in which the claim does not hold, as `cell_name` writes them.
    """

    method: str
    than: str
    quantity: str
    at_least: float
    target: str = HARDEST
    split: tuple[str, ...] = ()
    network: tuple[str, ...] = ()
    devices: tuple[int, ...] = ()
    task: tuple[str, ...] = ()
    fails: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _one_of("quantity", self.quantity, (*COSTS, *ACCURACIES))
        _one_of("target", self.target, (*TARGETS, HARDEST))
        for split in self.split:
            _one_of("split", split, SPLITS)
        for task in self.task:
            _one_of("task", task, TASKS)

    def cells(self, measured: Measured) -> Iterator[tuple[Cell, str]]:
        """Yield the cells in which both methods were run, with the name of B."""
        for cell in measured.cells:
            methods = measured.methods(cell, central=True)
            other = self.than
            if other == BEST:
                other = _best_other(measured, cell, self)
            if self._matches(cell) and self.method in methods and other in methods:
                yield cell, other

    def _matches(self, cell: Cell) -> bool:
        for value, wanted in (
            (cell.split, self.split),
            (cell.network, self.network),
            (cell.devices, self.devices),
            (task_name(cell), self.task),
        ):
            if wanted and value not in wanted:
                return False
        return True


@dataclass(frozen=True)
class Verdict:
    """What the results say about a claim in one cell.

    Attributes:
        cell: The cell.
        lead: By how much A is better; None if A misses the target.
        holds: Whether the claim holds.
    """

    cell: Cell
    lead: Interval | None
    holds: bool


@dataclass(frozen=True)
class Advice:
    """One row of the table.

    Attributes:
        situation: Data and links.
        method: The method to take, as Markdown.
        reason: Why.
        claims: What it rests on.
        accepts: The only methods that accept one-way links; empty if the row is not about them.
        evidence: A sentence with values or checks of other files.
    """

    situation: str
    method: str
    reason: str
    claims: tuple[Claim, ...] = ()
    accepts: tuple[str, ...] = ()
    evidence: str = ""


def read(path: Path = HERE / "advice.toml") -> list[Advice]:
    """Read the rows.

    Args:
        path: The TOML file.

    Raises:
        InputError: If a field is unknown, missing or has a wrong value, or a row has no evidence.
    """
    found = []
    for table in tomllib.loads(path.read_text())["advice"]:
        claims = tuple(_made(Claim, claim) for claim in table.pop("claim", ()))
        advice = _made(Advice, table | {"claims": claims})
        is_checked = "<!-- check" in advice.evidence or "<!-- value" in advice.evidence
        if not (advice.claims or advice.accepts or is_checked):
            raise InputError("claim", advice.situation, "a claim, `accepts` or checked `evidence`")
        found.append(advice)
    return found


def judge(claim: Claim, measured: Measured) -> list[Verdict]:
    """Return the verdict on a claim in each of its cells.

    Args:
        claim: The claim.
        measured: The results.
    """
    found = []
    for cell, other in claim.cells(measured):
        lead = compare(measured, cell, claim.method, other, claim.quantity, claim.target)
        found.append(Verdict(cell, lead, _holds(claim, lead)))
    return found


def problems(advice: Iterable[Advice], measured: Measured) -> list[str]:
    """Return what the rows say that the results do not.

    Args:
        advice: The rows.
        measured: The results.

    Returns:
        One sentence for each cell in which a claim fails though it is not listed, or holds though
        it is listed as failing; and for each claim without a cell, or that fails in most.
    """
    found = []
    for row in advice:
        for claim in row.claims:
            name = f"{row.situation}: {claim.method} before {claim.than} in {claim.quantity}"
            verdicts = judge(claim, measured)
            for verdict in verdicts:
                cell = cell_name(verdict.cell)
                if not verdict.holds and cell not in claim.fails:
                    found.append(f'{name} does not hold on "{cell}": {lead_text(verdict)}')
                if verdict.holds and cell in claim.fails:
                    found.append(f'{name} holds on "{cell}", which is listed: {lead_text(verdict)}')
            cells = {cell_name(verdict.cell) for verdict in verdicts}
            unknown = sorted(set(claim.fails) - cells)
            if unknown:
                found.append(f"{name}: {unknown} is no cell of the claim")
            failed = sum(not verdict.holds for verdict in verdicts)
            if 2 * failed >= len(verdicts):
                found.append(f"{name} fails in {failed} of {len(verdicts)} cells")
    return found


def summary(measured: Measured) -> str:
    """Return the table of docs/how-to-choose.md as Markdown: where every claim holds.

    Args:
        measured: The results.
    """
    lines = ["| data and links | method | reason | measured |", "|---|---|---|---|"]
    for row in read():
        parts = []
        for claim in row.claims:
            verdicts = judge(claim, measured)
            parts.append(f"{claim_text(claim, verdicts)}: {', '.join(_counts(verdicts))}")
        if row.evidence:
            parts.append(row.evidence)
        if row.accepts:
            parts.append("all methods were run on one-way links")
        text = "<br>".join(parts)
        lines.append(f"| {row.situation} | {row.method} | {row.reason} | {text} |")
    return "\n".join(lines) + "\n"


def claims(measured: Measured) -> str:
    """Return the table of papers/field/README.md as Markdown: where every claim fails.

    Args:
        measured: The results.
    """
    lines = ["| data and links | claim | holds | fails |", "|---|---|---|---|"]
    for row in read():
        for claim in row.claims:
            verdicts = judge(claim, measured)
            failed = []
            for task, some in _by_task(verdicts).items():
                names = [_short_name(verdict.cell) for verdict in some if not verdict.holds]
                if names:
                    failed.append(f"{task}: {', '.join(names)}")
            cells = [claim_text(claim, verdicts), ", ".join(_counts(verdicts)), "; ".join(failed)]
            lines.append(f"| {row.situation} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _counts(verdicts: list[Verdict]) -> list[str]:
    """Return in how many cells of each task a claim holds."""
    counts = []
    for task, some in _by_task(verdicts).items():
        holds = sum(verdict.holds for verdict in some)
        counts.append(f"{task} {holds} of {len(some)}")
    return counts


def _by_task(verdicts: list[Verdict]) -> dict[str, list[Verdict]]:
    """Return the verdicts by the names of their tasks."""
    found: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        found.setdefault(task_name(verdict.cell), []).append(verdict)
    return found


def claim_text(claim: Claim, verdicts: list[Verdict]) -> str:
    """Return a claim in words, with the median of the leads."""
    leads = [verdict.lead.mean for verdict in verdicts if verdict.lead is not None]
    unit = _UNITS[claim.quantity]
    than = f"`{claim.than}`"
    if claim.than == BEST:
        than = "the best other method"
    amount = f"{abs(claim.at_least):g}"
    median = statistics.median(leads)
    start = f"`{claim.method}` at least {amount}"
    if claim.quantity in ACCURACIES:
        return f"{start} points more {unit} than {than} (median {median:.1f})"
    if claim.at_least <= 0:
        if claim.at_least == 0:
            return f"`{claim.method}` no more {unit} than {than} (median {median:.0f} % fewer)"
        return f"`{claim.method}` at most {amount} % more {unit} than {than}"
    return f"{start} % fewer {unit} than {than} (median {median:.0f} %)"


def _short_name(cell: Cell) -> str:
    """Return split and network; the number of devices where a network has several."""
    name = f"{SPLIT_NAMES[cell.split]} on {cell.network}"
    if cell.network == "random ring":
        name += f" with {cell.devices}"
    return name


def lead_text(verdict: Verdict) -> str:
    """Return the lead of a verdict, or why there is none."""
    if verdict.lead is None:
        return "a target is not reached"
    return verdict.lead.format()


def _holds(claim: Claim, lead: Interval | None) -> bool:
    if lead is None or lead.mean < claim.at_least:
        return False
    if claim.at_least <= 0:
        return True
    return lead.half is not None and lead.mean - lead.half > 0


def _best_other(measured: Measured, cell: Cell, claim: Claim) -> str:
    """Return the best of the other methods in a cell; an empty name if they reach no target."""
    others = [name for name in measured.methods(cell) if name != claim.method]
    target = claim.target
    if target == HARDEST:
        target = hardest(measured, cell, others)
    for method, _ in ranked(measured, cell, claim.quantity, target):
        if method != claim.method:
            return method
    return ""


def _made(kind: type[Any], table: Mapping[str, Any]) -> Any:
    """Make a dataclass from a table of TOML; raise InputError if a field does not fit."""
    known = {field.name: field for field in fields(kind)}
    values = {}
    for name, value in table.items():
        _one_of("field of advice.toml", name, known)
        if isinstance(value, list):
            value = tuple(value)
        values[name] = value
    try:
        return kind(**values)
    except TypeError as error:
        raise InputError("advice.toml", str(error), "all required fields") from None


def _one_of(field: str, value: object, known: Collection[str]) -> None:
    if value not in known:
        raise InputError(field, value, "one of " + ", ".join(known))

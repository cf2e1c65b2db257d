"""`gossamer tune`: search, write the winner, print the ranking."""

from __future__ import annotations

import json
import shlex
import sys
import textwrap
from pathlib import Path
from typing import Any, cast

import typer
from rich.console import Console
from rich.table import Table

from gossamer._core.columns import Column, Target
from gossamer._core.files import write_atomically
from gossamer.cli.progress import StageBar
from gossamer.cli.show import open_console, show_next
from gossamer.cli.tables import titled_table
from gossamer.cli.tune_words import (
    marked_settings,
    method_of_search,
    seeds_of,
    start_lines,
    target_of,
    verdict,
    why,
)
from gossamer.engines import EngineSpec
from gossamer.study import Interrupted, Interval, Study, spec
from gossamer.study.pools import pool_on
from gossamer.study.sweep import run_path
from gossamer.study.tune import Cost, Lead, Score, SearchStart, Tuned, choose
from gossamer.study.tune import tune as search

# Columns of the paragraph: in winner.toml behind "# ", and on the terminal.
_FILE_COLUMNS = 118
_MAX_COLUMNS = 120
# Characters that the whole table takes at least, and those of its settings.
_WIDE = 120
_SETTINGS_WIDTH = 16
# The columns of the metric, with their headings of its name and unit.
_ENDINGS = {
    "": "{0}\n{1}",
    "_worst": "worst\ndevice {1}",
    "_best": "best\ndevice {1}",
    "_merged": "merged\nmodel {1}",
}
# The columns of the ranking: the unit, its digits, and the factor that it is printed with.
_UNITS = (
    ("rounds", "rounds", 0, 1.0),
    ("bytes", "MB", 2, 1e-6),
    ("seconds", "seconds", 1, 1.0),
    ("joules", "joules", 1, 1.0),
)


def tune(
    study: Study,
    budget: int,
    target: str | None,
    goal: str,
    methods: str | None,
    folder: Path,
    engine: EngineSpec,
    workers: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Search, write winner.toml and result.json into the folder, and print the ranking.

    Args:
        study: What to tune.
        budget: The work to spend, in runs of the study's rounds.
        target: The target to reach, such as "mae <= 40", or None.
        goal: What to save: rounds, bytes or seconds; or the metric to optimise.
        methods: Names of methods, separated by commas; None for all.
        folder: The folder of the search.
        engine: Where the runs take place.
        workers: Runs at a time; 0 means one per core.
        as_json: Whether to print JSON.
        quiet: Whether to show no progress.

    Raises:
        Interrupted: If the user stops the search.
    """
    chosen = None
    if methods is not None:
        chosen = choose(methods.split(","))
    try:
        with pool_on(engine, workers) as pool, StageBar(quiet) as bar:
            tuned = search(
                study,
                budget,
                folder / "cells",
                methods=chosen,
                goal=goal,
                target=target,
                pool=pool,
                progress=bar,
                started=lambda start: _announce(start, quiet),
            )
    except KeyboardInterrupt:
        raise Interrupted(
            f"stopped; what is done is kept in {folder}, and the same command continues it"
        ) from None
    result = document(tuned)
    command = shlex.join(["gossamer", *sys.argv[1:]])
    winner = folder / "winner.toml"
    comment = f"Found by: {command}\n{textwrap.fill(result['why'], _FILE_COLUMNS)}"
    head = textwrap.indent(comment, "# ")
    write_atomically(winner, f"{head}\n\n{spec.dumps(tuned.spec)}".encode())
    text = json.dumps(result | {"command": command}, indent=2, ensure_ascii=False, default=str)
    write_atomically(folder / "result.json", f"{text}\n".encode())
    if as_json:
        typer.echo(text)
        return
    console = open_console()
    width = min(console.width, _MAX_COLUMNS)
    for paragraph in (verdict(tuned), ranking(tuned, console.width), method_of_search(tuned)):
        if isinstance(paragraph, str):
            paragraph = textwrap.fill(paragraph, width)
        console.print(paragraph, highlight=False, soft_wrap=True)
        console.print()
    option = ""
    if any(spec.code_tables(spec.to_table(tuned.spec))):
        option = " --allow-code"
    typer.echo(f"winner: {winner}")
    show_next(
        console,
        (
            (shlex.join(["gossamer", "run", str(winner)]) + option, "run the winner"),
            (shlex.join(["gossamer", "report", str(folder)]), "a page with all that was tried"),
        ),
    )


def _announce(start: SearchStart, quiet: bool) -> None:
    """Print what will be searched, and how long it will take, on standard error."""
    if quiet:
        return
    console = Console(stderr=True)
    for line in start_lines(start):
        console.print(line, highlight=False)


def ranking(tuned: Tuned, width: int) -> Table:
    """Return the table of the confirmed candidates, the best first.

    Args:
        tuned: The result of a search.
        width: Characters per line; a narrow table has only what decides.
    """
    study = tuned.study
    seeds = tuned.plan.final.seeds
    table = titled_table(
        f"{study.name}: {study.network.devices} devices, {study.rounds} rounds, "
        f"{len(seeds)} fresh seeds"
    )
    table.add_column("\n", justify="right")
    table.add_column("\nmethod", no_wrap=True)
    table.add_column("\nsettings", overflow="fold", min_width=_SETTINGS_WIDTH)
    units = _shown_units(tuned, width)
    for _, unit, _, _ in units:
        table.add_column(f"{unit}\nto {target_of(tuned)}", justify="right")
    metric = tuned.goal.metric
    endings = _shown_endings(tuned, width)
    for ending in endings:
        table.add_column(_ENDINGS[ending].format(metric.name, metric.printed_unit), justify="right")
    for place, score in enumerate(tuned.confirmed, 1):
        mark = ""
        style = None
        if score is tuned.winner:
            mark = "*"
            style = "bold"
        cells = [
            f"{place}{mark}",
            score.candidate.method.label,
            marked_settings(score.candidate, tuned),
        ]
        for goal, _, digits, scale in units:
            cells.append(_cell(score, cast(Cost, goal), tuned.target, digits, scale))
        for ending in endings:
            cells.append(_value_cell(score, metric, score.mean_last(metric.name + ending)))
        table.add_row(*cells, style=style)
    cadence = "at the end only"
    if study.measure.every:
        cadence = f"every {study.measure.every} rounds"
    table.caption = (
        f"* winner; mean ± 95 % interval over {seeds_of(tuned.plan.final)}; measured {cadence}"
    )
    table.caption_justify = "left"
    return table


def _shown_units(tuned: Tuned, width: int) -> list[tuple[str, str, int, float]]:
    """Return the units of the way to the target that a table of this width has."""
    if tuned.target is None:
        return []
    shown = _measured_goals(tuned)
    if width < _WIDE:
        shown = [tuned.goal.unit]
    return [unit for unit in _UNITS if unit[0] in shown]


def _shown_endings(tuned: Tuned, width: int) -> list[str]:
    """Return which columns of the metric a table of this width has."""
    shown = list(_ENDINGS)
    if width < _WIDE:
        shown = ["", tuned.goal.ending or "_worst"]
    name = tuned.goal.metric.name
    return [ending for ending in shown if _all_measured(tuned, name + ending)]


def _cell(score: Score, cost: Cost, target: Target | None, digits: int, scale: float) -> str:
    if score.diverged:
        return "diverged"
    mean = score.mean_to_target(cost, target)
    if mean is not None:
        return mean.format(digits, scale)
    taken = score.to_target(cost, target)
    reached = len(taken) - taken.count(None)
    if reached:
        return f"{reached} of {len(taken)} seeds"
    return "–"


def _value_cell(score: Score, metric: Column, value: Interval | None) -> str:
    if score.diverged or value is None:
        return "diverged"
    return metric.text(value.mean, value.half)


def _all_measured(tuned: Tuned, column: str) -> bool:
    """True if all runs have measured a column."""
    for score in tuned.confirmed:
        for curve in score.curves:
            if curve is not None and column not in curve:
                return False
    return True


def _measured_goals(tuned: Tuned) -> list[str]:
    """Return the units that the runs have: seconds and joules only if the study has them."""
    goals = ["rounds", "bytes"]
    if tuned.study.timing is not None:
        goals.append("seconds")
    if tuned.study.energy is not None:
        goals.append("joules")
    return goals


def document(tuned: Tuned) -> dict[str, Any]:
    """Return the result as plain values: what `--json` prints and result.json holds.

    Args:
        tuned: The result of a search.
    """
    winner = _candidate_document(tuned.winner, tuned)
    winner["chosen_by_search"] = tuned.winner.candidate == tuned.chosen
    winner["first_on_fresh_seeds"] = tuned.winner is tuned.confirmed[0]
    leads = {}
    for name, score in (("best_other", tuned.best_other), ("baseline", tuned.baseline)):
        if score is not tuned.winner:
            leads[name] = _lead_document(tuned.lead_over(score))
    rungs = []
    for rung, others, baseline in zip(tuned.plan.rungs, tuned.others, tuned.baselines, strict=True):
        rungs.append(
            {
                "rounds": rung.rounds,
                "seeds": list(rung.seeds),
                "ranking": [score.candidate.label for score in others],
                "baseline": [score.candidate.label for score in baseline],
            }
        )
    return {
        "name": tuned.study.name,
        "for": tuned.goal.cost or tuned.goal.column,
        "target": None if tuned.target is None else tuned.target.text,
        "metric": tuned.goal.column,
        "cost": tuned.plan.cost,
        "methods": tuned.fit.methods,
        "winner": winner,
        "leads": leads,
        "confirmed": [_score_document(score, tuned) for score in tuned.confirmed],
        "seeds": list(tuned.plan.final.seeds),
        "rungs": rungs,
        "left_out": tuned.fit.left_out,
        "spec": spec.to_table(tuned.spec),
        "verdict": verdict(tuned),
        "why": why(tuned),
        "unit": tuned.goal.unit,
        "tried": [_tried(*entry, tuned) for entry in tuned.longest],
    }


def _tried(score: Score, rounds: int, tuned: Tuned) -> dict[str, Any]:
    """Return what a setting achieved in its longest runs of the search."""
    last = score.mean_last(tuned.goal.column)
    taken = score.mean_to_target(tuned.goal.unit, tuned.target)
    return {
        "label": score.candidate.label,
        "method": score.candidate.method.label,
        "settings": dict(score.candidate.settings),
        "rounds": rounds,
        "seeds": len(score.curves),
        "last": None if last is None else last.mean,
        "to_target": None if taken is None else taken.mean,
    }


def _candidate_document(score: Score, tuned: Tuned) -> dict[str, Any]:
    return {
        "method": score.candidate.method.name,
        "settings": dict(score.candidate.settings),
        "label": score.candidate.label,
        "at_the_edge_of_its_range": list(tuned.edges(score.candidate)),
    }


def _score_document(score: Score, tuned: Tuned) -> dict[str, Any]:
    to_target = {}
    for goal in _measured_goals(tuned):
        to_target[goal] = score.to_target(cast(Cost, goal), tuned.target)
    document = {
        **_candidate_document(score, tuned),
        "runs": [run_path(Path(), s).name for s in tuned.confirming_studies(score.candidate)],
        "diverged": score.diverged,
        "to_target": to_target,
    }
    for ending in _ENDINGS:
        column = tuned.goal.metric.name + ending
        if _all_measured(tuned, column):
            document[column] = score.last(column)
    return document


def _lead_document(lead: Lead) -> dict[str, Any]:
    return {
        "over": lead.of.candidate.label,
        "unit": lead.unit,
        "ahead": {"mean": lead.ahead.mean, "half": lead.ahead.half},
        "missed": lead.missed,
        "sure": lead.sure,
    }

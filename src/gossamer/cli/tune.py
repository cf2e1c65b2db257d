"""`gossamer tune`: what it shows while it searches, and what it says at the end."""

from __future__ import annotations

import json
import shlex
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from gossamer._core.files import write_atomically
from gossamer.engines import EngineSpec
from gossamer.results.tables import titled_table
from gossamer.study import Interrupted, Interval, Study, interval, spec
from gossamer.study.pools import pool_on
from gossamer.study.space import symbol
from gossamer.study.tune import Goal, Lead, Rung, Score, Tuned, choose
from gossamer.study.tune import tune as search

_LINE_SECONDS = 10.0


def tune(
    study: Study,
    budget: int,
    target: float | None,
    goal: str,
    methods: str | None,
    folder: Path,
    engine: EngineSpec,
    workers: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Search, keep winner.toml and result.json in the folder, and print the ranking."""
    chosen = None if methods is None else choose(methods.split(","))
    try:
        with pool_on(engine, workers) as pool, _Bar(quiet) as bar:
            tuned = search(
                study,
                budget,
                folder / "cells",
                goal=cast(Goal, goal),
                target=target,
                pool=pool,
                progress=bar,
                methods=chosen,
            )
    except KeyboardInterrupt:
        raise Interrupted(
            f"stopped; what is done is kept in {folder}, and the same command goes on"
        ) from None
    winner, result = folder / "winner.toml", facts(tuned)
    command = shlex.join(["gossamer", *sys.argv[1:]])
    head = textwrap.indent(f"Found by: {command}\n{textwrap.fill(result['why'], 118)}", "# ")
    write_atomically(winner, f"{head}\n\n{spec.dumps(tuned.spec)}".encode())
    text = json.dumps(result | {"command": command}, indent=2, ensure_ascii=False, default=str)
    write_atomically(folder / "result.json", f"{text}\n".encode())
    if as_json:
        typer.echo(text)
        return
    console = Console()
    wide = (
        console if console.is_terminal else Console(width=160)
    )  # a file has no width: the table is printed whole there
    wide.print(ranking(tuned))
    width = min(console.width, 120) if console.is_terminal else 120
    console.print(textwrap.fill(result["why"], width), highlight=False, soft_wrap=True)
    typer.echo(f"\nwinner: {winner}   (gossamer run {winner})")


def ranking(tuned: Tuned) -> Table:
    """The confirmed candidates, the best first."""
    study, timed = tuned.study, _timed(tuned)
    title = f"{study.name}: {study.network.devices} devices, {study.rounds} rounds, {len(tuned.course.final.seeds)} fresh seeds"
    table = titled_table(title)
    table.add_column("\n", justify="right")
    table.add_column("\nmethod", no_wrap=True)
    table.add_column("\nsettings")
    to = "" if tuned.target is None else f"\nto {_percent(tuned.target)}"
    for heading in [
        f"{unit}{to}" for unit in ("rounds", "MB", *(["seconds"] if timed else [])) if to
    ]:
        table.add_column(heading, justify="right")
    for heading in ("accuracy\n%", "worst\ndevice %"):
        table.add_column(heading, justify="right")
    for place, score in enumerate(tuned.confirmed, 1):
        settings = ", ".join(f"{symbol(key)} {value}" for key, value in score.candidate.settings)
        cells = [str(place), score.candidate.method.label, settings]
        for goal, digits, scale in (
            ("rounds", 0, 1.0),
            ("bytes", 2, 1e-6),
            *([("seconds", 1, 1.0)] if timed else []),
        ):
            if to:
                cells.append(
                    _cell(
                        score, score.mean_to_target(cast(Goal, goal), tuned.target), digits, scale
                    )
                )
        for column in ("accuracy", "accuracy_worst"):
            cells.append(_cell(score, interval(score.last(column)), 2, 100.0))
        table.add_row(*cells, style="bold" if place == 1 else None)
    table.caption = (
        f"mean ± 95 % interval over {_seeds(tuned.course.final)}; measured {_cadence(study)}"
    )
    table.caption_justify = "left"
    return table


def _cell(score: Score, value: Interval | None, digits: int, scale: float) -> str:
    if score.diverged:
        return "diverged"
    return "–" if value is None else value.format(digits, scale)


def _timed(tuned: Tuned) -> bool:
    return any(
        curve is not None and "simulated_seconds" in curve
        for score in tuned.confirmed
        for curve in score.curves
    )


# -- in words ----------------------------------------------------------------------------------------------------------


def why(tuned: Tuned) -> str:
    """One paragraph: what was tried, on what it was chosen and confirmed, and how sure that is."""
    winner, second = tuned.confirmed[:2]
    sentences = [_tried(tuned), _confirmed(tuned), _result(tuned)]
    if winner is tuned.baseline and tuned.others[0]:
        sentences.append("Nothing that was tried beat D-PSGD.")
    sentences.append(_ahead("the second", tuned.lead_over(second), tuned.target))
    if tuned.baseline is not winner and tuned.baseline is not second:
        sentences.append(_ahead("tuned", tuned.lead_over(tuned.baseline), tuned.target))
    if not tuned.led_before:
        sentences.append(
            "On the tuning seeds another of the finalists led, so part of its lead may be luck."
        )
    for key in winner.candidate.edges:
        sentences.append(
            f"Its {symbol(key)} lies at an end of the range that was searched: a better one may lie beyond."
        )
    if tuned.study.with_seed(tuned.study.seed + 1).network == tuned.study.network:
        sentences.append(
            "The links are the same in every run: only split, batches and start differ between seeds."
        )
    for name, reason in tuned.left_out.items():
        sentences.append(f"{name} was left out ({reason}).")
    return " ".join(sentences)


def _tried(tuned: Tuned) -> str:
    """What was run in the search, and on what it was measured."""
    rungs, counts = tuned.course.rungs, [len(scores) for scores in tuned.others]
    base = [len(scores) for scores in tuned.baselines]
    said = f"{base[0]} rates of D-PSGD were run to full length, the best {base[1]} and {base[2]} of them on more seeds"
    if counts[0]:
        methods = len({score.candidate.method.name for score in tuned.others[0]})
        said = (
            f"{counts[0]} settings of {methods} methods were tried for {rungs[0].rounds} rounds on {_seeds(rungs[0])}; "
            f"{counts[1]} of them went on for {rungs[1].rounds} rounds on {_seeds(rungs[1])}, and "
            f"{counts[2]} survived to the full {rungs[2].rounds} on {_seeds(rungs[2])}. Beside them {said}"
        )
    if tuned.tuning is tuned.study:
        return f"{said}. No validation samples can be held out of these data: the search looked at the test samples too."
    share = _percent(tuned.tuning.data.share)  # type: ignore[union-attr]
    return f"{said}. All this was measured on {share} of the training samples, held out for the search."


def _confirmed(tuned: Tuned) -> str:
    samples = "" if tuned.tuning is tuned.study else " and the true test samples"
    among = ", the best D-PSGD among them," if tuned.others[0] else ""
    return (
        f"The best {len(tuned.confirmed)}{among} were confirmed on "
        f"fresh {_seeds(tuned.course.final)}{samples}, which had no part in the search."
    )


def _result(tuned: Tuned) -> str:
    score, accuracy = tuned.winner, interval(tuned.winner.last("accuracy")).format(1, 100)
    taken = score.mean_to_target(tuned.goal, tuned.target)
    if score.diverged:
        return f"Even the best, {score.candidate.label}, diverged on some of them."
    if taken is None:
        aim = "any target" if tuned.target is None else _percent(tuned.target)
        return f"None reached {aim} on every seed; {score.candidate.label} came closest, with {accuracy} % at the end."
    return f"{score.candidate.label} reached {_percent(cast(float, tuned.target))} after {_amount(taken, tuned.goal)}."


def _ahead(what: str, lead: Lead, target: float | None) -> str:
    """How far the winner is ahead of another, and whether that is sure."""
    other = (
        f"{what} {lead.of.candidate.label}"
        if what == "tuned"
        else f"{what}, {lead.of.candidate.label}"
    )
    if lead.of.diverged:
        return f"Against {other}: that one diverged on {lead.of.diverged} of {len(lead.of.curves)} seeds."
    better, seeds = lead.ahead.mean >= 0, len(lead.of.curves)
    ahead = lead.ahead if better else replace(lead.ahead, mean=-lead.ahead.mean)
    if lead.unit == "accuracy":
        said = f"{ahead.format(1, 100)} points {'more' if better else 'less'} accuracy at the end"
    else:
        word = "more" if not better else "fewer" if lead.unit == "rounds" else "less"
        said = f"{_amount(ahead, lead.unit)} {word} ({_percent(round(abs(lead.share), 2))})"
    if lead.missed:
        said += f", and on {lead.missed} of {seeds} seeds that one does not reach {_percent(cast(float, target))} at all"
    verdict = "sure at 95 %" if lead.sure else "not sure: the two may well be equal"
    return f"Against {other}, seed by seed: {said}; {verdict}."


def _amount(value: Interval, unit: str) -> str:
    return (
        value.format(2, 1e-6) + " MB"
        if unit == "bytes"
        else value.format(0 if unit == "rounds" else 1) + f" {unit}"
    )


def _percent(share: float) -> str:
    return f"{share * 100:g} %"


def _seeds(rung: Rung) -> str:
    first, last = rung.seeds[0], rung.seeds[-1]
    return f"seed {first}" if first == last else f"seeds {first} to {last}"


def _cadence(study: Study) -> str:
    return f"every {study.measure.every} rounds" if study.measure.every else "at the end only"


# -- as data -----------------------------------------------------------------------------------------------------------


def facts(tuned: Tuned) -> dict[str, Any]:
    """The result for a program: what `--json` prints and result.json holds."""
    leads = {"second": tuned.confirmed[1], "baseline": tuned.baseline}
    return {
        "name": tuned.study.name,
        "for": tuned.goal,
        "target": tuned.target,
        "cost": tuned.course.cost,
        "winner": _candidate(tuned.winner)
        | {"led_before": tuned.led_before, "edges": list(tuned.winner.candidate.edges)},
        "leads": {
            name: _lead(tuned.lead_over(score))
            for name, score in leads.items()
            if score is not tuned.winner
        },
        "confirmed": [_row(score, tuned) for score in tuned.confirmed],
        "seeds": list(tuned.course.final.seeds),
        "rungs": [
            {
                "rounds": rung.rounds,
                "seeds": list(rung.seeds),
                "ranking": [score.candidate.label for score in others],
                "baseline": [score.candidate.label for score in baseline],
            }
            for rung, others, baseline in zip(
                tuned.course.rungs, tuned.others, tuned.baselines, strict=True
            )
        ],
        "left_out": tuned.left_out,
        "spec": spec.to_table(tuned.spec),
        "why": why(tuned),
    }


def _candidate(score: Score) -> dict[str, Any]:
    return {
        "method": score.candidate.method.name,
        "settings": dict(score.candidate.settings),
        "label": score.candidate.label,
    }


def _row(score: Score, tuned: Tuned) -> dict[str, Any]:
    units = ("rounds", "bytes", *(["seconds"] if _timed(tuned) else []))
    to_target = {unit: score.to_target(cast(Goal, unit), tuned.target) for unit in units}
    last = {name: score.last(name) for name in ("accuracy", "accuracy_worst")}
    return _candidate(score) | {"diverged": score.diverged, "to_target": to_target, **last}


def _lead(lead: Lead) -> dict[str, Any]:
    ahead = {"mean": lead.ahead.mean, "half": lead.ahead.half}
    return {
        "over": lead.of.candidate.label,
        "unit": lead.unit,
        "ahead": ahead,
        "missed": lead.missed,
        "sure": lead.sure,
    }


# -- while it works ----------------------------------------------------------------------------------------------------


class _Bar:
    """One bar over the whole search, with what is being run and the time left; a line now and then outside a terminal."""

    def __init__(self, quiet: bool) -> None:
        self._console, self._quiet = Console(stderr=True), quiet
        self._said, self._stage = time.monotonic(), ""
        columns = (
            BarColumn(28),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, TextColumn("{task.description}"), console=self._console)
        self._task = self._progress.add_task("", total=1.0)

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._stage and self._console.is_terminal:  # elsewhere it would print an empty line
            self._progress.stop()

    def __call__(self, share: float, stage: str) -> None:
        if self._quiet:
            return
        if self._console.is_terminal:
            self._progress.start()  # the first time; not while data and libraries are still being loaded
            self._progress.update(self._task, completed=share, description=stage)
        elif stage != self._stage or time.monotonic() - self._said > _LINE_SECONDS:
            self._said = time.monotonic()
            self._console.print(f"{share:4.0%}  {stage}", highlight=False)
        self._stage = stage

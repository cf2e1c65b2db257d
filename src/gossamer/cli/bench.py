"""`gossamer bench`: this machine's own numbers, and what to set."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from typing import Any

from rich import box
from rich.table import Table

from gossamer.cli.progress import ShareBar
from gossamer.cli.show import open_console, print_json
from gossamer.study.bench import BATCH, NEIGHBOURS, PARTS, Bench, advice, gains_from, measure
from gossamer.study.versions import versions

_BUSY = 0.5  # of the cores
_OTHERS = "Other work kept the machine busy (load {:.1f}): measure again when it is idle."


def bench(seconds: float, as_json: bool, quiet: bool) -> None:
    """Measure, then print the tables and the advice, or all of it as one document."""
    with ShareBar(quiet, "bench") as share:
        measured = measure(seconds, progress=share)
    if as_json:
        print_json(facts(measured))
        return
    console = open_console()
    for table in (speeds(measured), parts(measured), choices(measured)):
        console.print(table)
    for one in advice(measured):
        lines = textwrap.fill(
            one.sentence, min(console.width, 80) - 1, initial_indent="- ", subsequent_indent="  "
        )
        console.print(lines, highlight=False, markup=False)
    if measured.busy is not None and measured.busy > _BUSY * measured.cores:
        console.print(f"\n{_OTHERS.format(measured.busy)}", highlight=False)
    about = versions()
    cores = f"{measured.cores} core{'s' if measured.cores > 1 else ''}"
    console.print(
        f"\n{cores}; gossamer {about['gossamer']}, torch {about['torch']}, {about['machine']}",
        highlight=False,
    )
    console.print(f"kernels: {about['kernels']}", highlight=False)


def facts(measured: Bench) -> dict[str, Any]:
    """All numbers as data."""
    rates = ("rounds_per_second", "device_steps_per_second")
    return {
        "versions": versions(),
        "cores": measured.cores,
        "busy": measured.busy,
        "batch": BATCH,
        "neighbours": NEIGHBOURS,
        "speeds": [
            asdict(speed) | {rate: getattr(speed, rate) for rate in rates}
            for speed in measured.speeds
        ],
        "power_costs": [asdict(cost) for cost in measured.power_costs],
        "parts": [asdict(row) | {"shares": row.shares} for row in measured.parts],
        "threads": [asdict(row) for row in measured.threads],
        "threads_gain_from": gains_from(measured.threads),
        "float64": measured.float64,
        "evaluations": [asdict(row) | {"every": row.every} for row in measured.evaluations],
        "advice": [asdict(one) for one in advice(measured)],
    }


def speeds(measured: Bench) -> Table:
    """One row for every number of devices and model: rounds and device-steps a second at each p."""
    powers = sorted({speed.p for speed in measured.speeds})
    table = _table(
        f"Rounds a second: batch {BATCH}, about {NEIGHBOURS} neighbours, nothing measured"
    )
    table.add_column("devices", justify="right")
    table.add_column("model", no_wrap=True)
    table.add_column("threads", justify="right")
    for p in powers:
        table.add_column(f"p = {p}\nrounds/s", justify="right")
        table.add_column("device-\nsteps/s", justify="right")
    table.add_column(f"p = {powers[-1]}\ncosts", justify="right")
    for cost in measured.power_costs:
        rows = [
            speed
            for speed in measured.speeds
            if (speed.devices, speed.model) == (cost.devices, cost.model)
        ]
        cells = [
            cell
            for row in rows
            for cell in (_number(row.rounds_per_second), _number(row.device_steps_per_second))
        ]
        table.add_row(
            f"{cost.devices:,}", cost.model, str(rows[0].threads), *cells, f"{cost.ratio:.2f} ×"
        )
    return table


def parts(measured: Bench) -> Table:
    """Where the time of a round goes."""
    table = _table("Where the time goes, % of a round with one thread")
    table.add_column(f"softmax, {measured.parts[0].devices:,} devices", no_wrap=True)
    for row in measured.parts:
        table.add_column(f"p = {row.p}", justify="right")
    for part in PARTS:
        table.add_row(part, *(f"{100 * row.shares[part]:.0f}" for row in measured.parts))
    table.add_row(
        "a round, ms", *(_number(1000 * sum(row.seconds.values())) for row in measured.parts)
    )
    return table


def choices(measured: Bench) -> Table:
    """What the advice rests on, as ratios of things that ran in turn."""
    table = _table("What to set")
    table.add_column("softmax, p = 1", no_wrap=True)
    table.add_column("compared in turn", justify="right")
    for row in measured.threads:
        chosen = "one" if row.chosen == 1 else str(row.chosen)
        label = f"{measured.cores} threads against one, {row.devices:,} devices (gossamer takes {chosen})"
        table.add_row(label, f"{row.gain:.2f} × as fast")
    middle = measured.parts[0].devices
    table.add_row(
        f"float64 against float32, {middle:,} devices", f"{measured.float64:.2f} × as long"
    )
    for evaluation in measured.evaluations:
        label = f"an evaluation, {evaluation.test:,} test samples, {evaluation.devices:,} devices"
        table.add_row(label, f"{evaluation.rounds:.2f} rounds")
    return table


def _table(title: str) -> Table:
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
    )


def _number(value: float) -> str:
    """Three figures.

    >>> _number(12345.6), _number(34.56), _number(0.1234)
    ('12,300', '34.6', '0.123')
    """
    if value >= 100:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:#.3g}"

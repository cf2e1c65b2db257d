"""`gossamer bench`: the speed of this machine, and what to set."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from typing import Any

from rich.table import Table

from gossamer.backend import choices, versions
from gossamer.cli.progress import ShareBar
from gossamer.cli.show import open_console, print_json
from gossamer.cli.tables import titled_table
from gossamer.study.bench import BATCH, NEIGHBOURS, PARTS, Bench, advice, gains_from, measure

# Load average per core above which the numbers are doubtful.
_BUSY = 0.5
_MAX_COLUMNS = 80


def bench(seconds: float, as_json: bool, quiet: bool) -> None:
    """Measure, then print tables and advice.

    Args:
        seconds: About how long to measure.
        as_json: Whether to print everything as one JSON document.
        quiet: Whether to show no progress.
    """
    with ShareBar(quiet, "bench") as bar:
        measured = measure(seconds, progress=bar)
    if as_json:
        print_json(document(measured))
        return
    console = open_console()
    for table in (speed_table(measured), parts_table(measured), settings_table(measured)):
        console.print(table)
    width = min(console.width, _MAX_COLUMNS) - 1
    for item in advice(measured):
        text = textwrap.fill(item.sentence, width, initial_indent="- ", subsequent_indent="  ")
        console.print(text, highlight=False, markup=False)
    if measured.busy is not None and measured.busy > _BUSY * measured.cores:
        console.print(
            f"\nOther work kept the machine busy (load {measured.busy:.1f}): "
            "measure again when it is idle.",
            highlight=False,
        )
    about = versions()
    cores = f"{measured.cores} core"
    if measured.cores > 1:
        cores += "s"
    console.print(
        f"\n{cores}; gossamer {about['gossamer']}, torch {about['torch']}, {about['machine']}",
        highlight=False,
    )
    console.print(f"kernels: {about['kernels']}", highlight=False)


def document(measured: Bench) -> dict[str, Any]:
    """Return all measurements as plain values.

    Args:
        measured: The measurements.
    """
    speeds = []
    for speed in measured.speeds:
        row = asdict(speed)
        row["rounds_per_second"] = speed.rounds_per_second
        row["device_steps_per_second"] = speed.device_steps_per_second
        speeds.append(row)
    return {
        "versions": versions(),
        "backend": choices(),
        "cores": measured.cores,
        "busy": measured.busy,
        "batch": BATCH,
        "neighbours": NEIGHBOURS,
        "speeds": speeds,
        "power_costs": [asdict(cost) for cost in measured.power_costs],
        "parts": [asdict(row) | {"shares": row.shares} for row in measured.parts],
        "threads": [asdict(row) for row in measured.threads],
        "threads_gain_from": gains_from(measured.threads),
        "float64": measured.float64,
        "evaluations": [asdict(row) | {"every": row.every} for row in measured.evaluations],
        "advice": [asdict(item) for item in advice(measured)],
    }


def speed_table(measured: Bench) -> Table:
    """Return rounds and device-steps per second, one row per number of devices and model.

    Args:
        measured: The measurements.
    """
    powers = sorted({speed.p for speed in measured.speeds})
    table = titled_table(
        f"Rounds per second: batch {BATCH}, about {NEIGHBOURS} neighbours, nothing measured"
    )
    table.add_column("devices", justify="right")
    table.add_column("model", no_wrap=True)
    table.add_column("threads", justify="right")
    for p in powers:
        table.add_column(f"p = {p}\nrounds/s", justify="right")
        table.add_column("device-\nsteps/s", justify="right")
    table.add_column(f"p = {powers[-1]}\ncosts", justify="right")
    for cost in measured.power_costs:
        cells: list[str] = []
        threads = 0
        for speed in measured.speeds:
            if speed.devices == cost.devices and speed.model == cost.model:
                threads = threads or speed.threads
                cells.append(_three_digits(speed.rounds_per_second))
                cells.append(_three_digits(speed.device_steps_per_second))
        table.add_row(f"{cost.devices:,}", cost.model, str(threads), *cells, f"{cost.ratio:.2f} ×")
    return table


def parts_table(measured: Bench) -> Table:
    """Return where the time of a round goes.

    Args:
        measured: The measurements.
    """
    table = titled_table("Where the time goes, % of a round with one thread")
    table.add_column(f"softmax, {measured.parts[0].devices:,} devices", no_wrap=True)
    for row in measured.parts:
        table.add_column(f"p = {row.p}", justify="right")
    for part in PARTS:
        table.add_row(part, *(f"{100 * row.shares[part]:.0f}" for row in measured.parts))
    milliseconds = [1000 * sum(row.seconds.values()) for row in measured.parts]
    table.add_row("a round, ms", *map(_three_digits, milliseconds))
    return table


def settings_table(measured: Bench) -> Table:
    """Return the ratios that the advice rests on.

    Args:
        measured: The measurements.
    """
    table = titled_table("What to set")
    table.add_column("softmax, p = 1", no_wrap=True)
    table.add_column("compared in turn", justify="right")
    for row in measured.threads:
        chosen = str(row.chosen)
        if row.chosen == 1:
            chosen = "one"
        table.add_row(
            f"{measured.cores} threads against one, {row.devices:,} devices "
            f"(gossamer takes {chosen})",
            f"{row.gain:.2f} × as fast",
        )
    table.add_row(
        f"float64 against float32, {measured.parts[0].devices:,} devices",
        f"{measured.float64:.2f} × as long",
    )
    for evaluation in measured.evaluations:
        label = f"an evaluation, {evaluation.test:,} test samples, {evaluation.devices:,} devices"
        table.add_row(label, f"{evaluation.rounds:.2f} rounds")
    return table


def _three_digits(value: float) -> str:
    """Return a value with three significant digits.

    >>> _three_digits(12345.6), _three_digits(34.56), _three_digits(0.1234)
    ('12,300', '34.6', '0.123')
    """
    if value >= 100:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:#.3g}"

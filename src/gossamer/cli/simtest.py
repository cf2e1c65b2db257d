"""The command `gossamer fleet simtest`: what it does and prints."""

from __future__ import annotations

import time
from datetime import timedelta

import typer

from gossamer._core import checks
from gossamer._core.interrupts import stop_on_signal
from gossamer.errors import Interrupted
from gossamer.fleet.simulation.fleet import simulate
from gossamer.fleet.simulation.seeds import Total, simulate_seeds

_PROGRESS_SECONDS = 5.0
FAULTS = (
    "kills",
    "power failures",
    "stops",
    "pauses",
    "clock jumps",
    "disk errors",
    "full disks",
    "stalls",
    "cuts",
    "partitions",
    "silences",
    "lost",
    "delayed",
    "duplicated",
    "corrupted",
)
"""The counts of a simulation that are faults."""


def simtest(seeds: int, first: int, jobs: int, quiet: bool) -> None:
    """Simulate fleets with faults, and print one line for each that breaks a rule.

    Args:
        seeds: Number of seeds.
        first: The first one.
        jobs: Number of processes.
        quiet: True for no progress.
    """
    total = Total()
    began = time.monotonic()
    shown = began
    with stop_on_signal() as stopped:
        for result in simulate_seeds(first, seeds, jobs, stopped):
            total.add(result)
            if result.violation:
                typer.echo(
                    f"seed {result.seed}: {result.violation} ({result.scenario});"
                    f" replay: gossamer fleet simtest --seed {result.seed}"
                )
            if not quiet and time.monotonic() > shown + _PROGRESS_SECONDS:
                shown = time.monotonic()
                rate = total.seeds / (shown - began)
                typer.echo(
                    f"{total.seeds} of {seeds} seeds, {rate:.1f} a second,"
                    f" {total.failures} failures",
                    err=True,
                )
    _print_total(total, time.monotonic() - began)
    if total.failures:
        raise typer.Exit(1)
    if total.seeds < seeds:
        raise Interrupted(f"stopped after {total.seeds} of {seeds} seeds")


def replay(seed: int) -> None:
    """Simulate one seed, and print what happened.

    Args:
        seed: The seed.
    """
    checks.whole("--seed", seed, 0)
    result = simulate(seed)
    typer.echo(f"seed {seed}: {result.scenario}")
    for line in result.trace:
        typer.echo(line)
    typer.echo(", ".join(f"{count} {name}" for name, count in sorted(result.counts.items())))
    typer.echo(
        f"{result.events} events in {result.seconds:.1f} simulated seconds, digest {result.digest}"
    )
    typer.echo(result.violation or "no rule is broken")
    if result.violation:
        raise typer.Exit(1)


def _print_total(total: Total, seconds: float) -> None:
    faults = [f"{total.counts[name]:,} {name}" for name in FAULTS if total.counts[name]]
    simulated = timedelta(seconds=round(total.seconds))
    typer.echo(
        f"{total.seeds:,} seeds in {seconds:.0f} s: {total.events:,} events,"
        f" {simulated} simulated, {total.counts['applied']:,} exchanges applied,"
        f" {total.failures} failures"
    )
    typer.echo(f"faults: {', '.join(faults) or 'none'}")

"""`gossamer node` and `gossamer fleet`: what they do and print."""

from __future__ import annotations

import signal
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import typer

from gossamer.errors import DataError, InputError
from gossamer.fleet import provision as fleet
from gossamer.fleet.settings import Device, Fleet
from gossamer.results.run import Run
from gossamer.results.tables import Method
from gossamer.study import Study

_AHEAD = timedelta(minutes=10)  # from `init` to round 0, if nothing is said
_LOUD = "--insecure: no certificates, no encryption; anybody on this network can read and forge what devices say"


def init(
    given: tuple[Study, Fleet],
    out: Path,
    start: str | None,
    hosts: str | None,
    days: float,
    samples: bool,
) -> None:
    """Make a fleet's folder, and say what goes where."""
    study, common = given
    when = datetime.now(UTC).replace(second=0, microsecond=0) + _AHEAD
    if start is not None:
        try:
            when = datetime.fromisoformat(start)
        except ValueError:
            when = when.replace(tzinfo=None)
        if when.tzinfo is None:
            raise InputError("--start", start, "a time with its zone, such as 2030-01-31T12:00:00Z")
        if when < datetime.now(UTC):
            raise InputError(
                "--start", start, "a time to come, early enough to copy all files until then"
            )
    listed = [host.strip() for host in hosts.split(",")] if hosts else []
    ends = when + timedelta(seconds=study.rounds * common.slot)
    if not common.insecure and 0 < days < (
        needed := (ends - datetime.now(UTC)) / timedelta(days=1)
    ):
        raise InputError(
            "--days",
            days,
            f"more than {needed:.1f}: certificates are to be valid until the last round",
        )
    files = fleet.init(study, common, out, when, listed, days, samples)
    typer.echo(
        f"{out}: {len(files)} devices, {study.algorithm.label}, {study.rounds} rounds of {common.slot:g} s"
    )
    typer.echo(
        f"round 0 begins {when:%Y-%m-%d %H:%M:%S %Z}, the last ends {ends:%Y-%m-%d %H:%M:%S %Z}; clocks by NTP or GPS"
    )
    typer.echo("\nCopy to each device, and nothing else of this folder:")
    typer.echo(
        f"    {fleet.STUDY}, n0.toml, n0/      to the first;  {fleet.STUDY}, n1.toml, n1/  to the second;  …"
    )
    if not samples:
        typer.echo(
            f"    and its own samples to n0/{fleet.SAMPLES} (or data.npz): x, y, x_test, y_test"
        )
    typer.echo(
        f"and there run\n    gossamer node n0.toml{' --insecure' if common.insecure else ''}"
    )
    if not common.insecure:
        typer.echo(
            f"\n{out / fleet.AUTHORITY}/ca.key makes certificates for this fleet: keep it here, and to yourself"
        )
    where = f" --connect {','.join(listed)}" if listed else ""
    typer.echo(f"\n    gossamer fleet status {out}{where}      watches")
    typer.echo(f"    gossamer fleet collect {out}      gathers what comes back")


def node(file: Path, insecure: bool, quiet: bool) -> None:
    """Be a device, until the rounds are done, or Ctrl-C or SIGTERM."""
    device = fleet.read_device(file)
    if insecure != device.fleet.insecure:
        says, wants = (
            ("true", "give --insecure too")
            if device.fleet.insecure
            else ("false", "leave out --insecure")
        )
        raise DataError(
            f"{file} has fleet.insecure = {says}: {wants}; a fleet on a bench says so on every device, others nowhere"
        )
    if insecure:
        typer.echo(_LOUD, err=True)
    stopped = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    say = (lambda line: None) if quiet else (lambda line: typer.echo(line, err=True))
    done = fleet.live(device, stopped, told=_Lines(device, say))
    if done:
        typer.echo(f"{device.name} is done: its model is {device.folder / 'model.safetensors'}")
    else:
        typer.echo(f"{device.name} was stopped; the same command goes on")


class _Lines:
    """What a device says of itself: a line when something changes, and else now and then."""

    def __init__(self, device: Device, say: Any) -> None:
        self._device, self._say = device, say
        self._doing, self._said = "", 0.0
        self._start = datetime.fromtimestamp(device.started(), UTC)

    def __call__(self, status: dict[str, Any]) -> None:
        if status["doing"] == self._doing and time.monotonic() - self._said < 5:
            return
        self._doing, self._said = status["doing"], time.monotonic()
        near = ", ".join(self._device.names[j] for j in status["near"]) or "nobody"
        soon = self._start > datetime.now(UTC)
        words = {
            "waiting": f"waits for round 0, at {self._start:%Y-%m-%d %H:%M:%S %Z}"
            if soon
            else "looks for its neighbours",
            "joining": "comes late: asks its neighbours for a model",
            "running": f"round {status['round']}/{status['rounds']}  sees {near}",
        }
        accuracy = (
            f"  accuracy {status['accuracy']:.1%}" if status.get("accuracy") is not None else ""
        )
        self._say(f"{self._device.name}  {words.get(self._doing, self._doing)}{accuracy}")


def up(given: tuple[Study, Fleet], devices: int | None, out: Path | None, quiet: bool) -> None:
    """Rehearse, and collect."""
    from gossamer.cli.status import Table
    from gossamer.fleet.rehearsal import Rehearsal

    study, common = given
    if devices not in (None, study.network.devices):
        raise InputError(
            "--devices", devices, f"{study.network.devices}, which the file of links has"
        )
    folder = out or Path("runs") / f"{study.name}-fleet"
    if folder.exists() and any(folder.iterdir()):
        raise DataError(f"{folder} is there already and not empty: give another name by --out")
    if not quiet:
        words = f"{study.network.devices} devices, {study.rounds} rounds of {common.slot:g} s"
        typer.echo(
            f"{words}: {timedelta(seconds=round(study.rounds * common.slot))} once they are started",
            err=True,
        )
    with Rehearsal(study, common, folder) as rehearsal:
        rehearsal.begin()
        with Table(folder, quiet) as table:
            rehearsal.play(lambda t: table.show())
    collect(folder, folder / "run")


def collect(folder: Path, out: Path) -> None:
    """Gather what has come back."""
    from rich.console import Console

    from gossamer.report.tables import comparison

    found = fleet.collect(folder, out)
    if found.missing:
        typer.echo(f"not there, and left out: {', '.join(found.missing)}", err=True)
    run, slot = Run.read(out), found.summary["seconds"] / max(1, found.summary["rounds"])
    console = Console() if sys.stdout.isatty() else Console(width=160)
    title = f"{run.name}: {len(found.devices)} devices, {run.rounds} rounds of {slot:g} s"
    console.print(comparison([Method(run.label, (run,))], title))
    console.print(f"everything is in {out}", highlight=False)

"""The commands `gossamer node` and `gossamer fleet`: what they do and print."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import typer

from gossamer._core import checks
from gossamer._core.interrupts import interrupt_once, stop_on_signal
from gossamer.cli.node_log import LOGS, JsonLog, NodeLog, TextLog
from gossamer.cli.specs import read_fleet_study
from gossamer.cli.tables import terminal_table
from gossamer.errors import DataError, GossamerError, InputError
from gossamer.fleet import provision
from gossamer.fleet.code import CODE, study_in
from gossamer.fleet.files import MODEL, SAMPLES, SAMPLES_NUMPY
from gossamer.fleet.notices import Notices
from gossamer.fleet.settings import STUDY, Fleet, read_device, read_devices
from gossamer.results.run import Run
from gossamer.results.tables import Method
from gossamer.study import Study

_UNTIL_START = timedelta(minutes=10)  # default time from `init` to round 0
# A node ends within two seconds of SIGTERM: a long step is interrupted between two operations, and
# the node resumes from its journal. A single operation that takes longer delays this.
_STOP_SECONDS = 1.25
_EXIT_SECONDS = 0.5
_INSECURE = (
    "--insecure: no certificates, no encryption;"
    " anybody on this network can read and forge what devices send"
)


def init(
    given: tuple[Study, Fleet],
    out: Path,
    start: str | None,
    hosts: str | None,
    days: float,
    samples: bool,
    device_keys: bool = True,
    passphrase: bytes | None = None,
) -> None:
    """Write the folder of a fleet, and print what to copy where.

    Args:
        given: The study, and the settings that all devices share.
        out: The folder.
        start: When round 0 begins; by default in ten minutes.
        hosts: Where each device is reached, separated by commas.
        days: Validity of the certificates.
        samples: False if devices have their own samples.
        device_keys: False if devices make their own keys.
        passphrase: What to encrypt the authority's key with; None: it is not encrypted.
    """
    study, fleet = given
    begins = _start_time(start)
    ends = begins + timedelta(seconds=study.rounds * _round_seconds(fleet))
    needed = (ends - datetime.now(UTC)) / timedelta(days=1)
    if not fleet.insecure and 0 < days < needed:
        raise InputError(
            "--days",
            days,
            f"more than {needed:.1f}: certificates must be valid until the last round",
        )
    listed = [host.strip() for host in hosts.split(",")] if hosts else []
    files = provision.init(
        study, fleet, out, begins, listed, days, samples, device_keys, passphrase
    )
    typer.echo(
        f"{out}: {len(files)} devices, {study.algorithm.label},"
        f" {study.rounds} rounds {_round_length(fleet)}"
    )
    if fleet.pace == "slots":
        typer.echo(
            f"round 0 begins {begins:%Y-%m-%d %H:%M:%S %Z},"
            f" the last ends {ends:%Y-%m-%d %H:%M:%S %Z}; clocks by NTP or GPS"
        )
    else:
        typer.echo("each device begins when it is started; no clock is needed")
    typer.echo("\nCopy to each device, and nothing else of this folder:")
    code = sorted(path.name for path in out.glob(f"{CODE}*"))
    common = ", ".join([STUDY, *(f"{name}/" for name in code)])
    typer.echo(
        f"    {common}, n0.toml, n0/      to the first;  {common}, n1.toml, n1/  to the second;  …"
    )
    if (out / provision.OWNERS).exists():
        typer.echo(f"    {out / provision.OWNERS} says whose samples each device has")
    if not samples:
        typer.echo(
            f"    and its own samples to n0/{SAMPLES} (or {SAMPLES_NUMPY}): x, y, x_test, y_test"
        )
    if not (device_keys or fleet.insecure):
        typer.echo(
            "    On each device, `gossamer fleet request n0` makes n0/device.key and n0/device.csr;"
            f"\n    here, `gossamer fleet renew {out} n0 --request device.csr` makes n0/device.pem"
        )
    options = " --insecure" if fleet.insecure else ""
    if code:
        options += " --allow-code"
    typer.echo(f"and there run\n    gossamer node n0.toml{options}")
    if not fleet.insecure:
        key = out / provision.AUTHORITY / "ca.key"
        typer.echo(f"\n{key} makes certificates for this fleet: keep it here, and to yourself")
    connect = f" --connect {','.join(listed)}" if listed else ""
    typer.echo(f"\n    gossamer fleet status {out}{connect}      watches")
    typer.echo(f"    gossamer fleet collect {out}      gathers what comes back")


def _start_time(text: str | None) -> datetime:
    """Return the time given, or the default."""
    if text is None:
        return datetime.now(UTC).replace(second=0, microsecond=0) + _UNTIL_START
    accepted = "a time with its zone, such as 2030-01-31T12:00:00Z"
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise InputError("--start", text, accepted) from None
    if when.tzinfo is None:
        raise InputError("--start", text, accepted)
    if when < datetime.now(UTC):
        raise InputError(
            "--start", text, "a time to come, early enough to copy all files until then"
        )
    return when


def node(
    file: Path,
    insecure: bool,
    quiet: bool,
    allow_code: bool = False,
    study: str | None = None,
    metrics: str | None = None,
    log: str = "text",
) -> None:
    """Run a device until its rounds are done, or Ctrl-C or SIGTERM.

    Args:
        file: The device's file.
        insecure: Must equal `fleet.insecure` in the file.
        quiet: True to print nothing while the device runs.
        allow_code: Import and run the Python code that the study names.
        study: The study in a Python file of this device, as FILE.py:NAME, which is run; None: the
            spec beside the device's file.
        metrics: Where to serve metrics for Prometheus; None: as the device's file says.
        log: "text", or "json" for a JSON object per line.
    """
    from gossamer.fleet.service import run_device

    checks.one_of("--log", log, LOGS)
    device = read_device(file)
    if metrics is not None:
        device = replace(device, metrics=metrics)
    if insecure != device.fleet.insecure:
        value = "true" if device.fleet.insecure else "false"
        remedy = "give --insecure too" if device.fleet.insecure else "leave out --insecure"
        raise DataError(
            f"{file} has fleet.insecure = {value}: {remedy}; the file and the command must agree"
        )
    if insecure:
        typer.echo(_INSECURE, err=True)

    loud: NodeLog = JsonLog(device) if log == "json" else TextLog(device)
    lines = NodeLog() if quiet else loud
    try:
        with stop_on_signal(_STOP_SECONDS, _EXIT_SECONDS) as stopped:
            done = run_device(
                device,
                stopped,
                on_status=lines.on_status,
                study=None if study is None else study_in(study),
                allow_code=allow_code,
                on_event=lines.on_event,
                # Also with --quiet: these are what an operator looks for in the log.
                notices=Notices(loud.on_event),
            )
    except GossamerError as error:
        if log == "text":
            raise
        JsonLog(device).on_error(error)
        raise typer.Exit(error.exit_code) from None
    if log == "json":
        return
    if done:
        typer.echo(f"{device.name} is done: its model is {device.folder / MODEL}")
    else:
        typer.echo(f"{device.name} was stopped; the same command resumes it")


def upgrade(
    folder: Path,
    path: str,
    start: str | None,
    settings: list[str] | None,
    seed: int | None,
    allow_code: bool,
) -> None:
    """Move a fleet to another study, and print what to copy where.

    Args:
        folder: The folder of the fleet.
        path: The spec of the new study, or a study in a Python file.
        start: When round 0 begins; by default in ten minutes.
        settings: Values of `--set`.
        seed: Value of `--seed`.
        allow_code: Import and run the Python code that the studies name.
    """
    from gossamer.fleet.upgrade import upgrade as move

    before = read_devices(folder)[-1].fleet
    begins = _start_time(start)
    study, fleet = read_fleet_study(path, None, settings, seed, allow_code, before)
    moved = move(folder, study, fleet, begins, allow_code=allow_code)
    typer.echo(f"{folder}: {len(moved.names)} devices, {study.algorithm.label}")
    if moved.same:
        typer.echo("the method and the model are the same: devices resume where they are")
    else:
        typer.echo("each device keeps its model, drops the rest, and begins with round 0")
        if fleet.pace == "slots":
            typer.echo(f"round 0 begins {begins:%Y-%m-%d %H:%M:%S %Z}")
    common = ", ".join(moved.common)
    typer.echo(f"\nCopy to each device, and start its node again:\n    {common}, n0.toml  …")


def up(given: tuple[Study, Fleet], devices: int | None, out: Path | None, quiet: bool) -> None:
    """Rehearse on this machine, and collect the results.

    Args:
        given: The study, and the settings that all devices share.
        devices: Number of devices asked for; None: as many as the study has.
        out: The folder; by default runs/NAME-fleet.
        quiet: True to print nothing while devices run.
    """
    from gossamer.cli.status import LiveStatus
    from gossamer.fleet.rehearsal import Rehearsal

    study, fleet = given
    if devices not in (None, study.network.devices):
        raise InputError(
            "--devices", devices, f"{study.network.devices}, which the file of links has"
        )
    folder = out or Path("runs") / f"{study.name}-fleet"
    if folder.exists() and any(folder.iterdir()):
        raise DataError(f"{folder} exists and is not empty: give another name by --out")
    if not quiet:
        duration = timedelta(seconds=round(study.rounds * _round_seconds(fleet)))
        most = "" if fleet.pace == "slots" else "at most about "
        typer.echo(
            f"{study.network.devices} devices, {study.rounds} rounds {_round_length(fleet)}:"
            f" {most}{duration} once they are started",
            err=True,
        )
    with interrupt_once(), Rehearsal(study, fleet, folder) as rehearsal:
        rehearsal.start()
        with LiveStatus(folder, quiet) as live:
            rehearsal.play(lambda t: live.update())
    collect(folder, folder / "run", allow_code=True)  # the code is that of the given study


def _round_seconds(fleet: Fleet) -> float:
    """Return how long a round takes, or takes at most at the pace of contacts."""
    return fleet.slot if fleet.pace == "slots" else fleet.patience + fleet.timeout


def _round_length(fleet: Fleet) -> str:
    if fleet.pace == "slots":
        return f"of {fleet.slot:g} s"
    return "of its own on each device, a meeting or a step alone"


def collect(folder: Path, out: Path, allow_code: bool = False) -> None:
    """Gather the results of the devices into a run folder, and print them.

    Args:
        folder: The folder of the fleet.
        out: The run folder.
        allow_code: Import and run the Python code that the study names.
    """
    from rich.console import Console

    from gossamer.fleet.collect import collect as gather

    found = gather(folder, out, allow_code=allow_code)
    if found.missing:
        typer.echo(f"missing, and left out: {', '.join(found.missing)}", err=True)
    for name, reason in found.refused.items():
        typer.echo(f"refused, and left out: {name}: {reason}", err=True)
    if found.unfinished:
        listed = ", ".join(f"{name} ({done})" for name, done in found.unfinished.items())
        typer.echo(f"not at the last round, with their newest models: {listed}", err=True)
    run = Run.read(out)
    slot = found.summary["seconds"] / max(1, found.summary["rounds"])
    console = Console() if sys.stdout.isatty() else Console(width=160)
    title = f"{run.name}: {len(found.devices)} devices, {run.rounds} rounds of {slot:g} s"
    console.print(terminal_table([Method(run.label, (run,))], title, console.width))
    console.print(f"everything is in {out}", highlight=False)

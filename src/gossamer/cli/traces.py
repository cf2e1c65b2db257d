"""A trace in the place of a spec: the demo's study on the network of a log or a file of links."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from gossamer.network import Network
    from gossamer.study import Study

# Suffixes of files that are no specs.
_LOGS = (".csv", ".tsv", ".txt", ".dat", ".log", ".ssv", ".gz")
_POSITIONS = (".gpx",)
_LINKS = (".parquet",)
# Rounds of a study on a trace, unless it is told otherwise: as many as the trace has, up to this.
_MAX_ROUNDS = 5_000
# Metres within which two devices of a GPX file are linked, unless it is told otherwise: about the
# range of Wi-Fi outdoors.
_GPS_RADIUS = 100.0
_LATITUDES = {"lat", "latitude"}  # column names in the first line of a log of positions
# How the samples are divided among the devices of a trace: few labels each, for any number of them.
TRACE_SPLIT = {"kind": "dirichlet", "alpha": 0.1}
_LONGEST_HEADER = 1000  # characters
_SHOWN_NAMES = 3
_SHOWN_CLASSES = 8


def is_trace(path: Path) -> bool:
    """True if a file is a trace or a file of links, by its suffix, or a folder has GPX files.

    Args:
        path: A file or folder that a command was given in the place of a spec.
    """
    if path.is_dir():
        return any(_suffix(file) in _POSITIONS for file in path.iterdir())
    return _suffix(path) in (*_LOGS, *_POSITIONS, *_LINKS)


def trace_name(path: Path) -> str:
    """Return the name of a study on a trace.

    Args:
        path: The trace.

    Example:
        >>> trace_name(Path("logs/contacts.csv.gz"))
        'contacts'
    """
    return Path(path.name.removesuffix(".gz")).stem.lstrip(".") or "trace"


def network_table(path: Path, settings: list[str]) -> dict[str, Any]:
    """Return the section [network] of a spec for a trace.

    Args:
        path: The trace.
        settings: Values of `--set`. A radius says that a log has positions and no contacts.

    Returns:
        The table. Rounds after the last one of the trace begin again with its first.
    """
    kind = "contacts"
    if _suffix(path) in _LINKS:
        kind = "file"
    table: dict[str, Any] = {"kind": kind, "path": str(path.absolute()), "beyond": "repeat"}
    has_radius = any(setting.startswith("network.radius=") for setting in settings)
    if _is_geographic(path):
        table |= {"kind": "positions", "radius": _GPS_RADIUS}
    elif has_radius:
        table["kind"] = "positions"
    return table


def _is_geographic(path: Path) -> bool:
    """True if a log is GPX, or its first line names a column of latitudes."""
    if path.is_dir() or _suffix(path) in _POSITIONS:
        return True
    if _suffix(path) in (*_LINKS, ".gz"):
        return False
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            line = file.readline(_LONGEST_HEADER)
    except OSError:  # the reader of the log says why
        return False
    return not _LATITUDES.isdisjoint(re.findall("[a-z]+", line.lower()))


def trace_settings(options: Mapping[str, Any]) -> list[str]:
    """Return the options of a trace as values of `--set`.

    Args:
        options: The keys of the section [network], and their values; None for those not given.

    Example:
        >>> trace_settings({"seconds_per_round": 60.0, "start": None, "columns": ["a", "b"]})
        ['network.seconds_per_round=60', 'network.columns=["a", "b"]']
    """
    settings = []
    for key, value in options.items():
        if isinstance(value, float):
            settings.append(f"network.{key}={value:.15g}")
        elif value is not None:
            settings.append(f"network.{key}={json.dumps(value)}")
    return settings


def parse_time(text: str | None) -> float | str | None:
    """Return a time as a spec has it: a number, or text if it is a date.

    Args:
        text: What the user typed; None for nothing.

    Example:
        >>> parse_time("20"), parse_time("2010-12-06T01:02:20Z")
        (20.0, '2010-12-06T01:02:20Z')
    """
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return text


def describe_trace(net: Network) -> list[str]:
    """Return what was understood of a trace: its contacts, rounds, devices and their classes.

    Args:
        net: Any network.

    Returns:
        Lines of text; none if the devices of the network have no names.
    """
    if net.names is None:
        return []
    lines = [*net.describe()]
    if net.names != tuple(map(str, range(net.devices))):
        shown = [f"{k} = {name}" for k, name in enumerate(net.names[:_SHOWN_NAMES])]
        if net.devices > _SHOWN_NAMES + 1:
            shown.append("…")
        if net.devices > _SHOWN_NAMES:
            shown.append(f"{net.devices - 1} = {net.names[-1]}")
        lines.append(f"device numbers and names: {', '.join(shown)}")
    for column, values in net.groups.items():
        counts = Counter(values).most_common()
        shown = [f"{count} {name or '(none)'}" for name, count in counts[:_SHOWN_CLASSES]]
        if len(counts) > _SHOWN_CLASSES:
            shown.append(f"… ({len(counts)} classes)")
        lines.append(f'column "{column}": {", ".join(shown)}')
    return lines


def say_understood(path: Path | None, study: Study, quiet: bool) -> None:
    """Print on standard error what was understood of a log that is given in the place of a spec.

    Args:
        path: What the command was given.
        study: The study on it.
        quiet: Whether to print nothing.
    """
    if path is None or not is_trace(path) or quiet:
        return
    for line in study.network.describe():
        typer.echo(line, err=True)


def with_rounds_of_trace(studies: list[Study]) -> list[Study]:
    """Return studies with as many rounds as their trace has, up to a limit.

    Args:
        studies: Studies on the same network.
    """
    recorded = studies[0].network.period
    if recorded is None:  # a fault on top
        return studies
    rounds = min(recorded, _MAX_ROUNDS)
    return [replace(study, rounds=rounds) for study in studies]


def _suffix(path: Path) -> str:
    """Return the suffix that says what a file is: of a.gpx.gz it is .gpx."""
    suffix = path.suffix.lower()
    inner = Path(path.stem).suffix.lower()
    if suffix == ".gz" and inner in _POSITIONS:
        return inner
    return suffix

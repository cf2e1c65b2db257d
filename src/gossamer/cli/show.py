"""Print the results of commands: tables for people, one JSON document with `--json`."""

from __future__ import annotations

import json
import shlex
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table

from gossamer._core.columns import ENDINGS
from gossamer.cli.tables import terminal_table
from gossamer.cli.traces import describe_trace
from gossamer.errors import Diverged, GossamerError, InputError, NetworkWarning
from gossamer.network import Network
from gossamer.results.run import Run
from gossamer.results.statistics import Interval
from gossamer.results.tables import Method

if TYPE_CHECKING:
    from gossamer.network.inspect import Summary
    from gossamer.study.track import Tracker
    from gossamer.theory import Assumption1

# Columns of a table that is printed to a file or a pipe.
_FILE_WIDTH = 160

# What to do after the demo: a command, and what it is for.
_AFTER_DEMO = (
    ("gossamer compare --seeds 5", "the same over five seeds, with intervals"),
    ("gossamer run --set algorithm.p=5", "one method, another p"),
    ("gossamer network show", "the links that they met over"),
    ("gossamer new fleet.toml", "a commented spec of your own"),
)


class SomeDiverged(GossamerError):
    """Raised when methods of a comparison diverged; the results of the others are printed."""

    exit_code = Diverged.exit_code


def open_console() -> Console:
    """Return a console for tables.

    A file or a pipe has no width: tables are printed whole there, not squeezed into 80 columns.
    """
    console = Console()
    if console.is_terminal:
        return console
    return Console(width=_FILE_WIDTH)


def print_json(document: dict[str, Any]) -> None:
    """Print what `--json` prints: one document and nothing else.

    Args:
        document: Plain values; scalars of NumPy and torch are converted.
    """
    text = json.dumps(
        document,
        indent=2,
        ensure_ascii=False,
        allow_nan=False,
        default=lambda number: number.item(),
    )
    typer.echo(text)


def show_run(run: Run, as_json: bool = False, quiet: bool = False) -> None:
    """Print the result of one run, and where it is.

    Args:
        run: A finished run.
        as_json: Whether to print JSON.
        quiet: Whether to print the result only.
    """
    if as_json:
        print_json(_run_document(run))
        return
    console = open_console()
    table = terminal_table([Method(run.label, (run,))], run.title(), console.width)
    console.print(table)
    seconds = run.summary["seconds"]
    share = run.summary["seconds_measuring"] / max(seconds, 1e-9)
    console.print(
        f"{seconds:.1f} s, {share:.0%} of it measuring; everything is in {run.folder}",
        highlight=False,
    )
    if console.is_terminal and not quiet and run.folder is not None:
        show_next(console, _after(run.folder))


def show_notes(tracking: Sequence[Tracker], quiet: bool) -> None:
    """Print where the trackers have written, to standard error.

    Args:
        tracking: The trackers of the command.
        quiet: Whether to print nothing.
    """
    for tracker in tracking:
        if not quiet:
            typer.echo(tracker.note, err=True)


def show_comparison(
    methods: Sequence[Method],
    folder: Path,
    demo: bool,
    as_json: bool = False,
    quiet: bool = False,
) -> None:
    """Draw the curves of a comparison, and print its table and what to do next.

    Args:
        methods: The methods with their runs.
        folder: The folder of the runs.
        demo: Whether to print what to do next, also to a file or a pipe.
        as_json: Whether to print JSON.
        quiet: Whether to print the result only.
    """
    from gossamer.report.figures import curves

    first = methods[0].runs[0]
    title = first.title(len(methods[0].runs))
    picture = folder / "curves.png"
    curves(methods, picture, title)
    if as_json:
        document = {
            "name": first.name,
            "folder": str(folder),
            "curves": str(picture),
            "methods": [method_document(method, methods[0]) for method in methods],
        }
        print_json(document)
        return
    console = open_console()
    console.print(terminal_table(methods, title, console.width))
    console.print(f"runs: {folder}   curves: {picture}", highlight=False)
    if demo:
        show_next(console, (*_after(folder)[:1], *_AFTER_DEMO))
    elif console.is_terminal and not quiet:
        show_next(console, _after(folder))


def _after(folder: Path) -> tuple[tuple[str, str], ...]:
    """Return what to do with finished runs."""
    name = shlex.quote(str(folder))
    return (
        (f"gossamer report {name}", "a page with curves and the network"),
        (f"gossamer figure {name}", "the curves for a paper"),
    )


def show_next(console: Console, steps: Sequence[tuple[str, str]]) -> None:
    """Print commands, each with what it is for, where that fits the line.

    Args:
        console: Where to print.
        steps: Commands, each with its purpose.
    """
    widest = max(len(command) for command, _ in steps)
    console.print("\nNext:")
    for command, purpose in steps:
        line = f"  {command:<{widest}}  {purpose}"
        if len(line) > console.width:
            line = f"  {command}"
        console.print(line, highlight=False, soft_wrap=True, markup=False)


def refuse_diverged(methods: Sequence[Method]) -> None:
    """Raise an error if a method diverged, so that the command has the exit code of that.

    Args:
        methods: The methods of a comparison; their results are printed before.

    Raises:
        SomeDiverged: It names the methods.
    """
    diverged = [f"{m.label} ({m.diverged_text})" for m in methods if m.diverged]
    if diverged:
        raise SomeDiverged(
            f"{len(diverged)} of {len(methods)} methods diverged: {', '.join(diverged)}; "
            'a smaller eta, a smaller p or step = "safe" usually mends it'
        )


def method_document(method: Method, first: Method) -> dict[str, Any]:
    """Return a method's row as plain values.

    Args:
        method: A method with its runs.
        first: The first method of the comparison.

    Returns:
        Means over the seeds with the half-widths of their 95 % intervals, the differences to the
        first method, and every run.
    """
    document: dict[str, Any] = {"method": method.label}
    difference: dict[str, Any] = {"to": first.label}
    for name in _value_names(method):
        document[name] = _interval_document(method.value(name))
        difference[name] = _interval_document(method.difference(first, name))
    for unit in ("rounds", "bytes", "seconds", "joules"):
        for merged in (False, True):
            key = f"{unit}_to_merged" if merged else f"{unit}_to"
            targets = method.runs[0].summary.get(key)
            if targets is None or method.diverged:
                continue
            document[key] = {}
            difference[key] = {}
            for target in targets:
                document[key][target] = _interval_document(method.to(unit, target, merged))
                difference[key][target] = _interval_document(
                    method.difference_to(first, unit, target, merged)
                )
    if method is not first:
        document["difference"] = difference
    if method.diverged:
        document["diverged"] = {str(run.seed): run.round for run in method.diverged}
    document["runs"] = [_run_document(run) for run in method.runs]
    return document


def _value_names(method: Method) -> list[str]:
    """Return the values that the summaries of all seeds have."""
    names = []
    for column in method.runs[0].columns:
        names += [column.name + ending for ending in ENDINGS]
    return [name for name in (*names, "distance", "bytes") if method.has(name)]


def _run_document(run: Run) -> dict[str, Any]:
    return run.summary | {"folder": str(run.folder)}


def _interval_document(value: Interval | None) -> dict[str, Any] | None:
    if value is None or not value.count:
        return None
    return asdict(value)


def show_network(
    net: Network, rounds: int, picture: Path, name: str, as_json: bool = False, **files: Path | None
) -> None:
    """Draw a network, and print what it is like.

    Args:
        net: The network.
        rounds: How many of its rounds to look at.
        picture: Where the picture goes.
        name: The name in the title.
        as_json: Whether to print JSON.
        **files: Other files that were written, by what they hold.
    """
    from gossamer.network import summary
    from gossamer.report.network_figure import network
    from gossamer.theory import check_assumption1

    facts = summary(net, rounds)
    assumption = check_assumption1(net, rounds)
    _warn_of_few_links(facts)
    title = f"{name}: {net.devices} devices, {rounds} rounds"
    network(net, rounds, picture, title)
    written = {"picture": str(picture)}
    for kind, file in files.items():
        if file is not None:
            written[kind] = str(file)
    understood = describe_trace(net)
    if as_json:
        checked = asdict(assumption) | {"holds": assumption.holds}
        document = {"name": name, **asdict(facts), "assumption1": checked, **written}
        if understood:
            document |= {"understood": understood, "names": net.names, "groups": dict(net.groups)}
        print_json(document)
        return
    console = open_console()
    for line in understood:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    table = Table(title=title, show_header=False, title_justify="left", title_style="bold")
    for label, value in network_rows(facts, assumption):
        table.add_row(label, value)
    console.print(table)
    for kind, path in written.items():
        line = f"{kind}: {path}"
        if kind == "links":
            line += f'   (use them by [network] kind = "file", path = "{path}")'
        console.print(line, highlight=False, soft_wrap=True, markup=False)


def check_rounds(rounds: int, most: int | None) -> None:
    """Refuse a number of rounds that a network does not have.

    Args:
        rounds: How many of its rounds to look at.
        most: Number of rounds that it has; None if there is no last one.

    Raises:
        InputError: If it is below 1, or more than the network has.
    """
    if rounds < 1 or (most is not None and rounds > most):
        limit = ""
        if most is not None:
            limit = f" and at most {most}, which is what the network has"
        raise InputError("rounds", rounds, f"a whole number of at least 1{limit}")


def _warn_of_few_links(facts: Summary) -> None:
    """Warn of the links that a summary counts, as a run on the network would."""
    from gossamer.network.sparsity import LinkCount, warning_of

    links = round(facts.links_mean * facts.rounds)
    text = warning_of(facts.devices, LinkCount(links, facts.rounds, facts.rounds))
    if text is not None:
        warnings.warn(text, NetworkWarning, stacklevel=2)


def network_rows(facts: Summary, assumption: Assumption1) -> list[tuple[str, str]]:
    """Return the rows of the table about a network.

    Args:
        facts: The network's summary.
        assumption: The check of Assumption 1.

    Returns:
        Labels and values.
    """
    smallest_b = "none: never connected"
    if assumption.b is not None:
        smallest_b = f"{assumption.b.aligned} (every window: {assumption.b.sliding})"
    gap = "not known"
    if facts.spectral_gap is not None:
        gap = f"{facts.spectral_gap:.4g}"
    links = f"{facts.links_mean:.4g} ({facts.links_min} to {facts.links_max})"
    degrees = f"{facts.degree_mean:.4g} ({facts.degree_min} to {facts.degree_max})"
    return [
        ("density", f"{facts.density_mean:.4g}"),
        ("links per round", links),
        ("neighbours per device", degrees),
        ("devices alone", f"{facts.isolated_share:.1%} of devices and rounds"),
        ("rounds connected", f"{facts.connected_share:.1%}"),
        ("smallest B (Assumption 1)", smallest_b),
        ("smallest weight ζ", f"{assumption.zeta:.4g}"),
        ("spectral gap", gap),
    ]

"""Figures with matplotlib: the curves of a comparison, for a screen or a paper."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from gossamer._core import checks
from gossamer._core.columns import ENDINGS, Column
from gossamer._core.files import write_atomically
from gossamer.errors import DataError, InputError
from gossamer.results.palette import COLOURS, MARKERS, line_style
from gossamer.results.palette import DASHES as DASH_LENGTHS
from gossamer.results.statistics import interval
from gossamer.results.tables import Method

# The dashes of the palette as matplotlib's line styles.
DASHES: tuple[Any, ...] = tuple((0, lengths) if lengths else "-" for lengths in DASH_LENGTHS)
STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}
# In print: letters of about the size of a caption's, fonts embedded whole (type 42), and the same
# bytes from the same runs.
PAPER: Any = STYLE | {
    "font.size": 8,
    "axes.linewidth": 0.6,
    "grid.linewidth": 0.4,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "text.parse_math": False,  # a dollar in a name is a dollar
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.hashsalt": "gossamer",
}
_UNDATED: dict[str, Any] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}

WIDTHS = {"column": 88.9, "page": 181.9}  # millimetres: one column and both of an IEEE page
_DISTANCE = "consensus distance ‖w − mean‖"
# What the columns of a metric are, by what follows its name.
_WHICH = {
    "": "mean test {}",
    "_worst": "worst device's {}",
    "_best": "best device's {}",
    "_merged": "merged model's {}",
    "_merged_power": "power mean's {}",
}
# What the horizontal axis shows: the column of the metrics.
X = {
    "rounds": "round",
    "bytes": "bytes",
    "seconds": "simulated_seconds",
    "joules": "joules",
    "steps": "steps",
}
_BYTE_UNITS = {"GB": 1e9, "MB": 1e6, "kB": 1e3}
# The measurements of each run, by the label of its method.
Metrics = Mapping[str, Sequence[Mapping[str, Any]]]


def curves(methods: Sequence[Method], path: Path, title: str) -> None:
    """Draw the metrics, the loss and the consensus distance by round.

    Args:
        methods: The methods. A band is the 95 % interval over the seeds.
        path: The file to write; its suffix says the format.
        title: The title of the figure.
    """
    metrics = {}
    for method in methods:
        if method.measured_runs:
            metrics[method.label] = [run.metrics for run in method.measured_runs]
    first = methods[0].runs[0]
    panels = [_Shown.of(column) for column in first.columns if _all_have(metrics, column.name)]
    if _all_have(metrics, "distance"):
        panels.append(_Shown("distance", _DISTANCE))
    figure, drawn = open_figure(len(panels))
    axes = np.atleast_1d(drawn)
    for axis, y in zip(axes, panels, strict=True):
        _draw(axis, metrics, "rounds", y)
        for target in first.targets:
            if target.name == y.column:
                axis.axhline(y.scale * target.value, color="0.5", linewidth=0.8, linestyle=":")
    if metrics:  # otherwise all methods diverged before the first measurement
        axes[0].legend(loc="lower right" if first.column.rising else "upper right")
    figure.suptitle(title, fontsize=10, parse_math=False)
    save_figure(figure, path)


@dataclass(frozen=True)
class _Shown:
    """What a vertical axis shows: the column of the measurements, the label and the scale."""

    column: str
    label: str
    scale: float = 1.0

    @classmethod
    def of(cls, metric: Column, ending: str = "") -> _Shown:
        label = _WHICH[ending].format(metric.heading)
        return cls(metric.name + ending, label, metric.scale)


def vertical_axes(columns: Sequence[Column]) -> dict[str, _Shown]:
    """Return what a vertical axis can show, by the name that `gossamer figure --y` takes.

    Args:
        columns: The metrics of the runs, the most important first.

    Returns:
        Every column of every metric; "worst", "best", "merged" and "power" are those of the first.
    """
    found = {}
    for ending in ENDINGS[1:]:
        short = ending.removeprefix("_merged_").strip("_")
        found[short] = _Shown.of(columns[0], ending)
    for metric in columns:
        for ending in ENDINGS:
            found[metric.name + ending] = _Shown.of(metric, ending)
    found["distance"] = _Shown("distance", _DISTANCE)
    return found


def paper(
    metrics: Metrics,
    path: Path,
    columns: Sequence[Column],
    x: str = "rounds",
    y: str = "",
    width: str = "column",
) -> None:
    """Draw one figure for a paper, as wide as it will be printed.

    Methods differ in dash and marker too, so that the figure can be read without colour.

    Args:
        metrics: The measurements of each run, by the label of its method.
        path: The file to write; .pdf and .svg are vector formats.
        columns: The metrics of the runs, the most important first.
        x: What the horizontal axis shows: a key of `X`.
        y: What the vertical axis shows: a metric such as "accuracy" or "rmse_merged"; "worst",
            "best" or "merged" of the first metric; "distance". "": the first metric.
        width: "column", "page", or a width such as "84mm" or "3.3in".

    Raises:
        InputError: An argument is not accepted, or the runs have not measured it.
    """
    checks.one_of("x", x, X)
    known = vertical_axes(columns)
    shown = {name: axis for name, axis in known.items() if _all_have(metrics, axis.column)}
    y = y or columns[0].name
    checks.one_of("y", y, shown)
    if not _all_have(metrics, X[x]):
        raise InputError("x", x, "rounds or bytes: not all of these runs have a [timing]")
    inches = millimetres(width) / 25.4
    with mpl.rc_context(PAPER):
        figure, axis = open_figure(1, (inches, min(0.72 * inches, 2.6)))
        _draw(axis, metrics, x, shown[y], markers=True)
        if len(metrics) > 1:
            _legend_above(figure, axis)
        save_figure(figure, path, dpi=300)


def millimetres(width: str) -> float:
    """Return a width in millimetres.

    Args:
        width: "column", "page", or a number with mm, cm or in.

    Raises:
        InputError: The width is none of these, or not from 30 to 1000 mm.

    Example:
        >>> millimetres("column"), millimetres("84mm"), millimetres("3.3in")
        (88.9, 84.0, 83.82)
    """
    if width in WIDTHS:
        return WIDTHS[width]
    size = 0.0
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(mm|cm|in)", width)
    if match:
        size = float(match[1]) * {"mm": 1.0, "cm": 10.0, "in": 25.4}[match[2]]
    if not 30 <= size <= 1000:
        raise InputError(
            "width", width, '"column", "page", or a width from 30mm to 1000mm, as in 84mm or 3.3in'
        )
    return size


def _all_have(metrics: Metrics, column: str) -> bool:
    """True if all runs have measured a column."""
    for runs in metrics.values():
        for run in runs:
            if column not in run or not np.isfinite(run[column]).all():
                return False
    return True


def _draw(axis: Any, metrics: Metrics, x: str, y: _Shown, markers: bool = False) -> None:
    """Draw one line per method with its band; seeds are averaged by round on both axes."""
    scale = y.scale
    unit, size = _unit(x, _largest(metrics, X[x]))
    for k, (method, runs) in enumerate(metrics.items()):
        across = np.mean([run[X[x]] for run in runs], axis=0) / size
        values = np.stack([run[y.column] for run in runs])
        points = [interval(row) for row in values.T]
        mean = np.array([point.mean for point in points]) * scale
        style = _line(k, markers)
        if markers:  # a few per line, each line at places of its own
            every = max(1, len(across) // 7)
            style["markevery"] = (k * every // len(metrics), every)
        axis.plot(across, mean, label=method, **style)
        if len(runs) > 1:
            half = np.array([point.half for point in points]) * scale
            axis.fill_between(
                across, mean - half, mean + half, color=style["color"], alpha=0.15, linewidth=0
            )
    axis.set(xlabel=unit, ylabel=y.label)
    if scale == 100:  # an interval may reach beyond, a share cannot
        low, high = axis.get_ylim()
        axis.set_ylim(max(low, 0), min(high, 100))
    if y.column == "distance":
        axis.set_ylim(bottom=0)


def _largest(metrics: Metrics, column: str) -> float:
    """Return the largest last value of a column."""
    largest = 0.0
    for runs in metrics.values():
        for run in runs:
            largest = max(largest, float(run[column][-1]))
    return largest


def _line(k: int, markers: bool) -> dict[str, Any]:
    """Return matplotlib's arguments for the line of method k."""
    colour, dash = line_style(k)
    style: dict[str, Any] = {
        "color": COLOURS[colour],
        "linestyle": DASHES[dash],
        "linewidth": 1.2 if markers else 1.6,
    }
    if markers:
        style["marker"] = MARKERS[colour]
        style["markersize"] = 3.5
        style["markeredgewidth"] = 0.8
        style["markerfacecolor"] = "white"
    return style


def _unit(x: str, largest: float) -> tuple[str, float]:
    """Return the label of the horizontal axis, and what its values are divided by."""
    if x == "rounds":
        return "round", 1.0
    if x == "seconds":
        return "simulated time, s", 1.0
    if x == "joules":
        return "energy of all devices, J", 1.0
    if x == "steps":
        return "steps of all devices", 1.0
    for name, size in _BYTE_UNITS.items():
        if largest >= size:
            return f"sent by all devices, {name}", size
    return "sent by all devices, bytes", 1.0


def _legend_above(figure: Any, axis: Any) -> None:
    """Add a legend above the axes, where it hides nothing, in as few rows as fit."""
    handles, names = axis.get_legend_handles_labels()
    for rows in range(1, len(names) + 1):
        columns = -(-len(names) // rows)
        legend = figure.legend(
            handles,
            names,
            loc="outside upper center",
            ncols=columns,
            handlelength=3.2,
            columnspacing=1.2,
        )
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            return
        legend.remove()


def open_figure(panels: int, size: tuple[float, float] | None = None) -> tuple[Any, Any]:
    """Return a figure and its axes.

    Args:
        panels: Number of axes.
        size: Width and height in inches, for a figure in the style of a paper.
    """
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    with mpl.rc_context(STYLE if size is None else PAPER):
        return plt.subplots(1, panels, figsize=size or (3.6 * panels, 3.0), squeeze=True)


def save_figure(figure: Any, path: Path, dpi: int = 150) -> None:
    """Write a figure to a file, and close it.

    Args:
        figure: The figure.
        path: The file; its suffix says in which format.
        dpi: Dots per inch.

    Raises:
        DataError: If the format is not known.
    """
    from matplotlib import pyplot as plt

    content = io.BytesIO()
    kind = path.suffix[1:].lower() or "png"
    try:
        with warnings.catch_warnings():
            # A name in a script that the font lacks is drawn as boxes.
            warnings.filterwarnings("ignore", "Glyph")
            figure.savefig(content, dpi=dpi, format=kind, metadata=_UNDATED.get(kind))
    except ValueError as error:  # a format that matplotlib does not have; it names those it has
        raise DataError(f"cannot write {path}: {error}") from None
    finally:
        plt.close(figure)
    write_atomically(path, content.getvalue())

"""Figures with matplotlib: curves of a comparison on a page or at a paper's width, and a network."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.collections import LineCollection

from gossamer._core import checks
from gossamer._core.files import write_atomically
from gossamer.errors import DataError, InputError
from gossamer.network import Network
from gossamer.report.palette import COLOURS, MARKERS, look
from gossamer.report.palette import DASHES as LENGTHS
from gossamer.results.statistics import interval
from gossamer.results.tables import Method

DASHES: tuple[Any, ...] = tuple((0, lengths) if lengths else "-" for lengths in LENGTHS)
STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}
# In print: letters of about the size of a caption's, embedded whole (type 42), and the same bytes from the same runs.
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

WIDTHS = {"column": 88.9, "page": 181.9}  # mm: a column and both of them, of an IEEE page
Y = {
    "accuracy": ("accuracy", "mean test accuracy, %", 100.0),
    "worst": ("accuracy_worst", "worst device's accuracy, %", 100.0),
    "loss": ("loss", "mean test loss", 1.0),
    "distance": ("distance", "consensus distance ‖w − mean‖", 1.0),
}
X = {"rounds": "round", "bytes": "bytes", "seconds": "simulated_seconds"}
Named = Mapping[
    str, Sequence[Mapping[str, Any]]
]  # the measurements of each run, by the label of its method


def curves(methods: Sequence[Method], path: Path, title: str) -> None:
    """Accuracy, loss and consensus distance by round; the band is the 95 % interval over the seeds."""
    named = {method.label: [run.metrics for run in method.runs] for method in methods}
    panels = ["accuracy", "loss", "distance"] if _has(named, "accuracy") else ["loss", "distance"]
    figure, axes = _figure(len(panels))
    for axis, y in zip(axes, panels, strict=True):
        _draw(axis, named, "rounds", y)
    for target in (
        methods[0].runs[0].spec["measure"]["accuracy_targets"] if len(panels) == 3 else ()
    ):
        axes[0].axhline(100 * target, color="0.5", linewidth=0.8, linestyle=":")
    axes[0].legend(loc="lower right" if len(panels) == 3 else "upper right")
    figure.suptitle(title, fontsize=10, parse_math=False)
    _save(figure, path)


def paper(
    named: Named, path: Path, x: str = "rounds", y: str = "accuracy", width: str = "column"
) -> None:
    """One figure for a paper, as wide as it will be printed: `width` is "column", "page", or as in "84mm" and "3.3in".

    Vector if the file's name ends in .pdf or .svg. Told apart without colour too: by dashes and markers.
    """
    for name, value, known in (("x", x, X), ("y", y, Y)):
        checks.one_of(name, value, known)
    if not _has(named, Y[y][0]):
        raise InputError("y", y, "loss or distance: these runs have no accuracy")
    if not _has(named, X[x]):
        raise InputError("x", x, "rounds or bytes: not all of these runs have a [timing]")
    inches = millimetres(width) / 25.4
    with mpl.rc_context(PAPER):
        figure, axis = _figure(1, (inches, min(0.72 * inches, 2.6)))
        _draw(axis, named, x, y, markers=True)
        if len(named) > 1:
            _legend_above(figure, axis)
        _save(figure, path, dpi=300)


def millimetres(width: str) -> float:
    """A width in millimetres.

    >>> millimetres("column"), millimetres("84mm"), millimetres("3.3in")
    (88.9, 84.0, 83.82)
    """
    if width in WIDTHS:
        return WIDTHS[width]
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(mm|cm|in)", width)
    size = float(match[1]) * {"mm": 1.0, "cm": 10.0, "in": 25.4}[match[2]] if match else 0.0
    if not 30 <= size <= 1000:
        raise InputError(
            "width", width, '"column", "page", or a width from 30mm to 1000mm, as in 84mm or 3.3in'
        )
    return size


def _has(named: Named, column: str) -> bool:
    """Whether all runs have measured this."""
    return all(
        column in run and np.isfinite(run[column]).all() for runs in named.values() for run in runs
    )


def _draw(axis: Any, named: Named, x: str, y: str, markers: bool = False) -> None:
    """One line a method with its band, and the axes' names. Seeds are averaged round by round, on both axes."""
    column, label, scale = Y[y]
    unit, size = _unit(x, max(float(run[X[x]][-1]) for runs in named.values() for run in runs))
    for k, (method, runs) in enumerate(named.items()):
        colour, dash = look(k)
        along = np.mean([run[X[x]] for run in runs], axis=0) / size
        points = [interval(values) for values in zip(*(run[column] for run in runs), strict=True)]
        mean = np.array([point.mean for point in points]) * scale
        style: dict[str, Any] = {
            "color": COLOURS[colour],
            "linestyle": DASHES[dash],
            "linewidth": 1.2 if markers else 1.6,
        }
        if markers:  # a few each, not all at the same places
            every = max(1, len(along) // 7)
            style |= {
                "marker": MARKERS[colour],
                "markersize": 3.5,
                "markeredgewidth": 0.8,
                "markerfacecolor": "white",
            }
            style |= {"markevery": (k * every // len(named), every)}
        axis.plot(along, mean, label=method, **style)
        if points[0].half is not None:
            half = np.array([point.half for point in points]) * scale
            axis.fill_between(
                along, mean - half, mean + half, color=COLOURS[colour], alpha=0.15, linewidth=0
            )
    axis.set(xlabel=unit, ylabel=label)
    if scale == 100:  # an interval may reach beyond, an accuracy cannot
        low, high = axis.get_ylim()
        axis.set_ylim(max(low, 0), min(high, 100))
    if y == "distance":
        axis.set_ylim(bottom=0)


def _unit(x: str, largest: float) -> tuple[str, float]:
    if x == "bytes":
        name, size = next(
            ((n, s) for n, s in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)) if largest >= s),
            ("bytes", 1.0),
        )
        return f"sent by all devices, {name}", size
    return ("round" if x == "rounds" else "simulated time, s"), 1.0


def _legend_above(figure: Any, axis: Any) -> None:
    """A legend that hides nothing: above the axes, in as few rows as fit."""
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


def network(net: Network, rounds: int, path: Path, title: str) -> None:
    """A network: who met whom how often, links round by round, and the degrees."""
    m, shown = net.devices, min(net.devices, 200)
    met = np.zeros((shown, shown))
    count, degrees = [], []
    for t in range(rounds):
        links = net.links(t)
        inside = (links.a < shown) & (links.b < shown)
        met[links.a[inside], links.b[inside]] += 1
        count.append(len(links))
        degrees.append(links.degrees)
    figure, (left, middle, right) = _figure(3)
    angle = 2 * np.pi * np.arange(shown) / shown
    x, y = np.cos(angle), np.sin(angle)
    pairs = np.argwhere(met)
    if len(pairs):
        share = met[tuple(pairs.T)] / rounds
        ends = np.stack([np.stack([x[end], y[end]], axis=-1) for end in pairs.T], axis=1)
        lines = LineCollection(
            list(ends), colors=COLOURS[0], alpha=0.1 + 0.8 * share, linewidths=0.3 + 2 * share
        )
        left.add_collection(lines)
    left.scatter(x, y, s=60 if shown <= 30 else 6, color=COLOURS[1], zorder=3)
    left.set_aspect("equal")
    left.axis("off")
    left.set_title(
        f"who met whom (darker: more often){'' if shown == m else f', first {shown}'}", fontsize=9
    )
    middle.plot(range(rounds), count, color=COLOURS[0], linewidth=1)
    middle.set(xlabel="round", ylabel="links", ylim=(0, 1.1 * max([*count, 1])))
    values, times = np.unique(np.concatenate(degrees), return_counts=True)
    right.bar(values, times / times.sum(), color=COLOURS[0])
    right.set(xlabel="neighbours of a device", ylabel="share of devices and rounds")
    right.set_xlim(values.min() - 1, values.max() + 1)
    right.xaxis.get_major_locator().set_params(integer=True)
    figure.suptitle(title, fontsize=10, parse_math=False)
    _save(figure, path)


def _figure(panels: int, size: tuple[float, float] | None = None) -> tuple[Any, Any]:
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    with mpl.rc_context(STYLE if size is None else PAPER):
        return plt.subplots(1, panels, figsize=size or (3.6 * panels, 3.0), squeeze=True)


def _save(figure: Any, path: Path, dpi: int = 150) -> None:
    from matplotlib import pyplot as plt

    content, kind = io.BytesIO(), path.suffix[1:].lower() or "png"
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "Glyph"
            )  # a name in a script that the font lacks is no reason to complain
            figure.savefig(content, dpi=dpi, format=kind, metadata=_UNDATED.get(kind))
    except ValueError as error:  # a format that matplotlib does not have; it says which it has
        raise DataError(f"cannot write {path}: {error}") from None
    finally:
        plt.close(figure)
    write_atomically(path, content.getvalue())

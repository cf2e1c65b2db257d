"""Figures with matplotlib: curves of a comparison, and a network."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.collections import LineCollection

from gossamer.errors import DataError
from gossamer.network import Network
from gossamer.study import Method, interval
from gossamer.study.store import write_atomically

# Okabe and Ito's colours: told apart by everyone; dashes tell them apart in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}


def curves(methods: Sequence[Method], path: Path, title: str) -> None:
    """Accuracy, loss and consensus distance by round; the band is the 95 % interval over the seeds."""
    panels = [("loss", "mean test loss", 1.0), ("distance", "consensus distance ‖w − mean‖", 1.0)]
    if methods[0].runs[0].summary["accuracy"] is not None:
        panels.insert(0, ("accuracy", "mean test accuracy, %", 100.0))
    figure, axes = _figure(len(panels))
    for axis, (name, label, scale) in zip(axes, panels, strict=True):
        for method, colour, dash in zip(methods, cycle(COLOURS), cycle(DASHES)):
            rounds = method.runs[0].metrics["round"]
            points = [interval(values) for values in zip(*(run.metrics[name] for run in method.runs), strict=True)]
            mean = np.array([point.mean for point in points]) * scale
            axis.plot(rounds, mean, color=colour, linestyle=dash, label=method.label, linewidth=1.6)
            if points[0].half is not None:
                half = np.array([point.half for point in points]) * scale
                axis.fill_between(rounds, mean - half, mean + half, color=colour, alpha=0.15, linewidth=0)
        axis.set_xlabel("round")
        axis.set_ylabel(label)
    for target in methods[0].runs[0].study.measure.accuracy_targets if len(panels) == 3 else ():
        axes[0].axhline(100 * target, color="0.5", linewidth=0.8, linestyle=":")
    axes[-1].set_ylim(bottom=0)
    axes[0].legend(loc="lower right" if len(panels) == 3 else "upper right")
    figure.suptitle(title, fontsize=10)
    _save(figure, path)


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
        lines = LineCollection(list(ends), colors="#0072B2", alpha=0.1 + 0.8 * share, linewidths=0.3 + 2 * share)
        left.add_collection(lines)
    left.scatter(x, y, s=60 if shown <= 30 else 6, color="#D55E00", zorder=3)
    left.set_aspect("equal")
    left.axis("off")
    left.set_title(f"who met whom (darker: more often){'' if shown == m else f', first {shown}'}", fontsize=9)
    middle.plot(range(rounds), count, color="#0072B2", linewidth=1)
    middle.set(xlabel="round", ylabel="links", ylim=(0, 1.1 * max([*count, 1])))
    values, times = np.unique(np.concatenate(degrees), return_counts=True)
    right.bar(values, times / times.sum(), color="#0072B2")
    right.set(xlabel="neighbours of a device", ylabel="share of devices and rounds")
    right.set_xlim(values.min() - 1, values.max() + 1)
    right.xaxis.get_major_locator().set_params(integer=True)
    figure.suptitle(title, fontsize=10)
    _save(figure, path)


def _figure(panels: int) -> tuple[Any, Any]:
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    with mpl.rc_context(STYLE):
        return plt.subplots(1, panels, figsize=(3.6 * panels, 3.0), squeeze=True)


def _save(figure: Any, path: Path) -> None:
    from matplotlib import pyplot as plt

    content = io.BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph")  # a name in a script that the font lacks is no reason to complain
            figure.savefig(content, dpi=150, format=path.suffix[1:].lower() or "png")
    except ValueError as error:  # a format that matplotlib does not have; it says which it has
        raise DataError(f"cannot write {path}: {error}") from None
    finally:
        plt.close(figure)
    write_atomically(path, content.getvalue())

"""The figure of a network: who met whom, links by round, neighbours per device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.collections import LineCollection
from numpy.typing import NDArray

from gossamer.network import Network
from gossamer.report.figures import open_figure, save_figure
from gossamer.results.palette import COLOURS

_MAX_CIRCLE = 350  # devices on the circle
_MANY = 30  # devices from which their marks are small
_MAX_NAMES = 16  # classes whose names fit around the circle
_LONGEST_NAME = 12  # characters
_MAP_ROUNDS = 400  # rounds whose positions are drawn on a map, at most
_BETWEEN = "#777777"  # colour of links between classes
_FAINT = 0.1  # opacity of a link that was there once


def network(net: Network, rounds: int, path: Path, title: str) -> None:
    """Draw a network: how often devices met, the links by round, and the degrees.

    If the network knows classes of its devices, those of one class are side by side and have one
    colour.

    Args:
        net: The network.
        rounds: The number of rounds to draw.
        path: The file to write.
        title: The title of the figure.
    """
    shown = min(net.devices, _MAX_CIRCLE)
    met = np.zeros((shown, shown))
    count = []
    degrees: Counter[int] = Counter()
    for t in range(rounds):
        links = net.links(t)
        inside = (links.a < shown) & (links.b < shown)
        met[links.a[inside], links.b[inside]] += 1
        count.append(len(links))
        values, times = np.unique(links.degrees, return_counts=True)
        degrees.update(dict(zip(values.tolist(), times.tolist(), strict=True)))
    figure, (left, middle, right) = open_figure(3)
    caption = "who met whom (darker: more often)"
    if net.has_positions:
        caption = "ways of the devices, and where they met"
        draw_map(left, net, rounds, shown)
    else:
        draw_circle(left, met, _classes(net, shown))
    if shown < net.devices:
        caption += f", first {shown}"
    left.set_title(caption, fontsize=9)
    middle.plot(range(rounds), count, color=COLOURS[0], linewidth=1)
    middle.set(xlabel="round", ylabel="links", ylim=(0, 1.1 * max([*count, 1])))
    middle.yaxis.get_major_locator().set_params(integer=True)
    shares = np.array(list(degrees.values())) / degrees.total()
    right.bar(list(degrees), shares, color=COLOURS[0])
    right.set(xlabel="neighbours of a device", ylabel="share of devices and rounds")
    right.set_xlim(min(degrees) - 1, max(degrees) + 1)
    right.xaxis.get_major_locator().set_params(integer=True)
    figure.suptitle(title, fontsize=10, parse_math=False)
    save_figure(figure, path)


def draw_circle(axis: Any, met: NDArray[np.float64], classes: Sequence[str] = ()) -> None:
    """Draw devices on a circle, linked by lines that are darker the more often they met.

    Devices of one class are side by side. Their class is written beside them, and links within a
    class have its colour; all others are grey.

    Args:
        axis: Where to draw.
        met: How often two devices were linked, [devices, devices].
        classes: The class of each device; empty if there are none.
    """
    devices = len(met)
    order = np.arange(devices)
    member = np.zeros(devices, dtype=np.int64)
    names = np.array([""])
    palette = np.array([COLOURS[1]])
    if classes:
        names, member = np.unique(np.array(classes), return_inverse=True)
        order = np.argsort(member, kind="stable")
        palette = np.resize(np.array(COLOURS), len(names))
    angle = np.empty(devices)
    angle[order] = np.pi / 2 - 2 * np.pi * np.arange(devices) / devices
    points = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    a, b = np.nonzero(met)
    if len(a):
        often = met[a, b] / met.max()
        line = np.where(member[a] == member[b], palette[member[a]], _BETWEEN)
        if not classes:
            line = np.full(len(a), COLOURS[0])
        faint = _FAINT * min(1.0, 4 * devices / len(a))  # many lines hide each other
        drawn = np.argsort(often, kind="stable")  # pairs that met most often are drawn last, on top
        lines = LineCollection(
            list(points[np.stack([a, b], axis=1)[drawn]]),
            colors=line[drawn].tolist(),
            alpha=faint + (0.9 - faint) * often[drawn],
            linewidths=0.3 + 1.5 * often[drawn],
        )
        axis.add_collection(lines)
    size = 60 if devices <= _MANY else 10
    axis.scatter(*points.T, s=size, color=palette[member], zorder=3, linewidths=0)
    if 1 < len(names) <= _MAX_NAMES:
        _write_names(axis, names.tolist(), member, angle, palette.tolist())
    axis.set_aspect("equal")
    axis.axis("off")


def draw_map(axis: Any, net: Network, rounds: int, shown: int) -> None:
    """Draw the ways of the first devices, and a dark line where two of them were linked.

    Args:
        axis: Where to draw.
        net: A network with positions.
        rounds: The number of rounds to draw.
        shown: The number of devices to draw.
    """
    moments = np.unique(np.linspace(0, rounds - 1, _MAP_ROUNDS).astype(np.int64))
    ways = np.stack([net.layout(int(t))[:shown] for t in moments])
    for device in range(shown):
        colour = COLOURS[device % (len(COLOURS) - 1)]
        axis.plot(*ways[:, device].T, color=colour, linewidth=0.8, alpha=0.6)
    met = []
    for k, t in enumerate(moments.tolist()):
        links = net.links(t)
        inside = (links.a < shown) & (links.b < shown)
        met += list(ways[k][links.pairs[inside]])
    axis.add_collection(LineCollection(met, colors="black", linewidths=0.8, alpha=0.35))
    stretch = 1.0
    if net.geographic:  # a degree of longitude is shorter than one of latitude
        stretch = 1 / np.cos(np.radians(np.nanmean(ways[..., 1])))
    axis.set_aspect(stretch, adjustable="datalim")
    axis.ticklabel_format(useOffset=False)
    axis.tick_params(labelsize=6)
    axis.locator_params(nbins=4)
    if net.geographic:
        axis.set_xlabel("longitude")
        axis.set_ylabel("latitude")


def _write_names(
    axis: Any,
    names: Sequence[str],
    member: NDArray[np.int64],
    angle: NDArray[np.float64],
    palette: Sequence[str],
) -> None:
    """Write the name of each class beside the middle of its devices."""
    for k, name in enumerate(names):
        middle = angle[member == k].mean()
        x = 1.08 * np.cos(middle)
        y = 1.08 * np.sin(middle)
        side = "left" if x > 0 else "right"
        if abs(x) < 0.2:
            side = "center"
        text = name[:_LONGEST_NAME] or "–"
        axis.text(x, y, text, color=palette[k], ha=side, va="center", fontsize=8, parse_math=False)


def _classes(net: Network, shown: int) -> tuple[str, ...]:
    """Return the classes of the first devices; empty if there are none."""
    for values in net.groups.values():
        return values[:shown]
    return ()

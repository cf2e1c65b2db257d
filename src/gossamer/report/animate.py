"""A network as it changes, as a GIF with one frame per round."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.collections import LineCollection
from numpy.typing import NDArray

from gossamer._core.files import write_atomically
from gossamer.errors import InputError
from gossamer.network import Network
from gossamer.network.notebook import extent
from gossamer.results.palette import COLOURS

FRAMES = 120  # largest number of frames
_MAX_DEVICES = 500
_MAX_LINKS = 20_000  # per frame
_MILLISECONDS = 250  # per frame
_GIF_COLOURS = 128
_SIZE: Any = {"figsize": (4.6, 4.2), "dpi": 110, "layout": "constrained"}


def animate(net: Network, rounds: int, path: Path, title: str) -> None:
    """Draw the links of a network round by round.

    Links of the frame before are faint. The colour of a device shows the number of its neighbours;
    a device that is away is hollow. Devices are drawn at their positions, if the network has any,
    otherwise on a circle. At most 120 rounds, evenly spaced, and the first 500 devices are drawn.

    Args:
        net: The network.
        rounds: The number of rounds.
        path: The file to write, which ends in .gif.
        title: The title above the frames.

    Raises:
        InputError: The file does not end in .gif.
    """
    if path.suffix.lower() != ".gif":
        raise InputError("animate", str(path), "a file that ends in .gif")
    part = ""
    if net.devices > _MAX_DEVICES:
        part = f", first {_MAX_DEVICES} devices"
    frames = [_frame(net, t) for t in range(0, rounds, -(-rounds // FRAMES))]
    first, *others = _draw(frames, lambda t: f"{title}: round {t} of {rounds}{part}")
    content = io.BytesIO()
    first.save(content, "GIF", save_all=True, append_images=others, duration=_MILLISECONDS, loop=0)
    write_atomically(path, content.getvalue())


@dataclass(frozen=True)
class _Frame:
    """What is drawn of a round."""

    t: int
    pairs: NDArray[np.int64]
    degrees: NDArray[np.int64]
    active: NDArray[np.bool_]
    places: NDArray[np.float64]


def _frame(net: Network, t: int) -> _Frame:
    shown = min(net.devices, _MAX_DEVICES)
    links = net.links(t)
    inside = np.flatnonzero((links.a < shown) & (links.b < shown))[:_MAX_LINKS]
    active = links.active_mask[:shown]
    return _Frame(t, links.pairs[inside], links.degrees[:shown], active, net.layout(t)[:shown])


def _draw(frames: list[_Frame], title: Callable[[int], str]) -> Iterator[Any]:
    """Yield the pictures, all with the same axes and the same scale of colours."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from PIL import Image

    figure, axis = plt.subplots(**_SIZE)
    _set_axes(axis, frames)
    faint = LineCollection([], colors=COLOURS[0], linewidths=0.8, alpha=0.2)
    lines = LineCollection([], colors=COLOURS[0], linewidths=1.3, alpha=0.75)
    axis.add_collection(faint)
    axis.add_collection(lines)
    size = float(np.clip(1500 / len(frames[0].places), 8, 90))
    dots = axis.scatter(*frames[0].places.T, s=size, edgecolors="0.35", linewidths=0.8, zorder=3)
    most = max(1, *(int(frame.degrees.max()) for frame in frames))
    colours = mpl.cm.ScalarMappable(mpl.colors.Normalize(0, most), "viridis")
    ticks = mpl.ticker.MaxNLocator(integer=True, nbins=6)
    figure.colorbar(colours, ax=axis, shrink=0.7, label="neighbours of a device", ticks=ticks)
    axis.set_title(title(frames[-1].t), fontsize=10, parse_math=False)
    figure.canvas.draw()
    figure.set_layout_engine("none")  # the layout is done: titles of other lengths must not move it
    try:
        for last, frame in zip([frames[0], *frames], frames, strict=False):
            faint.set_segments(list(frame.places[last.pairs]))
            lines.set_segments(list(frame.places[frame.pairs]))
            dots.set_offsets(frame.places)
            shades = np.where(frame.active[:, None], colours.to_rgba(frame.degrees), 1.0)
            dots.set_facecolors(shades)
            axis.set_title(title(frame.t), fontsize=10, parse_math=False)
            figure.canvas.draw()
            picture = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())[..., :3])
            yield picture.quantize(_GIF_COLOURS, dither=Image.Dither.NONE)
    finally:
        plt.close(figure)


def _set_axes(axis: Any, frames: list[_Frame]) -> None:
    """Set axes that hold the places of all frames."""
    low, high = extent([frame.places for frame in frames])
    margin = 0.05 * (high - low).max() or 1.0
    axis.set(
        xlim=(low[0] - margin, high[0] + margin),
        ylim=(low[1] - margin, high[1] + margin),
        aspect="equal",
        xticks=[],
        yticks=[],
    )
    axis.spines[:].set_color("0.8")

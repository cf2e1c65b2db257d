"""A network as it changes: one frame a round, as a GIF."""

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
from gossamer.report.palette import COLOURS

FRAMES = 120
_DEVICES = 500
_LINKS = 20_000  # drawn in a frame
_MILLISECONDS = 250  # a frame
_SIZE: Any = {"figsize": (4.6, 4.2), "dpi": 110, "layout": "constrained"}


def animate(net: Network, rounds: int, path: Path, title: str) -> None:
    """Draw the links round by round (faint: those of the frame before); devices are coloured by how many neighbours they have.

    Devices are where the network says that they are, if it does, else on a circle; those that are away are hollow. Of more
    than 120 rounds every so many-th is drawn, of more than 500 devices the first 500.
    """
    if path.suffix.lower() != ".gif":
        raise InputError("animate", str(path), "a file that ends in .gif")
    first = "" if net.devices <= _DEVICES else f", first {_DEVICES} devices"
    frames = [_look(net, t) for t in range(0, rounds, -(-rounds // FRAMES))]
    one, *others = _draw(frames, lambda t: f"{title}: round {t} of {rounds}{first}")
    content = io.BytesIO()
    one.save(content, "GIF", save_all=True, append_images=others, duration=_MILLISECONDS, loop=0)
    write_atomically(path, content.getvalue())


@dataclass(frozen=True)
class _Frame:
    """What is drawn of a round."""

    t: int
    pairs: NDArray[np.int64]
    degrees: NDArray[np.int64]
    here: NDArray[np.bool_]
    places: NDArray[np.float64]


def _look(net: Network, t: int) -> _Frame:
    shown, links = min(net.devices, _DEVICES), net.links(t)
    inside = np.flatnonzero((links.a < shown) & (links.b < shown))[:_LINKS]
    here = np.ones(shown, dtype=bool) if links.active is None else links.active[:shown]
    return _Frame(t, links.pairs[inside], links.degrees[:shown], here, net.layout(t)[:shown])


def _draw(frames: list[_Frame], title: Callable[[int], str]) -> Iterator[Any]:
    """The pictures, one by one, all with the same axes and the same scale of colours."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from PIL import Image

    figure, axis = plt.subplots(**_SIZE)
    low, high = extent([frame.places for frame in frames])
    margin = 0.05 * (high - low).max() or 1.0
    axis.set(
        xlim=(low[0] - margin, high[0] + margin),
        ylim=(low[1] - margin, high[1] + margin),
        aspect="equal",
    )
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_color("0.8")
    before, now = (
        LineCollection([], colors=COLOURS[0], linewidths=w, alpha=a)
        for w, a in ((0.8, 0.2), (1.3, 0.75))
    )
    for lines in (before, now):
        axis.add_collection(lines)
    size = float(np.clip(1500 / len(frames[0].places), 8, 90))
    dots = axis.scatter(*frames[0].places.T, s=size, edgecolors="0.35", linewidths=0.8, zorder=3)
    most = max(1, *(int(frame.degrees.max()) for frame in frames))
    colours = mpl.cm.ScalarMappable(mpl.colors.Normalize(0, most), "viridis")
    whole = mpl.ticker.MaxNLocator(integer=True, nbins=6)
    figure.colorbar(colours, ax=axis, shrink=0.7, label="neighbours of a device", ticks=whole)
    axis.set_title(title(frames[-1].t), fontsize=10, parse_math=False)
    figure.canvas.draw()
    figure.set_layout_engine("none")  # all is in its place now, and stays there
    try:
        for last, frame in zip([frames[0], *frames], frames, strict=False):
            before.set_segments(list(frame.places[last.pairs]))
            now.set_segments(list(frame.places[frame.pairs]))
            dots.set_offsets(frame.places)
            dots.set_facecolors(np.where(frame.here[:, None], colours.to_rgba(frame.degrees), 1.0))
            axis.set_title(title(frame.t), fontsize=10, parse_math=False)
            figure.canvas.draw()
            picture = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())[..., :3])
            yield picture.quantize(128, dither=Image.Dither.NONE)
    finally:
        plt.close(figure)

"""Figures of the papers: one style, one way to save, one heat map."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from numpy.typing import NDArray

from gossamer.report.figures import STYLE

DPI = 110


@contextmanager
def saved_figure(
    path: Path, rows: int = 1, columns: int = 1, **options: Any
) -> Iterator[tuple[Any, Any]]:
    """Create a figure in the style of reports, and save it when the block ends.

    Args:
        path: The PNG file to write.
        rows: Number of rows of panels.
        columns: Number of columns of panels.
        options: Passed to `matplotlib.pyplot.subplots`.

    Yields:
        The figure and its axes.
    """
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(rows, columns, **options)
        yield figure, axes
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=DPI)
        plt.close(figure)


def heat_map(
    axis: Any,
    values: NDArray[np.float64],
    texts: Sequence[Sequence[str]],
    white: NDArray[np.bool_],
    fontsize: int = 8,
    **options: Any,
) -> Any:
    """Draw a matrix as coloured cells with a text in each.

    Args:
        axis: Where to draw.
        values: The values that determine the colours, [rows, columns].
        texts: The text of each cell, by row.
        white: True for each cell whose text is white, because its colour is dark.
        fontsize: Size of the texts.
        options: Passed to `imshow`.

    Returns:
        The image, for a colour bar.
    """
    for i, row in enumerate(texts):
        for k, text in enumerate(row):
            colour = "white" if white[i, k] else "black"
            axis.text(k, i, text, ha="center", va="center", fontsize=fontsize, color=colour)
    axis.grid(visible=False)
    return axis.imshow(values, aspect="auto", **options)

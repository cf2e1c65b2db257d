"""How the weights of a run are distributed, round by round, as a page draws it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer._core import weight_bins
from gossamer.report import pack
from gossamer.results.folder import RunFolder
from gossamer.results.run import Run

_MAX_ROUNDS = 80  # columns of the picture
_ROWS = 60  # of the picture, at most: narrow bins near zero are drawn together
_OUTSIDE = 0.0005  # share of the weights in a round that may lie outside of the picture, per side
_QUANTILES = (0.05, 0.5, 0.95)


def weights(run: Run) -> dict[str, Any] | None:
    """Return the histograms of a run's weights; None if there are none.

    Args:
        run: A run with a folder.

    Returns:
        "rounds"; "edges" of the bins; "counts", a list per round; and "quantiles" of 5, 50 and 95 %
        of the weights in each round.
    """
    kept = {} if run.folder is None else RunFolder(run.folder).weights()
    if len(kept) < 2:
        return None
    rounds = np.array(sorted(kept))
    rounds = rounds[pack.evenly(len(rounds), _MAX_ROUNDS)]
    counts = np.array([kept[int(t)] for t in rounds])
    if not counts.sum(axis=1).all():
        return None
    edges, drawn = _drawn_bins(counts)
    return {
        "rounds": rounds.tolist(),
        "edges": pack.drawn_numbers(edges),
        "counts": drawn.tolist(),
        "quantiles": [pack.drawn_numbers(_quantiles(row)) for row in counts],
    }


def _drawn_bins(counts: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return edges of the bins that are drawn, and the counts in them."""
    edges = weight_bins.edges()
    shares = counts.cumsum(axis=1) / counts.sum(axis=1, keepdims=True)
    first = int((shares > _OUTSIDE).argmax(axis=1).min())
    last = int((shares >= 1 - _OUTSIDE).argmax(axis=1).max())
    narrowest = (edges[last + 1] - edges[first]) / _ROWS
    starts = [first]
    for k in range(first + 1, last + 1):
        if edges[k] - edges[starts[-1]] >= narrowest:
            starts.append(k)
    drawn = np.add.reduceat(counts[:, : last + 1], starts, axis=1)
    return edges[[*starts, last + 1]], drawn


def _quantiles(row: NDArray[np.int64]) -> list[float]:
    """Return quantiles of the weights of one round, interpolated within their bins."""
    edges = weight_bins.edges()
    shares = np.concatenate([[0.0], row.cumsum() / row.sum()])
    found = []
    for share in _QUANTILES:
        k = int(np.searchsorted(shares, share, side="left")) - 1
        part = (share - shares[k]) / (shares[k + 1] - shares[k])
        found.append(float(edges[k] + part * (edges[k + 1] - edges[k])))
    return found

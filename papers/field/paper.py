"""The setting of the comparison: the WPM paper's, one label per device, tuned learning rates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import gossamer as gs
from papers.wpm import paper as wpm
from papers.wpm.paper import Results, Scale

__all__ = ["HERE", "NETWORKS", "TINY", "Results", "Scale", "megabytes_to_target", "on_held_out"]

HERE = Path(__file__).parent
SECONDS_PER_DEVICE_ROUND = 0.0004  # as in papers/wpm, with fewer test samples


def fixed_ring(devices: int, seed: int) -> gs.Network:
    """Return a ring that never changes; some methods need links that stay.

    Args:
        devices: Number of devices.
        seed: Not used; all networks take it.
    """
    return gs.Ring(devices)


def on_held_out(scale: Scale) -> Scale:
    """Return the setting for tuning: measured on a tenth of the training samples, held out.

    Args:
        scale: The setting whose results are reported.
    """
    return replace(scale, data=gs.Validation(scale.data, 0.1))


def megabytes_to_target(scale: Scale) -> Callable[[gs.Run], float | None]:
    """Return a function that gives the megabytes all devices together sent to reach the target.

    Args:
        scale: The setting with the target.

    Returns:
        A function of a run; None if the run does not reach the target.
    """
    rounds_to_target = wpm.rounds_to_target(scale)

    def sent(run: gs.Run) -> float | None:
        t = rounds_to_target(run)
        if t is None:
            return None
        row = list(run.metrics["round"]).index(t)
        return float(run.metrics["bytes"][row]) / 1e6

    return sent


NETWORKS = {
    "static ring": fixed_ring,
    "random ring": wpm.random_ring,
    "density 0.1": wpm.Density(0.1),
}
TINY = replace(wpm.TINY, rounds=40, grid=(0.05, 0.2), figure_devices=(10,))

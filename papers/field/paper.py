"""The setting of the field study: that of the WPM paper with one label per device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import gossamer as gs
from papers.wpm import paper as wpm
from papers.wpm.paper import Results, Scale

__all__ = ["HERE", "NETWORKS", "TINY", "Results", "Scale", "megabytes_to_target", "on_held_out"]

HERE = Path(__file__).parent


def fixed_ring(devices: int, seed: int) -> gs.Network:
    """Return a static ring, which some methods need."""
    return gs.Ring(devices)


def on_held_out(scale: Scale) -> Scale:
    """Return the study measured on a tenth of the training samples, held out for tuning."""
    return replace(scale, data=gs.Validation(scale.data, 0.1))


def megabytes_to_target(scale: Scale) -> Callable[[gs.Run], float | None]:
    """Return the bytes sent by all devices when the target is reached."""

    def sent(cell: gs.Run) -> float | None:
        t = wpm.rounds_to_target(scale)(cell)
        return (
            None
            if t is None
            else float(cell.metrics["bytes"][list(cell.metrics["round"]).index(t)]) / 1e6
        )

    return sent


NETWORKS = {
    "static ring": fixed_ring,
    "random ring": wpm.random_ring,
    "density 0.1": wpm.Density(0.1),
}
TINY = replace(wpm.TINY, rounds=40, grid=(0.05, 0.2), figure_devices=(10,))

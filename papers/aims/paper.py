"""The setting of the comparison, and its size."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from papers.wpm import paper as wpm
from papers.wpm.paper import SECONDS_PER_DEVICE_ROUND, Results

__all__ = ["HERE", "SECONDS_PER_DEVICE_ROUND", "TINY", "Results", "Scale"]

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Scale(wpm.Scale):
    """The size of a reproduction; three seeds, since eight methods are tuned on every cell."""

    seeds: int = 3


TINY = replace(Scale(), name="tiny", seeds=1, tuning_seeds=(100,))

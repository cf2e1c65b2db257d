"""The size of the comparison."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from papers.wpm import paper as wpm
from papers.wpm.paper import Results

__all__ = ["HERE", "TINY", "Results", "Scale"]

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Scale(wpm.Scale):
    """The size of a reproduction: two tuning seeds, five others that are reported."""

    tuning_seeds: tuple[int, ...] = (100, 101)


TINY = replace(Scale(), name="tiny", seeds=1, tuning_seeds=(100,))

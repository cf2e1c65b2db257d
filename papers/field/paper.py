"""The setting of the comparison: sizes and seeds are those of the WPM paper's reproduction."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from papers.wpm import paper as wpm
from papers.wpm.paper import Results, Scale

__all__ = ["HERE", "TINY", "Results", "Scale"]

HERE = Path(__file__).parent
SECONDS_PER_DEVICE_ROUND = 0.0004  # as in papers/wpm, with fewer test samples
TINY = replace(wpm.TINY, rounds=40)

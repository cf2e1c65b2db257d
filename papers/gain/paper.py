"""The setting: that of papers/field, whose results the comparison reads."""

from __future__ import annotations

from pathlib import Path

from papers.wpm.paper import TINY, Results, Scale, write_csv

__all__ = ["FIELD", "HERE", "TINY", "Results", "Scale", "write_csv"]

HERE = Path(__file__).parent
# Where `gossamer reproduce field` writes the runs that are compared.
FIELD = HERE.parent / "field" / "results"

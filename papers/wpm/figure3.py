"""Figure 3: mean test loss, IID data, for different p and on 10, 20 and 100 devices.

gossamer reproduce wpm figure3
"""

from pathlib import Path

from gossamer.study import Study
from papers.wpm import figures
from papers.wpm.paper import Results, Scale

TITLE = "mean test loss, IID data; different p; 10, 20, 100 devices"


def cells(scale: Scale) -> list[Study]:
    """Return the runs that this part needs."""
    return figures.cells(scale, "iid")


def make(scale: Scale, results: Results, out: Path) -> list[Path]:
    """Write the figure and its points as a table."""
    return figures.curves(scale, results, out, "figure3", "iid", "loss", "mean test loss", 1)

"""Figure 4: mean test loss, one label per device, for different p and on 10, 20 and 100 devices.

gossamer reproduce wpm figure4
"""

from pathlib import Path

from gossamer.study import Study
from papers.wpm import figures
from papers.wpm.paper import Results, Scale

TITLE = "mean test loss, one label per device; different p; 10, 20, 100 devices"


def cells(scale: Scale) -> list[Study]:
    """Return the runs that this part needs."""
    return figures.cells(scale, "noniid")


def make(scale: Scale, results: Results, out: Path) -> list[Path]:
    """Write the figure and its points as a table."""
    return figures.curves(scale, results, out, "figure4", "noniid", "loss", "mean test loss", 1)

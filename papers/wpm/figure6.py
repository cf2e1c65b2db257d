"""Figure 6: rounds to the target, one label per device, for different p and numbers of devices.

gossamer reproduce wpm figure6
"""

from pathlib import Path

from gossamer.study import Study
from papers.wpm import figures
from papers.wpm.paper import Results, Scale

TITLE = "rounds to the target, one label per device; different p; 10, 20, 100 devices"


def cells(scale: Scale) -> list[Study]:
    """Return the runs that this part needs."""
    return figures.cells(scale, "noniid")


def make(scale: Scale, results: Results, out: Path) -> list[Path]:
    """Write the figure and its points as a table."""
    return figures.speeds(scale, results, out, "figure6", "noniid")

"""Figure 2: mean test accuracy, one label per device, by p and on 10, 20 and 100 devices."""

from pathlib import Path

from gossamer.study import Study
from papers.wpm import figures
from papers.wpm.paper import Results, Scale

TITLE = "mean test accuracy, one label a device; different p; 10, 20, 100 devices"


def cells(scale: Scale) -> list[Study]:
    return figures.cells(scale, "noniid")


def make(scale: Scale, results: Results, out: Path) -> list[Path]:
    return figures.curves(
        scale, results, out, "figure2", "noniid", "accuracy", "mean test accuracy, %", 100
    )

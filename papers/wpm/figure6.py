"""Figure 6: rounds to the target, one label per device, by p and on 10, 20 and 100 devices."""

from pathlib import Path

from gossamer.study import Study
from papers.wpm import figures
from papers.wpm.paper import Results, Scale

TITLE = "rounds to the target, one label a device; different p; 10, 20, 100 devices"


def cells(scale: Scale) -> list[Study]:
    return figures.cells(scale, "noniid")


def make(scale: Scale, results: Results, out: Path) -> list[Path]:
    return figures.speeds(scale, results, out, "figure6", "noniid")

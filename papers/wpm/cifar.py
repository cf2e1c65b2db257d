"""CIFAR-10 with the linear SVM: the same tables and figures for what the paper ran and did not print."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gossamer as gs
from gossamer.study import Study
from papers.wpm import (
    figure1,
    figure2,
    figure3,
    figure4,
    figure5,
    figure6,
    table1,
    table2,
    table3,
    table4,
)
from papers.wpm.paper import Results, Scale

TITLE = "the tables and figures on CIFAR-10 with the linear SVM; 10 and 20 devices; eta 0.01 and, for Table 2, 0.001"

_MODULES = (table1, table2, table3, table4, figure1, figure2, figure3, figure4, figure5, figure6)


def setting(scale: Scale) -> Scale:
    """The paper's rate. A linear model gets little more than 30 % here, so the target is a quarter."""
    if scale.name == "tiny":
        return replace(scale, model=gs.Svm(), table_devices=(10, 14), figure_devices=(10, 14))
    sizes = {"table_devices": (10, 20), "figure_devices": (10, 20)}
    return replace(scale, data=gs.Cifar10(), model=gs.Svm(), target=0.25, test=2000, **sizes)


def smaller_rate(scale: Scale) -> Scale:
    """A tenth of the rate, at which the hinge is far less noisy."""
    return replace(setting(scale), eta=scale.eta / 10)


def cells(scale: Scale) -> list[Study]:
    here = setting(scale)
    return [
        *(study for module in _MODULES for study in module.cells(here)),
        *table2.cells(smaller_rate(scale)),
    ]


def make(scale: Scale, results: Results, out: Path) -> list[Path]:
    here, slower = setting(scale), smaller_rate(scale)
    paths = [
        path
        for module in _MODULES
        for path in module.make(here, results.under(here), out / "cifar")
    ]
    return [*paths, *table2.make(slower, results.under(slower), out / "cifar" / "smaller_rate")]

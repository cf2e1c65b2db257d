"""The regime map: the rounds that a method saves, by density and split.

    gossamer reproduce wpm regimes

Every method has its own best settings. The last panel compares the power mean with its control.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gossamer.study import Study
from papers.drawing import heat_map, saved_figure
from papers.wpm.comparison import (
    AT_THE_MEAN,
    CONTROL,
    D_PSGD,
    ROBUST,
    Place,
    compared,
    matched_any,
    needed,
)
from papers.wpm.paper import SPLIT_NAMES, Density, Results, Scale, write_csv

TITLE = (
    "rounds saved against tuned D-PSGD and against the control, by density and split: a heat map"
)

MATCHED = matched_any()
METHODS = (D_PSGD, AT_THE_MEAN, MATCHED, ROBUST, CONTROL)
SPLITS = ("noniid",)  # papers/field has others
TARGET = -2  # index of the target among those of the scale: the middle one
# Title of each panel, its method, what it is compared with, and the column of the table.
PANELS = (
    ("D-PSGD at the mean (p = 1)\nagainst D-PSGD", AT_THE_MEAN, D_PSGD, "saved"),
    ("WPM matched, p tuned\nagainst D-PSGD", MATCHED, D_PSGD, "saved"),
    ("WPM robust, p × duration\nagainst D-PSGD", ROBUST, D_PSGD, "saved"),
    ("p = 1, gain × duration\nagainst D-PSGD", CONTROL, D_PSGD, "saved"),
    ("WPM robust, p × duration\nagainst gain × duration", ROBUST, CONTROL, "saved_to_control"),
)

Row = dict[str, object]


def places(scale: Scale) -> Iterator[tuple[float, Place]]:
    """Yield every density and split of the map."""
    test = 1000
    if scale.name == "tiny":
        test = 0
    for density in scale.map_densities:
        here = replace(scale, network=Density(density), rounds=scale.map_rounds, test=test)
        for split in SPLITS:
            yield density, Place(here, scale.map_devices, split, scale.targets[TARGET])


def cells(scale: Scale) -> list[Study]:
    """Return the first runs that tuning needs."""
    return then(scale, Results(scale, {}))


def then(scale: Scale, results: Results) -> list[Study]:
    """Return the runs that are needed next: for tuning, then those that are reported."""
    return needed(results, (place for _, place in places(scale)), METHODS)


def make(scale: Scale, results: Results, out: Path) -> list[Path]:
    """Write the table and the map."""
    rows = []
    for density, place in places(scale):
        for row in compared(results, place, METHODS):
            rows.append({"devices": place.devices, "density": density} | row)
    write_csv(out / "regimes.csv", rows)
    return [_draw(scale, rows, out / "regimes.png"), out / "regimes.csv"]


@dataclass(frozen=True)
class Cell:
    """One cell of a panel.

    Attributes:
        row: The row of the method.
        base: The row of what it is compared with.
        column: The column with the share of rounds that it saves.
    """

    row: Row
    base: Row
    column: str

    @property
    def share(self) -> float:
        """The value of the colour: 1 or -1 if only one of the two reaches the target."""
        saved = self.row[f"{self.column}_%"]
        if saved != "":
            return float(str(saved)) / 100
        if self.base["ours"] == "" and self.row["ours"] == "":
            return np.nan
        return 1.0 if self.base["ours"] == "" else -1.0

    @property
    def text(self) -> str:
        """The text of the cell; a share that is not significant is in brackets."""
        if self.row[f"{self.column}_%"] == "":
            if np.isnan(self.share):
                return "neither"
            return "only it" if self.share > 0 else "only the\nother"
        share = f"{self.share:+.0%}"
        half = self.row[f"{self.column}_95"]
        is_significant = half != "" and abs(self.share) > float(str(half)) / 100
        rounds = f"{float(str(self.row['ours'])):.0f} / {float(str(self.base['ours'])):.0f}"
        return f"{share if is_significant else f'({share})'}\n{rounds}"


def _draw(scale: Scale, rows: list[Row], path: Path) -> Path:
    """Draw one heat map per comparison; blue: fewer rounds, red: more."""
    by_place = {(row["density"], row["split"], row["method"]): row for row in rows}
    densities = scale.map_densities
    size = {"figsize": (15, 3.4), "sharey": True, "squeeze": False}
    with saved_figure(path, 1, len(PANELS), **size) as (figure, axes):
        for axis, (title, method, base, column) in zip(axes[0], PANELS, strict=True):
            share = np.full((len(SPLITS), len(densities)), np.nan)
            texts = []
            for i, split in enumerate(SPLITS):
                cells = []
                for density in densities:
                    row = by_place[density, split, method.name]
                    cells.append(Cell(row, by_place[density, split, base.name], column))
                share[i] = [cell.share for cell in cells]
                texts.append([cell.text for cell in cells])
            white = np.abs(share) > 0.45
            image = heat_map(
                axis, share, texts, white, fontsize=7, cmap="RdBu", vmin=-0.8, vmax=0.8
            )
            axis.set_xticks(range(len(densities)), [f"{density:g}" for density in densities])
            names = [SPLIT_NAMES[split] for split in SPLITS]
            axis.set_yticks(range(len(names)), names)
            axis.set_title(title, fontsize=9)
            axis.set_xlabel("density")
        figure.colorbar(image, ax=axes[0], label="rounds saved", format=lambda x, _: f"{x:+.0%}")
        figure.suptitle(
            f"Rounds to {scale.targets[TARGET]:.0%} saved by the first against the second, "
            f"{scale.map_devices} devices; below: rounds of both; in brackets: not significant",
            fontsize=10,
        )
    return path

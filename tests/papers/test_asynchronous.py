"""The tables of papers/asynchronous: means and savings, from made-up runs."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from papers.asynchronous import comparison  # noqa: E402
from papers.asynchronous.setting import IN_BACKGROUND, IN_ROUNDS  # noqa: E402

HOURS = {
    (IN_ROUNDS, "d-psgd"): (2.0, 4.0),
    (IN_ROUNDS, "quasi-global"): (1.0, 1.0),
    (IN_BACKGROUND, "ad-psgd"): (1.0, 3.0),
    (IN_BACKGROUND, "swift"): (1.0, ""),
}


def test_nothing_is_saved_of_no_cost() -> None:
    ours = {"seed": "0", "hours_to_0.7": "1.0"}
    assert comparison._saved(ours, ours | {"hours_to_0.7": "0"}, "hours_to_0.7") == ""


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Return a file with two seeds of four methods; the last one misses the target once."""
    rows = []
    for (form, method), values in HOURS.items():
        for seed, hours in enumerate(values):
            row: dict[str, object] = {"form": form, "method": method, "seed": seed}
            row |= {"setting": "eta=0.1", "at_edge": "", "accuracy": 0.5, "staleness": ""}
            for name in ("hours", "kilojoules", "megabytes"):
                row[f"{name}_to_0.7"] = hours
            rows.append(row)
    path = tmp_path / "part.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_savings_are_paired_by_seed(runs: Path) -> None:
    found = {}
    for row in comparison._savings(runs, (0.7,)):
        found[row["than"], row["method"]] = row["hours_saved_%"]
    # The mean of 50 and 25 %, not the share of the means.
    assert found["d-psgd", "ad-psgd"] == 37.5
    assert found["d-psgd", "d-psgd"] == 0.0
    assert found["d-psgd", "quasi-global"] == 62.5
    assert found["quasi-global", "ad-psgd"] == -100.0
    assert found["d-psgd", "swift"] == ""


def test_a_target_that_is_missed_has_no_mean(runs: Path) -> None:
    found = {row["method"]: row["hours"] for row in comparison._summary(runs, (0.7,))}
    assert found == {"d-psgd": 3.0, "quasi-global": 1.0, "ad-psgd": 2.0, "swift": ""}

"""Statements of papers/wpm that compare rows with each other: they hold for the stored results."""

from __future__ import annotations

import csv
import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WPM = ROOT / "papers" / "wpm"
sys.path.insert(0, str(ROOT))

POWERS = ("1", "3", "5", "9", "15")
ROUNDS = ("100", "200", "300", "400", "500")


def rows_of(name: str) -> list[dict[str, str]]:
    """Return a table of results."""
    with (WPM / "results" / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("split", ["iid", "noniid"])
def test_the_distance_to_consensus_grows_with_p(split: str) -> None:
    ours: dict[str, list[float]] = {}
    for row in rows_of("table4"):  # in the order of p
        if row["split"] == split:
            ours.setdefault(row["round"], []).append(float(row["ours"]))
    assert set(ours) == set(ROUNDS)
    for by_power in ours.values():
        assert by_power == sorted(by_power)


def test_the_paper_repeats_cells_of_table_4_and_grows_but_for_one_power() -> None:
    paper = {(r["split"], r["p"], r["round"]): r["paper"] for r in rows_of("table4")}
    repeated = set()
    falling = set()
    for p, smaller in zip(POWERS[2:], POWERS[1:-1], strict=True):
        for t in ROUNDS:
            for split in ("iid", "noniid"):
                if float(paper[split, p, t]) < float(paper[split, smaller, t]):
                    falling.add((split, p, t))
    for p in POWERS[1:]:
        repeated |= {(p, t) for t in ROUNDS if paper["iid", p, t] == paper["noniid", p, t]}
    assert repeated == {("3", "400"), ("3", "500"), ("5", "100"), ("5", "200"), ("5", "300")}
    assert falling == {("noniid", "9", "100"), ("noniid", "9", "200"), ("noniid", "9", "300")}


def test_the_papers_tables_differ_on_shared_cells() -> None:
    """README.md: on the cells of both, the counts of Tables 2 and 3 differ by this factor."""
    from papers.wpm.paper import expected

    second = {
        (row["p"], row["split"]): float(row["iterations"])
        for row in expected("table2_convergence_by_p")
    }
    ratios = []
    for row in expected("table3_convergence_by_devices"):
        if row["reading"] == "as_read" and row["devices"] == "10":
            ratio = float(row["iterations"]) / second[row["p"], row["split"]]
            ratios.append(max(ratio, 1 / ratio))
    text = (WPM / "README.md").read_text()
    assert f"differ by up to {max(ratios):.2f} on the cells that they share" in text


def test_the_cost_of_a_power_is_that_of_the_benchmark() -> None:
    """claims.md gives the range of the medians for each step rule."""
    content = json.loads(
        (ROOT / "benchmarks" / "results" / "speed-intel-xeon-avx512.json").read_text()
    )
    text = (WPM / "claims.md").read_text()
    for rule in ("constant", "matched"):
        found = re.search(rf"(\d\.\d\d) to (\d\.\d\d)[^,]* with the {rule} step", text)
        assert found is not None
        medians = [row["ratio"] for row in content["rows"] if f" {rule} / p = 1" in row["what"]]
        assert found.groups() == (f"{min(medians):.2f}", f"{max(medians):.2f}")


@pytest.mark.parametrize("name", ["fair", "regimes"])
def test_no_tuned_rate_is_at_an_edge(name: str) -> None:
    assert not [row for row in rows_of(name) if "eta" in row["at_edge"].split()]


def test_a_rate_that_decays_is_better_than_a_power_at_a_constant_rate() -> None:
    """papers/aims: with 32 and 128 devices; and p = 3 is better than p = 15 everywhere."""
    with (ROOT / "papers" / "aims" / "results" / "rate.csv").open() as file:
        rows = list(csv.DictReader(file))
    losses: dict[tuple[str, str], dict[str, float]] = {}
    for row in rows:
        losses.setdefault((row["devices"], row["rounds"]), {})[row["method"]] = float(row["loss"])
    for (devices, rounds), loss in losses.items():
        assert loss["p = 3"] < loss["p = 15"], (devices, rounds)
        if devices != "8":
            powers = [loss[f"p = {p}"] for p in (1, 3, 5, 15)]
            assert loss["p = 1, η/√(1 + t)"] < min(powers), (devices, rounds)


def test_the_cost_of_a_power_in_aims_is_that_of_the_claims() -> None:
    found = re.search(r"(\d\.\d\d) with the matched step", (WPM / "claims.md").read_text())
    assert found is not None
    assert f"at most {found[1]} of the time" in (ROOT / "papers/aims/README.md").read_text()

"""`gossamer reproduce wpm`, as its user runs it: the tiny scale, the list, refusals."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest
from command import assert_refused, gossamer, real

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from papers.wpm import PARTS  # noqa: E402
from papers.wpm.paper import TINY, Scale, expected  # noqa: E402


@pytest.mark.slow
def test_the_tiny_scale_makes_every_table_and_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = real("reproduce", "wpm", "--tiny", "--seeds", "2")
    assert done.code == 0, done.err
    out = tmp_path / "runs" / "reproduce-wpm" / "tiny"
    for part in PARTS:
        files = list(out.glob(f"{part}.*"))
        assert files, part
        assert all(file.stat().st_size > 100 for file in files)
    with (out / "table2.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["split"], row["p"]) for row in rows] == [(s, str(p)) for s in ("iid", "noniid") for p in (1, 3, 5, 9, 15)]
    assert all(row["paper"] for row in rows)
    assert any(row["ours"] for row in rows)


def test_every_part_of_the_paper_is_there_and_named_after_it() -> None:
    assert list(PARTS) == ["table1", "table2", "table3", "table4", *(f"figure{k}" for k in range(1, 7))]
    for module in PARTS.values():
        assert module.TITLE
        assert module.cells(TINY)


def test_methods_of_a_part_meet_the_same_links_and_batches() -> None:
    for module in PARTS.values():
        by_place: dict[tuple[int, int, object], set[tuple[object, ...]]] = {}
        for s in module.cells(Scale()):
            by_place.setdefault((s.network.devices, s.seed, s.split), set()).add((s.network, s.data, s.batch, s.rounds))
        assert all(len(settings) == 1 for settings in by_place.values())


def test_the_papers_numbers_are_those_that_it_prints() -> None:
    """The text gives percentages that pin Tables 2 and 3 down: 62.03 %, 25.26 %, 57.99 %, 10.13 %, 13.74 %."""
    table2 = {(r["split"], int(r["p"])): int(r["iterations"]) for r in expected("table2_convergence_by_p")}
    assert round(100 * (1 - table2["noniid", 15] / table2["noniid", 1]), 2) == 62.03
    read = {
        (int(r["p"]), r["split"], int(r["devices"])): int(r["iterations"])
        for r in expected("table3_convergence_by_devices")
        if r["reading"] == "as_read"
    }
    assert round(100 * (1 - read[15, "iid", 20] / read[1, "iid", 20]), 2) == 25.26
    assert round(100 * (1 - read[15, "noniid", 20] / read[1, "noniid", 20]), 2) == 57.99
    assert round(100 * (1 - read[15, "iid", 20] / read[15, "iid", 10]), 2) == 10.13
    assert round(100 * (1 - read[15, "noniid", 20] / read[15, "noniid", 10]), 2) == 13.74


def test_the_list() -> None:
    done = gossamer("reproduce", "wpm", "--list")
    assert done.code == 0
    assert all(part in done.out for part in PARTS)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["reproduce", "wpm", "tabel2"], ("part = 'tabel2' is not accepted", "table2")),
        (["reproduce", "wpm", "table2", "--seeds", "0"], ("--seeds = 0 is not accepted",)),
        (["reproduce", "another"], ("papers/another",)),
    ],
)
def test_refusals(words: list[str], parts: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert_refused(gossamer(*words), *parts)

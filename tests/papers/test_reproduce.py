"""The command `gossamer reproduce`: the tiny scale, the list of parts, errors."""

from __future__ import annotations

import csv
import importlib
import re
import sys
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from support.command import Result, assert_refused, gossamer, real

import gossamer as gs
from gossamer.errors import Diverged
from gossamer.study import pools
from gossamer.study.pools import Studies

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
import papers.wpm  # noqa: E402
from gossamer.cli.reproduce import parts_of  # noqa: E402
from papers.wpm.paper import Scale, expected  # noqa: E402

PARTS = parts_of(papers.wpm)
TABLES_AND_FIGURES = parts_of(papers.wpm, studies=False)
# Parts that test_theory_pictures.py makes by the same command.
THEORY = ("lemma1", "theorem1", "slips", "plain_step")


class ThisProcess:
    """A pool that runs the studies in this process, one after the other."""

    def each(
        self, studies: Studies, keep_models: bool = False
    ) -> Iterator[tuple[Path, str | None]]:
        for path, study in studies:
            with suppress(Diverged):
                gs.run(study, path, keep_models=keep_models)
            yield path, None


def reproduce_smallest(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *words: str, every: int
) -> Result:
    """Run `gossamer reproduce --tiny` in this process and a folder, with fewer rounds still."""
    paper = importlib.import_module(f"papers.{name}.paper")
    smallest = replace(
        paper.TINY,
        rounds=10,
        every=every,
        batch=16,
        target=0.2,
        targets=(0.15, 0.2),
        map_rounds=6,
    )
    monkeypatch.chdir(folder)
    monkeypatch.setattr(paper, "TINY", smallest)
    monkeypatch.setattr(pools, "pool_on", lambda engine, workers: nullcontext(ThisProcess()))
    done = gossamer("reproduce", name, *words, "--tiny")
    assert done.code == 0, done.err
    return done


PROGRESS = re.compile(
    r"(?P<part>\w+)(  wave (?P<wave>\d+))?  (?P<runs>\d+)/(?P<of>\d+) runs  elapsed [\d.]+ \w+"
    r"(  left [\w., ]+)?"
)


def check_progress(text: str) -> set[str]:
    """Check that every line is about a part, its wave and its runs. Return the parts."""
    ends: dict[str, list[int]] = {}  # the waves whose end was shown, by part
    for line in text.splitlines():
        found = PROGRESS.fullmatch(line)
        assert found, line
        waves = ends.setdefault(found["part"], [])
        if found["runs"] == found["of"]:
            waves.append(int(found["wave"] or 1))
    for waves in ends.values():
        assert waves == list(range(1, len(waves) + 1))
    return set(ends)


@pytest.mark.slow
@pytest.mark.no_cover  # of many runs, all of code that other tests execute
def test_the_tiny_scale_makes_every_table_and_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [part for part in PARTS if part not in THEORY]
    reproduce_smallest("wpm", tmp_path, monkeypatch, *parts, "--seeds", "1", every=1)
    # Some parts again with confidence intervals; only the runs of the second seed are made.
    some = ("table2", "figure1", "fair")
    reproduce_smallest("wpm", tmp_path, monkeypatch, *some, "--seeds", "2", every=1)
    out = tmp_path / "runs" / "reproduce-wpm" / "tiny"
    for part in parts:
        files = [file for file in out.glob(f"{part}*") if file.is_file()] + list(
            out.glob(f"{part}/*.*")
        )
        assert files, part
        assert all(file.stat().st_size > 100 for file in files)
    with (out / "table2.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["split"], row["p"]) for row in rows] == [
        (s, str(p)) for s in ("iid", "noniid") for p in (1, 3, 5, 9, 15)
    ]
    assert all(row["paper"] for row in rows)
    assert any(row["ours"] for row in rows)


@pytest.mark.slow
@pytest.mark.no_cover
def test_the_field_at_the_tiny_scale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = reproduce_smallest("field", tmp_path, monkeypatch, "--seeds", "1", every=5)
    assert check_progress(done.err) == {"runs"}
    words = ("digits", "--seeds", "2")
    again = reproduce_smallest("field", tmp_path, monkeypatch, *words, every=5)
    assert check_progress(again.err) == {"digits"}
    out = tmp_path / "runs" / "reproduce-field" / "tiny"
    assert (out / "broken.png").stat().st_size > 1000
    assert (out / "overview.png").stat().st_size > 1000
    for task in ("mnist", "fashion", "digits", "cifar"):
        with (out / f"{task}.csv").open() as file:
            tuned = list(csv.DictReader(file))
        assert {row["method"] for row in tuned} == {"d-psgd", "gain-control"}
        assert not any(row["at_edge"] for row in tuned if row["method"] == "d-psgd")


@pytest.mark.slow
@pytest.mark.no_cover
def test_aims_at_the_tiny_scale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reproduce_smallest("aims", tmp_path, monkeypatch, "--seeds", "1", every=5)
    out = tmp_path / "runs" / "reproduce-aims" / "tiny"
    for task in ("digits", "mnist"):
        with (out / f"{task}_summary.csv").open() as file:
            found = [row["method"] for row in csv.DictReader(file)]
        controls = {"gain-control", "gain by divergence", "d-psgd", "d-psgd at the mean"}
        assert set(found) == controls | {"wpm", "aims", "sinh", "arcsinh"}
        assert (out / f"{task}.png").stat().st_size > 1000
    with (out / "rate.csv").open() as file:
        rows = list(csv.DictReader(file))
    # The guarantee favours a larger p for fewer rounds than devices, and only there.
    for row in rows:
        if row["method"] in ("p = 3", "p = 15"):
            ratio = float(row["guaranteed_of_linear"])
            few = float(row["rounds/devices"])
            assert (ratio < 1) == (few < 1) or few == 1


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.filterwarnings("ignore::gossamer.errors.NetworkWarning")  # devices without links
def test_asynchronous_at_the_tiny_scale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("iid", "--seeds", "2")
    reproduce_smallest("asynchronous", tmp_path, monkeypatch, *words, every=5)
    out = tmp_path / "runs" / "reproduce-asynchronous" / "tiny"
    with (out / "iid.csv").open() as file:
        rows = list(csv.DictReader(file))
    forms = {row["form"] for row in rows}
    assert forms == {"alone", "in rounds", "in pairs", "in the background"}
    for row in rows:
        # A round of the trace lasts longer than the slowest device needs for a common round.
        if row["form"] == "in rounds":
            assert 100 < float(row["clock_seconds_per_round"]) < 220
        assert (row["staleness"] != "") == (row["form"] == "in the background")
        assert (float(row["bytes"]) > 0) == (row["form"] != "alone")
    with (out / "iid_summary.csv").open() as file:
        summary = list(csv.DictReader(file))
    assert len(summary) == len(rows)  # two targets, two seeds
    assert any(row["hours"] for row in summary)
    assert (out / "iid.png").stat().st_size > 1000


@pytest.mark.slow
def test_the_real_command_at_the_tiny_scale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One table, whose runs are processes; a second call runs nothing and makes the same table."""
    monkeypatch.chdir(tmp_path)
    words = ("reproduce", "wpm", "table4", "--tiny", "--seeds", "1", "--workers", "1")
    done = real(*words)
    assert done.code == 0, done.err
    table = Path("runs/reproduce-wpm/tiny/table4.csv")
    assert done.out == f"table4: {table}\n"
    assert check_progress(done.err) == {"table4"}
    assert "10/10 runs" in done.err
    content = table.read_text()
    table.unlink()
    monkeypatch.setattr(pools, "pool_on", lambda engine, workers: nullcontext(None))
    assert gossamer(*words).out == done.out
    assert table.read_text() == content


def test_every_table_and_figure_of_the_paper_is_a_part() -> None:
    assert list(TABLES_AND_FIGURES) == [
        "table1",
        "table2",
        "table3",
        "table4",
        *(f"figure{k}" for k in range(1, 7)),
        "lemma1",
        "theorem1",
        "slips",
        "ablation",
        "plain_step",
    ]
    assert set(PARTS) - set(TABLES_AND_FIGURES) >= {
        "readings",
        "cifar",
        "step_rules",
        "fair",
        "regimes",
    }
    assert all(module.TITLE for module in PARTS.values())


def test_methods_of_a_part_have_the_same_links_and_batches() -> None:
    for module in TABLES_AND_FIGURES.values():
        by_place: dict[tuple[int, int, object], set[tuple[object, ...]]] = {}
        for s in module.cells(Scale()):
            by_place.setdefault((s.network.devices, s.seed, s.split), set()).add(
                (s.network, s.data, s.batch, s.rounds)
            )
        assert all(len(settings) == 1 for settings in by_place.values())


def test_the_expected_tables_agree_with_the_text_of_the_paper() -> None:
    """Percentages in the text of the paper determine entries of Tables 2 and 3."""
    table2 = {
        (r["split"], int(r["p"])): int(r["iterations"]) for r in expected("table2_convergence_by_p")
    }
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
    """Every part has its number of runs; the theory needs none."""
    done = gossamer("reproduce", "wpm", "--list")
    assert done.code == 0
    lines = {}
    for line in done.out.splitlines():
        name, size, *_ = re.split(r"  +", line)
        lines[name] = size
    assert set(lines) == set(PARTS)
    assert lines["lemma1"] == "no runs"
    assert re.fullmatch(r"50 runs [\d.]+ (s|min)", lines["table2"])
    assert all(re.fullmatch(r"no runs|\d+\+? runs [\d.]+ (s|min|h)\+?", x) for x in lines.values())


@pytest.mark.parametrize(
    "paper", sorted(path.parent.name for path in (ROOT / "papers").glob("*/paper.py"))
)
def test_every_paper_has_a_list(paper: str) -> None:
    done = gossamer("reproduce", paper, "--list")
    assert done.code == 0, done.err
    assert all("runs" in line for line in done.out.splitlines())
    if paper == "field":  # a search has an estimate
        assert re.search(r"^digits +\d+ runs \d+ min  ", done.out, re.M), done.out


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["reproduce", "wpm", "tabel2"], ("part = 'tabel2' is not accepted", "table2")),
        (["reproduce", "wpm", "table2", "--seeds", "0"], ("--seeds = 0 is not accepted",)),
        (["reproduce", "another"], ("papers/another",)),
    ],
)
def test_refusals(
    words: list[str], parts: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_refused(gossamer(*words), *parts)

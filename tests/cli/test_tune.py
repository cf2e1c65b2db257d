"""The command `gossamer tune`."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from support.command import assert_refused, files, gossamer, real
from support.listing import times_of
from support.planted import curve, plant, run_here

import gossamer as gs
from gossamer.algorithms import GainControl
from gossamer.network.files import save
from gossamer.results.find import select_runs
from gossamer.results.search import read_search
from gossamer.study import spec

SPEC = """
rounds = 30
batch = 16
data = "digits"
split = "one-label"
network = { kind = "random", devices = 10, density = 0.2 }
measure = { every = 5, targets = ["accuracy >= 0.3", "accuracy >= 0.5", "accuracy >= 0.999"] }
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("fleet.toml").write_text(SPEC)
    return tmp_path


@pytest.fixture
def planted(here: Path, monkeypatch: pytest.MonkeyPatch) -> list[gs.Study]:
    return plant(monkeypatch)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--budget", "5"], ("budget = 5 is not accepted: give a whole number from",)),
        (
            ["--methods", "wpn"],
            ("methods = 'wpn' is not accepted", "did you mean 'wpm'?"),
        ),
        (["--target", "88"], ("target = 'accuracy >= 88' is not accepted: give a share from 0",)),
        (["--target", "-0.1"], ("target = 'accuracy >= -0.1' is not accepted",)),
        (["--target", "nan"], ("target = 'nan' is not accepted",)),
        (["--target", "mae <= 4"], ("one of the metrics that are measured: accuracy,",)),
        (["--target", "accuracy > 4"], ('a metric, ">=" or "<=", and a number',)),
        (["--for", "accuracy_best"], ("for = 'accuracy_best' is not accepted",)),
        (["--for", "round"], ("for = 'round' is not accepted", "did you mean 'rounds'?")),
        (["--for", "seconds"], ("for = 'seconds' is not accepted", "timing")),
        (["--workers", "-1"], ("workers = -1 is not accepted",)),
        (["--set", "rounds=0"], ("rounds = 0 is not accepted",)),
        (["--set", "network.devices=0"], ("network.devices",)),
        (
            ["--set", "data.kind=least-squares", "--set", "model.kind=least-squares"],
            ("split is not accepted",),
        ),
    ],
)
def test_invalid_arguments(here: Path, words: list[str], parts: tuple[str, ...]) -> None:
    before = files()
    assert_refused(gossamer("tune", "fleet.toml", "-q", *words), *parts)
    assert files() == before


def test_a_regression_is_tuned_by_its_error(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first search runs; the others find its runs, since the search is the same."""
    run_here(monkeypatch)
    Path("fit.toml").write_text('rounds = 12\ndata = "least-squares"\nmeasure = { every = 4 }\n')
    fixed = ["--budget", 30, "--methods", "d-psgd", "--out", "o", "-q"]
    cases: list[tuple[list[str], str, str | None]] = [
        (["--target", "rmse <= 1.9"], "rmse", "rmse <= 1.9"),
        (["--target", "1.9"], "rmse", "rmse <= 1.9"),
        (["--target", "rmse_merged <= 1.9"], "rmse_merged", "rmse_merged <= 1.9"),
        (["--for", "rmse_merged"], "rmse_merged", None),
    ]
    for words, metric, target in cases:
        done = gossamer("tune", "fit.toml", *fixed, *words)
        assert (done.code, done.err) == (0, "")
        table = done.out.partition("fresh seeds\n")[2].partition("mean ±")[0]
        assert "%" not in table
        assert "rmse" in table
        result = json.loads(Path("o/result.json").read_text())
        assert (result["metric"], result["target"]) == (metric, target)
        errors = [float(np.mean(one[metric])) for one in result["confirmed"]]
        if target is None:
            assert errors == sorted(errors)


def test_what_the_command_prints(planted: list[gs.Study]) -> None:
    done = gossamer(
        "tune",
        "fleet.toml",
        "--budget",
        60,
        "--methods",
        "gain-control,swarm-sgd",
        "--set",
        "rounds=90",
    )
    assert done.code == 0, done.err
    assert "3 methods: d-psgd, gain-control, swarm-sgd" in done.err
    assert "of processor time" in done.err
    assert "confirming" in done.err
    text = " ".join(done.out.split())
    for part in (
        "1* Gain control",
        "rounds",
        "worst",
        "fresh seeds 0 to 4",
        "held out",
        "seed by seed",
        "sure at 95 %",
    ):
        assert part in text, part
    winner = Path("runs/tune-fleet/winner.toml")
    assert str(winner) in text
    (study,) = spec.studies(spec.read(winner))
    assert isinstance(study.algorithm, GainControl)
    assert study.algorithm.gain == 1.05
    assert (study.name, study.rounds, study.data, study.seed) == ("fleet-tuned", 90, gs.Digits(), 0)
    assert winner.read_text().startswith("# Found by: gossamer tune fleet.toml --budget 60")


def test_json_and_quiet(planted: list[gs.Study]) -> None:
    words = (
        "tune",
        "fleet.toml",
        "--budget",
        60,
        "--methods",
        "gain-control",
        "--json",
        "-q",
        "--for",
        "bytes",
        "--seed",
        4,
    )
    done = gossamer(*words, "--out", "here", "--target", 0.7, "--set", "rounds=90")
    assert (done.code, done.err) == (0, "")
    result = json.loads(done.out)
    assert result == json.loads(Path("here/result.json").read_text())
    assert (result["for"], result["target"], result["seeds"]) == (
        "bytes",
        "accuracy >= 0.7",
        [4, 5, 6, 7, 8],
    )
    assert result["cost"] <= 60
    assert result["confirmed"][0]["label"] == result["winner"]["label"]
    assert result["leads"]["baseline"]["unit"] == "bytes"
    assert result["winner"]["at_the_edge_of_its_range"] == []
    assert result["methods"] == ["d-psgd", "gain-control"]
    (study,) = spec.studies(spec.read(Path("here/winner.toml")))
    assert "accuracy >= 0.7" in (study.measure.targets or ())
    assert study == spec.studies(result["spec"])[0]


def test_an_uncertain_lead_is_reported_as_such(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, lambda study: curve(study.rounds, 0.02))  # all are alike
    done = gossamer(
        "tune", "fleet.toml", "--budget", 60, "--methods", "gain-control", "--set", "rounds=90"
    )
    assert "not sure: the two may well be equal" in " ".join(done.out.split())


def test_a_winner_at_the_edge_is_marked(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, lambda study: curve(study.rounds, 0.02 * vars(study.algorithm)["eta"]))
    words = ["--budget", 60, "--methods", "gain-control", "--set", "rounds=90", "-q"]
    done = gossamer("tune", "fleet.toml", *words, "--out", "o")
    assert done.code == 0, done.err
    assert "(edge)" in done.out
    assert "is at the edge of its range: a better one may lie beyond." in " ".join(done.out.split())
    result = json.loads(Path("o/result.json").read_text())
    assert result["winner"]["at_the_edge_of_its_range"] == ["eta"]
    comment = Path("o/winner.toml").read_text().replace("#", "")
    assert "is at the edge of its range" in " ".join(comment.split())


def test_one_way_links_are_tuned(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Push-sum is the baseline there."""
    plant(monkeypatch)
    one_way = gs.Callback(10, lambda t: [(i, (i + 1 + t % 3) % 10) for i in range(10)], True)
    save(one_way, "links.parquet", 91)
    Path("one-way.toml").write_text(
        'rounds = 90\nsplit = "one-label"\nnetwork = { kind = "file", path = "links.parquet" }\n'
    )
    done = gossamer("tune", "one-way.toml", "--budget", 60)
    assert done.code == 0, done.err
    assert "2 methods: push-sum, gossip-learning" in done.err
    assert "the best Push-sum among them" in " ".join(done.out.split())


@pytest.mark.slow
def test_the_command_from_end_to_end(here: Path) -> None:
    """Real runs: the winner can be run; a second search runs nothing and prints the same."""
    words = (
        "tune",
        "fleet.toml",
        "--budget",
        "41",
        "--methods",
        "wpm,gain-control",
        "--workers",
        "1",  # each step of the search starts its processes anew, and they load torch
    )
    first = real(*words, env={"OMP_NUM_THREADS": "1"})
    assert first.code == 0, first.err
    runs = times_of(files("runs/tune-fleet/cells"))
    assert runs
    again = gossamer(*words)
    assert again.out == first.out
    assert times_of(files("runs/tune-fleet/cells")) == runs
    result = json.loads(Path("runs/tune-fleet/result.json").read_text())
    assert result["cost"] <= 41
    assert result["target"] in ("accuracy >= 0.3", "accuracy >= 0.5")
    done = gossamer("run", "runs/tune-fleet/winner.toml", "--out", "won", "-q")
    assert done.code == 0, done.err
    # its own seed is the first of the fresh ones: the run repeats what was confirmed
    summary = json.loads(Path("won/summary.json").read_text())
    assert summary["accuracy"] == pytest.approx(result["confirmed"][0]["accuracy"][0], abs=1e-6)
    assert tomllib.loads(Path("won/spec.toml").read_text())["data"]["kind"] == "digits"


def test_the_verdict_comes_first_and_the_report_last(planted: list[gs.Study]) -> None:
    done = gossamer(
        "tune", "fleet.toml", "--budget", 60, "--methods", "gain-control", "--set", "rounds=90"
    )
    lines = [line for line in done.out.splitlines() if line.strip()]
    assert "reached" in lines[0] or "wins" in lines[0]
    assert lines[-2].split()[:3] == ["gossamer", "run", "runs/tune-fleet/winner.toml"]
    assert lines[-1].split()[:3] == ["gossamer", "report", "runs/tune-fleet"]


def test_a_search_is_read_again_with_all_that_it_tried(here: Path) -> None:
    """Its folder stands for the confirming runs, for all commands that take runs."""
    words = ["--budget", 60, "--methods", "gain-control", "--workers", 1, "-q"]
    done = gossamer("tune", "fleet.toml", *words, "--out", "o")
    assert done.code == 0, done.err
    search = read_search(Path("o"))
    assert search is not None
    assert search.verdict in done.out.replace("\n", " ")
    assert len(search.runs) == 5 * len(json.loads(Path("o/result.json").read_text())["confirmed"])
    assert {tried.method for tried in search.tried} == {"D-PSGD", "Gain control"}
    assert len({tried.label for tried in search.tried}) == len(search.tried)
    assert search.tried[0].rounds == 30
    assert select_runs([Path("o")]) == list(search.runs)
    assert all(gs.Run.read(folder).seed < 5 for folder in search.runs)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"name": 3, "confirmed": 4}', "\x00"])
def test_a_damaged_search_is_no_search(here: Path, text: str) -> None:
    Path("o").mkdir()
    Path("o/result.json").write_text(text)
    assert read_search(Path("o")) is None
    assert_refused(gossamer("report", "o"), "o holds no run")

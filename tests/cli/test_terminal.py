"""Progress bars and lines, JSON output, shell completion, and the list of runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support import processes
from support.command import REAL, Result, assert_refused, gossamer, real
from support.terminal import ANSI, COLOUR, SEVERAL, SPEC, in_a_terminal

import gossamer as gs
from gossamer.cli import progress
from gossamer.cli.runs import BLOCKS, LETTERS, Row, spark


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.toml").write_text(SPEC)
    Path("b.toml").write_text(SEVERAL)


def document(result: Result) -> Any:
    """Return the JSON document that a command printed; it must hold finite numbers only."""
    assert result.code == 0, result.err

    def refuse(name: str) -> None:
        pytest.fail(f"{name} is no JSON")

    return json.loads(result.out, parse_constant=refuse)


# -- JSON ----------------------------------------------------------------------------------------


def test_run_as_json_is_the_summary_and_its_folder() -> None:
    result = gossamer("run", "a.toml", "--json")
    assert document(result) == json.loads(Path("runs/a-wpm-p-3-seed0/summary.json").read_text()) | {
        "folder": "runs/a-wpm-p-3-seed0"
    }
    assert "round 12/12" in result.err  # progress is no result
    assert gossamer("run", "a.toml", "--json", "--quiet", "--out", "b").err == ""


def test_compare_as_json_has_the_values_of_the_table() -> None:
    result = gossamer("compare", "b.toml", "--json", "-q", "--seeds", "2")
    facts = document(result)
    assert result.err == ""
    assert (facts["name"], facts["folder"]) == ("b", "runs/b")
    assert Path(facts["curves"]).exists()
    table = gossamer("compare", "b.toml", "-q", "--seeds", "2").out
    for method in facts["methods"]:
        row = next(line for line in table.splitlines() if line.strip().startswith(method["method"]))
        accuracy = method["accuracy"]
        assert f"{100 * accuracy['mean']:.2f} ± {100 * accuracy['half']:.2f}" in row
        assert accuracy["count"] == len(method["runs"]) == 2
        assert method["rounds_to"].keys() == {"accuracy >= 0.8", "accuracy >= 0.9"}
        if method is facts["methods"][0]:
            assert "difference" not in method
            continue
        difference = method["difference"]
        assert difference["to"] == facts["methods"][0]["method"]
        half = f"± {100 * difference['accuracy']['half']:.2f}"
        assert f"{100 * difference['accuracy']['mean']:.2f} {half}" in row
        assert difference["accuracy"]["count"] == 2
        for run in method["runs"]:
            assert (
                json.loads((Path(run["folder"]) / "summary.json").read_text()).items()
                <= run.items()
            )


@pytest.mark.filterwarnings("ignore::gossamer.errors.NetworkWarning")  # density 0
def test_network_show_as_json() -> None:
    facts = document(
        gossamer(
            "network",
            "show",
            "a.toml",
            "--set",
            "network.kind=ring",
            "--json",
            "--save",
            "l.parquet",
        )
    )
    assert (facts["devices"], facts["rounds"], facts["links_mean"], facts["degree_max"]) == (
        10,
        12,
        10,
        2,
    )
    assert facts["assumption1"]["holds"]
    assert facts["assumption1"]["b"] == {"aligned": 1, "sliding": 1}
    assert (facts["picture"], facts["links"]) == ("network.png", "l.parquet")
    apart = document(gossamer("network", "show", "a.toml", "--set", "network.density=0", "--json"))
    assert apart["assumption1"]["b"] is None
    assert not apart["assumption1"]["holds"]


def test_json_of_a_regression_has_its_error() -> None:
    Path("a.toml").write_text('rounds = 5\ndata = "least-squares"\n')
    assert document(gossamer("run", "a.toml", "-q", "--json"))["rmse_merged"] > 0
    (method,) = document(gossamer("compare", "a.toml", "-q", "--json"))["methods"]
    assert "accuracy" not in method
    assert method["rmse"]["half"] is None
    assert method["rmse_best"]["mean"] <= method["rmse"]["mean"] <= method["rmse_worst"]["mean"]


def test_an_error_prints_no_json() -> None:
    assert_refused(
        gossamer("run", "a.toml", "--json", "--set", "network.density=2"), "network.density"
    )


@pytest.mark.slow
def test_json_of_the_real_command_in_a_terminal() -> None:
    """Bars go to standard error, so that a pipe receives the document only."""
    script = f"{' '.join(REAL)} run a.toml --json > out.json"
    process = processes.run(["bash", "-c", script])
    assert process.returncode == 0
    assert json.loads(Path("out.json").read_text())["finished"]


# -- progress ------------------------------------------------------------------------------------


def test_a_line_has_the_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    now = 100.0
    monkeypatch.setattr("gossamer.cli.progress.time.monotonic", lambda: now)
    study = gs.Study(rounds=100)
    bars = progress.RunBars(["WPM p=3"], 2, quiet=False)
    bars.started(study, None, [])
    bars.advanced(0)
    bars.measured({"round": 20, "accuracy": 0.5, "loss": 1.0, "distance": 0.25})
    for now, round_ in ((104.0, 20), (110.0, 40), (112.0, 50)):  # noqa: B007 - read by `monotonic`
        bars.advanced(round_)
    now = 130.0
    bars.advanced(100)
    bars.measured({"round": 100, "accuracy": 0.75, "loss": 1.0, "distance": 0.25})
    bars.skipped(study, tmp_path)
    assert capsys.readouterr().err.splitlines() == [
        "WPM p=3  1 of 2  round 40/100  50.0%  distance 0.250  15 s left",
        "WPM p=3  1 of 2  round 100/100  50.0%  distance 0.250",
        "WPM p=3  1 of 2  round 100/100  75.0%  distance 0.250",
        "WPM p=3  2 of 2  round 100/100  done before",
    ]


def test_durations_are_short() -> None:
    assert [progress.duration(s) for s in (0, 59.7, 99, 100, 5990, 6000, 360000)] == [
        "0 s",
        "60 s",
        "99 s",
        "2 min",
        "100 min",
        "1.7 h",
        "100.0 h",
    ]


@pytest.mark.slow
def test_bars_have_accuracy_distance_and_time_left() -> None:
    written = in_a_terminal("run", "a.toml", "--set", "rounds=3000", "--set", "measure.every=50")
    plain = ANSI.sub("", written).replace("\r", "\n")
    going = []
    for line in plain.splitlines():
        if re.search(r"━ +[1-9]\d*/3000", line):
            going.append(line)
    assert any(re.search(r"\d+\.\d%  distance \d+\.\d+ \d+ s left", line) for line in going), going[
        :3
    ]
    assert re.search(r"3000/3000 \d+\.\d%  distance \d+\.\d+ \d+ s", plain)
    assert max(map(len, plain.splitlines())) <= 80


@pytest.mark.slow
def test_a_long_label_shortens_the_bar() -> None:
    Path("c.toml").write_text(SPEC.replace("eta = 0.05", "eta = 0.0123456"))
    written = in_a_terminal("compare", "a.toml", "c.toml", "--set", "rounds=800", NO_COLOR="1")
    plain = ANSI.sub("", written).replace("\r", "\n")
    bars = []
    for line in plain.splitlines():
        if "/800" in line:
            bars.append(line)
    assert any(
        re.match(r"WPM p=3 \(eta=0\.0123456\) [━╺╸ ]+ +\d+/800 +\d+\.\d%  distance \d+\.\d", line)
        for line in bars
    ), bars
    assert max(map(len, plain.splitlines())) <= 80
    assert not COLOUR.search(written)


# -- completion ----------------------------------------------------------------------------------


def completed(shell: str, line: str) -> str:
    words = line.split(" ")
    env = {"_GOSSAMER_COMPLETE": f"complete_{shell}"}
    if shell == "bash":
        env |= {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    else:
        env |= {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    return real(env=env).out


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_options_and_values(shell: str) -> None:
    commands = completed(shell, "gossamer r")
    for word in ("run", "runs", "reproduce"):
        assert word in commands
    assert "compare" not in commands
    assert "--resume" in completed(shell, "gossamer run --r")
    assert "tensorboard" in completed(shell, "gossamer run --track t")
    assert "seconds" in completed(shell, "gossamer figure --x s")
    assert "show" in completed(shell, "gossamer network s")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_itself_completes() -> None:
    Path("gossamer").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gossamer "$@"\n')
    Path("gossamer").chmod(0o755)
    script = (
        f'PATH={Path.cwd()}:$PATH; eval "$(_GOSSAMER_COMPLETE=source_bash gossamer)"; '
        "COMP_WORDS=(gossamer compare --see); COMP_CWORD=2; "
        '_gossamer_completion gossamer; echo "${COMPREPLY[@]}"'
    )
    done = processes.run(["bash", "--norc", "-c", script])
    assert done.stdout.split() == ["--seed", "--seeds"], done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shell", "place"), [("bash", ".bashrc"), ("zsh", ".zshrc"), ("fish", ".config/fish")]
)
def test_completion_is_installed_where_the_shell_looks(shell: str, place: str) -> None:
    env = {"HOME": str(Path.cwd()), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = real("--install-completion", shell, env=env)
    assert done.code == 0
    found = []
    for file in Path.cwd().rglob("*"):
        if file.is_file() and "_GOSSAMER_COMPLETE" in file.read_text(errors="ignore"):
            found.append(file)
    assert len(found) == 1
    assert Path(place).exists()
    if shell == "bash":
        assert str(found[0]) in Path(place).read_text()


# -- the list of runs ----------------------------------------------------------------------------


def test_runs_lists_runs_of_every_status() -> None:
    assert gossamer("compare", "b.toml", "-q", "--seeds", "2").code == 0
    assert gossamer("run", "a.toml", "-q", "--out", "runs/c").code == 0
    with pytest.raises(gs.Diverged):
        gs.run(gs.Study(gs.DPSGD(eta=1e30), rounds=50), "runs/wild")
    shutil.copytree("runs/c", "runs/halted")
    for name in ("summary.json", "models.safetensors"):
        Path(f"runs/halted/{name}").unlink()
    shutil.copytree("runs/halted", "runs/going")
    line = {
        "round": 7,
        "rounds": 12,
        "seconds": 1.0,
        "left": 1.0,
        "record": {"round": 6, "accuracy": 0.5, "loss": 1.5},
    }
    Path("runs/going/live.jsonl").write_text(
        json.dumps(line) + '\n{"round": 8'
    )  # half a line, as it may be met
    shutil.copytree("runs/going", "runs/killed")
    long_ago = time.time() - 3600
    os.utime("runs/killed/live.jsonl", (long_ago, long_ago))
    shutil.copytree("runs/c", "runs/torn")
    Path("runs/torn/summary.json").write_text("{")

    found = {run["folder"]: run for run in document(gossamer("runs", "--json"))["runs"]}
    assert {name.removeprefix("runs/"): run["state"] for name, run in found.items()} == {
        "b/d-psgd-seed0": "finished",
        "b/d-psgd-seed1": "finished",
        "b/wpm-p-3-seed0": "finished",
        "b/wpm-p-3-seed1": "finished",
        "c": "finished",
        "going": "running",
        "halted": "stopped",
        "killed": "stopped",
        "torn": "broken",
        "wild": "diverged",
    }
    summary = json.loads(Path("runs/b/d-psgd-seed1/summary.json").read_text())
    run = found["runs/b/d-psgd-seed1"]
    assert (run["name"], run["method"], run["seed"]) == ("b", "D-PSGD", 1)
    assert (run["round"], run["rounds"], run["loss"]) == (12, 12, summary["loss"])
    for name, key in (("mean", ""), ("worst", "_worst"), ("best", "_best"), ("merged", "_merged")):
        assert run["metrics"]["accuracy"][name] == summary[f"accuracy{key}"]
    assert run["curve"][-1] == summary["accuracy"]
    assert len(run["curve"]) == 3
    going = found["runs/going"]
    assert (going["round"], going["rounds"], going["method"]) == (7, 12, "WPM p=3")
    assert going["metrics"]["accuracy"] == {"mean": 0.5}
    assert (found["runs/killed"]["round"], found["runs/halted"]["round"]) == (7, 12)

    out = gossamer("runs").out
    rows = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    names = (  # methods in the order of the spec
        "b/ wpm-p-3-seed0 wpm-p-3-seed1 d-psgd-seed0 d-psgd-seed1 c going halted killed torn wild"
    )
    assert list(rows)[2:] == names.split()
    assert "7/12" in rows["going"]
    shown = (
        rf"{summary['accuracy']:.1%} +{summary['accuracy_merged']:.1%} +[{BLOCKS}]{{3}} +finished"
    )
    assert re.search(shown, rows["d-psgd-seed1"])
    assert not ANSI.search(out)


def test_runs_of_an_empty_folder() -> None:
    Path("runs").mkdir()
    assert gossamer("runs").out == "no runs in runs\n"
    assert document(gossamer("runs", "--json")) == {"folder": "runs", "runs": []}
    assert_refused(gossamer("runs", "elsewhere"), "elsewhere is not a folder")


def test_runs_of_a_run_folder_itself() -> None:
    assert gossamer("run", "a.toml", "-q", "--out", "one").code == 0
    (run,) = document(gossamer("runs", "one", "--json"))["runs"]
    assert run["folder"] == "one"
    assert re.search(r"one +WPM p=3", gossamer("runs", "one").out)


def test_a_regression_has_a_spark_line_of_its_error() -> None:
    Path("a.toml").write_text('rounds = 30\ndata = "least-squares"\n')
    assert gossamer("run", "a.toml", "-q", "--out", "runs/a").code == 0
    row = Row.read(Path("runs/a"))
    assert (row.column.name, row.newest("accuracy")) == ("rmse", None)
    assert spark(row.values("rmse"), share=False)[0] == "█"
    assert f"rmse {row.newest('rmse'):.3f}" in gossamer("runs").out


def test_a_spark_line_shows_the_values() -> None:
    values = [k / 999 for k in range(1000)]
    for ascii_only, letters in ((False, BLOCKS), (True, LETTERS)):
        line = spark(values, width=16, ascii_only=ascii_only)
        assert len(line) == 16
        assert (line[0], line[-1]) == (letters[0], letters[-1])
        assert sorted(line, key=letters.index) == list(line)
    assert spark([]) == spark([None]) == ""
    assert spark([0.5, None, 0.5]) == "▅▅"


@pytest.mark.slow
def test_runs_in_a_terminal_of_80_columns() -> None:
    assert gossamer("compare", "b.toml", "-q").code == 0
    plain = ANSI.sub("", in_a_terminal("runs"))
    assert re.search(
        r" wpm-p-3-seed0 +WPM p=3 +0 +12 +\d+\.\d% +\d+\.\d% +finished +\d\d:\d\d", plain
    )
    assert max(map(len, plain.replace("\r", "").splitlines())) <= 80
    assert COLOUR.search(in_a_terminal("runs"))
    assert not COLOUR.search(in_a_terminal("runs", NO_COLOR="1"))
    assert in_a_terminal("runs", PYTHONIOENCODING="ascii").isascii()


@pytest.mark.slow
def test_runs_imports_no_torch() -> None:
    """Listing runs needs no torch."""
    assert gossamer("compare", "b.toml", "-q").code == 0
    script = (
        "import sys\nfrom gossamer.cli import main\nsys.argv = ['gossamer', 'runs']\n"
        "try:\n    main()\nexcept SystemExit: pass\n"
        "print(sorted({'torch', 'scipy', 'matplotlib'} & set(sys.modules)))"
    )
    done = processes.run([sys.executable, "-c", script])
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_command_that_loads_torch_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The word is erased before the first output; quiet commands and pipes do not show it."""
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(SPEC)
    assert "loading …\r\x1b[K" in in_a_terminal("run", "mine.toml", "--out", "a")
    assert "loading" not in in_a_terminal("run", "mine.toml", "--out", "b", "--quiet")
    assert "loading" not in in_a_terminal("runs", ".")
    assert "loading" not in in_a_terminal("run", "mine.toml", "--out", "c", TERM="dumb")

"""Own code on the command line: --allow-code, and what is refused without it or in spite of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.command import assert_refused, files, gossamer, real

OWN = """
from dataclasses import dataclass
from torch import nn
import gossamer as gs

def make(width=4):
    if width == 0:
        raise ValueError("width is 0")
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))

class Chain(gs.Network):
    devices = 3
    def links(self, t):
        return gs.Links.of(3, [(t % 3, (t + 1) % 3)])

number = 3

def slope(outputs, targets):
    return outputs.nothing

def text(outputs, targets):
    return "much"

def nan(outputs, targets):
    return float("nan")
"""
SPEC = """
rounds = 4
batch = 8
algorithm = { kind = "d-psgd", eta = 0.1 }
network = { kind = "ring", devices = 3 }
[model]
kind = "python"
object = "own:make"
"""


def own_metric(name: str, better: str = "lower") -> str:
    table = f"{{ kind = 'python', object = 'own:{name}', better = '{better}' }}"
    return f"measure.metrics=[{table}]"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN)
    Path("a.toml").write_text(SPEC)


def test_a_spec_with_own_code_runs_with_the_flag() -> None:
    done = real("run", "a.toml", "--allow-code", "-q")
    assert done.code == 0, done.err
    assert gossamer("run", "a.toml", "--allow-code", "--resume", "-q").code == 0


EVIL = "from pathlib import Path\nPath('executed').touch()\n"


@pytest.mark.parametrize(
    "words",
    [
        ("run", "a.toml"),
        ("compare", "a.toml"),
        ("tune", "a.toml", "--budget", "1"),
        ("network", "show", "a.toml"),
        ("fleet", "init", "a.toml"),
        ("fleet", "up", "a.toml"),
    ],
)
def test_no_command_runs_code_without_the_flag(words: tuple[str, ...]) -> None:
    Path("own.py").write_text(EVIL)
    before = files()
    said = ("model.object = 'own:make' is Python code", str(Path.cwd() / "own.py"), "--allow-code")
    assert_refused(gossamer(*words), *said)
    assert files() == before


def test_commands_about_runs_run_no_code() -> None:
    assert gossamer("run", "a.toml", "--allow-code", "-q").code == 0
    Path("own.py").write_text(EVIL)
    Path("runs/a-d-psgd-seed0/summary.json").unlink()  # then the label needs the study
    for words in (
        ("runs", "runs"),
        ("report", "runs", "-o", "page.html"),
        ("runs", "runs", "--json"),
    ):
        done = gossamer(*words)
        assert done.code == 0, done.err
    assert "--allow-code" in Path("page.html").read_text()
    assert not Path("executed").exists()


def test_a_report_draws_an_own_network_with_the_flag() -> None:
    network = "network={ kind = 'python', object = 'own:Chain' }"
    words = ("run", "a.toml", "--allow-code", "-q", "--set", network, "--out", "one")
    assert gossamer(*words).code == 0
    for option, drawn in (((), False), (("--allow-code",), True)):
        assert gossamer("report", "one", "-o", "page.html", *option).code == 0
        assert ("without permission" in Path("page.html").read_text()) != drawn
    Path("one/summary.json").unlink()
    spec = Path("one/spec.toml")
    method = 'kind = "python"\nobject = "own:Chain"'
    spec.write_text(spec.read_text().replace('kind = "d-psgd"', method))
    assert "Chain" in gossamer("runs", "one").out


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("model.object=own", "module:name"),
        ("model.object=onw:make", "there is no onw.py in it (did you mean 'own'?)"),
        ("model.object=own:mkae", "it has no mkae (did you mean 'make'?)"),
        ("model.object=own:number", "it is a int"),
        ("model.object=own:Chain", "it returns a Chain"),
        ("model.path=nowhere", "there is no folder"),
        ("model.arguments={ wide = 3 }", "model.arguments = {'wide': 3}"),
        ("model.arguments=3", "model.arguments = 3 is not accepted: give a table"),
        ("model.arguments.width=0", "own.py:8 raised ValueError: width is 0"),
        ("model.sources=['own.py 00']", "own.py has changed"),
        ("model.widht=3", "model.widht is not a known key"),
        ("algorithm={ kind = 'python', object = 'own:make' }", "algorithm.object = 'own:make'"),
        ("network={ kind = 'python', object = 'own:number' }", "it is a int"),
        ("data={ kind = 'python', object = 'own:make' }", "data.object = 'own:make'"),
        ("split={ kind = 'python', object = 'own:make' }", "split.object = 'own:make'"),
        ("algorithm.step={ kind = 'python', object = 'own:make' }", "algorithm.step"),
        ("engine={ kind = 'python', object = 'own:make' }", "engine.kind = 'python'"),
        ("model.loss={ kind = 'python', object = 'own:slope' }", "own.py:19 raised AttributeError"),
        ("model.loss={ kind = 'python', object = 'own:Chain' }", "it returns a Chain"),
        (own_metric("slope"), "own.py:19 raised AttributeError"),
        (own_metric("text"), "text returning 'much'"),
        (own_metric("nan"), "nan = nan of device 0"),
        (own_metric("number"), "it is a int"),
        (own_metric("nan", better="up"), "measure.metrics.better = 'up'"),
        ("network={ kind = 'python' }", "network.object is missing"),
        ("network={ kind = 'python', is = 'Callback()' }", "network was made in Python"),
    ],
)
def test_bad_code_is_one_sentence(setting: str, said: str) -> None:
    Path("runs").mkdir()  # a metric fails when the run has begun: its folder is removed
    before = files()
    result = gossamer("run", "a.toml", "--allow-code", "-q", "--set", setting)
    assert_refused(result, said)
    assert files() == before


def test_a_file_that_raises_is_one_sentence() -> None:
    Path("own.py").write_text("import missing_package\n")
    said = "own.py:1 raised ModuleNotFoundError: No module named 'missing_package'"
    assert_refused(gossamer("run", "a.toml", "--allow-code", "-q"), said)


def test_a_resume_with_other_code_is_refused() -> None:
    assert gossamer("run", "a.toml", "--allow-code", "-q").code == 0
    Path("own.py").write_text(OWN + "\n")
    resumed = gossamer("run", "a.toml", "--allow-code", "-q", "--resume")
    assert_refused(resumed, "the code of model was 'own.py ", "and is now 'own.py ")

"""Devices with a study in Python and with samples of their own, in tables that grow."""

from __future__ import annotations

import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.command import assert_refused, gossamer
from support.fleet_commands import DEVICES, DEVICES_RUN, PORTS, logs
from support.loopback import python

from gossamer.errors import DataError, InputError
from gossamer.fleet.code import study_in
from gossamer.fleet.samples import read_samples
from gossamer.fleet.settings import read_device
from gossamer.tasks import Table
from gossamer.tasks.table_format import TableFormat, read_format

pytest.importorskip("zenoh", reason="needs the extra gossamer[peer]")

pytestmark = pytest.mark.usefixtures("fleet_spec")

LABELS = ("rest", "run", "walk")
SPEC = """
rounds = 4000
batch = 8
data = { kind = "table", path = "robots", target = "activity" }
network = { kind = "full", devices = 3 }
algorithm = { kind = "d-psgd", eta = 0.1 }
measure = { every = 5 }
fleet = { slot = 1.0, insecure = true }
"""
STUDY = """
import gossamer as gs
from torch import nn

def make(data):
    return nn.Sequential(nn.Linear(data.x[0].numel(), 8), nn.Tanh(), nn.Linear(8, data.classes))

def study():
    data = gs.Table("robots", target="activity", inputs=["ax", "ay", "az", "speed"])
    return gs.Study(gs.DPSGD(eta=0.1), gs.Full(3), data, model=gs.Module(lambda: MODEL), rounds=9)

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))

MODEL = Net()
number = 3
def broken():
    raise KeyError("no")
"""


def rows(count: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    lines = []
    for i in range(count):
        label = rng.integers(3)
        values = rng.normal(size=4) + 2 * np.eye(3, 4)[label]
        lines.append(",".join(f"{value:.4f}" for value in values) + f",{i},{LABELS[label]}\n")
    return lines


HEAD = "ax,ay,az,speed,time,activity\n"


@pytest.fixture
def robots(fleet_spec: None) -> None:
    """A table for each of three robots."""
    Path("robots").mkdir()
    for i in range(DEVICES):
        Path(f"robots/robot{i}.csv").write_text(HEAD + "".join(rows(60, seed=i)))
    Path("fleet.toml").write_text(SPEC)


def with_tables(*words: object) -> None:
    """Make a fleet whose devices have their tables, and no arrays."""
    made = gossamer("fleet", "init", "fleet.toml", "--no-samples", *words)
    assert made.code == 0, made.err
    for i in range(DEVICES):
        shutil.copy(f"robots/robot{i}.csv", f"fleet/n{i}/data.csv")


@pytest.mark.usefixtures("robots")
def test_a_table_is_read_as_those_of_all_devices() -> None:
    with_tables()
    together = Table(Path("robots"), target="activity").load()
    assert together.table == read_format(Path("fleet/n1/columns.json"))
    device = read_device(Path("fleet/n1.toml"))
    data = read_samples(device)
    assert (data.samples, len(data.x_test)) == (48, 12)
    # Independently: every fifth row is to test on, scaled as all rows together.
    table = np.array([line.split(",") for line in rows(60, seed=1)])
    scaled = table[:, :5].astype(float) - np.array(together.table.mean)
    scaled /= np.array(together.table.spread)
    numbers = np.searchsorted(LABELS, [label.strip() for label in table[:, 5]])
    test = np.arange(60) % 5 == 4
    np.testing.assert_allclose(data.x.numpy(), scaled[~test], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(data.x_test.numpy(), scaled[test], rtol=1e-5, atol=1e-5)
    assert data.y.tolist() == numbers[~test].tolist()
    # Rows that are appended keep what the others are for; a line without its end is not read.
    path = Path("fleet/n1/data.csv")
    with path.open("a") as file:
        file.write("".join(rows(7, seed=9)) + "1.0,2.0,3")
    more = read_samples(device)
    assert (more.samples, len(more.x_test)) == (54, 13)
    assert more.x[:48].equal(data.x)
    assert more.y_test[:12].equal(data.y_test)


def test_labels_that_are_numbers_and_values() -> None:
    Path("data.csv").write_text("a,b\n1,7\n2,3\n3,7\n")
    labels = TableFormat(("a",), (2.0,), (0.5,), ("b",), ("3", "7")).read(Path("data.csv"))
    assert labels.x.tolist() == [[-2.0], [0.0]]
    assert (labels.y.tolist(), labels.y_test.tolist(), labels.classes) == ([1, 0], [1], 2)
    values = TableFormat(("a",), (0.0,), (1.0,), ("b", "a")).read(Path("data.csv"))
    assert values.y.tolist() == [[7, 1], [3, 2]]


WRONG: dict[str, tuple[str, tuple[str, ...]]] = {
    "label": (
        HEAD + "1,2,3,4,5,rest\n1,2,3,4,5,jump\n",
        ("none of 'rest', 'run', 'walk'", "row 2"),
    ),
    "column": ("ax,ay\n1,2\n1,2\n", ("inputs = 'az'",)),
    "text": (HEAD + "1,2,3,fast,5,rest\n1,2,3,4,5,rest\n", ("'speed' holds text", "'fast'")),
    "one row": (HEAD + "1,2,3,4,5,rest\n", ("has 1 rows; at least 2",)),
    "no rows": (HEAD, ("has no rows",)),
}


@pytest.mark.usefixtures("robots")
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_table_is_refused(wrong: str) -> None:
    with_tables()
    content, parts = WRONG[wrong]
    Path("fleet/n1/data.csv").write_text(content)
    refused = gossamer("node", "fleet/n1.toml", "--insecure", "-q")
    assert refused.code == 2
    for part in parts:
        assert part in refused.err


@pytest.mark.usefixtures("robots")
def test_one_file_of_samples_and_its_format() -> None:
    with_tables()
    device = read_device(Path("fleet/n1.toml"))
    np.savez("fleet/n1/data.npz", x=[1.0])
    with pytest.raises(DataError, match=r"has data.npz and data.csv: keep one"):
        read_samples(device)
    Path("fleet/n1/data.npz").unlink()
    for content in ("{}", "[", '{"inputs": ["a"], "mean": [], "spread": [], "target": ["b"]}'):
        Path("fleet/n1/columns.json").write_text(content)
        with pytest.raises(DataError, match=r"columns.json does not say how a table is read"):
            read_samples(device)
    Path("fleet/n1/columns.json").unlink()
    with pytest.raises(DataError, match=r"columns.json is missing"):
        read_samples(device)


@pytest.mark.slow
@pytest.mark.fleet
@pytest.mark.usefixtures("robots")
def test_a_study_in_python_on_a_table_that_grows() -> None:
    """Rows are appended and a damaged table is ignored while the device runs."""
    Path("my.py").write_text(STUDY.replace("rounds=9", "rounds=4000"))
    words = ("--set", "fleet.insecure=true", "--set", "fleet.slot=1", "--hosts", ",".join(PORTS))
    made = gossamer("fleet", "init", "my.py:study", "--allow-code", "--no-samples", *words)
    assert made.code == 0, made.err
    for path in Path("fleet").glob("n?.toml"):  # no need to wait for ten minutes
        start = re.search(r'start = "(.*)"', path.read_text())
        now = datetime.now(UTC) + timedelta(seconds=5)
        path.write_text(path.read_text().replace(start[1], now.isoformat()))
    for i in range(DEVICES):
        shutil.copy(f"robots/robot{i}.csv", f"fleet/n{i}/data.csv")
    code = """
words = ["--insecure", "--study", "my.py:study"]
nodes = [node(i, *words) for i in range(2)]
said = lambda: Path("fleet/n0.err").read_text()
until(lambda: rounds(0) > 3 and rounds(1) > 3)
with open("fleet/n0/data.csv", "a") as file:
    file.write(given["rows"])
until(lambda: "its samples were read again: 80 to train on" in said())
good = Path("fleet/n0/data.csv").read_bytes()
Path("fleet/n0/data.csv").write_bytes(b"ax,ay\\n1,2\\n3,4\\n")
until(lambda: "the change of its samples is not used: inputs = 'az'" in said())
at = rounds(0)
until(lambda: rounds(0) > at + 2)
Path("fleet/n0/data.csv").write_bytes(good)
until(lambda: said().count("80 to train on") == 2)
for process in nodes:
    process.terminate()
result = [ended(process)[0] for process in nodes]
"""
    result: Any = python(DEVICES_RUN + code, Path.cwd(), rows="".join(rows(40, seed=5)))
    assert result == [0, 0]
    assert any(line["met"] for line in logs()[0])
    assert "Traceback" not in Path("fleet/n0.err").read_text()


@pytest.mark.usefixtures("robots")
def test_a_study_in_python() -> None:
    Path("my.py").write_text(STUDY)
    study = study_in("my.py:study")
    assert study.rounds == 9
    words = ("fleet", "init", "my.py:study", "--set", "fleet.insecure=true")
    assert_refused(gossamer(*words), "SPEC = 'my.py:study'", "--allow-code")
    made = gossamer(*words, "--allow-code", "--no-samples")
    assert made.code == 0, made.err
    assert_refused(gossamer(*words, "--allow-code", "--out", "b", "--set", "rounds=3"), "fleet.KEY")
    assert_refused(gossamer(*words, "--allow-code", "--out", "b", "--devices", 5), "--devices = 5")


WRONG_STUDIES: dict[str, tuple[str, str]] = {
    "no name": ("my.py", "FILE.py:NAME"),
    "no file": ("other.py:study", "there is no other.py"),
    "no study": ("my.py:number", "number is int"),
    "unknown": ("my.py:stady", "it has no stady"),
    "raises": ("my.py:broken", "raised KeyError"),
}


@pytest.mark.parametrize("wrong", WRONG_STUDIES)
def test_a_wrong_study_is_refused(wrong: str) -> None:
    Path("my.py").write_text(STUDY)
    text, part = WRONG_STUDIES[wrong]
    with pytest.raises(InputError, match=part):
        study_in(text)

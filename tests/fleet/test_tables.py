"""A fleet whose devices have their own tables."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

import gossamer as gs
from gossamer.errors import DataError
from gossamer.fleet.provision import init
from gossamer.fleet.service import plan_of
from gossamer.fleet.settings import Fleet, read_device

START = datetime(2030, 1, 31, 12, tzinfo=UTC)


def study(folder: Path) -> gs.Study:
    folder.mkdir()
    for name, rows in (("robot 10", 20), ("robot 9", 10)):
        text = "".join(f"{i},{i % 3}\n" for i in range(rows))
        (folder / f"{name}.csv").write_text("a,label\n" + text)
    return gs.Study(gs.DPSGD(), gs.Ring(2), gs.Table(folder, "label"), rounds=2)


def test_every_device_gets_the_samples_of_its_table(tmp_path: Path) -> None:
    whole = study(tmp_path / "robots")
    files = init(whole, Fleet(insecure=True), tmp_path / "fleet", START)
    assert (tmp_path / "fleet" / "samples.csv").read_text() == (
        "device,samples\nn0,robot 9\nn1,robot 10\n"
    )
    (tmp_path / "robots").rename(tmp_path / "elsewhere")  # a device has its own samples alone
    for number, (file, samples) in enumerate(zip(files, (8, 16), strict=True)):
        plan = plan_of(read_device(file))
        assert plan.task.split.sizes[number] == samples
        assert plan.task.data.classes == 3


def test_a_table_on_a_device_needs_the_format_of_the_fleet(tmp_path: Path) -> None:
    file, _ = init(study(tmp_path / "robots"), Fleet(insecure=True), tmp_path / "fleet", START)
    own = tmp_path / "fleet" / "n0"
    (own / "data.safetensors").unlink()
    (own / "data.csv").write_text("a,label\n1,2\n3,0\n")
    assert plan_of(read_device(file)).task.data.y.tolist() == [2]
    (own / "columns.json").unlink()
    with pytest.raises(DataError, match=r"data\.csv is a table, and .*columns\.json is missing"):
        plan_of(read_device(file))

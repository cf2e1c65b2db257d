"""Data that say which device holds which samples."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file
from support.arrays import GOOD

import gossamer as gs
from gossamer.network import Links, Network
from gossamer.study import spec
from gossamer.tasks.own_devices import describe_matching, split_by_owner

NAMES = st.lists(st.sampled_from(["r1", "r2", "r10", "base", "R3"]), min_size=1, max_size=40)


def data_of(names: list[str]) -> gs.Data:
    x = np.arange(len(names), dtype=np.float64).reshape(-1, 1)
    y = np.arange(len(names)) % 2
    return gs.from_arrays(x, y * 0, x, y * 0, devices=names)


@given(NAMES, st.randoms())
def test_every_device_gets_its_own_samples(names: list[str], random) -> None:
    data = data_of(names)
    network = list(data.device_names)
    split = split_by_owner(data, None, len(network))
    random.shuffle(network)
    matched = split_by_owner(data, network, len(network))
    for number, name in enumerate(data.device_names):
        own = [i for i, held in enumerate(names) if held == name]
        assert split.of(number).tolist() == own
        assert matched.of(network.index(name)).tolist() == own
    others = [f"{name}'" for name in network]
    other = split_by_owner(data, others, len(network))
    assert other.index.tolist() == split.index.tolist()


def test_datasets_of_devices() -> None:
    sets = {}
    for name, count in (("b", 2), ("a", 3)):
        x = torch.full((count, 2), float(count))
        sets[name] = torch.utils.data.TensorDataset(x, torch.zeros(count, dtype=torch.int64))
    data = gs.from_dataset(sets, sets["a"])
    assert data.device_names == ("a", "b")
    assert data.x[:, 0].tolist() == [2, 2, 3, 3, 3]
    assert data.owner.tolist() == [1, 1, 0, 0, 0]
    with pytest.raises(gs.InputError, match="train = 'a dataset of 0 samples'"):
        gs.from_dataset({}, sets["a"])


def test_devices_of_a_contact_log_are_matched_by_name(tmp_path: Path) -> None:
    log = tmp_path / "contacts.csv"
    log.write_text("time,a,b\n0,nurse 7,doctor 2\n20,doctor 2,nurse 5\n40,nurse 5,nurse 7\n")
    network = gs.ContactTrace(log, seconds_per_round=20)
    assert network.names is not None
    data = data_of(["nurse 7", "nurse 5", "doctor 2", "nurse 5"])
    split = gs.Study(network=network, data=data, rounds=3).plan().task.split
    held = {name: split.of(i).tolist() for i, name in enumerate(network.names)}
    assert held == {"doctor 2": [2], "nurse 5": [1, 3], "nurse 7": [0]}


def test_names_are_in_the_order_that_people_expect() -> None:
    data = data_of(["van 10", "van 9", "bus", "van 9"])
    assert data.device_names == ("bus", "van 9", "van 10")
    assert data.owner.tolist() == [2, 1, 0, 1]


@dataclass(frozen=True)
class Named(Network):
    """A ring of devices with names."""

    names: tuple[str, ...] = ()

    @property
    def devices(self) -> int:  # type: ignore[override]
        return len(self.names)

    def links(self, t: int) -> Links:
        return gs.Ring(len(self.names)).links(t)


class Messages(gs.Observer):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def message(self, text: str) -> None:
        self.texts.append(text)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("c", "a", "b"), "matched to the devices of the network by name"),
        (("x", "y", "z"), "the network has other names"),
    ],
)
def test_a_run_says_how_devices_are_matched(names: tuple[str, ...], said: str) -> None:
    data = data_of(["a", "b", "b", "c", "c", "c"])
    study = gs.Study(gs.DPSGD(eta=0.1), Named(names), data, rounds=1, batch=1)
    messages = Messages()
    gs.run(study, observers=[messages])
    (text,) = messages.texts
    assert said in text
    assert "3 devices" in text
    sizes = dict(zip(names, study.plan().task.split.sizes.tolist(), strict=True))
    if "by name" in text:
        assert sizes == {"a": 1, "b": 2, "c": 3}
    else:
        assert list(sizes.values()) == [1, 2, 3]
    assert describe_matching(gs.Digits().load(), names) == ""


def test_a_split_beside_own_devices_and_another_number_of_devices_are_refused() -> None:
    data = data_of(["a", "b", "b"])
    with pytest.raises(gs.InputError, match=r"split = 'Dirichlet' .*which device holds which"):
        gs.Study(data=data, split=gs.Dirichlet(), network=gs.Ring(2))
    with pytest.raises(
        gs.InputError, match=r"network.devices = 4 .*give 2, since arrays .*\(a, b\)"
    ):
        gs.Study(data=data, network=gs.Ring(4)).plan()
    for devices in (["a"], ["a", "b", ""]):
        with pytest.raises(gs.InputError, match="devices = "):
            gs.from_arrays(np.eye(3), [0, 1, 1], np.eye(3), [0, 1, 1], devices=devices)


@given(NAMES.filter(lambda names: len(set(names)) < len(names)), st.floats(0.01, 0.9))
def test_validation_leaves_every_device_a_sample(names: list[str], share: float) -> None:
    whole = data_of(names)
    if np.ceil(share * whole.samples) >= whole.samples:
        return
    data = gs.Validation(Given(whole), share=share).load()
    assert data.owner is not None
    assert set(data.owner.tolist()) == set(range(len(data.device_names)))
    assert data.samples + len(data.x_test) == whole.samples
    for x, owner in zip(data.x[:, 0].int().tolist(), data.owner.tolist(), strict=True):
        assert names[x] == data.device_names[owner]  # x is the sample's number


@dataclass(frozen=True)
class Given:
    """A source of data that are loaded already."""

    data: gs.Data

    def load(self) -> gs.Data:
        return self.data


def test_a_spec_of_a_folder_of_tables(tmp_path: Path) -> None:
    folder = tmp_path / "robots"
    folder.mkdir()
    for name in ("one", "two"):
        rows = "".join(f"{i},{i % 2}\n" for i in range(10))
        (folder / f"{name}.csv").write_text("a,label\n" + rows)
    table = {
        "data": {"kind": "table", "path": str(folder), "target": "label"},
        "network": {"kind": "ring", "devices": 2},
        "rounds": 2,
    }
    (study,) = spec.studies(table)
    assert study.plan().task.split.sizes.tolist() == [8, 8]
    written = spec.to_table(study)
    assert "split" not in written
    assert spec.studies(written) == [study]
    with pytest.raises(spec.SpecError, match=r"split is not accepted: .*data\.pooled = true"):
        spec.studies(table | {"split": "iid"})
    data = {"kind": "table", "path": str(folder), "target": "label", "pooled": True}
    (pooled,) = spec.studies(table | {"split": "one-label", "data": data})
    assert pooled.plan().task.split.sizes.tolist() == [8, 8]
    assert spec.studies(spec.to_table(pooled)) == [pooled]


def write_arrays(folder: Path, name: str, kind: str, **changes: np.ndarray) -> None:
    folder.mkdir(exist_ok=True)
    if kind == "npz":
        np.savez(folder / f"{name}.npz", **(GOOD | changes))
    else:
        save_file(GOOD | changes, folder / f"{name}.safetensors")


def test_a_file_of_arrays_per_device(tmp_path: Path) -> None:
    folder = tmp_path / "fleet"
    write_arrays(folder, "n10", "npz", x=np.full((6, 4), 10.0))
    write_arrays(folder, "n2", "safetensors", x=np.full((6, 4), 2.0))
    source = gs.Arrays(folder)
    data = source.load()
    assert source.brings_devices
    assert data.device_names == ("n2", "n10")
    assert torch.equal(data.x[data.owner == 0], torch.full((6, 4), 2.0))
    assert len(data.x_test) == 2  # the test samples of both are the same
    assert gs.Arrays(folder, pooled=True).load().owner is None
    write_arrays(folder, "n3", "npz", x_test=np.zeros((2, 4)))
    assert len(gs.Arrays(folder).load().x_test) == 6
    write_arrays(folder, "n4", "npz", x=np.zeros((6, 5)), x_test=np.zeros((2, 5)))
    with pytest.raises(gs.DataError, match=r"n4\.npz: x has samples of shape \[5\]"):
        gs.Arrays(folder).load()
    write_arrays(folder, "n4", "safetensors")
    write_arrays(folder, "n4", "npz")
    with pytest.raises(gs.DataError, match=r"two files are of the device 'n4'"):
        gs.Arrays(folder).load()


def test_a_folder_of_npy_files(tmp_path: Path) -> None:
    for name, array in GOOD.items():
        np.save(tmp_path / f"{name}.npy", array)
    source = gs.Arrays(tmp_path)
    assert not source.brings_devices
    assert source.load().samples == 6
    (tmp_path / "y.npy").write_bytes(b"\x93NUMPY\x01\x00")
    with pytest.raises(gs.DataError, match=r"y\.npy is damaged"):
        source.load()
    (tmp_path / "y.npy").unlink()
    with pytest.raises(gs.DataError, match="has no array y"):
        source.load()
    np.save(tmp_path / "y.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(gs.DataError, match="y holds Python objects"):
        source.load()


def test_files_of_torch_save_and_empty_folders_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.pt"
    torch.save({"x": torch.zeros(3)}, path)
    with pytest.raises(gs.InputError, match=r"can run code .*safetensors\.torch\.save_file"):
        gs.Arrays(path).load()
    with pytest.raises(gs.DataError, match=r"holds no \.npz or \.safetensors file"):
        gs.Arrays(tmp_path).load()

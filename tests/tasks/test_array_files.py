"""The user's own data in files of arrays."""

from __future__ import annotations

import contextlib
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch
from support.arrays import GOOD

from gossamer.errors import DataError, InputError
from gossamer.tasks.array_files import Arrays


def write(folder: Path, kind: str, **changes: np.ndarray | None) -> Path:
    arrays = {}
    for name, array in (GOOD | changes).items():
        if array is not None:
            arrays[name] = array
    path = folder / f"mine.{kind}"
    if kind == "npz":
        np.savez(path, **arrays)
    else:
        save_file(arrays, path)
    return path


KINDS = pytest.mark.parametrize("kind", ["npz", "safetensors"])


@KINDS
def test_own_arrays_load(tmp_path: Path, kind: str):
    data = Arrays(write(tmp_path, kind)).load()
    assert (data.samples, data.shape, data.classes, data.name) == (6, (4,), 3, "mine")
    assert (data.x.dtype, data.y.dtype) == (torch.float32, torch.int64)
    assert data.y_test.tolist() == [0, 2]
    regression = Arrays(write(tmp_path, kind, y=np.linspace(0, 1, 6), y_test=np.zeros(2))).load()
    assert regression.classes is None
    assert regression.y.dtype == torch.float32


@KINDS
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"y": None}, "has no array y; it must hold x, y, x_test, y_test"),
        ({"y": np.zeros(5, dtype=np.int64)}, "y = '5 targets'.*as many as x has samples, 6"),
        ({"x_test": np.ones((2, 5))}, r"x_test = \[5\].*the shape that x has, \[4\]"),
        ({"x": np.full((6, 4), np.nan)}, "x = 'NaN or infinity in sample 0'"),
        (
            {"x_test": np.array([[1, 2, 3, 4], [1, np.inf, 3, 4]])},
            "x_test = 'NaN or infinity in sample 1'",
        ),
        ({"x": np.full((6, 4), 1e300)}, "x = .*finite numbers within float32"),
        ({"x": np.zeros(6)}, r"x = \[6\].*\[samples, …features\]"),
        (
            {"x": np.zeros((0, 4)), "y": np.zeros(0, dtype=np.int64)},
            r"x = \[0, 4\].*at least one sample",
        ),
        ({"y": np.array([0, 1, 2, 0, 1, -1])}, "y = -1.*labels from 0"),
        ({"y": np.array([0, 1, 2, 0, 1, 2**62])}, f"y = {2**62}.*labels from 0"),
        ({"y": np.zeros((6, 1), dtype=np.int64)}, r"y = \[6, 1\].*labels as an array \[samples\]"),
        ({"y": np.linspace(0, 1, 6)}, "y_test = 'torch.int64'.*the same kind of targets as y"),
        ({"y": np.full(6, np.nan), "y_test": np.zeros(2)}, "y = 'NaN or infinity"),
    ],
)
def test_unfit_arrays_are_refused_with_the_file_named(
    tmp_path: Path, kind: str, changes: dict, said: str
):
    path = write(tmp_path, kind, **changes)
    with pytest.raises(DataError, match=said) as refusal:
        Arrays(path).load()
    assert str(path) in str(refusal.value)


def test_objects_are_refused_before_they_are_read(tmp_path: Path):
    path = write(tmp_path, "npz", y=np.array([0, "a", None, 1, 2, 3], dtype=object))
    with pytest.raises(DataError, match=r"mine.npz: the array y holds Python objects"):
        Arrays(path).load()


def test_text_and_complex_numbers_are_refused(tmp_path: Path):
    for array, kind in (
        (np.array([["a"] * 4] * 6), "text such as a"),
        (np.zeros((6, 4), dtype=complex), "complex128"),
    ):
        with pytest.raises(DataError, match=f"x = '{kind}'"):
            Arrays(write(tmp_path, "npz", x=array)).load()


def npz_with(path: Path, x: bytes) -> Path:
    write(path.parent, "npz", x=None).rename(path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("x.npy", x)
    return path


def npy(shape: tuple[int, ...], content: bytes) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer, {"descr": "<f4", "fortran_order": False, "shape": shape}
    )
    return buffer.getvalue() + content


def test_a_header_that_promises_more_than_there_is_takes_no_memory(tmp_path: Path):
    path = npz_with(tmp_path / "lie.npz", npy((10**9, 10**6), bytes(16)))
    with pytest.raises(DataError, match=r"lie.npz: the array x is truncated"):
        Arrays(path).load()


def test_sizes_over_the_limit_are_refused_before_reading(tmp_path: Path, monkeypatch):
    paths = [write(tmp_path, "npz"), write(tmp_path, "safetensors")]
    monkeypatch.setattr("gossamer.tasks.array_files.MAX_BYTES", 300)
    for path in paths:
        with pytest.raises(DataError, match="larger than"):
            Arrays(path).load()
    np.savez_compressed(tmp_path / "bomb.npz", **(GOOD | {"x": np.zeros((6, 10**5))}))
    monkeypatch.setattr("gossamer.tasks.array_files.MAX_BYTES", 10**6)
    with pytest.raises(DataError, match="unpacks to more than"):
        Arrays(tmp_path / "bomb.npz").load()


@pytest.mark.filterwarnings("ignore::gossamer.DataWarning")
@KINDS
@settings(max_examples=60)
@given(share=st.floats(0, 0.999), flip=st.integers(0, 7))
def test_a_damaged_file_gives_a_sentence_or_the_data(
    tmp_path_factory, kind: str, share: float, flip: int
):
    folder = tmp_path_factory.mktemp("damaged")
    content = bytearray(write(folder, kind).read_bytes())
    cut = folder / f"cut.{kind}"
    bent = folder / f"bent.{kind}"
    cut.write_bytes(content[: int(len(content) * share)])
    content[int(len(content) * share)] ^= 1 << flip
    bent.write_bytes(content)
    with pytest.raises(DataError, match="cut"):
        Arrays(cut).load()
    with contextlib.suppress(DataError):  # any other error is a failure
        assert Arrays(bent).load().samples == 6


def test_other_files_are_refused(tmp_path: Path):
    with pytest.raises(DataError, match=r"there is no file .*none\.npz"):
        Arrays(tmp_path / "none.npz").load()
    with pytest.raises(InputError, match=r"path = .*a file that ends in \.npz or \.safetensors"):
        Arrays(tmp_path / "data.csv").load()
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(DataError, match=r"not an \.npz file"):
        Arrays(tmp_path / "text.npz").load()


def test_half_precision_tensors_load(tmp_path: Path):
    tensors = {name: torch.from_numpy(array) for name, array in GOOD.items()}
    save_torch(
        tensors | {"x": torch.full((6, 4), 1.5, dtype=torch.bfloat16)},
        tmp_path / "half.safetensors",
    )
    assert Arrays(tmp_path / "half.safetensors").load().x.unique().tolist() == [1.5]

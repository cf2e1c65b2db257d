"""The data sets, and data from arrays and data sets in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from gossamer.errors import InputError
from gossamer.tasks import download
from gossamer.tasks.array_files import Arrays
from gossamer.tasks.data import Data, from_arrays, from_dataset
from gossamer.tasks.image_sets import (
    DOWNLOADABLE,
    Cifar10,
    Digits,
    FashionMnist,
    Mnist,
    _read_digits,
)
from gossamer.tasks.originals import ORIGINALS
from gossamer.tasks.packed_files import verify


def test_digits_have_a_fixed_split():
    data = Digits().load()
    again = Digits().load()
    assert (data.samples, len(data.x_test), data.shape, data.classes) == (1437, 360, (1, 8, 8), 10)
    assert data.x.equal(again.x)
    assert not data.x.equal(Digits(seed=1).load().x)
    whole = torch.cat([data.x, data.x_test])
    assert abs(whole.mean().item()) < 1e-3
    assert whole.std().item() == pytest.approx(1, abs=1e-3)
    counts = torch.bincount(torch.cat([data.y, data.y_test])).tolist()
    assert counts == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    rows = {image.numpy().tobytes() for image in data.x} & {
        image.numpy().tobytes() for image in data.x_test
    }
    assert not rows  # no image is in both sets
    for test in (0, 1797):
        with pytest.raises(InputError, match="test = "):
            Digits(test=test)


@pytest.mark.data
def test_mnist(mnist: Data):
    assert (mnist.samples, mnist.shape, mnist.classes) == (60_000, (1, 28, 28), 10)
    assert torch.bincount(mnist.y).tolist() == [
        5923,
        6742,
        5958,
        6131,
        5842,
        5421,
        5918,
        6265,
        5851,
        5949,
    ]
    assert torch.bincount(mnist.y_test).tolist() == [
        980,
        1135,
        1032,
        1010,
        982,
        892,
        958,
        1028,
        974,
        1009,
    ]
    assert abs(mnist.x.mean().item()) < 1e-3
    assert mnist.x.std().item() == pytest.approx(1, abs=1e-3)
    assert mnist.y[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]


@pytest.mark.data
def test_cifar10(cifar10: Data):
    assert (cifar10.samples, cifar10.shape, cifar10.classes) == (50_000, (3, 32, 32), 10)
    assert torch.bincount(cifar10.y).tolist() == [5000] * 10
    assert torch.bincount(cifar10.y_test).tolist() == [1000] * 10
    assert cifar10.x.mean((0, 2, 3)).abs().max() < 1e-3
    assert (cifar10.x.std((0, 2, 3)) - 1).abs().max() < 1e-3
    assert cifar10.y[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]


@pytest.mark.data
def test_get_from_a_folder_with_the_real_files(data_dir: Path, tmp_path: Path):
    assert download.get("mnist", source_dir=data_dir, cache=tmp_path) == tmp_path / "mnist"
    verify("mnist", tmp_path / "mnist")


def test_from_arrays_takes_numpy_torch_and_lists_and_copies():
    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    data = from_arrays(x, torch.arange(6), torch.zeros(2, 4, requires_grad=True), [0, 1])
    x[:] = -1
    assert data.x[0].tolist() == [0, 1, 2, 3]
    assert data.classes == 6
    assert not data.x_test.requires_grad
    assert from_arrays(x.astype(">f8"), np.arange(6) < 3, x[:1], [False]).classes == 2
    with pytest.raises(InputError, match="ragged"):
        from_arrays([[1, 2], [3]], [0, 1], [[1, 2]], [0])


def test_from_dataset_reads_map_and_iterable_datasets():
    x = torch.arange(24.0).reshape(6, 4)
    y = torch.arange(6) % 3
    train = torch.utils.data.TensorDataset(x, y)

    class Counted(torch.utils.data.Dataset):
        """A dataset that never raises IndexError, of arrays and Python numbers."""

        def __len__(self) -> int:
            return 2

        def __getitem__(self, i: int) -> tuple[np.ndarray, int]:
            return np.full(4, i, dtype=np.float64), i

    class Streamed(torch.utils.data.IterableDataset):
        def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
            return iter([(torch.ones(4), 1), (torch.zeros(4), 0)])

    data = from_dataset(train, Counted(), name="fleet")
    assert data.x.equal(x)
    assert data.y.equal(y)
    assert data.x_test.tolist() == [[0] * 4, [1] * 4]
    assert (data.name, data.classes) == ("fleet", 3)
    assert from_dataset(train, Streamed()).y_test.tolist() == [1, 0]
    with pytest.raises(InputError, match="test = 'a dataset of 0 samples'"):
        from_dataset(train, torch.utils.data.Subset(train, []))
    with pytest.raises(InputError, match=r"train = .*samples of one shape"):
        from_dataset([(torch.ones(2), 0), (torch.ones(3), 0)], train)


def test_sources_are_plain_values():
    assert Mnist() == Mnist(None)
    assert len({Digits(), Digits(), Mnist(), FashionMnist(), Cifar10(), Arrays(Path("a.npz"))}) == 5
    assert set(DOWNLOADABLE) == set(ORIGINALS)


def test_the_digits_equal_scikit_learns() -> None:
    from sklearn.datasets import load_digits

    for found, expected in zip(_read_digits(), load_digits(return_X_y=True), strict=True):
        assert np.array_equal(found, expected)
        assert found.dtype == expected.dtype

"""Public sets of images: digits, MNIST, Fashion-MNIST and CIFAR-10."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer import draws
from gossamer._core import checks
from gossamer._core.registry import register
from gossamer.errors import DataError
from gossamer.tasks.data import Data, from_arrays
from gossamer.tasks.download import cache_folder
from gossamer.tasks.originals import original
from gossamer.tasks.packed_files import contents

_DIGITS = 1797  # images of scikit-learn's set

# A CIFAR-10 record: one byte for the label, then the pixels colour by colour.
_CIFAR_SHAPE = (3, 32, 32)
_CIFAR_RECORD = 1 + math.prod(_CIFAR_SHAPE)
_CIFAR_MEAN = (0.4914, 0.4822, 0.4465)  # per colour channel
_CIFAR_STD = (0.2470, 0.2435, 0.2616)


@register("data", "digits")
@dataclass(frozen=True)
class Digits:
    """scikit-learn's digits: 1,797 images of 8×8 pixels, 10 classes. No download is needed.

    Pixels are scaled to mean 0 and variance 1 over the whole set.

    Args:
        test: Number of test images.
        seed: Seed of the draw of the test images. It is not the study's seed: all studies test on
            the same images.

    Raises:
        InputError: If `test` leaves no image to train or to test on.

    Example:
        >>> Digits().load().shape
        (1, 8, 8)
    """

    test: int = 360
    seed: int = 0

    def __post_init__(self) -> None:
        checks.whole("test", self.test, 1, _DIGITS - 1)

    def load(self) -> Data:
        pixels, labels = _read_digits()
        x = _scaled(pixels.reshape(-1, 1, 8, 8), 16, 0.3053, 0.3760)
        order = draws.permutation(len(x), self.seed, "digits")
        train = order[self.test :]
        test = order[: self.test]
        return from_arrays(x[train], labels[train], x[test], labels[test], name="digits")


@cache
def _read_digits() -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Read scikit-learn's file of digits: importing scikit-learn takes longer than all else.

    Reading takes as long as dozens of rounds, so the result is kept; callers must not change it.
    """
    package = find_spec("sklearn")
    if package is not None and package.origin is not None:
        file = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
        if file.exists():  # another version may keep it elsewhere
            table = np.loadtxt(file, delimiter=",")  # loadtxt also reads .gz
            return table[:, :-1], table[:, -1].astype(np.int64)
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    return pixels, labels


@register("data", "mnist")
@dataclass(frozen=True)
class Mnist:
    """MNIST: 60,000 + 10,000 images of 28×28 pixels, 10 classes.

    Pixels are (v/255 − 0.1307)/0.3081. The contents are verified by their hashes;
    `gossamer data get mnist` downloads them.

    Args:
        folder: Folder with the idx files, raw or as .gz (None: the cache folder).

    Example:
        >>> Mnist().load().samples  # doctest: +SKIP
        60000
    """

    folder: Path | None = None

    def load(self) -> Data:
        return _from_idx("mnist", self.folder, mean=0.1307, std=0.3081)


@register("data", "fashion-mnist")
@dataclass(frozen=True)
class FashionMnist:
    """Fashion-MNIST: 60,000 + 10,000 images of 28×28 pixels, 10 classes.

    Pixels are (v/255 − 0.2860)/0.3530. The contents are verified by their hashes;
    `gossamer data get fashion-mnist` downloads them.

    Args:
        folder: Folder with the idx files, raw or as .gz (None: the cache folder).

    Example:
        >>> FashionMnist().load().samples  # doctest: +SKIP
        60000
    """

    folder: Path | None = None

    def load(self) -> Data:
        return _from_idx("fashion-mnist", self.folder, mean=0.2860, std=0.3530)


@register("data", "cifar10")
@dataclass(frozen=True)
class Cifar10:
    """CIFAR-10: 50,000 + 10,000 images of 3×32×32 pixels, 10 classes.

    Each colour is scaled to mean 0 and variance 1. The contents are verified by their hashes;
    `gossamer data get cifar10` downloads them.

    Args:
        folder: Folder with the binary batches, raw or in a .tar.gz (None: the cache folder).

    Example:
        >>> Cifar10().load().samples  # doctest: +SKIP
        50000
    """

    folder: Path | None = None

    def load(self) -> Data:
        train = []
        test = None
        for file, content in contents("cifar10", _folder("cifar10", self.folder)):
            records = np.frombuffer(content, dtype=np.uint8)
            if len(records) == 0 or len(records) % _CIFAR_RECORD:
                raise DataError(
                    f"cifar10: {file} is not a batch of records of {_CIFAR_RECORD:,} bytes"
                )
            records = records.reshape(-1, _CIFAR_RECORD)
            if file == "test_batch.bin":
                test = records
            else:
                train.append(records)
        assert test is not None  # `contents` yields every file
        x, y = _cifar_samples(np.concatenate(train))
        x_test, y_test = _cifar_samples(test)
        return Data(x, y, x_test, y_test, name="cifar10", classes=10)


def _cifar_samples(records: NDArray[np.uint8]) -> tuple[Tensor, Tensor]:
    """Return the images and labels of some records."""
    images = records[:, 1:].reshape(-1, *_CIFAR_SHAPE)
    labels = records[:, 0].astype(np.int64)
    x = torch.empty(images.shape)
    for colour, (mean, std) in enumerate(zip(_CIFAR_MEAN, _CIFAR_STD, strict=True)):
        x[:, colour] = scaled_bytes(images[:, colour], mean, std)
    return x, torch.from_numpy(labels)


DOWNLOADABLE: dict[str, type[Mnist | FashionMnist | Cifar10]] = {
    "mnist": Mnist,
    "fashion-mnist": FashionMnist,
    "cifar10": Cifar10,
}
"""The sources that `gossamer data get` downloads, by name."""


def scaled_bytes(pixels: NDArray[np.uint8], mean: float, std: float) -> Tensor:
    """Return (pixels/255 − mean)/std, rounded once.

    The kernels can then read the pixels as bytes (`backend.Samples`).

    Args:
        pixels: The pixels.
        mean: Mean of the scaled pixels.
        std: Their standard deviation.

    Example:
        >>> scaled_bytes(np.array([0, 255], np.uint8), mean=0.5, std=0.5)
        tensor([-1.0000,  1.0000])
    """
    step = np.float32(1 / (255 * std))
    zero = np.float32(-mean / std)
    value = np.arange(256) * np.float64(step) + np.float64(zero)
    return torch.from_numpy(value.astype(np.float32)[pixels])


def _scaled(pixels: NDArray[Any], top: float, mean: Any, std: Any) -> NDArray[np.float32]:
    """Return (pixels/top − mean)/std, computed in place in one new array."""
    x = pixels.astype(np.float32)
    x /= top
    x -= mean
    x /= std
    return x


def _folder(name: str, folder: Path | None) -> Path:
    if folder is None:
        return cache_folder() / original(name).folders[0]
    return Path(folder).expanduser()


def _from_idx(name: str, folder: Path | None, mean: float, std: float) -> Data:
    arrays = {}
    for file, content in contents(name, _folder(name, folder)):
        arrays[file] = _read_idx(f"{name}: {file}", content)
    return Data(
        x=scaled_bytes(arrays["train-images-idx3-ubyte"][:, None], mean, std),
        y=torch.from_numpy(arrays["train-labels-idx1-ubyte"].astype(np.int64)),
        x_test=scaled_bytes(arrays["t10k-images-idx3-ubyte"][:, None], mean, std),
        y_test=torch.from_numpy(arrays["t10k-labels-idx1-ubyte"].astype(np.int64)),
        name=name,
        classes=10,
    )


def _read_idx(where: str, content: bytes) -> NDArray[np.uint8]:
    """Read an idx file of bytes.

    It has the bytes 0, 0, 8, the number of axes, their lengths (big-endian), then the values.
    """
    axes = 0
    if content[:3] == b"\0\0\x08" and len(content) >= 4:
        axes = content[3]
    start = 4 + 4 * axes
    shape: list[int] = []
    if axes and len(content) >= start:
        shape = np.frombuffer(content[4:start], dtype=">u4").tolist()
    if not shape or start + math.prod(shape) != len(content):
        raise DataError(f"{where} is not an idx file of bytes, or not a whole one")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)

"""What is learned from: training and test samples as tensors, and the sources that they come from.

A source is a frozen dataclass; `load()` reads it.

    >>> Digits().load().shape
    (1, 8, 8)
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from gossamer import draws
from gossamer._core.registry import register
from gossamer.errors import DataError, InputError
from gossamer.tasks import download

MAX_BYTES = 64 << 30
"""The largest file of arrays that is read."""
MAX_CLASSES = 100_000
"""A label beyond this is taken for a mistake (an identifier, say), since the model gets an output for every class."""

_NAMES = ("x", "y", "x_test", "y_test")


@dataclass(frozen=True, eq=False)
class Data:
    """Samples to train on and to test on.

    x is float32 [samples, …features]. y is int64 labels 0 … classes-1 [samples], or float32 targets [samples, …] where
    classes is None (regression).
    """

    x: torch.Tensor
    y: torch.Tensor
    x_test: torch.Tensor
    y_test: torch.Tensor
    name: str
    classes: int | None

    @property
    def samples(self) -> int:
        """How many samples there are to train on."""
        return len(self.x)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.x.shape[1:])

    def __repr__(self) -> str:
        """One line with a checksum: it goes into the spec of a run, where it tells these samples from others."""
        checksum = 0
        for part in (self.x, self.y, self.x_test, self.y_test):
            checksum = zlib.crc32(part.contiguous().numpy().data, checksum)
        about = f"{self.samples} samples of shape {self.shape}, classes={self.classes}, crc32={checksum:08x}"
        return f"Data({self.name!r}, {about})"


class Source(Protocol):
    """Anything that data can be loaded from."""

    def load(self) -> Data: ...


@register("data", "digits")
@dataclass(frozen=True)
class Digits:
    """scikit-learn's embedded digits: 1,797 images of 8×8 pixels, 10 classes; needs no download.

    Pixels 0 … 16 are scaled to mean 0 and variance 1 over the whole set, as is usual for MNIST. The `test` images are
    chosen by a draw from `seed`, which is not the study's seed: all studies test on the same images.
    """

    test: int = 360
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.test <= 1796:
            raise InputError("test", self.test, "a whole number from 1 to 1796")

    def load(self) -> Data:
        pixels, labels = _digits()
        x = _scaled(pixels.reshape(-1, 1, 8, 8), 16, 0.3053, 0.3760)
        order = draws.permutation(len(x), self.seed, "digits")
        train, test = order[self.test :], order[: self.test]
        return from_arrays(x[train], labels[train], x[test], labels[test], name="digits")


def _digits() -> tuple[NDArray[Any], NDArray[np.int64]]:
    """scikit-learn's digits, from its file: to import it for that takes longer than all else at the start of a run."""
    found = find_spec("sklearn")
    file = (
        Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz"
        if found and found.origin
        else None
    )
    if file is None or not file.exists():  # another version may keep it elsewhere
        from sklearn.datasets import load_digits

        pixels, labels = load_digits(return_X_y=True)
        return pixels, labels
    table = np.loadtxt(file, delimiter=",")  # it reads .gz too
    return table[:, :-1], table[:, -1].astype(np.int64)


@register("data", "mnist")
@dataclass(frozen=True)
class Mnist:
    """MNIST: 60,000 + 10,000 images of 28×28 pixels, 10 classes, from its idx files in `folder` (None: the cache).

    Pixels are (v/255 - 0.1307)/0.3081. The files are verified by hash. `gossamer data get mnist` brings them.
    """

    folder: Path | None = None

    def load(self) -> Data:
        return _from_idx("mnist", self.folder, mean=0.1307, std=0.3081)


@register("data", "fashion-mnist")
@dataclass(frozen=True)
class FashionMnist:
    """Fashion-MNIST: 60,000 + 10,000 images of 28×28 pixels, 10 classes, from its idx .gz files in `folder`.

    Pixels are (v/255 - 0.2860)/0.3530. The files are verified by hash. `gossamer data get fashion-mnist` brings them.
    """

    folder: Path | None = None

    def load(self) -> Data:
        return _from_idx("fashion-mnist", self.folder, mean=0.2860, std=0.3530)


@register("data", "cifar10")
@dataclass(frozen=True)
class Cifar10:
    """CIFAR-10: 50,000 + 10,000 images of 3×32×32 pixels, 10 classes, from its binary batches in `folder`.

    Each colour is scaled to mean 0 and variance 1. The files are verified by hash. `gossamer data get cifar10` brings
    them.
    """

    folder: Path | None = None

    def load(self) -> Data:
        mean = np.array([0.4914, 0.4822, 0.4465], dtype=np.float32).reshape(3, 1, 1)
        std = np.array([0.2470, 0.2435, 0.2616], dtype=np.float32).reshape(3, 1, 1)
        images, labels = {}, {}
        for file, content in download.contents("cifar10", _folder("cifar10", self.folder)):
            records = np.frombuffer(content, dtype=np.uint8)
            if len(records) == 0 or len(records) % 3073:
                raise DataError(f"cifar10: {file} is not a batch of records of 3,073 bytes")
            records = records.reshape(-1, 3073)
            labels[file], images[file] = records[:, 0], records[:, 1:].reshape(-1, 3, 32, 32)
        test = "test_batch.bin"
        train = [file for file in images if file != test]
        return Data(
            x=torch.from_numpy(
                _scaled(np.concatenate([images[file] for file in train]), 255, mean, std)
            ),
            y=torch.from_numpy(np.concatenate([labels[file] for file in train]).astype(np.int64)),
            x_test=torch.from_numpy(_scaled(images[test], 255, mean, std)),
            y_test=torch.from_numpy(labels[test].astype(np.int64)),
            name="cifar10",
            classes=10,
        )


DOWNLOADABLE: dict[str, type[Mnist | FashionMnist | Cifar10]] = {
    "mnist": Mnist,
    "fashion-mnist": FashionMnist,
    "cifar10": Cifar10,
}
"""The sources that `gossamer data get` brings, by the name that it knows them by."""


@register("data", "arrays")
@dataclass(frozen=True)
class Arrays:
    """The user's own data: an .npz or .safetensors file with the arrays x, y, x_test and y_test.

    Whole-numbered y are labels 0 … C-1; floating y are regression targets.

        np.savez("fleet.npz", x=x, y=y, x_test=x_test, y_test=y_test)
        data = Arrays(Path("fleet.npz")).load()
    """

    path: Path

    def load(self) -> Data:
        path = Path(self.path).expanduser()
        if path.suffix not in (".npz", ".safetensors"):
            raise InputError("path", str(path), "a file that ends in .npz or .safetensors")
        arrays = (
            read_npz(path, _NAMES) if path.suffix == ".npz" else _read_safetensors(path, _NAMES)
        )
        try:
            return from_arrays(**arrays, name=path.stem)
        except InputError as error:
            raise DataError(f"{path}: {error}") from error


@register("data", "validation")
@dataclass(frozen=True)
class Validation:
    """Other data for choosing on: a share of the *training* samples, by a named draw, takes the place of the test samples.

    They are no longer trained on, and the true test samples are not looked at: what is chosen here can be tested there.

    >>> data, whole = Validation(Digits(), share=0.1).load(), Digits().load()
    >>> data.samples + len(data.x_test) == whole.samples
    True
    """

    data: Source
    share: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise InputError("share", self.share, "a number above 0 and below 1")
        if hasattr(self.data, "split"):
            raise InputError(
                "data",
                type(self.data).__name__,
                "data that are not synthetic: those have no test samples",
            )

    def load(self) -> Data:
        whole = self.data.load()
        held = math.ceil(self.share * whole.samples)
        if held >= whole.samples:
            raise InputError(
                "share",
                self.share,
                f"a share that leaves some of the {whole.samples} samples to train on",
            )
        order = torch.from_numpy(draws.permutation(whole.samples, self.seed, "validation"))
        # in their own order: a split by rule then deals them out much as it would the whole
        test, train = order[:held].sort().values, order[held:].sort().values
        return Data(
            whole.x[train], whole.y[train], whole.x[test], whole.y[test], whole.name, whole.classes
        )


def from_arrays(
    x: ArrayLike | torch.Tensor,
    y: ArrayLike | torch.Tensor,
    x_test: ArrayLike | torch.Tensor,
    y_test: ArrayLike | torch.Tensor,
    name: str = "arrays",
) -> Data:
    """Data from NumPy arrays or tensors, checked and copied.

    >>> from_arrays(np.eye(3), [0, 1, 2], np.eye(3), [0, 1, 2]).classes
    3
    """
    tensors = {"x": _samples("x", x), "y": _targets("y", y)}
    tensors |= {"x_test": _samples("x_test", x_test), "y_test": _targets("y_test", y_test)}
    for inputs, targets in (("x", "y"), ("x_test", "y_test")):
        if len(tensors[inputs]) != len(tensors[targets]):
            accepted = f"as many as {inputs} has samples, {len(tensors[inputs])}"
            raise InputError(targets, f"{len(tensors[targets])} targets", accepted)
    for train, test in (("x", "x_test"), ("y", "y_test")):
        if tensors[train].shape[1:] != tensors[test].shape[1:]:
            accepted = (
                f"the shape that {train} has, {list(tensors[train].shape[1:])}, for each sample"
            )
            raise InputError(test, list(tensors[test].shape[1:]), accepted)
        if tensors[train].dtype != tensors[test].dtype:
            raise InputError(test, str(tensors[test].dtype), f"the same kind of targets as {train}")
    labelled = tensors["y"].dtype == torch.int64
    classes = int(max(tensors["y"].max(), tensors["y_test"].max())) + 1 if labelled else None
    return Data(**tensors, name=name, classes=classes)


def from_dataset(train: Iterable[Any], test: Iterable[Any], name: str = "dataset") -> Data:
    """Data from torch datasets (or any sequences) of pairs (x, y), read once and stacked.

    data = from_dataset(torchvision.datasets.EMNIST(…, train=True, transform=ToTensor()), …)
    """
    return from_arrays(*_stacked("train", train), *_stacked("test", test), name=name)


def read_npz(path: Path, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """The named arrays of an .npz file. Their sizes are checked before any is read; pickled objects are refused."""
    _check_size(path)
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = {member.filename: member.file_size for member in archive.infolist()}
            _check_names(path, {file.removesuffix(".npy") for file in sizes}, names)
            if sum(sizes[f"{name}.npy"] for name in names) > MAX_BYTES:
                raise DataError(f"{path} unpacks to more than {MAX_BYTES >> 30} GiB")
            for name in names:
                with archive.open(f"{name}.npy") as stream:
                    _check_header(path, name, stream, sizes[f"{name}.npy"])
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in names}
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        ValueError,
        OSError,
        RuntimeError,
        NotImplementedError,
    ) as error:
        raise DataError(f"{path} is damaged or not an .npz file: {error}") from error


def _check_header(path: Path, name: str, stream: Any, size: int) -> None:
    """Refuse objects, and an array whose header promises another size than the file has."""
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise DataError(f"{path}: the array {name} has an unknown format, version {version}")
    read = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    shape, _, dtype = read(stream)
    if dtype.hasobject:
        raise DataError(f"{path}: the array {name} holds Python objects; give an array of numbers")
    if stream.tell() + math.prod(shape) * dtype.itemsize != size:
        raise DataError(
            f"{path}: the array {name} is truncated: its header promises the shape {shape}"
        )


def _read_safetensors(path: Path, names: tuple[str, ...]) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError, safe_open

    _check_size(path)
    try:
        with safe_open(path, framework="pt") as file:
            _check_names(path, set(file.keys()), names)
            return {name: file.get_tensor(name) for name in names}
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path} is damaged or not a .safetensors file: {error}") from error


def _check_size(path: Path) -> None:
    if not path.is_file():
        raise DataError(f"there is no file {path}")
    if path.stat().st_size > MAX_BYTES:
        raise DataError(f"{path} is larger than {MAX_BYTES >> 30} GiB")


def _check_names(path: Path, found: set[str], names: tuple[str, ...]) -> None:
    if missing := [name for name in names if name not in found]:
        raise DataError(
            f"{path} has no array {' and no '.join(missing)}; it must hold {', '.join(names)}"
        )


def _array(field: str, value: ArrayLike | torch.Tensor, kinds: str) -> NDArray[Any]:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        value = (value.float() if value.is_floating_point() else value).numpy()
    try:
        array = np.asarray(value)
    except ValueError as error:  # lists of unequal lengths
        raise InputError(field, "a ragged list", "an array of numbers") from error
    if array.dtype.kind not in kinds:
        raise InputError(field, str(array.dtype), "an array of numbers")
    if array.ndim == 0 or array.size == 0:
        raise InputError(field, list(array.shape), "an array with at least one sample")
    return array


def _samples(field: str, value: ArrayLike | torch.Tensor) -> torch.Tensor:
    array = _array(field, value, "buif")
    if array.ndim < 2:
        raise InputError(field, list(array.shape), "an array [samples, …features]")
    return _finite(field, array)


def _targets(field: str, value: ArrayLike | torch.Tensor) -> torch.Tensor:
    array = _array(field, value, "buif")
    if array.dtype.kind == "f":
        return _finite(field, array)
    if array.ndim != 1:
        raise InputError(field, list(array.shape), "labels as an array [samples]")
    if (low := array.min()) < 0 or (high := array.max()) >= MAX_CLASSES:
        raise InputError(
            field, int(low if low < 0 else high), f"labels from 0 to C-1, C at most {MAX_CLASSES}"
        )
    return torch.from_numpy(array.astype(np.int64))


def _finite(field: str, array: NDArray[Any]) -> torch.Tensor:
    with np.errstate(over="ignore"):  # too large for float32 becomes infinite, and is refused below
        copy = np.array(array, dtype=np.float32, order="C")
    finite = np.isfinite(copy).reshape(len(copy), -1).all(axis=1)
    if not finite.all():
        raise InputError(
            field,
            f"NaN or infinity in sample {int(np.argmin(finite))}",
            "finite numbers within float32",
        )
    return torch.from_numpy(copy)


def _stacked(field: str, dataset: Any) -> tuple[torch.Tensor, torch.Tensor]:
    # A map-style dataset need not raise IndexError at its end, so it is not iterated but counted.
    pairs = (
        (dataset[i] for i in range(len(dataset))) if hasattr(dataset, "__len__") else iter(dataset)
    )
    xs, ys = [], []
    for x, y in pairs:
        xs.append(torch.as_tensor(np.asarray(x) if not isinstance(x, torch.Tensor) else x))
        ys.append(torch.as_tensor(y))
    try:
        return torch.stack(xs), torch.stack(ys)
    except RuntimeError as error:  # no samples, or unequal shapes
        raise InputError(
            field, f"a dataset of {len(xs)} samples", "samples of one shape, at least one"
        ) from error


def _scaled(pixels: NDArray[Any], top: float, mean: Any, std: Any) -> NDArray[np.float32]:
    """(pixels/top - mean)/std, in place in one new array."""
    x = pixels.astype(np.float32)
    x /= top
    x -= mean
    x /= std
    return x


def scaled_bytes(pixels: NDArray[np.uint8], mean: float, std: float) -> torch.Tensor:
    """(pixels/255 - mean)/std, rounded once: so it can be read back from the bytes by one instruction (`kernels.Rows`).

    >>> scaled_bytes(np.array([0, 255], np.uint8), mean=0.5, std=0.5)
    tensor([-1.0000,  1.0000])
    """
    step, zero = np.float32(1 / (255 * std)), np.float32(-mean / std)
    value = np.arange(256) * np.float64(step) + np.float64(zero)
    return torch.from_numpy(value.astype(np.float32)[pixels])


def _folder(name: str, folder: Path | None) -> Path:
    if folder is None:
        return download.cache_folder() / download.ORIGINALS[name].folders[0]
    return Path(folder).expanduser()


def _from_idx(name: str, folder: Path | None, mean: float, std: float) -> Data:
    arrays = {}
    for file, content in download.contents(name, _folder(name, folder)):
        arrays[file.removesuffix(".gz")] = _idx(
            f"{name}: {file}", download.unzip(content, 1 << 26) if file.endswith(".gz") else content
        )
    return Data(
        x=scaled_bytes(arrays["train-images-idx3-ubyte"][:, None], mean, std),
        y=torch.from_numpy(arrays["train-labels-idx1-ubyte"].astype(np.int64)),
        x_test=scaled_bytes(arrays["t10k-images-idx3-ubyte"][:, None], mean, std),
        y_test=torch.from_numpy(arrays["t10k-labels-idx1-ubyte"].astype(np.int64)),
        name=name,
        classes=10,
    )


def _idx(where: str, content: bytes) -> NDArray[np.uint8]:
    """An idx file of bytes: 0, 0, 8, the number of axes, their lengths (big-endian), then the values."""
    axes = content[3] if content[:3] == b"\0\0\x08" and len(content) >= 4 else 0
    start = 4 + 4 * axes
    shape = (
        np.frombuffer(content[4:start], dtype=">u4").tolist()
        if axes and len(content) >= start
        else []
    )
    if not shape or start + math.prod(shape) != len(content):
        raise DataError(f"{where} is not an idx file of bytes, or not a whole one")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)

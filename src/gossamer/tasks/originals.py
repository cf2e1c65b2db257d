"""The public data sets: their files, sizes and hashes, and the mirrors that serve them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from gossamer.errors import InputError, nearest


class Stamp(NamedTuple):
    """Size of a file in bytes, and its hash as "algorithm:digits"."""

    size: int
    hash: str


@dataclass(frozen=True)
class Original:
    """A data set as its authors publish it.

    Args:
        files: The files that the loader reads, unpacked.
        packed: What the mirrors serve: the same files, each as its own .gz or all in one .tar.gz.
        folders: Names that a folder of it usually has, the cache's own first.
        mirrors: Addresses that the packed files are under.
    """

    files: dict[str, Stamp]
    packed: dict[str, Stamp]
    folders: tuple[str, ...]
    mirrors: tuple[str, ...]


_CIFAR10 = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}
_SHA256 = "sha256:"

ORIGINALS: dict[str, Original] = {
    "mnist": Original(
        files={
            "train-images-idx3-ubyte": Stamp(
                47040016,
                _SHA256 + "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            ),
            "train-labels-idx1-ubyte": Stamp(
                60008, _SHA256 + "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"
            ),
            "t10k-images-idx3-ubyte": Stamp(
                7840016,
                _SHA256 + "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            ),
            "t10k-labels-idx1-ubyte": Stamp(
                10008, _SHA256 + "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"
            ),
        },
        packed={
            "train-images-idx3-ubyte.gz": Stamp(9912422, "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873"),
            "train-labels-idx1-ubyte.gz": Stamp(28881, "md5:d53e105ee54ea40749a09fcbcd1e9432"),
            "t10k-images-idx3-ubyte.gz": Stamp(1648877, "md5:9fb629c4189551a2d022fa330f9573f3"),
            "t10k-labels-idx1-ubyte.gz": Stamp(4542, "md5:ec29112dd5afa0611ce80d1b7f02629c"),
        },
        folders=("mnist", "MNIST/raw", "MNIST", "raw"),
        mirrors=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
    ),
    "fashion-mnist": Original(
        files={
            "train-images-idx3-ubyte": Stamp(
                47040016,
                _SHA256 + "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            ),
            "train-labels-idx1-ubyte": Stamp(
                60008, _SHA256 + "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"
            ),
            "t10k-images-idx3-ubyte": Stamp(
                7840016,
                _SHA256 + "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            ),
            "t10k-labels-idx1-ubyte": Stamp(
                10008, _SHA256 + "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"
            ),
        },
        packed={
            "train-images-idx3-ubyte.gz": Stamp(26421880, "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
            "train-labels-idx1-ubyte.gz": Stamp(29515, "md5:25c81989df183df01b3e8a0aad5dffbe"),
            "t10k-images-idx3-ubyte.gz": Stamp(4422102, "md5:bef4ecab320f06d8554ea6380940ec79"),
            "t10k-labels-idx1-ubyte.gz": Stamp(5148, "md5:bb300cfdad3c16e7a12a480ee83cd310"),
        },
        folders=("fashion-mnist", "FashionMNIST/raw", "FashionMNIST", "data/fashion", "raw"),
        mirrors=(
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
            "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        ),
    ),
    "cifar10": Original(
        files={name: Stamp(30730000, _SHA256 + digest) for name, digest in _CIFAR10.items()},
        packed={
            "cifar-10-binary.tar.gz": Stamp(
                170052171,
                _SHA256 + "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            )
        },
        folders=("cifar-10-batches-bin", "cifar10", "cifar-10"),
        mirrors=("https://www.cs.toronto.edu/~kriz/",),
    ),
}


def original(name: str) -> Original:
    """Return a data set by its name.

    Args:
        name: The name, such as "mnist".

    Raises:
        InputError: If there is no data set of that name.

    Example:
        >>> original("mnist").folders[0]
        'mnist'
    """
    if name not in ORIGINALS:
        raise InputError("name", name, " or ".join(ORIGINALS) + nearest(name, ORIGINALS))
    return ORIGINALS[name]

from __future__ import annotations

import contextlib
import gzip
import hashlib
import http.server
import io
import os
import struct
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch
from support.listing import contents_of, names_in, times_of

from gossamer.errors import DataError, InputError
from gossamer.tasks import download
from gossamer.tasks.array_files import Arrays
from gossamer.tasks.data import Data, from_arrays, from_dataset
from gossamer.tasks.download import ORIGINALS, Original, Stamp
from gossamer.tasks.image_sets import (
    DOWNLOADABLE,
    Cifar10,
    Digits,
    FashionMnist,
    Mnist,
    _read_digits,
)

# --- tiny data sets: the real code on files of a few bytes, with hashes of their own ---


def stamp(content: bytes) -> Stamp:
    return Stamp(len(content), "sha256:" + hashlib.sha256(content).hexdigest())


def idx(array: np.ndarray) -> bytes:
    return (
        b"\0\0\x08"
        + bytes([array.ndim])
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.tobytes()
    )


def tiny_idx() -> dict[str, bytes]:
    images = np.arange(4 * 2 * 3, dtype=np.uint8).reshape(4, 2, 3) * 10
    labels = np.array([3, 1, 0, 9], dtype=np.uint8)
    return {
        "train-images-idx3-ubyte": idx(images),
        "train-labels-idx1-ubyte": idx(labels),
        "t10k-images-idx3-ubyte": idx(images[:2]),
        "t10k-labels-idx1-ubyte": idx(labels[:2]),
    }


def tiny_cifar() -> dict[str, bytes]:
    def batch(number: int) -> bytes:
        pixels = (np.arange(2 * 3072) * (number + 1) % 256).astype(np.uint8).reshape(2, 3072)
        return np.concatenate(
            [np.array([[number], [9 - number]], dtype=np.uint8), pixels], axis=1
        ).tobytes()

    return {file: batch(number) for number, file in enumerate(ORIGINALS["cifar10"].files)}


def tar_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


class Tiny:
    """The files of a tiny data set, packed and unpacked, and its folder in the cache."""

    def __init__(
        self, name: str, files: dict[str, bytes], packed: dict[str, bytes], cache: Path
    ) -> None:
        self.name = name
        self.files = files
        self.packed = packed
        self.cache = cache
        self.folder = cache / ORIGINALS[name].folders[0]

    def original(self) -> Original:
        return replace(
            ORIGINALS[self.name],
            files={file: stamp(content) for file, content in self.files.items()},
            packed={file: stamp(content) for file, content in self.packed.items()},
            mirrors=("http://127.0.0.1:9/",),  # nobody listens there
        )

    def write(self, folder: Path, packed: bool = False) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        for file, content in (self.packed if packed else self.files).items():
            (folder / file).write_bytes(content)
        return folder


@pytest.fixture
def tiny(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tiny:
    name = getattr(request, "param", "mnist")
    files = tiny_cifar() if name == "cifar10" else tiny_idx()
    if name == "cifar10":
        packed = {
            "cifar-10-binary.tar.gz": tar_of(
                {f"cifar-10-batches-bin/{f}": c for f, c in files.items()}
            )
        }
    else:
        packed = {}
        for file, content in files.items():
            packed[f"{file}.gz"] = gzip.compress(content)
    if name == "fashion-mnist":
        files = packed
    made = Tiny(name, files, packed, tmp_path / "cache")
    monkeypatch.setitem(ORIGINALS, name, made.original())
    monkeypatch.setenv("GOSSAMER_DATA", str(made.cache))
    monkeypatch.setenv("NO_PROXY", "*")
    return made


EACH = pytest.mark.parametrize("tiny", ["mnist", "fashion-mnist", "cifar10"], indirect=True)


@EACH
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("place", range(3))
def test_a_folder_loads_raw_or_packed_and_under_its_usual_names(
    tiny: Tiny, tmp_path: Path, packed: bool, place: int
):
    folders = (".", *ORIGINALS[tiny.name].folders)
    tiny.write(tmp_path / "mine" / folders[place], packed)
    data = DOWNLOADABLE[tiny.name](tmp_path / "mine").load()
    if tiny.name == "cifar10":
        raw = np.concatenate(
            [np.frombuffer(c, dtype=np.uint8).reshape(2, 3073) for c in tiny.files.values()]
        )
        assert data.y.tolist() == raw[:10, 0].tolist()
        assert data.y_test.tolist() == raw[10:, 0].tolist()
        assert data.x.shape == (10, 3, 32, 32)
        blue = (
            raw[7, 1 + 2048 + 32 * 4 + 5] / 255 - 0.4465
        ) / 0.2616  # sample 7, colour 2, row 4, column 5
        assert data.x[7, 2, 4, 5].item() == pytest.approx(blue, abs=1e-6)
    else:
        mean, std = (0.1307, 0.3081) if tiny.name == "mnist" else (0.2860, 0.3530)
        assert data.y.tolist() == [3, 1, 0, 9]
        assert data.y_test.tolist() == [3, 1]
        assert data.shape == (1, 2, 3)
        assert data.x[1, 0, 1, 2].item() == pytest.approx((110 / 255 - mean) / std, abs=1e-6)
    assert (data.name, data.classes) == (tiny.name, 10)
    assert (data.x.dtype, data.y.dtype) == (torch.float32, torch.int64)


@EACH
@pytest.mark.parametrize("packed", [False, True])
def test_get_takes_files_from_a_folder_and_keeps_them_whole(
    tiny: Tiny, tmp_path: Path, packed: bool
):
    source = tiny.write(tmp_path / "source", packed)
    assert download.get(tiny.name, source_dir=source) == tiny.folder
    assert contents_of(tiny.folder) == tiny.files
    assert DOWNLOADABLE[tiny.name]().load().samples > 0
    times = times_of(tiny.folder.iterdir())
    download.get(
        tiny.name, source_dir=tmp_path / "nowhere"
    )  # already complete: the source is not read
    assert times_of(tiny.folder.iterdir()) == times


@EACH
def test_get_repairs_a_damaged_cache(tiny: Tiny, tmp_path: Path):
    tiny.write(tiny.folder)
    next(tiny.folder.iterdir()).write_bytes(b"torn")
    download.get(tiny.name, source_dir=tiny.write(tmp_path / "source"))
    assert contents_of(tiny.folder) == tiny.files


@EACH
def test_a_missing_file_is_named_with_the_command_that_downloads_it(tiny: Tiny):
    command = rf"`gossamer data get {tiny.name}` .*`gossamer data get {tiny.name} --from DIR`"
    with pytest.raises(DataError, match=rf"there is no {next(iter(tiny.files))} in .*{command}"):
        DOWNLOADABLE[tiny.name]().load()
    tiny.write(tiny.folder)
    last = list(tiny.files)[-1]
    (tiny.folder / last).unlink()
    with pytest.raises(DataError, match=f"there is no {last} in .*{command}"):
        DOWNLOADABLE[tiny.name]().load()


@EACH
@pytest.mark.parametrize("packed", [False, True])
def test_a_truncated_file_is_named_with_its_size_and_the_one_expected(
    tiny: Tiny, tmp_path: Path, packed: bool
):
    folder = tiny.write(tmp_path / "mine", packed)
    file, content = next(iter((tiny.packed if packed else tiny.files).items()))
    (folder / file).write_bytes(content[:-1])
    sizes = rf"it has {len(content) - 1:,} bytes, expected is {len(content):,} bytes"
    with pytest.raises(
        DataError, match=rf"{tiny.name}: .*{file} is truncated or not the original: {sizes}"
    ):
        DOWNLOADABLE[tiny.name](folder).load()
    with pytest.raises(DataError, match=rf"{file} is truncated"):
        download.get(tiny.name, source_dir=folder)


@EACH
@pytest.mark.parametrize("packed", [False, True])
def test_a_changed_byte_is_found_by_the_hash(tiny: Tiny, tmp_path: Path, packed: bool):
    folder = tiny.write(tmp_path / "mine", packed)
    file, content = list((tiny.packed if packed else tiny.files).items())[-1]
    (folder / file).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(
        DataError, match=rf"{file} .*it has sha256:\w{{64}}, expected is {stamp(content).hash}"
    ):
        DOWNLOADABLE[tiny.name](folder).load()
    with pytest.raises(DataError, match=file):
        download.get(tiny.name, source_dir=folder)
    assert not (tiny.folder / file).exists()


def test_a_file_that_changes_after_it_was_verified_is_verified_again(tiny: Tiny):
    tiny.write(tiny.folder)
    Mnist().load()
    labels = tiny.folder / "t10k-labels-idx1-ubyte"
    labels.write_bytes(bytes(reversed(labels.read_bytes())))
    with pytest.raises(DataError, match="t10k-labels-idx1-ubyte"):
        Mnist().load()


@pytest.mark.parametrize(
    "content",
    [b"", b"\0\0\x08", b"\0\0\x08\x03\0\0\0\x01", b"\0\0\x0d\x01\0\0\0\x01a", b"\0\0\x08\0a"],
)
def test_a_file_that_is_not_idx_is_refused_even_if_its_hash_is_right(
    tiny: Tiny, monkeypatch, content: bytes
):
    tiny.files["train-images-idx3-ubyte"] = content
    monkeypatch.setitem(ORIGINALS, "mnist", tiny.original())
    tiny.write(tiny.folder)
    with pytest.raises(DataError, match="train-images-idx3-ubyte is not an idx file"):
        Mnist().load()


@pytest.mark.parametrize("tiny", ["cifar10"], indirect=True)
def test_a_batch_with_a_part_of_a_record_is_refused(tiny: Tiny, monkeypatch):
    tiny.files["data_batch_2.bin"] += b"x"
    monkeypatch.setitem(ORIGINALS, "cifar10", tiny.original())
    with pytest.raises(DataError, match=r"data_batch_2.bin is not a batch"):
        Cifar10(tiny.write(tiny.folder)).load()


@pytest.mark.parametrize("tiny", ["cifar10"], indirect=True)
def test_a_tar_is_read_only_for_the_files_it_should_hold(tiny: Tiny, tmp_path: Path, monkeypatch):
    evil = {"../../outside.bin": b"x", "/tmp/data_batch_9.bin": b"x"}
    tiny.packed = {
        "cifar-10-binary.tar.gz": tar_of(evil | {f"../../{f}": c for f, c in tiny.files.items()})
    }
    monkeypatch.setitem(ORIGINALS, "cifar10", tiny.original())
    download.get("cifar10", source_dir=tiny.write(tmp_path / "a" / "b" / "source", packed=True))
    assert names_in(tiny.folder) == sorted(tiny.files)
    assert not list(tmp_path.rglob("outside.bin"))
    inside = []
    for p in tmp_path.rglob("*.bin"):
        if p.parent != tiny.folder:
            inside.append(p)
    assert inside == []


@pytest.mark.parametrize("tiny", ["cifar10"], indirect=True)
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda files: tar_of(dict(list(files.items())[:-1])), r"does not hold test_batch\.bin"),
        (lambda files: tar_of(files | {"test_batch.bin": b"x"}), r"does not hold test_batch\.bin"),
        (
            lambda files: tar_of(files | {"test_batch.bin": bytes(len(files["test_batch.bin"]))}),
            r"test_batch.*expected",
        ),
        (lambda files: tar_of(files)[:-2000], "is damaged"),
        (lambda files: b"not a tar", "is damaged"),
    ],
)
def test_a_wrong_tar_is_refused(tiny: Tiny, tmp_path: Path, monkeypatch, damage, said: str):
    tiny.packed = {"cifar-10-binary.tar.gz": damage(tiny.files)}
    monkeypatch.setitem(
        ORIGINALS, "cifar10", tiny.original()
    )  # the hash is right, the content is not
    with pytest.raises(DataError, match=said):
        download.get("cifar10", source_dir=tiny.write(tmp_path / "source", packed=True))


def test_a_gz_that_holds_something_else_is_refused(tiny: Tiny, tmp_path: Path, monkeypatch):
    tiny.packed["train-images-idx3-ubyte.gz"] = gzip.compress(bytes(10**6))
    monkeypatch.setitem(ORIGINALS, "mnist", tiny.original())
    with pytest.raises(
        DataError, match=r"train-images-idx3-ubyte in .* truncated or not the original"
    ):
        download.get("mnist", source_dir=tiny.write(tmp_path / "source", packed=True))


def test_unpacking_stops_at_the_limit():
    assert len(download.unzip(gzip.compress(bytes(10**6)), 100)) == 101
    assert download.unzip(gzip.compress(b"abc"), 100) == b"abc"


# --- downloads, from a server on this machine ---


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    root = tmp_path / "served"
    root.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Quiet, directory=str(root))
    ) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_address[1]}/", root
        httpd.shutdown()
        thread.join()


@EACH
def test_get_downloads_with_progress_from_the_mirror_that_works(tiny: Tiny, server, monkeypatch):
    url, root = server
    tiny.write(root, packed=True)
    mirrors = ("http://127.0.0.1:9/", url + "nothing-here/", url)
    monkeypatch.setitem(ORIGINALS, tiny.name, replace(tiny.original(), mirrors=mirrors))
    seen: dict[str, tuple[int, int]] = {}
    folder = download.get(
        tiny.name, progress=lambda file, done, size: seen.update({file: (done, size)})
    )
    assert contents_of(folder) == tiny.files
    assert seen == {file: (len(content), len(content)) for file, content in tiny.packed.items()}
    assert names_in(tiny.cache) == [folder.name]  # no temporary files are left


def test_a_mirror_with_another_file_is_skipped(tiny: Tiny, server, monkeypatch):
    url, root = server
    tiny.write(root, packed=True)
    (root / "train-images-idx3-ubyte.gz").write_bytes(b"something else")
    monkeypatch.setitem(ORIGINALS, "mnist", replace(tiny.original(), mirrors=(url, url + "none/")))
    with pytest.raises(
        DataError, match=r"no mirror gave train-images.*gave another file.*HTTP 404.*--from DIR"
    ):
        download.get("mnist")
    assert list(tiny.cache.iterdir()) == []


def test_without_a_network_the_mirrors_and_the_alternative_are_named(tiny: Tiny):
    with pytest.raises(
        DataError, match=r"127\.0\.0\.1:9/ \(no connection\).*`gossamer data get mnist --from DIR`"
    ):
        download.get("mnist")


def test_a_cache_that_cannot_be_written_is_one_sentence(tiny: Tiny, tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    for source in (None, tiny.write(tmp_path / "source")):
        with pytest.raises(DataError, match=r"cannot bring mnist into .*file.mnist: "):
            download.get("mnist", source_dir=source, cache=tmp_path / "file")


def test_a_full_disk_is_one_sentence_and_leaves_nothing(tiny: Tiny, tmp_path: Path, monkeypatch):
    source = tiny.write(tmp_path / "source")

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(DataError, match=r"cannot write .*No space left"):
        download.get("mnist", source_dir=source)
    assert list(tiny.folder.iterdir()) == []


def test_an_unknown_name_gets_a_hint(tmp_path: Path):
    with pytest.raises(InputError, match="did you mean 'mnist'"):
        download.get("mnits", cache=tmp_path)
    with pytest.raises(DataError, match="nowhere is not a folder"):
        download.get("mnist", source_dir=tmp_path / "nowhere", cache=tmp_path)


def test_the_cache_is_where_the_environment_says(monkeypatch, tmp_path: Path):
    monkeypatch.setenv("GOSSAMER_DATA", str(tmp_path / "a"))
    assert download.cache_folder() == tmp_path / "a"
    monkeypatch.delenv("GOSSAMER_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    assert download.cache_folder() == tmp_path / "b" / "gossamer-data"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert download.cache_folder() == tmp_path / ".cache" / "gossamer-data"


# --- the real data sets ---


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
    download.verify("mnist", tmp_path / "mnist")


# --- the user's own data ---

GOOD = {
    "x": np.zeros((6, 4)),
    "y": np.array([0, 1, 2, 0, 1, 2]),
    "x_test": np.ones((2, 4)),
    "y_test": np.array([0, 2]),
}


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
        (np.array([["a"] * 4] * 6), "<U1"),
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


def test_from_arrays_takes_numpy_torch_and_lists_and_copies():
    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    data = from_arrays(x, torch.arange(6), torch.zeros(2, 4, requires_grad=True), [0, 1])
    x[:] = -1
    assert data.x[0].tolist() == [0, 1, 2, 3]
    assert data.classes == 6
    assert not data.x_test.requires_grad
    assert from_arrays(x.astype(">f8"), np.ones(6, dtype=bool), x[:1], [False]).classes == 2
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

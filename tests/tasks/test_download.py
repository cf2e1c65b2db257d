"""Files of known data sets: read, verified, unpacked and downloaded."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import os
import struct
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from support.listing import contents_of, names_in, times_of

from gossamer.errors import DataError, InputError
from gossamer.tasks import download, packed_files
from gossamer.tasks.image_sets import (
    DOWNLOADABLE,
    Cifar10,
    FashionMnist,
    Mnist,
)
from gossamer.tasks.originals import ORIGINALS, Original, Stamp
from gossamer.tasks.packed_files import unpack


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


def tar_of(files: dict[str, bytes], mode: str = "w:gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as tar:  # type: ignore[call-overload]
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


def repacked(files: dict[str, bytes]) -> dict[str, bytes]:
    """Pack files as others do: another level and time, the file's name, several members."""
    packed = {}
    for file, content in files.items():
        buffer = io.BytesIO()
        with gzip.GzipFile(file, "wb", compresslevel=1, fileobj=buffer, mtime=1) as stream:
            stream.write(content[:5])
        packed[f"{file}.gz"] = buffer.getvalue() + gzip.compress(content[5:], 9, mtime=7)
    return packed


def dotted(files: dict[str, bytes]) -> dict[str, bytes]:
    return {file.replace("-idx", ".idx"): content for file, content in files.items()}


def tar_in(ending: str, mode: str) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    return lambda files: {f"cifar-10-binary{ending}": tar_of(files, mode)}


@pytest.mark.parametrize(
    ("tiny", "repack"),
    [
        ("mnist", repacked),
        ("mnist", dotted),
        ("fashion-mnist", repacked),
        ("fashion-mnist", dict),
        ("cifar10", repacked),
        ("cifar10", tar_in(".tar", "w:")),
        ("cifar10", tar_in(".tgz", "w:gz")),
        ("cifar10", tar_in(".tar.gz", "w:")),
    ],
    indirect=["tiny"],
)
def test_the_contents_count_and_not_how_they_are_packed(
    tiny: Tiny, repack: Callable[[dict[str, bytes]], dict[str, bytes]], tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for file, content in repack(tiny.files).items():
        (source / file).write_bytes(content)
    assert DOWNLOADABLE[tiny.name](source).load().samples > 0
    download.get(tiny.name, source_dir=source)
    assert contents_of(tiny.folder) == tiny.files


@pytest.mark.data
def test_the_fashion_mnist_of_debian(outside: Path, tmp_path: Path) -> None:
    """Its .gz files have another header than the original ones."""
    download.get("fashion-mnist", source_dir=outside / "fashion-mnist", cache=tmp_path)
    data = FashionMnist(tmp_path / "fashion-mnist").load()
    assert (data.samples, len(data.x_test), data.shape) == (60_000, 10_000, (1, 28, 28))
    assert torch.bincount(data.y).tolist() == [6000] * 10
    assert abs(float(data.x.mean())) < 1e-3


@EACH
@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_is_cut_short_is_named(tiny: Tiny, tmp_path: Path, packed: bool):
    folder = tiny.write(tmp_path / "mine", packed)
    file, content = next(iter((tiny.packed if packed else tiny.files).items()))
    (folder / file).write_bytes(content[: len(content) // 2])
    said = (
        rf"{file} is truncated or not the original: it has .* bytes, expected is {len(content):,}"
    )
    if packed:
        said = rf"{file} is damaged"
    with pytest.raises(DataError, match=rf"{tiny.name}: .*{said}"):
        DOWNLOADABLE[tiny.name](folder).load()
    with pytest.raises(DataError, match=said):
        download.get(tiny.name, source_dir=folder)


@EACH
@pytest.mark.parametrize("packed", [False, True])
def test_a_changed_byte_is_found_by_the_hash(tiny: Tiny, tmp_path: Path, packed: bool):
    folder = tiny.write(tmp_path / "mine", packed)
    file, content = list(tiny.files.items())[-1]
    changed = content[:-1] + bytes([content[-1] ^ 1])
    if not packed:
        (folder / file).write_bytes(changed)
    elif tiny.name == "cifar10":
        (folder / "cifar-10-binary.tar.gz").write_bytes(tar_of(tiny.files | {file: changed}))
    else:
        (folder / f"{file}.gz").write_bytes(gzip.compress(changed))
    said = rf"{file} .*it has sha256:\w{{64}}, expected is {stamp(content).hash}"
    with pytest.raises(DataError, match=said):
        DOWNLOADABLE[tiny.name](folder).load()
    with pytest.raises(DataError, match=said):
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
def test_a_wrong_tar_is_refused(tiny: Tiny, tmp_path: Path, damage, said: str):
    tiny.packed = {"cifar-10-binary.tar.gz": damage(tiny.files)}
    with pytest.raises(DataError, match=said):
        download.get("cifar10", source_dir=tiny.write(tmp_path / "source", packed=True))


@pytest.mark.parametrize("tiny", ["cifar10"], indirect=True)
def test_a_tar_is_not_unpacked_without_limit(tiny: Tiny, tmp_path: Path, monkeypatch) -> None:
    """A header that promises a gigabyte of text, or a file of that size, is not read."""
    monkeypatch.setattr(packed_files, "_LARGEST_TAR", 1 << 20)
    pax = tarfile.TarInfo("huge")
    pax.type = tarfile.XHDTYPE
    pax.size = 1 << 21
    large = tar_of({"huge": bytes(1 << 21)} | tiny.files, "w:")
    for content in (pax.tobuf() + bytes(1 << 21), large):
        tiny.packed = {"cifar-10-binary.tar.gz": gzip.compress(content, 1)}
        source = tiny.write(tmp_path / "source", packed=True)
        with pytest.raises(DataError, match="is damaged: it unpacks to more than 1 MiB"):
            download.get("cifar10", source_dir=source)


@pytest.mark.parametrize("tiny", ["cifar10"], indirect=True)
def test_the_pickled_cifar_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"")
    with pytest.raises(DataError, match=r"is pickled and is not read; .*cifar-10-binary\.tar\.gz"):
        Cifar10(tmp_path).load()


def test_a_gz_that_holds_something_else_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    tiny.packed["train-images-idx3-ubyte.gz"] = gzip.compress(bytes(10**6))
    with pytest.raises(
        DataError, match=r"train-images-idx3-ubyte in .* it has more than 40 bytes, expected is 40"
    ):
        download.get("mnist", source_dir=tiny.write(tmp_path / "source", packed=True))


def test_unpacking_stops_at_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(bytes(10**6)))
    assert len(unpack("a", path, 100)) == 101
    path.write_bytes(gzip.compress(b"abc"))
    assert unpack("a", path, 100) == b"abc"


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

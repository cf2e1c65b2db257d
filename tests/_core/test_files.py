"""Atomic writes: a whole file or none, its mode, and what is left when something fails."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

import pytest

from gossamer._core.files import (
    PRIVATE_MODE,
    os_errors,
    remove_partial_files,
    write_atomically,
)
from gossamer.errors import DataError


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), OSError(28, "No space left on device"), MemoryError()]
)
@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file(
    error: BaseException, function: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")
    expected = DataError if isinstance(error, OSError) else type(error)

    def fail(*arguments: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, function, fail)
        with pytest.raises(expected):
            write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"


def test_a_writer_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"

    def write_half(file: BinaryIO) -> None:
        file.write(b"half")
        raise ValueError("stop")

    write_atomically(path, lambda file: file.write(b"old") and None)
    with pytest.raises(ValueError, match="stop"):
        write_atomically(path, write_half)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX")
@pytest.mark.parametrize(
    ("mask", "public", "private"),
    [(0, 0o644, 0o600), (0o022, 0o644, 0o600), (0o077, 0o600, 0o600)],
)
def test_mode(mask: int, public: int, private: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        write_atomically(tmp_path / "public", b"")
        write_atomically(tmp_path / "private", b"", mode=PRIVATE_MODE)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "public").stat().st_mode) == public
    assert stat.S_IMODE((tmp_path / "private").stat().st_mode) == private


@pytest.mark.parametrize(
    ("options", "synced"),
    [({"sync": False}, 0), ({}, 1), ({"sync_folder": True}, 1 + (os.name == "posix"))],
)
def test_what_is_synced(
    options: dict[str, bool], synced: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(os, "fsync", calls.append)
    write_atomically(tmp_path / "file", b"content", **options)
    assert len(calls) == synced


def test_partial_files_are_removed(tmp_path: Path) -> None:
    kept = tmp_path / "file.part"
    kept.touch()
    (tmp_path / ".file.0123abcd.part").touch()
    remove_partial_files(tmp_path)
    assert list(tmp_path.iterdir()) == [kept]


def test_an_error_of_the_system_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"^cannot write .*missing/file: No such file or directory$"
    ):
        write_atomically(tmp_path / "missing" / "file", b"")
    with pytest.raises(DataError, match=r"^cannot read it: no reason$"), os_errors("read", "it"):
        raise OSError("no reason")

"""The folder of a run: its files, how they are written and how they are read.

spec.toml                the whole study, every default written out
metrics.parquet          one row per measurement, with method, seed and checksums
summary.json             the result in short, with versions, seed and command
models.safetensors       the final model of every device
checkpoint.safetensors   the state of an unfinished run, with a checksum
live.jsonl               measurements while the run goes (see `study.live`)

No file is ever unpickled.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import sys
import tomllib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from gossamer._core.columns import MAX_DEVICE_COLUMNS, SAMPLING_ERROR
from gossamer._core.files import (
    PARTIAL_SUFFIX,
    os_errors,
    remove_partial_files,
    write_atomically,
)
from gossamer._core.spread import mean
from gossamer._core.weight_bins import BINS
from gossamer.errors import DataError
from gossamer.results.statistics import sampling_error

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from gossamer._core.columns import Column
    from gossamer.engines import Record, Snapshot
    from gossamer.engines.plan import Parts

_WEIGHTS = "gossamer.weights"  # key of the metadata of metrics.parquet
_MAX_WEIGHTS_BYTES = 16 << 20  # unpacked; a run keeps 256 histograms of 257 counts
# Columns of metrics.parquet that tell the rows of several files apart; folders of earlier versions
# do not have them.
_IDENTITY = ("method", "seed")

# In the metadata of a checkpoint whose rows several processes wrote: the digest of all of it.
_ROWS_DIGEST = "rows"


@dataclass(frozen=True)
class RunFolder:
    """The files of one run.

    Every file is written whole or not at all. A file that cannot be written or read raises
    `DataError`, which names it and the reason.

    Attributes:
        path: The folder.

    Example:
        >>> RunFolder(Path("runs/demo/d-psgd-seed0")).summary()    # doctest: +SKIP
    """

    path: Path

    def has(self, name: str) -> bool:
        """True if the folder holds a file of this name.

        Args:
            name: The name of the file; "" asks for the folder itself.
        """
        with os_errors("read", self.path / name):
            return (self.path / name).exists()

    def check_new(self) -> None:
        """Raise `DataError` if the folder holds anything but partial files of a killed process."""
        if self.has("spec.toml"):
            raise DataError(
                f"{self.path} exists: go on with it by --resume, or give another name by --out"
            )
        with os_errors("read", self.path):
            if self.has("") and any(file.suffix != PARTIAL_SUFFIX for file in self.path.iterdir()):
                raise DataError(f"{self.path} exists and holds no run: give another name by --out")

    def create(self, spec: str) -> None:
        """Create the folder with its spec; if that fails, nothing is left.

        Args:
            spec: The study as TOML.
        """
        with os_errors("make the folder", self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        self.sweep()
        try:
            write_atomically(self.path / "spec.toml", spec.encode())
        except BaseException:
            self.discard()
            raise

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from running in the folder until the end of the block.

        The lock is on the folder itself, so that no file stays behind when a process is killed.

        Raises:
            DataError: If another run holds the lock.
        """
        if sys.platform == "win32":
            yield
            return
        with os_errors("read", self.path):
            folder = os.open(self.path, os.O_RDONLY)
        try:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise DataError(
                    f"{self.path} is in use: another process runs in it; "
                    "wait for its end, or give another --out"
                ) from None
            except OSError:  # a file system without locks
                pass
            yield
        finally:
            os.close(folder)

    def discard(self) -> None:
        """Remove the folder if it holds at most its spec."""
        with contextlib.suppress(OSError):
            if all(file.name == "spec.toml" for file in self.path.iterdir()):
                (self.path / "spec.toml").unlink(missing_ok=True)
                self.path.rmdir()

    def sweep(self) -> None:
        """Remove partial files of a killed process."""
        remove_partial_files(self.path)

    def spec(self, name: str = "spec.toml") -> tuple[str, dict[str, Any]]:
        """Return the spec as TOML text and as a plain table.

        Args:
            name: The name of the file.

        Raises:
            DataError: There is no spec, or it is not TOML.
        """
        path = self.path / name
        try:
            text = path.read_text(encoding="utf-8-sig")
            return text, tomllib.loads(text)
        except FileNotFoundError:
            raise DataError(
                f"{self.path} holds no run: it has no {name} (gs.read reads all runs below it)"
            ) from None
        except (OSError, ValueError, RecursionError) as error:
            raise DataError(f"{path} is not a spec: {error}") from None

    def write_metrics(
        self,
        columns: dict[str, Any],
        method: str,
        seed: int,
        weights: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        """Write the measurements.

        Args:
            columns: The measurements by column, as `columns` returns them.
            method: The method's label.
            seed: The seed of the study.
            weights: Histograms of the weights by round, which are kept as metadata of the file.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        from gossamer.results import arrow

        count = len(columns.get("round", ()))
        table = {
            "method": arrow.repeated(method, count),
            "seed": arrow.numbers(np.full(count, seed)),
        }
        for name, values in columns.items():
            table[name] = arrow.numbers(values)
        made = pa.table(table)
        if weights:
            kept = {t: list(map(int, counts)) for t, counts in weights.items()}
            # zlib has a checksum, which the metadata of Parquet files lack.
            packed = base64.b64encode(zlib.compress(json.dumps(kept).encode()))
            made = made.replace_schema_metadata({_WEIGHTS: packed})
        sink = pa.BufferOutputStream()
        pq.write_table(made, sink, write_page_checksum=True)
        write_atomically(self.path / "metrics.parquet", sink.getvalue().to_pybytes())

    def metrics(
        self, columns: Sequence[str] | None = None, per_device: bool = True
    ) -> dict[str, Any]:
        """Return the measurements by column as NumPy arrays, without method and seed.

        Per-device columns are [measurements, devices].

        Args:
            columns: The columns to load, where they are there; None loads all.
            per_device: Load columns that have a value for each device, too.

        Raises:
            DataError: The file is missing, damaged, or not of a run.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        from gossamer.results.arrow import read_columns

        path = self.path / "metrics.parquet"
        try:
            wanted = [name for name in pq.read_schema(path).names if name not in _IDENTITY]
            if columns is not None:
                wanted = [name for name in columns if name in wanted]
            if not per_device:
                wanted = [name for name in wanted if not name.startswith("device_")]
            table = read_columns(path, wanted)
            found = {name: np.array(table[name].to_pylist()) for name in table.column_names}
        except FileNotFoundError:
            raise DataError(
                f"{path} is missing: the run cannot be read or go on; "
                "start it again with another --out"
            ) from None
        except (pa.ArrowException, OSError) as error:
            reason = str(error).splitlines()[0]
            raise DataError(f"{path} is not a whole Parquet file: {reason}") from None
        except ValueError:  # rows of different lengths
            raise DataError(_not_of_a_run(path)) from None
        check_metrics(found, path)
        return found

    def weights(self) -> dict[int, list[int]]:
        """Return the histograms of the weights by round; empty if there are none.

        The bins are those of `_core.weight_bins`. Of long runs the histograms of every second,
        fourth, … measurement are kept.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        found = {}
        wrong = (pa.ArrowException, OSError, ValueError, TypeError, AttributeError, RecursionError)
        with contextlib.suppress(*wrong, zlib.error):
            metadata = pq.read_schema(self.path / "metrics.parquet").metadata or {}
            packed = base64.b64decode(metadata.get(_WEIGHTS.encode(), b""), validate=True)
            unpacking = zlib.decompressobj()
            text = unpacking.decompress(packed, _MAX_WEIGHTS_BYTES)
            if not unpacking.eof:
                return {}
            for t, counts in json.loads(text).items():
                whole = [int(count) for count in counts]
                if len(whole) == BINS and min(whole) >= 0:
                    found[int(t)] = whole
        return found

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write the summary.

        Args:
            summary: The result in short; numbers may be NumPy's.
        """
        text = json.dumps(summary, indent=2, default=lambda number: number.item())
        write_atomically(self.path / "summary.json", f"{text}\n".encode())

    def summary(self) -> dict[str, Any] | None:
        """Return the summary, or None while there is none."""
        path = self.path / "summary.json"
        if not self.has(path.name):
            return None
        try:
            with os_errors("read", path):
                loaded = json.loads(path.read_bytes())
        except (ValueError, RecursionError):
            loaded = None
        if not isinstance(loaded, dict):
            raise DataError(
                f"{path} is not a summary in JSON: "
                "delete it, and --resume goes on from the last checkpoint"
            )
        return loaded

    def write_snapshot(self, snapshot: Snapshot) -> None:
        """Write a checkpoint.

        Args:
            snapshot: The state of a run.
        """
        from gossamer._core.tensor_files import write_tensors

        metadata = _metadata(snapshot) | {"checksum": _checksum(snapshot)}
        write_atomically(
            self.path / "checkpoint.safetensors",
            lambda file: write_tensors(file, snapshot.tensors, metadata),
        )

    def write_parts_of_snapshot(self, parts: Parts, backend: dict[str, str]) -> None:
        """Write a checkpoint, of which each process writes its own rows.

        Args:
            parts: The state of a run.
            backend: The implementations that the run computes with.
        """
        snapshot = replace(parts.snapshot, backend=backend)
        self._write_parts("checkpoint.safetensors", parts, snapshot)

    def _write_parts(self, name: str, parts: Parts, snapshot: Snapshot | None = None) -> None:
        """Write a file of tensors; with a snapshot, its metadata and the digest of all rows."""
        from gossamer._core.tensor_files import Layout

        metadata = None
        if snapshot is not None:
            metadata = _metadata(snapshot) | {_ROWS_DIGEST: _digest_text(snapshot, 0)}

        def write(file: BinaryIO) -> None:
            layout = Layout.of(parts.shapes, metadata)
            file.truncate(layout.size)
            file.write(layout.header)
            file.flush()
            total = parts.write(Path(file.name).resolve(), layout)
            if snapshot is not None:
                known = _metadata(snapshot) | {_ROWS_DIGEST: _digest_text(snapshot, total)}
                file.seek(0)
                file.write(Layout.of(parts.shapes, known).header)

        write_atomically(self.path / name, write)

    def snapshot(self) -> Snapshot | None:
        """Return the newest checkpoint, or None if there is none."""
        path = self.path / "checkpoint.safetensors"
        if not self.has(path.name):
            return None
        from safetensors import SafetensorError

        try:
            snapshot, metadata = _read_checkpoint(path)
            if not _is_whole(snapshot, metadata):
                raise ValueError("its checksum does not fit")
            return snapshot
        except KeyError as error:
            raise _damaged_checkpoint(path, f"it has no {error}") from None
        except (SafetensorError, OSError, TypeError, ValueError) as error:
            raise _damaged_checkpoint(path, str(error)) from None

    def drop_snapshot(self) -> None:
        """Remove the checkpoint, if there is one."""
        with os_errors("remove", self.path / "checkpoint.safetensors"):
            (self.path / "checkpoint.safetensors").unlink(missing_ok=True)

    def write_models(self, parts: dict[str, Any]) -> None:
        """Write the final models.

        Args:
            parts: The models by the names of their parts, each [devices, …].
        """
        from gossamer._core.tensor_files import write_tensors

        write_atomically(self.path / "models.safetensors", lambda file: write_tensors(file, parts))

    def write_parts_of_models(self, parts: Parts) -> None:
        """Write the final models, of which each process writes its own rows.

        Args:
            parts: The models.
        """
        self._write_parts("models.safetensors", parts)

    def models(self) -> dict[str, Any]:
        """Return the final models by the names of their parts, each [devices, …]."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        path = self.path / "models.safetensors"
        try:
            return dict(load_file(path))
        except FileNotFoundError:
            raise DataError(
                f"{self.path} has no models: the run is not finished, or it did not keep them"
            ) from None
        except (SafetensorError, OSError) as error:
            raise DataError(f"{path} is not whole: {error}") from None


def _read_checkpoint(path: Path) -> tuple[Snapshot, dict[str, str]]:
    """Return a checkpoint and the texts that were written with it."""
    from safetensors import safe_open

    from gossamer.engines import Snapshot

    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    t = int(metadata["round"])
    messages = int(metadata["messages"])
    sent = int(metadata["bytes"])
    chosen = json.loads(metadata.get("backend", "{}"))  # checkpoints of 0.1.0 have none
    return Snapshot(t, messages, sent, tensors, dict(chosen)), metadata


def _metadata(snapshot: Snapshot) -> dict[str, str]:
    """Return what a checkpoint says of itself."""
    return {
        "round": str(snapshot.round),
        "messages": str(snapshot.messages),
        "bytes": str(snapshot.bytes),
        "backend": json.dumps(snapshot.backend),
    }


def _is_whole(snapshot: Snapshot, metadata: dict[str, str]) -> bool:
    """True if a checkpoint has the checksum that was written with it."""
    from gossamer._core.tensor_files import digest_of_rows

    if _ROWS_DIGEST not in metadata:
        return metadata["checksum"] == _checksum(snapshot)
    total = 0
    for name, x in snapshot.tensors.items():
        total += digest_of_rows(name, np.arange(len(x)), x)
    return metadata[_ROWS_DIGEST] == _digest_text(snapshot, total)


def _damaged_checkpoint(path: Path, reason: str) -> DataError:
    return DataError(
        f"{path} is not a whole checkpoint ({reason}): delete it, and --resume begins again"
    )


def _digest_text(snapshot: Snapshot, rows: int) -> str:
    """Return the digest of a checkpoint whose rows have a sum of digests."""
    return f"{(_digest_of_counts(snapshot) + rows) % 2**128:032x}"


def _digest_of_counts(snapshot: Snapshot) -> int:
    digest = hashlib.blake2b(_counts(snapshot), digest_size=16).digest()
    return int.from_bytes(digest, "little")


def _counts(snapshot: Snapshot) -> bytes:
    counts = f"{snapshot.round} {snapshot.messages} {snapshot.bytes}"
    if snapshot.backend:
        counts += json.dumps(snapshot.backend)
    return counts.encode()


def _checksum(snapshot: Snapshot) -> str:
    """Return a digest of all of a checkpoint: a run would go on from a single wrong bit."""
    from gossamer._core.tensor_files import byte_blocks

    digest = hashlib.blake2b(_counts(snapshot), digest_size=16)
    for name, x in sorted(snapshot.tensors.items()):
        digest.update(f"{name} {x.dtype} {list(x.shape)}".encode())
        for part in byte_blocks(x):
            digest.update(part)
    return digest.hexdigest()


def check_metrics(metrics: dict[str, Any], path: Path) -> None:
    """Refuse measurements that are not a run's.

    Args:
        metrics: The measurements by column.
        path: The file that they were read from.

    Raises:
        DataError: There is no column round, or a column does not hold one number per measurement,
            or per measurement and device.
    """
    if not metrics:
        return
    rounds = metrics.get("round", np.empty(0))
    right = rounds.dtype.kind in "iu" and rounds.ndim == 1
    for name, values in metrics.items():
        dimensions = 2 if name.startswith("device_") else 1
        right = right and values.dtype.kind in "iuf" and values.ndim == dimensions
        right = right and len(values) == len(rounds) > 0
    if not right:
        raise DataError(_not_of_a_run(path))


def _not_of_a_run(path: Path) -> str:
    return (
        f"{path} is not of a run: it needs a column round, and one number in each column "
        "per measurement (per measurement and device, if its name begins with device_)"
    )


def columns(records: Sequence[Record], metrics: Sequence[Column]) -> dict[str, Any]:
    """Return records as the columns of metrics.parquet.

    Args:
        records: One record per measurement.
        metrics: The metrics and the loss, as `Measure.columns` has them.

    Returns:
        Means over the devices, the worst and the best device, the merged model, messages and bytes,
        simulated seconds if the study has a timing, and the devices' steps and their staleness if
        the engine has no common rounds. Of up to 1000 devices every device's values
        too. If only a sample of the devices is measured, the half-width of the 95 % interval of
        each mean.
    """
    table: dict[str, Any] = {}
    for record in records:
        for name, value in _row(record, metrics).items():
            table.setdefault(name, []).append(value)
    return table


def _row(record: Record, metrics: Sequence[Column]) -> dict[str, Any]:
    """Return one row of metrics.parquet."""
    row: dict[str, Any] = {"round": record.round}
    for column in metrics:
        name = column.name
        values = record.values(name)
        row[name] = mean(values)
        row[f"{name}_worst"] = column.worst(values)
        row[f"{name}_best"] = column.best(values)
        if record.devices is not None:
            population = len(record.values("distance"))
            row[name + SAMPLING_ERROR] = sampling_error(np.asarray(values), population)
        if record.merged:
            row[f"{name}_merged"] = record.merged[name]
        if record.merged_power:
            row[f"{name}_merged_power"] = record.merged_power[name]
    row["distance"] = mean(record.values("distance"))
    row["power_distance"] = mean(record.values("power_distance"))
    row["messages"] = record.messages
    row["bytes"] = record.bytes
    if record.seconds is not None:  # "seconds" in the summary are those of the computer
        row["simulated_seconds"] = record.seconds
    if record.joules is not None:
        row["joules"] = record.joules
    if record.steps is not None:
        row["steps"] = record.steps
    if record.staleness is not None:
        row["staleness"] = record.staleness
    if record.devices is None and 0 < len(record.loss) <= MAX_DEVICE_COLUMNS:
        per_device = {**record.metrics, "loss": record.loss, "distance": record.distance}
        per_device |= record.activity
        for name, values in per_device.items():
            row[f"device_{name}"] = values.astype(np.float32).tolist()
    return row

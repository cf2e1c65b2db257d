"""A run folder: what was run, what came out, and what is needed to go on. Nothing in it is ever unpickled.

spec.toml             the whole study, every default written out
metrics.parquet       one row a measurement, with checksums
summary.json          the result in short, with versions, seed and command
models.safetensors    every device's final model
checkpoint.safetensors   while the run is unfinished: its state, with a checksum
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gossamer._core.files import (
    PARTIAL_SUFFIX,
    os_errors,
    remove_partial_files,
    write_atomically,
)
from gossamer.errors import DataError

if TYPE_CHECKING:
    from gossamer.engines import Record, Snapshot

_PER_DEVICE_LIMIT = 1000  # devices up to which every device's accuracy is kept in the metrics


@dataclass(frozen=True)
class RunFolder:
    """One run's folder."""

    path: Path

    def has(self, name: str) -> bool:
        with os_errors("read", self.path / name):
            return (self.path / name).exists()

    def check_new(self) -> None:
        """Refuse a folder that has something in it (more than a killed process may have left there half-written)."""
        if self.has("spec.toml"):
            raise DataError(
                f"{self.path} exists: go on with it by --resume, or give another name by --out"
            )
        with os_errors("read", self.path):
            if self.has("") and any(file.suffix != PARTIAL_SUFFIX for file in self.path.iterdir()):
                raise DataError(f"{self.path} exists and holds no run: give another name by --out")

    def create(self, spec: str) -> None:
        """Make the folder with its spec, or nothing."""
        with os_errors("make the folder", self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        self.sweep()
        try:
            write_atomically(self.path / "spec.toml", spec.encode())
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Take back a folder in which nothing has come about: it has its spec, or not even that."""
        with contextlib.suppress(OSError):
            if all(file.name == "spec.toml" for file in self.path.iterdir()):
                (self.path / "spec.toml").unlink(missing_ok=True)
                self.path.rmdir()

    def sweep(self) -> None:
        """Remove what a killed process left half-written."""
        remove_partial_files(self.path)

    def spec(self, name: str = "spec.toml") -> tuple[str, dict[str, Any]]:
        """Return the spec as TOML text and as a plain table.

        Raises:
            DataError: There is no spec, or it is not TOML.
        """
        path = self.path / name
        try:
            text = path.read_text(encoding="utf-8")
            return text, tomllib.loads(text)
        except FileNotFoundError:
            raise DataError(f"{self.path} holds no run: it has no {name}") from None
        except (OSError, ValueError, RecursionError) as error:
            raise DataError(f"{path} is not a spec: {error}") from None

    # -- metrics and summary ---------------------------------------------------------------------------------------

    def write_metrics(self, columns: dict[str, Any]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        sink = pa.BufferOutputStream()
        pq.write_table(pa.table(columns), sink, write_page_checksum=True)
        write_atomically(self.path / "metrics.parquet", sink.getvalue().to_pybytes())

    def metrics(self, columns: Sequence[str] | None = None) -> dict[str, Any]:
        """Return the measurements by column as NumPy arrays, per-device ones [measurements, devices].

        Args:
            columns: The columns to load, where they are there; None loads all.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self.path / "metrics.parquet"
        try:
            wanted = None if columns is None else list(columns)
            table = pq.read_table(path, columns=wanted, page_checksum_verification=True)
        except FileNotFoundError:
            raise DataError(
                f"{path} is missing: the run cannot be read or go on; start it again with another --out"
            ) from None
        except (pa.ArrowException, OSError) as error:
            raise DataError(
                f"{path} is not a whole Parquet file: {str(error).splitlines()[0]}"
            ) from None
        return {name: np.array(table[name].to_pylist()) for name in table.column_names}

    def write_summary(self, summary: dict[str, Any]) -> None:
        text = json.dumps(
            summary, indent=2, default=lambda number: number.item()
        )  # a seed may be one of NumPy's
        write_atomically(self.path / "summary.json", f"{text}\n".encode())

    def summary(self) -> dict[str, Any] | None:
        """The summary of a run, or None while there is none."""
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
                f"{path} is not a summary in JSON: delete it, and --resume goes on from the last checkpoint"
            )
        return loaded

    # -- state -----------------------------------------------------------------------------------------------------

    def write_snapshot(self, snapshot: Snapshot) -> None:
        from safetensors.torch import save

        counted = {"round": snapshot.round, "messages": snapshot.messages, "bytes": snapshot.bytes}
        metadata = {key: str(value) for key, value in counted.items()} | {
            "checksum": _checksum(snapshot)
        }
        write_atomically(self.path / "checkpoint.safetensors", save(snapshot.tensors, metadata))

    def snapshot(self) -> Snapshot | None:
        """The newest checkpoint, or None."""
        from safetensors import SafetensorError, safe_open

        from gossamer.engines import Snapshot

        path = self.path / "checkpoint.safetensors"
        if not self.has(path.name):
            return None
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata()
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            round_, messages, sent = (int(metadata[key]) for key in ("round", "messages", "bytes"))
            snapshot = Snapshot(round_, messages, sent, tensors)
            if metadata["checksum"] != _checksum(snapshot):
                raise ValueError("its checksum does not fit")
            return snapshot
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise DataError(
                f"{path} is not a whole checkpoint ({why}): delete it, and --resume begins again"
            ) from None

    def drop_snapshot(self) -> None:
        with os_errors("remove", self.path / "checkpoint.safetensors"):
            (self.path / "checkpoint.safetensors").unlink(missing_ok=True)

    def write_models(self, parts: dict[str, Any]) -> None:
        from safetensors.torch import save

        write_atomically(self.path / "models.safetensors", save(parts))

    def models(self) -> dict[str, Any]:
        """Every device's final model by the names of its parts: each [devices, …]."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return dict(load_file(self.path / "models.safetensors"))
        except FileNotFoundError:
            raise DataError(f"{self.path} has no models: the run is not finished") from None
        except (SafetensorError, OSError) as error:
            raise DataError(f"{self.path / 'models.safetensors'} is not whole: {error}") from None


def _checksum(snapshot: Snapshot) -> str:
    """Of everything in a checkpoint: a single wrong bit would go on as a run of its own."""
    import torch

    digest = hashlib.blake2b(
        f"{snapshot.round} {snapshot.messages} {snapshot.bytes}".encode(), digest_size=16
    )
    for name, x in sorted(snapshot.tensors.items()):
        digest.update(f"{name} {x.dtype} {list(x.shape)}".encode())
        digest.update(x.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def columns(records: list[Record]) -> dict[str, Any]:
    """Records as columns: one row a measurement; each device's accuracy too where there are not too many."""
    table: dict[str, Any] = {"round": [r.round for r in records]}
    for name in ("accuracy", "loss", "distance", "power_distance"):
        values = [getattr(r, name) for r in records]
        table[name] = [float(v.mean()) for v in values]
        if name in ("accuracy", "loss"):
            table[f"{name}_worst"] = [
                float(v.min() if name == "accuracy" else v.max()) for v in values
            ]
            table[f"{name}_best"] = [
                float(v.max() if name == "accuracy" else v.min()) for v in values
            ]
    table["messages"] = [r.messages for r in records]
    table["bytes"] = [r.bytes for r in records]
    if (
        records and records[0].seconds is not None
    ):  # not "seconds": those are the computer's own, in the summary
        table["simulated_seconds"] = [r.seconds for r in records]
    if records and len(records[0].accuracy) <= _PER_DEVICE_LIMIT:
        for name in ("accuracy", "loss", "distance"):
            table[f"device_{name}"] = [
                getattr(r, name).astype(np.float32).tolist() for r in records
            ]
    return table

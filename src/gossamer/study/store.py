"""A run folder: what was run, what came out, and what is needed to go on. Nothing in it is ever unpickled.

spec.toml             the whole study, every default written out
metrics.parquet       one row a measurement
summary.json          the result in short, with versions, seed and command
models.safetensors    every device's final model
checkpoint.safetensors   while the run is unfinished: its state
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.engines import Record, Snapshot
from gossamer.errors import DataError

_PER_DEVICE_LIMIT = 1000  # devices up to which every device's accuracy is kept in the metrics


@contextlib.contextmanager
def _said(action: str, path: Path) -> Iterator[None]:
    """Turn what the system says (disk full, read-only, not there) into one sentence."""
    try:
        yield
    except OSError as error:
        raise DataError(f"cannot {action} {path}: {error.strerror or error}") from None


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: to a temporary name in the same folder, then renamed."""
    with _said("write", path):
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise


@dataclass(frozen=True)
class RunFolder:
    """One run's folder."""

    path: Path

    @classmethod
    def create(cls, path: Path, spec: str) -> RunFolder:
        """A new folder with its spec; refuses one that is there."""
        if path.exists():
            raise DataError(f"{path} exists: go on with it by --resume, or give another name by --out")
        with _said("make the folder", path):
            path.mkdir(parents=True)
        folder = cls(path)
        write_atomically(path / "spec.toml", spec.encode())
        return folder

    @property
    def spec(self) -> str:
        return self._read("spec.toml").decode()

    def _read(self, name: str) -> bytes:
        with _said("read", self.path / name):
            return (self.path / name).read_bytes()

    # -- metrics and summary ---------------------------------------------------------------------------------------

    def write_metrics(self, columns: dict[str, Any]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        sink = pa.BufferOutputStream()
        pq.write_table(pa.table(columns), sink)
        write_atomically(self.path / "metrics.parquet", sink.getvalue().to_pybytes())

    def metrics(self) -> dict[str, Any]:
        """The measurements by column, as NumPy arrays (per-device columns: [measurements, devices])."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self.path / "metrics.parquet"
        if not path.exists():
            return {}
        try:
            table = pq.read_table(path)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{path} is not a whole Parquet file: {str(error).splitlines()[0]}") from None
        return {name: np.array(table[name].to_pylist()) for name in table.column_names}

    def write_summary(self, summary: dict[str, Any]) -> None:
        write_atomically(self.path / "summary.json", (json.dumps(summary, indent=2) + "\n").encode())

    def summary(self) -> dict[str, Any] | None:
        """The summary of a run, or None while there is none."""
        if not (self.path / "summary.json").exists():
            return None
        try:
            loaded = json.loads(self._read("summary.json"))
        except ValueError:
            raise DataError(f"{self.path / 'summary.json'} is not JSON") from None
        return dict(loaded)

    # -- state -----------------------------------------------------------------------------------------------------

    def write_snapshot(self, snapshot: Snapshot) -> None:
        from safetensors.torch import save

        counted = {"round": snapshot.round, "messages": snapshot.messages, "bytes": snapshot.bytes}
        metadata = {key: str(value) for key, value in counted.items()}
        write_atomically(self.path / "checkpoint.safetensors", save(snapshot.tensors, metadata))

    def snapshot(self) -> Snapshot | None:
        """The newest checkpoint, or None."""
        from safetensors import SafetensorError, safe_open

        path = self.path / "checkpoint.safetensors"
        if not path.exists():
            return None
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata()
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            round_, messages, sent = (int(metadata[key]) for key in ("round", "messages", "bytes"))
            return Snapshot(round_, messages, sent, tensors)
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path} is not a whole checkpoint: {error}") from None

    def drop_snapshot(self) -> None:
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
        except SafetensorError as error:
            raise DataError(f"{self.path / 'models.safetensors'} is not whole: {error}") from None


def columns(records: list[Record]) -> dict[str, Any]:
    """Records as columns: one row a measurement; each device's accuracy too where there are not too many."""
    table: dict[str, Any] = {"round": [r.round for r in records]}
    for name in ("accuracy", "loss", "distance", "power_distance"):
        values = [getattr(r, name) for r in records]
        table[name] = [float(v.mean()) for v in values]
        if name in ("accuracy", "loss"):
            table[f"{name}_worst"] = [float(v.min() if name == "accuracy" else v.max()) for v in values]
            table[f"{name}_best"] = [float(v.max() if name == "accuracy" else v.min()) for v in values]
    table["messages"] = [r.messages for r in records]
    table["bytes"] = [r.bytes for r in records]
    if records and len(records[0].accuracy) <= _PER_DEVICE_LIMIT:
        for name in ("accuracy", "loss", "distance"):
            table[f"device_{name}"] = [getattr(r, name).astype(np.float32).tolist() for r in records]
    return table

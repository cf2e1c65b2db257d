"""One file for a whole sequence of links: `save` writes it, `Sequence` is the network that reads it.

The file is Parquet with the whole-number columns round, a, b, sorted by all three: one row for each link, a < b (a to b
where directed). A row with a = b says that this device is away in that round. The schema's metadata has the keys format
("gossamer.links"), version ("1"), devices, rounds and directed ("true" or "false").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from gossamer._core import checks
from gossamer._core.files import write_atomically
from gossamer._core.registry import register
from gossamer.errors import DataError, InputError
from gossamer.network import limits
from gossamer.network._finite import Recorded
from gossamer.network.base import IntArray, Links, Network

FORMAT, VERSION = "gossamer.links", "1"
_COLUMNS = ("round", "a", "b")
_ROWS_AT_ONCE = 1_000_000


def save(network: Network, path: str | Path, rounds: int) -> None:
    """Write the first `rounds` rounds to one file, whole or not at all.

    save(RandomRing(10), "ring.parquet", rounds=500)
    Sequence("ring.parquet").links(499)
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    checks.whole("rounds", rounds, 1, limits.MAX_ROUNDS)
    if network.rounds is not None and rounds > network.rounds:
        raise InputError(
            "rounds", rounds, f"at most {network.rounds}, which is what the network has"
        )
    path = Path(path)
    about = {"format": FORMAT, "version": VERSION, "devices": network.devices, "rounds": rounds}
    about["directed"] = "true" if network.directed else "false"
    metadata = {key: str(value) for key, value in about.items()}
    schema = pa.schema([(name, pa.int32()) for name in _COLUMNS], metadata=metadata)

    def write(file: BinaryIO) -> None:
        with pq.ParquetWriter(file, schema, write_page_checksum=True) as writer:
            for rows in _batches(network, rounds):
                columns = [pa.array(column) for column in rows]
                writer.write_batch(pa.record_batch(columns, schema=schema))

    write_atomically(path, write)


def _batches(network: Network, rounds: int) -> Iterator[list[Any]]:
    waiting: list[IntArray] = []
    count = total = 0
    for t in range(rounds):
        rows = _rows(network.links(t), t)
        waiting.append(rows)
        count, total = count + len(rows[0]), total + len(rows[0])
        if total > limits.MAX_LINKS:
            raise InputError(
                "rounds",
                rounds,
                f"fewer: one file may have {limits.MAX_LINKS:,} links, reached in round {t}",
            )
        if count >= _ROWS_AT_ONCE or t == rounds - 1:
            yield list(np.concatenate(waiting, axis=1).astype(np.int32))
            waiting, count = [], 0


def _rows(links: Links, t: int) -> IntArray:
    """The columns [3, n] of one round, sorted."""
    a, b = links.a, links.b
    if links.active is not None:
        away = np.flatnonzero(~links.active)
        code = np.sort(np.concatenate([a, away]) * links.devices + np.concatenate([b, away]))
        a, b = code // links.devices, code % links.devices
    return np.stack([np.full_like(a, t), a, b])


@register("network", "file")
@dataclass(frozen=True)
class Sequence(Recorded):
    """A saved sequence of links. `beyond` is what comes after its last round: "error", "repeat" or "empty"."""

    path: str | Path
    beyond: str = "error"
    devices: int = field(init=False)
    directed: bool = field(init=False)
    recorded: int = field(init=False)
    _columns: tuple[IntArray, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        devices, recorded, directed, columns = _read(Path(self.path))
        values = {
            "devices": devices,
            "recorded": recorded,
            "directed": directed,
            "_columns": columns,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _recorded_links(self, t: int) -> Links:
        low, high = np.searchsorted(self._columns[0], [t, t + 1])
        a, b = (column[low:high].astype(np.int64) for column in self._columns[1:])
        away = a[a == b]
        if not len(away):
            return Links(self.devices, a, b, self.directed)
        active = np.ones(self.devices, dtype=bool)
        active[away] = False
        return Links(self.devices, a[a != b], b[a != b], self.directed, active)


def _read(path: Path) -> tuple[int, int, bool, tuple[IntArray, ...]]:
    """The number of devices and of rounds, whether directed, and the columns, all checked."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def wrong(what: str) -> DataError:
        return DataError(f"{path} is not a sequence of links that can be used: {what}")

    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            schema, count = file.schema_arrow, file.metadata.num_rows
            about = {key.decode(): value.decode() for key, value in (schema.metadata or {}).items()}
            if (about.get("format"), about.get("version")) != (FORMAT, VERSION):
                raise wrong(
                    f"expected the format {FORMAT} version {VERSION}; `gossamer network show --save` writes such a file"
                )
            if schema.names != list(_COLUMNS) or any(
                kind not in (pa.int32(), pa.int64()) for kind in schema.types
            ):
                raise wrong("expected the whole-number columns round, a, b")
            devices, rounds = (
                _metadata(about, "devices", limits.MAX_DEVICES),
                _metadata(about, "rounds", limits.MAX_ROUNDS),
            )
            if (
                not devices
                or not rounds
                or about.get("directed") not in ("true", "false")
                or count > limits.MAX_LINKS
            ):
                raise wrong(
                    "devices, rounds, directed or the number of rows is missing or out of range"
                )
            table = file.read()
    except FileNotFoundError as error:
        raise DataError(
            f"{path} does not exist; `gossamer network show --save` writes such a file"
        ) from error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise wrong(
            f"it is not Parquet, or broken or truncated ({str(error).splitlines()[0]})"
        ) from error
    if len(table) != count or any(table[name].null_count for name in _COLUMNS):
        raise wrong("a row or a value is missing")
    t, a, b = columns = tuple(table[name].to_numpy() for name in _COLUMNS)
    for name, column, limit in (
        ("round", t, rounds),
        ("device", a, devices),
        ("device", b, devices),
    ):
        outside = (column < 0) | (column >= limit)
        if outside.any():
            raise wrong(f"{name} {column[outside][0]} is out of range; there are {limit} of them")
    directed = about["directed"] == "true"
    if not directed and (a > b).any():
        row = np.flatnonzero(a > b)[0]
        raise wrong(
            f"asymmetric: the link {a[row]} {b[row]} of round {t[row]} is not listed as a < b"
        )
    up, same = np.diff(t) > 0, np.diff(t) == 0
    up |= same & (np.diff(a) > 0)
    up |= same & (np.diff(a) == 0) & (np.diff(b) > 0)
    if not up.all():
        raise wrong(
            f"row {np.flatnonzero(~up)[0] + 1} is out of order or a repeat; rows are sorted by round, a, b"
        )
    at, link = t.astype(np.int64) * devices, a != b
    away = (at + a)[~link]
    if np.isin((at + a)[link], away).any() or np.isin((at + b)[link], away).any():
        raise wrong("a device that is away has a link")
    return devices, rounds, directed, columns


def _metadata(about: dict[str, str], key: str, most: int) -> int:
    """A whole number from 1 to `most`, or 0 where it is none."""
    word = about.get(key, "")
    return (
        int(word)
        if word.isascii() and word.isdecimal() and len(word) < 18 and int(word) <= most
        else 0
    )

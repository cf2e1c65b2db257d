"""Save the links of many rounds in one file (`save`), and read them back as a network (`Sequence`).

The file is Parquet with the whole-number columns round, a, b, sorted by all three. Each row is a
link with a < b (from a to b if directed). A row with a = b means that this device is away in that
round. A network that carries weights has a fourth column, weight, which is NaN in rounds without
weights. The metadata of the schema has the keys format ("gossamer.links"), version ("1"), devices,
rounds and directed ("true" or "false").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from gossamer._core import checks
from gossamer._core.files import write_atomically
from gossamer._core.registry import register
from gossamer.errors import DataError, InputError
from gossamer.network import limits
from gossamer.network.base import BoolArray, FloatArray, IntArray, Links, Network
from gossamer.network.recorded import Recorded

FORMAT = "gossamer.links"
VERSION = "1"
_COLUMNS = ("round", "a", "b")
_WEIGHT = "weight"
_ROUNDING = 1e-9  # amount by which a device's weights may exceed 1
_ROWS_PER_BATCH = 1_000_000  # rows that are kept in memory before they are written


def save(network: Network, path: str | Path, rounds: int) -> None:
    """Write the first rounds of a network to one file, atomically.

    Args:
        network: The network.
        path: The Parquet file to create or replace.
        rounds: Number of rounds to write.

    Raises:
        InputError: If the network has fewer rounds, or too many links for one file.
        DataError: If the file cannot be written.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from gossamer.network import RandomRing
        >>> with TemporaryDirectory() as folder:
        ...     save(RandomRing(10), f"{folder}/ring.parquet", rounds=5)
        ...     Sequence(f"{folder}/ring.parquet").links(4) == RandomRing(10).links(4)
        True
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    checks.whole("rounds", rounds, 1, limits.MAX_ROUNDS)
    if network.rounds is not None and rounds > network.rounds:
        accepted = f"at most {network.rounds}, which is what the network has"
        raise InputError("rounds", rounds, accepted)
    metadata = {
        "format": FORMAT,
        "version": VERSION,
        "devices": str(network.devices),
        "rounds": str(rounds),
        "directed": "true" if network.directed else "false",
    }
    fields = [(name, pa.int32()) for name in _COLUMNS]
    if network.weighted:
        fields.append((_WEIGHT, pa.float64()))
    schema = pa.schema(fields, metadata=metadata)

    def write(file: BinaryIO) -> None:
        with pq.ParquetWriter(file, schema, write_page_checksum=True) as writer:
            for rows in _batches(network, rounds):
                columns = [pa.array(column) for column in rows]
                writer.write_batch(pa.record_batch(columns, schema=schema))

    write_atomically(Path(path), write)


def _batches(network: Network, rounds: int) -> Iterator[list[Any]]:
    """Yield the columns of the file, many rounds at a time."""
    waiting: list[IntArray] = []
    weights: list[FloatArray] = []
    count = 0
    total = 0
    for t in range(rounds):
        rows, weight = _rows(network.links(t), t)
        waiting.append(rows)
        weights.append(weight)
        count += len(rows[0])
        total += len(rows[0])
        if total > limits.MAX_LINKS:
            accepted = f"fewer: one file may have {limits.MAX_LINKS:,} links, reached in round {t}"
            raise InputError("rounds", rounds, accepted)
        if count >= _ROWS_PER_BATCH or t == rounds - 1:
            columns: list[Any] = list(np.concatenate(waiting, axis=1).astype(np.int32))
            if network.weighted:
                columns.append(np.concatenate(weights))
            yield columns
            waiting = []
            weights = []
            count = 0


def _rows(links: Links, t: int) -> tuple[IntArray, FloatArray]:
    """Return the columns [3, rows] of one round, sorted, and the weights of the rows."""
    a = links.a
    b = links.b
    weight = links.weight
    if weight is None:
        weight = np.full(len(a), np.nan)
    if links.active is not None:
        away = np.flatnonzero(~links.active)
        code = np.concatenate([a, away]) * links.devices + np.concatenate([b, away])
        order = np.argsort(code)
        a = code[order] // links.devices
        b = code[order] % links.devices
        weight = np.concatenate([weight, np.zeros(len(away))])[order]
    return np.stack([np.full_like(a, t), a, b]), weight


@register("network", "file")
@dataclass(frozen=True)
class Sequence(Recorded):
    """A network that is read from a file written by `save`.

    Args:
        path: The Parquet file.
        beyond: What follows the last round: "error", "repeat" or "empty".

    Raises:
        DataError: If the file does not exist, is damaged, or is not a file of links.
    """

    path: str | Path
    beyond: str = "error"
    devices: int = field(init=False)
    directed: bool = field(init=False)
    recorded: int = field(init=False)
    weighted: bool = field(init=False)
    _columns: tuple[IntArray, ...] = field(init=False, repr=False, compare=False)
    _weight: FloatArray | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        file = _read(Path(self.path))
        object.__setattr__(self, "devices", file.devices)
        object.__setattr__(self, "recorded", file.rounds)
        object.__setattr__(self, "directed", file.directed)
        object.__setattr__(self, "weighted", file.weight is not None)
        object.__setattr__(self, "_columns", file.columns)
        object.__setattr__(self, "_weight", file.weight)

    @property
    def schedule(self) -> Network | None:
        return None  # devices do not have the file

    def _links_before(self, t: int) -> int | None:
        rows = int(np.searchsorted(self._columns[0], t))
        return int(np.count_nonzero(self._columns[1][:rows] != self._columns[2][:rows]))

    def _recorded_links(self, t: int) -> Links:
        low, high = np.searchsorted(self._columns[0], [t, t + 1])
        a, b = (column[low:high].astype(np.int64) for column in self._columns[1:])
        weight = None
        if self._weight is not None and not np.isnan(self._weight[low:high]).any():
            weight = self._weight[low:high]
        links = Links(self.devices, a, b, self.directed, weight=weight)
        away = a[a == b]
        if not len(away):
            return links
        active = np.ones(self.devices, dtype=bool)
        active[away] = False
        return links.keep(a != b, active)


class _File(NamedTuple):
    """The contents of a file: `columns` has round, a and b of each row."""

    devices: int
    rounds: int
    directed: bool
    columns: tuple[IntArray, ...]
    weight: FloatArray | None


def _read(path: Path) -> _File:
    """Return the contents of a file, after checking all of it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            devices, rounds, directed = _read_metadata(path, file)
            count = file.metadata.num_rows
            table = file.read()
    except FileNotFoundError as error:
        raise DataError(
            f"{path} does not exist; `gossamer network show --save` writes such a file"
        ) from error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise _unusable(path, f"it is not Parquet, or broken or truncated ({reason})") from error
    if len(table) != count or any(column.null_count for column in table.columns):
        raise _unusable(path, "a row or a value is missing")
    t, a, b = (table[name].to_numpy() for name in _COLUMNS)
    _check_range(path, "round", t, rounds)
    _check_range(path, "device", a, devices)
    _check_range(path, "device", b, devices)
    if not directed and (a > b).any():
        row = np.flatnonzero(a > b)[0]
        link = f"{a[row]} {b[row]} of round {t[row]}"
        raise _unusable(path, f"asymmetric: the link {link} is not listed as a < b")
    _check_order(path, t, a, b)
    _check_away(path, t, a, b, devices)
    weight = None
    if _WEIGHT in table.column_names:
        weight = table[_WEIGHT].to_numpy()
        _check_weights(path, weight, t, a != b)
        sender = t.astype(np.int64) * devices + a
        if directed:
            _check_sums(path, weight, sender)
        else:
            _check_sums(path, np.tile(weight, 2), np.concatenate([sender, sender - a + b]))
    return _File(devices, rounds, directed, (t, a, b), weight)


def _read_metadata(path: Path, file: Any) -> tuple[int, int, bool]:
    """Return devices, rounds and directed of a Parquet file, after checking its schema."""
    import pyarrow as pa

    schema = file.schema_arrow
    metadata = {key.decode(): value.decode() for key, value in (schema.metadata or {}).items()}
    if metadata.get("format") != FORMAT or metadata.get("version") != VERSION:
        raise _unusable(
            path,
            f"expected the format {FORMAT} version {VERSION}; "
            "`gossamer network show --save` writes such a file",
        )
    has_whole_numbers = all(kind in (pa.int32(), pa.int64()) for kind in schema.types[:3])
    expected = [list(_COLUMNS), [*_COLUMNS, _WEIGHT]]
    if schema.names not in expected or not has_whole_numbers:
        raise _unusable(path, "expected the whole-number columns round, a, b")
    if len(schema.names) > len(_COLUMNS) and schema.types[3] != pa.float64():
        raise _unusable(path, "expected weights as 64-bit floating-point numbers")
    devices = _whole_number(metadata.get("devices", ""), limits.MAX_DEVICES)
    rounds = _whole_number(metadata.get("rounds", ""), limits.MAX_ROUNDS)
    directed = metadata.get("directed")
    too_long = file.metadata.num_rows > limits.MAX_LINKS
    if devices == 0 or rounds == 0 or directed not in ("true", "false") or too_long:
        raise _unusable(
            path, "devices, rounds, directed or the number of rows is missing or out of range"
        )
    return devices, rounds, directed == "true"


def _whole_number(word: str, most: int) -> int:
    """Return a whole number from 1 to `most`, or 0 if the word is not one."""
    if not (word.isascii() and word.isdecimal() and len(word) < 18):
        return 0
    value = int(word)
    if value > most:
        return 0
    return value


def _check_range(path: Path, name: str, column: IntArray, limit: int) -> None:
    outside = (column < 0) | (column >= limit)
    if outside.any():
        value = column[outside][0]
        raise _unusable(path, f"{name} {value} is out of range; there are {limit} of them")


def _check_order(path: Path, t: IntArray, a: IntArray, b: IntArray) -> None:
    """Check that the rows are sorted by (t, a, b), without repeats."""
    same_round = np.diff(t) == 0
    same_a = same_round & (np.diff(a) == 0)
    ascending = np.diff(t) > 0
    ascending |= same_round & (np.diff(a) > 0)
    ascending |= same_a & (np.diff(b) > 0)
    if not ascending.all():
        row = np.flatnonzero(~ascending)[0] + 1
        raise _unusable(
            path, f"row {row} is out of order or a repeat; rows are sorted by round, a, b"
        )


def _check_away(path: Path, t: IntArray, a: IntArray, b: IntArray, devices: int) -> None:
    """Check that no device has a link in a round in which it is away."""
    first_code = t.astype(np.int64) * devices
    is_link = a != b
    away = (first_code + a)[~is_link]
    ends = np.concatenate([(first_code + a)[is_link], (first_code + b)[is_link]])
    if np.isin(ends, away).any():
        raise _unusable(path, "a device that is away has a link")


def _check_weights(path: Path, weight: FloatArray, t: IntArray, is_link: BoolArray) -> None:
    """Check that weights are from 0 to 1, and that a round has weights on all links or none."""
    missing = np.isnan(weight)
    if not (missing | ((weight >= 0) & (weight <= 1))).all():
        raise _unusable(path, "a weight is not a number from 0 to 1")
    partly = np.intersect1d(t[missing & is_link], t[~missing & is_link])
    if len(partly):
        raise _unusable(path, f"some links of round {partly[0]} have no weight")


def _check_sums(path: Path, weight: FloatArray, giver: IntArray) -> None:
    """Check that a device gives at most 1 in a round.

    Args:
        path: The file.
        weight: The weights.
        giver: A number for each device in each round.
    """
    _, number = np.unique(giver, return_inverse=True)
    if (np.bincount(number, weights=np.nan_to_num(weight)) > 1 + _ROUNDING).any():
        raise _unusable(path, "the weights of a device in a round are more than 1 in sum")


def _unusable(path: Path, reason: str) -> DataError:
    return DataError(f"{path} is not a sequence of links that can be used: {reason}")

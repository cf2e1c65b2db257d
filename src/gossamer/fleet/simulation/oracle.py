"""What must hold after every event, computed from what crosses the wire and reaches the disk.

Of the code under test it trusts which exchanges a mix says it has applied; all else (vectors,
degrees, weights, what is on disk) it reads from messages and files. The rules:

- "one vector": a device sends one vector per exchange and link, whatever it goes through.
- "durable": what a device has acknowledged is on its disk, also after a power failure.
- "both ends": an exchange that one end has applied, the other has applied or still owes; one that
  an end has dropped, the other never applies.
- "once": no exchange is applied twice.
- "mean": a mix moves what vectors and weights say, so that over all devices it moves nothing but
  what is owed; in the dual, if the method has a mirror map.
- "restart": from whatever a crash may leave, a device resumes with all that it owes.
- "whole": a model that other programs read is whole, also after a power failure.
"""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray
from safetensors.torch import load
from torch import Tensor

from gossamer.errors import DataError
from gossamer.fleet.protocol.journal import CHECKPOINT_FILE, Checkpoint, Journal, Transfer
from gossamer.fleet.protocol.ledger import Exchanged
from gossamer.fleet.protocol.messages import DTYPE_CODES, ExchangeId, Kind, vector_from_bytes
from gossamer.fleet.simulation.disk import ReadOnlyDisk, SimulatedDisk
from gossamer.fleet.simulation.scheduler import Violation

_HEADER = struct.Struct("<4sHBB16sIIHBBI16sQII")  # the header that `protocol.wire` documents
_DTYPES = {code: dtype for dtype, code in DTYPE_CODES.items()}
_TOLERANCE = 1e-9  # relative to the sizes that are added, in float64
_MODEL_SUFFIX = ".safetensors"

Owed = tuple[int, ExchangeId]  # the neighbour, and the exchange with it


@dataclass(frozen=True)
class _Sent:
    """A MODEL on the wire."""

    degree: int
    checksum: int
    vector: NDArray[np.float64]


@dataclass
class _Account:
    """What a device has applied, up to a state of its own.

    Args:
        applied: The exchanges.
        moved: What they have added to its vector, in the dual, by part.
        sizes: The sum of the sizes of what was added, by part.
    """

    applied: set[Owed] = field(default_factory=set)
    moved: dict[int, NDArray[np.float64]] = field(default_factory=dict)
    sizes: dict[int, NDArray[np.float64]] = field(default_factory=dict)

    def copy(self) -> _Account:
        return _Account(set(self.applied), dict(self.moved), dict(self.sizes))

    def add(self, part: int, moved: NDArray[np.float64], size: NDArray[np.float64]) -> None:
        """Add what a mix has moved. Arrays are never changed in place: copies share them."""
        self.moved[part] = self.moved.get(part, 0.0) + moved
        self.sizes[part] = self.sizes.get(part, 0.0) + size


@dataclass
class _Device:
    """What is known of a device."""

    folder: Path
    disk: SimulatedDisk
    account: _Account = field(default_factory=_Account)  # account of the running process
    # Accounts by digest of the checkpoint.
    checkpoints: dict[bytes, _Account] = field(default_factory=dict)
    pending: set[Owed] = field(default_factory=set)
    acknowledged: set[Owed] = field(default_factory=set)
    recovered: tuple[int, set[Owed]] = (-1, set())  # version of the disk, and what survives there


class Oracle:
    """Checks all devices of one simulation.

    Args:
        folders: The folder of each device.
        disks: Its disk.
        power_failures: True if what was not synced may be lost.
    """

    def __init__(
        self, folders: list[Path], disks: list[SimulatedDisk], power_failures: bool
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.last_commit: dict[int, int] = {}  # device: round of its last exchange
        self._devices = []
        for folder, disk in zip(folders, disks, strict=True):
            self._devices.append(_Device(folder, disk))
        self._power_failures = power_failures
        self._sent: dict[tuple[int, int, ExchangeId], _Sent] = {}
        self._powers: dict[ExchangeId, float] = {}
        # Dropped by the other end, so never to be applied.
        self._dropped: set[tuple[int, Owed]] = set()

    # -- events ------------------------------------------------------------------------------------

    def on_sent(self, sender: int, to: int, data: bytes) -> None:
        """Check a message that a device sends.

        Args:
            sender: The sending device.
            to: The receiving device.
            data: The message.
        """
        fields = _HEADER.unpack_from(data)
        kind, code, t, part, exchanges = (fields[2], fields[3], fields[6], fields[7], fields[8])
        checksum = fields[13]
        exchange = (t, part)
        if kind == Kind.MODEL:
            content = bytearray(data[_HEADER.size + 8 * exchanges :])
            dtype = _DTYPES[code]
            shape = (len(content) // dtype.itemsize,)
            vector = vector_from_bytes(memoryview(content), shape, dtype).double().numpy()
            sent = _Sent(fields[10], checksum, vector)
            before = self._sent.setdefault((sender, to, exchange), sent)
            if before.checksum != checksum:
                raise Violation(
                    "one vector", f"n{sender} sends n{to} a second vector for {_name(exchange)}"
                )
        elif kind == Kind.READY:
            owed = (to, exchange)
            self.counts["acks"] += 1
            self._devices[sender].acknowledged.add(owed)
            if owed not in self._recoverable(sender):
                raise Violation(
                    "durable",
                    f"n{sender} acknowledges {_name(exchange)} of n{to}, and a crash now loses it",
                )

    def on_checkpoint(self, device: int, content: bytes) -> None:
        """Note that a checkpoint is about to get its name: what it has applied is known.

        Args:
            device: Number of the device.
            content: The file.
        """
        known = self._devices[device]
        known.checkpoints[_digest(content)] = known.account.copy()

    def on_end_of_process(self, device: int) -> None:
        """Note that a process has ended in any way: what counts now is what is on its disk.

        Args:
            device: Number of the device.
        """
        known = self._devices[device]
        checkpoint, account = self._read(device, known.disk)
        self._check_models(device, known.disk)
        known.account = account.copy()
        known.pending = set() if checkpoint is None else _owed(checkpoint.pending)
        self._check_owed(device, "restarts")

    def on_mix(
        self,
        device: int,
        exchanged: Exchanged,
        pending: tuple[Transfer, ...],
        before: Tensor,
        after: Tensor,
        p: float,
        part: int,
    ) -> None:
        """Check a mix of a device.

        Args:
            device: Number of the device.
            exchanged: What was applied.
            pending: What is in doubt, or confirmed and not yet applied.
            before: The vector before the mix.
            after: The vector after it.
            p: Power of the mean.
            part: Number of the mix in its round.
        """
        known = self._devices[device]
        self.counts["mixes"] += 1
        expected = np.zeros(before.numel())
        scale = np.abs(_dual(before, p))
        for transfer in [*exchanged.committed, *exchanged.late]:
            owed = (transfer.neighbour, transfer.exchange)
            if owed in known.account.applied:
                raise Violation("once", f"n{device} applies {_between(owed)} twice")
            if (device, owed) in self._dropped:
                raise Violation(
                    "both ends", f"n{device} applies {_between(owed)}, which the other dropped"
                )
            moved, size = self._moved(device, owed, p)
            expected += moved
            scale += size
            known.account.applied.add(owed)
        self.counts["applied late"] += len(exchanged.late)
        self.counts["applied"] += len(exchanged.committed) + len(exchanged.late)
        actual = _dual(after, p) - _dual(before, p)
        if (np.abs(actual - expected) > _TOLERANCE * scale).any():
            raise Violation(
                "mean", f"the mix of n{device} in {_names(exchanged)} moves other than its links"
            )
        known.account.add(part, actual, scale)
        self._note_pending(device, _owed(pending))
        for transfer in exchanged.committed:
            self.last_commit[device] = transfer.exchange[0]
            neighbour = transfer.neighbour
            if (device, transfer.exchange) not in self._recoverable(neighbour):
                raise Violation(
                    "durable",
                    f"n{device} applies {_name(transfer.exchange)} with n{neighbour},"
                    " where a crash now loses it",
                )
        self._check_owed(device, "mixes")
        self._check_total(part)

    def on_end(self, device: int, pending: tuple[Transfer, ...]) -> None:
        """Check a device whose node has ended.

        Args:
            device: Number of the device.
            pending: What is in doubt, or confirmed and not yet applied.
        """
        self._note_pending(device, _owed(pending))
        self._check_owed(device, "ends")

    def check_crash(self, device: int, random: Random) -> None:
        """Check that a device could resume from what a crash now may leave.

        Args:
            device: Number of the device.
            random: What the crash leaves.
        """
        known = self._devices[device]
        self.counts["restarts tried"] += 1
        left = ReadOnlyDisk(known.disk.after_power_failure(random))
        self._check_recovered(device, self._survives(device, left))
        self._check_models(device, left)

    # -- rules -------------------------------------------------------------------------------------

    def _check_recovered(self, device: int, survives: set[Owed]) -> None:
        """Check that what a crash leaves has all that was acknowledged and not dropped since."""
        known = self._devices[device]
        for owed in known.acknowledged:
            decided = (owed[0], (device, owed[1])) in self._dropped
            if owed not in survives and not decided:
                raise Violation(
                    "restart", f"after a crash now, n{device} does not know of {_between(owed)}"
                )

    def _check_models(self, device: int, disk: SimulatedDisk) -> None:
        """Check that the models on a disk are whole."""
        for path, content in disk.peek_all().items():
            if path.suffix != _MODEL_SUFFIX:
                continue
            try:
                load(content)
            except Exception as error:  # what safetensors raises is not documented
                raise Violation(
                    "whole", f"n{device} has a torn {path} after a crash: {type(error).__name__}"
                ) from None

    def _check_owed(self, device: int, what: str) -> None:
        """Check that a device has applied, or keeps, all that its neighbours have applied."""
        known = self._devices[device]
        for other, neighbour in enumerate(self._devices):
            for end, exchange in neighbour.account.applied:
                owed = (other, exchange)
                if end != device or owed in known.account.applied or owed in known.pending:
                    continue
                raise Violation(
                    "both ends", f"n{device} {what} without {_between(owed)}, which n{other} has"
                )

    def _check_total(self, part: int) -> None:
        """Check that all exchanges so far have moved nothing but what is owed."""
        total: NDArray[np.float64] = np.zeros(1)
        scale: NDArray[np.float64] = np.zeros(1)
        for device, known in enumerate(self._devices):
            if part in known.account.moved:
                total = total + known.account.moved[part]
                scale = scale + known.account.sizes[part]
            for neighbour, exchange in known.account.applied:
                mirrored = (device, exchange)
                if exchange[1] != part or mirrored in self._devices[neighbour].account.applied:
                    continue
                owed, size = self._moved(neighbour, mirrored, self._powers[exchange])
                total = total + owed
                scale = scale + size
        if (np.abs(total) > _TOLERANCE * scale).any():
            raise Violation("mean", f"the mean of part {part} has moved by {np.abs(total).max():g}")

    def _note_pending(self, device: int, pending: set[Owed]) -> None:
        """Note what a device keeps pending; what is gone without being applied is dropped."""
        known = self._devices[device]
        for neighbour, exchange in known.pending - pending - known.account.applied:
            self.counts["dropped"] += 1
            if (device, exchange) in self._devices[neighbour].account.applied:
                owed = (neighbour, exchange)
                raise Violation(
                    "both ends", f"n{device} drops {_between(owed)}, which n{neighbour} has applied"
                )
            self._dropped.add((neighbour, (device, exchange)))
        self.counts["in doubt"] += len(pending - known.pending)
        known.pending = pending

    def _moved(
        self, device: int, owed: Owed, p: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return what an exchange moves to a device in the dual, and the sizes of what is added."""
        neighbour, exchange = owed
        own = self._sent.get((device, neighbour, exchange))
        other = self._sent.get((neighbour, device, exchange))
        if own is None or other is None:
            raise Violation("mean", f"n{device} applies {_between(owed)}, which was never sent")
        self._powers[exchange] = p
        # Metropolis weights, from the degrees that both have announced.
        weight = 1.0 / (1 + max(own.degree, other.degree))
        a = _power(own.vector, p)
        b = _power(other.vector, p)
        return weight * (b - a), np.abs(a) + np.abs(b)

    # -- what is on disk ---------------------------------------------------------------------------

    def _recoverable(self, device: int) -> set[Owed]:
        """Return what a device would know after a crash now that leaves as little as it may."""
        known = self._devices[device]
        version, survives = known.recovered
        if version != known.disk.version:
            left = known.disk
            if self._power_failures:
                left = ReadOnlyDisk(known.disk.after_power_failure(None))
            survives = self._survives(device, left)
            known.recovered = (known.disk.version, survives)
        return survives

    def _survives(self, device: int, disk: SimulatedDisk) -> set[Owed]:
        """Return the exchanges that a device would have applied or keep, from its disk."""
        checkpoint, account = self._read(device, disk)
        if checkpoint is None:
            return set()
        return account.applied | _owed(checkpoint.pending)

    def _read(self, device: int, disk: SimulatedDisk) -> tuple[Checkpoint | None, _Account]:
        """Return what a journal reads from a disk, and what its state has applied."""
        known = self._devices[device]
        path = known.folder / CHECKPOINT_FILE
        content = disk.peek(path)
        if content is None:
            return None, _Account()
        account = known.checkpoints.get(_digest(content))
        try:
            checkpoint = Journal(known.folder, disk=ReadOnlyDisk(disk.peek_all())).read()
        except DataError as error:
            raise Violation("restart", f"n{device} cannot resume after a crash: {error}") from None
        if account is None:
            raise Violation("restart", f"n{device} resumes from a checkpoint that is not whole")
        return checkpoint, account


def _dual(x: Tensor, p: float) -> NDArray[np.float64]:
    return _power(x.detach().reshape(-1).double().numpy(), p)


def _power(x: NDArray[np.float64], p: float) -> NDArray[np.float64]:
    if p == 1:
        return x
    return np.sign(x) * np.abs(x) ** p


def _owed(transfers: tuple[Transfer, ...]) -> set[Owed]:
    return {(transfer.neighbour, transfer.exchange) for transfer in transfers}


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()


def _name(exchange: ExchangeId) -> str:
    return f"exchange {exchange[0]}.{exchange[1]}"


def _between(owed: Owed) -> str:
    return f"{_name(owed[1])} with n{owed[0]}"


def _names(exchanged: Exchanged) -> str:
    transfers = [*exchanged.committed, *exchanged.late]
    return ", ".join(_name(transfer.exchange) for transfer in transfers) or "no exchange"

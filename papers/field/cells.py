"""The cells of the comparison: task, split of the data, network and number of devices."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import gossamer as gs
from gossamer._core.files import write_atomically
from gossamer.engines import Simulator
from gossamer.study import Study
from papers import families

SPLITS = {
    "iid": gs.Iid(),
    "dirichlet 0.1": gs.Dirichlet(0.1),
    "one label": gs.OneLabel(),
}
SPLIT_NAMES = {"iid": "IID", "dirichlet 0.1": "Dirichlet 0.1", "one label": "one label"}
# A link takes 0.1 s and a megabyte 1 s; a step takes 0.05 s.
TIMING = gs.Timing(compute=0.05, rate=1e6, latency=0.1)
STATIC = "static ring"
TRACE = "hospital"
PHYSICIANS = "hospital physicians"
_TRACE_FILE = "traces/Contacts_Hospital.csv"
# The last two columns of the log are the roles of the two persons.
_PHYSICIAN = "MED"
_PHYSICIANS = 11
# An hour: 86 of the 97 hours have contacts, and a device meets about two others in one.
_TRACE_ROUND = 3600.0
# The methods of the CNN on further networks: the references and those that lead on the random ring.
_FEW = (
    "d-psgd",
    "quasi-global",
    "tracking",
    "gain-tracking",
    "fading-gain",
    "fading-gain-tracking",
)
# Area of the mobility model: every device meets about two others, whatever their number.
_DEVICES_IN_RANGE = 3


@dataclass(frozen=True)
class Task:
    """What is learned.

    Attributes:
        name: Its name in tables.
        data: The data.
        model: The model.
        batch: Samples per step.
        rounds: Rounds of a run.
        every: Rounds between two measurements.
        test: Test samples per measurement; 0 for all.
        targets: Accuracies; tuning is for the last.
    """

    name: str
    data: Any
    model: Any
    batch: int
    rounds: int
    every: int
    test: int
    targets: tuple[float, ...]


MNIST = Task("MNIST, softmax", gs.Mnist(), gs.Softmax(), 128, 200, 5, 1000, (0.8, 0.85, 0.88))
FASHION = Task(
    "Fashion-MNIST, softmax", gs.FashionMnist(), gs.Softmax(), 128, 200, 5, 1000, (0.7, 0.75, 0.78)
)
DIGITS = Task("digits, MLP", gs.Digits(), gs.Mlp((64,)), 32, 200, 5, 0, (0.8, 0.9, 0.95))
CIFAR = Task("CIFAR-10, CNN", gs.Cifar10(), gs.Cnn((8, 16)), 32, 100, 10, 500, (0.2, 0.25, 0.3))


@dataclass(frozen=True)
class Cell:
    """One setting in which methods are compared.

    Attributes:
        task: What is learned.
        split: A key of SPLITS.
        network: "random ring", "static ring", "density 0.1", "density 0.05", "mobility",
            "hospital" or "hospital physicians".
        devices: Number of devices.
    """

    task: Task
    split: str
    network: str
    devices: int

    @property
    def columns(self) -> dict[str, object]:
        """The cell as columns of a table."""
        return {
            "task": self.task.name,
            "split": self.split,
            "network": self.network,
            "devices": self.devices,
        }

    def study(self, algorithm: gs.Algorithm, seed: int, held_out: bool = False) -> Study:
        """Return one run.

        Args:
            algorithm: The method.
            seed: Seed of links, batches and initial model.
            held_out: Measure on a tenth of the training samples, which are not trained on, as
                tuning does. The test samples are not looked at.
        """
        task = self.task
        data = task.data
        if held_out:
            data = gs.Validation(data, 0.1)
        return Study(
            algorithm,
            network(self.network, self.devices, seed),
            data,
            SPLITS[self.split],
            task.model,
            batch=task.batch,
            rounds=task.rounds,
            seed=seed,
            measure=gs.Measure(
                every=task.every,
                # Most methods end a round with the mix, and are measured there; so are the others.
                at="after_mix",
                test=task.test,
                targets=tuple(f"accuracy >= {target:g}" for target in task.targets),
            ),
            timing=TIMING,
            name="field",
        )


def trace_path() -> Path | None:
    """Return the contact log of the hospital ward, if GOSSAMER_OUTSIDE names a folder with it."""
    folder = os.environ.get("GOSSAMER_OUTSIDE", "")
    path = Path(folder) / _TRACE_FILE
    if folder and path.exists():
        return path
    return None


def network(name: str, devices: int, seed: int) -> gs.Network:
    """Return a network.

    Args:
        name: See `Cell`.
        devices: Number of devices.
        seed: Seed of the links. The contacts of a real trace do not depend on it.
    """
    if name == "random ring":
        return gs.RandomRing(devices, seed=seed)
    if name == STATIC:
        return gs.Ring(devices)
    if name.startswith("density"):
        return gs.Random(devices, density=float(name.split()[1]), seed=seed)
    if name == "mobility":
        radius = (_DEVICES_IN_RANGE / (3.1416 * devices)) ** 0.5
        return gs.Mobility(devices, radius=radius, seed=seed)
    path = trace_path()
    if path is None:
        raise gs.DataError(f"{_TRACE_FILE} is not in GOSSAMER_OUTSIDE: the trace cannot be read")
    if name == PHYSICIANS:
        path = _contacts_of_physicians(path)
    return gs.ContactTrace(path, seconds_per_round=_TRACE_ROUND, skip_empty=True, beyond="repeat")


def _contacts_of_physicians(path: Path) -> Path:
    """Write the contacts among the physicians of the ward to runs/, and return the file."""
    kept = []
    for line in path.read_text().splitlines():
        if line.split()[3:] == [_PHYSICIAN, _PHYSICIAN]:
            kept.append(line + "\n")
    found = Path("runs") / "hospital_physicians.csv"
    found.parent.mkdir(exist_ok=True)
    write_atomically(found, "".join(kept).encode())
    return found


def cells(task: Task) -> list[Cell]:
    """Return the cells of a task.

    All splits and networks with 20 devices; IID data and one label with 10 and 100 devices on the
    random ring; both on a ring that never changes, which some methods need; all splits on the
    hospital's contacts, if they are at hand. The CNN takes about thirty times as long per device
    and round as softmax regression on MNIST, so it has all splits on one network with 10 devices,
    and one split on two further networks.
    """
    if task == CIFAR:
        few = [Cell(task, split, "random ring", 10) for split in SPLITS]
        few.append(Cell(task, "one label", "density 0.1", 10))
        if trace_path() is not None:
            few.append(Cell(task, "dirichlet 0.1", PHYSICIANS, _PHYSICIANS))
        return few
    found = []
    for name in ("random ring", "density 0.1", "density 0.05", "mobility"):
        for split in SPLITS:
            found.append(Cell(task, split, name, 20))
    for devices in (10, 100):
        for split in ("iid", "one label"):
            found.append(Cell(task, split, "random ring", devices))
    for split in ("iid", "one label"):
        found.append(Cell(task, split, STATIC, 20))
    if trace_path() is not None:
        devices = network(TRACE, 0, 0).devices
        for split in SPLITS:
            found.append(Cell(task, split, TRACE, devices))
    return found


def methods(cell: Cell) -> Iterator[str]:
    """Yield the methods that run on a cell.

    All of them with 20 devices on the random ring, for IID data and one label; on the static ring
    the candidates and those that need static links; the candidates elsewhere. The CNN has the
    candidates on the random ring, and a few of them elsewhere.
    """
    names: tuple[str, ...] | list[str] = families.CANDIDATES
    if cell.task == CIFAR and cell.network != "random ring":
        names = _FEW
    if cell.network == STATIC:
        names = (*families.CANDIDATES, *families.STATIC)
    everything = cell.devices == 20 and cell.network == "random ring"
    if everything and cell.split != "dirichlet 0.1":
        names = families.all_names()
    for name in names:
        if refusal(cell, name) is None:
            yield name


@cache
def refusal(cell: Cell, name: str) -> str | None:
    """Return why a method does not run on a cell, or None; found by running one round."""
    family = families.family(name)
    study = cell.study(family.at(family.first_points()[0]), 0)
    try:
        Simulator(replace(study, data=gs.Digits(), model=gs.Softmax()).plan()).advance(1)
    except gs.InputError as error:
        return error.accepted
    return None

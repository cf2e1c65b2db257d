"""A study: one experiment as data. From it comes the plan that an engine runs."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal

from gossamer._core import checks
from gossamer.algorithms import WPM, Algorithm
from gossamer.engines import Measure, Plan
from gossamer.errors import InputError
from gossamer.network import Network, Random, Timing
from gossamer.tasks import Data, Digits, Iid, Model, Softmax, Task
from gossamer.tasks.data import Source
from gossamer.tasks.splits import Split, SplitRule, own_split


@dataclass(frozen=True)
class Study:
    """What is run. Every part is a frozen dataclass, so that two studies are equal if they say the same.

    `timing`: how long devices and links take; the run then reports simulated seconds beside rounds and bytes.

    >>> Study(algorithm=WPM.robust(p=15), network=Random(devices=10, density=0.2), rounds=100).seed
    0
    """

    algorithm: Algorithm = field(default_factory=lambda: WPM.robust(p=3))
    network: Network = field(default_factory=lambda: Random(devices=10, density=0.2))
    data: Source | Data = field(default_factory=Digits)
    split: SplitRule | Split = field(default_factory=Iid)
    model: Model = field(default_factory=Softmax)
    batch: int = 32
    rounds: int = 200
    seed: int = 0
    measure: Measure = field(default_factory=Measure)
    dtype: Literal["float32", "float64"] = "float32"
    device: str = "cpu"
    threads: int = 0
    name: str = "study"
    timing: Timing | None = None

    def __post_init__(self) -> None:
        if (
            not self.name
            or "/" in self.name
            or self.name.startswith(".")
            or not self.name.isprintable()
        ):
            raise InputError(
                "name",
                self.name,
                "a name that can be a folder's, of characters that can be printed",
            )
        checks.one_of("dtype", self.dtype, ("float32", "float64"))

    def _repr_html_(self) -> str:
        """In a notebook: its parts."""
        from gossamer.results.notebook import show_parts

        parts = dict(vars(self))
        return show_parts(f"Study {parts.pop('name')}", parts)

    def with_seed(self, seed: int) -> Study:
        """The same study on other links, times, batches, start and synthetic data: all seeds move by the same amount."""
        shift = seed - self.seed
        data = self.data
        if own_split(data) is not None:
            data = _shifted(data, shift)
        network, timing = _shifted(self.network, shift), _shifted(self.timing, shift)
        algorithm = _shifted(
            self.algorithm, shift
        )  # random places of a compressor, numbers of mini-batches
        return replace(
            self, seed=seed, algorithm=algorithm, network=network, timing=timing, data=data
        )

    def plan(self, data: Data | None = None) -> Plan:
        """What an engine needs. `data`: already loaded, so that many runs share one copy."""
        data = data or load(self.data)
        split = own_split(self.data) or self.split
        if not isinstance(split, Split):
            try:
                split = split.make(data.y.numpy(), self.network.devices, self.seed)
            except InputError as error:
                raise error.under("network" if error.field == "devices" else "split") from None
        task = Task(data, split, self.model, self.batch)
        return Plan(
            task,
            self.network,
            self.algorithm,
            self.rounds,
            self.seed,
            self.measure,
            self.dtype,
            self.device,
            self.threads,
            self.timing,
        )


def load(data: Source | Data) -> Data:
    """The data themselves."""
    try:
        return data if isinstance(data, Data) else data.load()
    except InputError as error:
        raise error.under("data") from None


def _shifted(part: Any, shift: int) -> Any:
    """A part with every `seed` in it moved."""
    if not shift or not is_dataclass(part) or isinstance(part, type | Data):
        return part
    changes: dict[str, Any] = {}
    for f in fields(part):
        value = getattr(part, f.name)
        if not f.init:
            continue
        if f.name == "seed":
            changes["seed"] = value + shift
        elif isinstance(value, tuple) and any(map(is_dataclass, value)):
            changes[f.name] = tuple(_shifted(v, shift) for v in value)
        elif is_dataclass(value):
            changes[f.name] = _shifted(value, shift)
    return replace(part, **changes) if changes else part

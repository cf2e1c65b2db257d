"""A study: one experiment as data. It makes the plan that an engine runs."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal

from gossamer._core import checks
from gossamer._core.arguments import checked
from gossamer.algorithms import WPM, Algorithm
from gossamer.engines import Events, Measure, Plan
from gossamer.errors import InputError
from gossamer.network import Energy, Network, Random, Timing
from gossamer.network.base import check_own_network
from gossamer.tasks import Data, Digits, Iid, Model, Softmax, Stream, Task
from gossamer.tasks.data import Source
from gossamer.tasks.own_devices import brings_devices, split_by_owner
from gossamer.tasks.split_rules import SplitRule
from gossamer.tasks.splits import Split, own_split

_SEEDS = (-(2**63), 2**63 - 1)  # range of TOML and Parquet


@checked
@dataclass(frozen=True)
class Study:
    """One experiment: data, split, model, network and method.

    Every part is a frozen dataclass, so two studies with equal parts are equal.

    Attributes:
        algorithm: The method.
        network: Which devices are linked in every round.
        data: The samples, or where they are loaded from.
        split: How the samples are divided among the devices. Data that say which device holds which
            samples, such as one file per device, need none.
        model: What is trained.
        batch: Samples per step and device; 0 means all that the device has.
        rounds: Number of rounds.
        seed: Seed of links, times, batches, split, start and synthetic data. The seeds of the parts
            count from it: `Random(10, 0.2)` in a study of seed 3 has the seed 3, as with
            `gossamer run --seed 3`.
        measure: What is measured, and when.
        dtype: Type of the models' values.
        device: The torch device, such as "cpu" or "cuda:0".
        threads: Number of torch threads; 0 chooses it by the size of the work.
        name: Name of the study in tables and folders.
        timing: How long devices and links take; the run then reports simulated seconds beside
            rounds and bytes.
        energy: What steps and messages cost; the run then reports joules too.
        stream: How the devices' samples arrive over time. None: all are there at the start.
        events: Run without common rounds: devices compute at their own pace and meet when they can.
            None: in rounds.
        parts_seed: The seed that the seeds of the given parts belong to. They are moved by
            `seed - parts_seed`; afterwards it equals `seed`, so that `dataclasses.replace` keeps
            the parts as they are, unless it changes the seed.

    Example:
        >>> study = Study(WPM(p=15), Random(devices=10, density=0.2), rounds=100)
        >>> study.seed
        0
        >>> Study(network=Random(devices=10, density=0.2), seed=3).network.seed
        3
    """

    algorithm: Algorithm = field(default_factory=lambda: WPM(p=3))
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
    energy: Energy | None = None
    events: Events | None = None
    stream: Stream | None = None
    parts_seed: int = field(default=0, repr=False, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        is_folder_name = "/" not in self.name and not self.name.startswith(".")
        if not self.name or not is_folder_name or not self.name.isprintable():
            raise InputError("name", self.name, "a folder name of printable characters")
        checks.one_of("dtype", self.dtype, ("float32", "float64"))
        checks.whole("seed", self.seed, *_SEEDS)
        if brings_devices(self.data):
            self._refuse_split()
        self._move_seeds(self.seed - self.parts_seed)

    def _move_seeds(self, shift: int) -> None:
        """Shift the seeds of all parts that draw links, times or data."""
        # Compressors and the mini-batches of some methods have seeds of their own.
        moved = ["algorithm", "network", "timing"]
        if own_split(self.data) is not None:  # a synthetic problem is drawn anew
            moved.append("data")
        for name in moved:
            object.__setattr__(self, name, _with_shifted_seeds(getattr(self, name), shift))
        object.__setattr__(self, "parts_seed", self.seed)

    def _repr_html_(self) -> str:
        """Show the study's parts in a notebook."""
        from gossamer.results.notebook import show_parts

        parts = dict(vars(self))
        del parts["parts_seed"]
        return show_parts(f"Study {parts.pop('name')}", parts)

    def with_seed(self, seed: int) -> Study:
        """Return the same study on other links, times, batches, start and synthetic data.

        Args:
            seed: The new seed. Every seed in the study's parts is shifted by the same amount.

        Returns:
            A new study.

        Example:
            >>> Study(network=Random(10, 0.2, seed=5)).with_seed(2).network.seed
            7
        """
        return replace(self, seed=seed)

    def plan(self, data: Data | None = None) -> Plan:
        """Return the plan that an engine runs.

        Args:
            data: The study's data if they are loaded already, so that several runs share one copy.

        Returns:
            The plan, with data loaded and split.

        Raises:
            InputError: If the parts do not fit each other.

        Example:
            >>> Study().plan().task.devices
            10
        """
        check_own_network(self.network)
        data = data or load(self.data)
        try:
            split = self._split(data)
        except InputError as error:
            section = "split"
            if error.field == "devices":
                section = "network"
            raise error.under(section) from None
        return Plan(
            Task(data, split, self.model, self.batch),
            self.network,
            self.algorithm,
            self.rounds,
            self.seed,
            self.measure,
            self.dtype,
            self.device,
            self.threads,
            self.timing,
            self.events,
            self.energy,
            self.stream,
        )

    def _refuse_split(self) -> None:
        """Raise an error if there is a split beside data that need none."""
        if self.split != Iid():
            accepted = (
                "no split: the data say which device holds which samples; pooled data "
                "(pooled = true) are divided by a split"
            )
            raise InputError("split", type(self.split).__name__, accepted)

    def _split(self, data: Data) -> Split:
        """Return which device holds which samples: as the data say, or else by the split rule."""
        split = own_split(self.data) or self.split
        network = self.network
        if data.owner is not None:
            self._refuse_split()
            return split_by_owner(data, network.names, network.devices)
        if isinstance(split, Split):
            return split
        return split.make_for(data.y.numpy(), network.devices, self.seed, network.groups)


def load(data: Source | Data) -> Data:
    """Load the data of a study.

    Args:
        data: A source, or data that are loaded already.

    Returns:
        The data.

    Raises:
        InputError: If the source cannot be loaded.
    """
    if isinstance(data, Data):
        return data
    try:
        return data.load()
    except InputError as error:
        raise error.under("data") from None


def _with_shifted_seeds(part: Any, shift: int) -> Any:
    """Return a part with every `seed` in it shifted."""
    if not shift or not is_dataclass(part) or isinstance(part, type | Data):
        return part
    changes: dict[str, Any] = {}
    for f in fields(part):
        if not f.init:
            continue
        value = getattr(part, f.name)
        if f.name == "seed":
            changes["seed"] = value + shift
        elif isinstance(value, tuple) and any(map(is_dataclass, value)):
            changes[f.name] = tuple(_with_shifted_seeds(item, shift) for item in value)
        elif is_dataclass(value):
            changes[f.name] = _with_shifted_seeds(value, shift)
    if not changes:
        return part
    return replace(part, **changes)

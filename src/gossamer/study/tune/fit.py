"""Which methods fit a study, by what they declare and by a trial of two rounds."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gossamer.algorithms import METHODS, Method
from gossamer.engines import Engine, Simulation
from gossamer.errors import InputError, nearest
from gossamer.network import Network
from gossamer.study.space import candidate, fixed_settings, searched
from gossamer.study.study import Study, load
from gossamer.study.tune.budget import SearchPlan
from gossamer.tasks import Data

# Processor time to write the folder of a run, and to start two processes that load torch, as every
# stage of a search does; measured on an AMD EPYC.
_FOLDER_SECONDS = 0.05
_STAGE_SECONDS = 5.0


@dataclass(frozen=True)
class Pace:
    """How long a method takes on this processor, in seconds.

    Attributes:
        start: To start a run.
        round: Per round.
    """

    start: float
    round: float


@dataclass(frozen=True)
class Fit:
    """The methods to search.

    Attributes:
        baseline: The method that all are compared with.
        others: The other methods that fit the study.
        left_out: Methods that do not fit, and why.
        paces: How long each method takes, by name.
        measuring: Seconds of one measurement.
    """

    baseline: Method
    others: tuple[Method, ...]
    left_out: dict[str, str]
    paces: dict[str, Pace]
    measuring: float

    @property
    def methods(self) -> list[str]:
        """The names of the methods that are searched, the baseline first."""
        return [method.name for method in (self.baseline, *self.others)]

    def seconds(self, plan: SearchPlan, every: int) -> float:
        """Estimate the time that a search takes on one core of this processor.

        Args:
            plan: The stages of the search.
            every: Rounds between two measurements; 0: only the last round is measured.
        """
        count = len(self.paces)
        start = sum(pace.start for pace in self.paces.values()) / count
        per_round = sum(pace.round for pace in self.paces.values()) / count
        if every:
            per_round += self.measuring / every
        per_run = start + self.measuring + _FOLDER_SECONDS
        stages = len(plan.rungs) + 1
        return plan.runs * per_run + plan.work * per_round + stages * _STAGE_SECONDS


def choose(names: Sequence[str]) -> list[Method]:
    """Return the methods of these names.

    Args:
        names: Names of registered methods with settings to search.

    Raises:
        InputError: If a name is not known.

    Example:
        >>> [method.name for method in choose(["wpm", "d-psgd"])]
        ['wpm', 'd-psgd']
    """
    known = {method.name: method for method in searched()}
    found = {}
    for name in names:
        name = name.strip()
        if name not in known:
            raise InputError("methods", name, f"some of {', '.join(known)}{nearest(name, known)}")
        found[name] = known[name]
    return list(found.values())


def fit_methods(study: Study, methods: Sequence[Method] | None = None) -> Fit:
    """Find the methods that a study can run.

    A method that averages over all devices whatever the links fits only if all devices are linked,
    or if it is among `methods`.

    Args:
        study: The study to tune.
        methods: The methods to search; None means all. The baseline need not be among them.

    Returns:
        The baseline, which is the first registered one that can be run, and the others.

    Raises:
        InputError: If the study cannot be run at all, or with none of `methods`.
    """
    trials = _Trials(study)
    baseline, measuring = _baseline(trials)
    wanted = methods
    if wanted is None:
        wanted = searched()
    others = []
    left_out = {}
    for method in wanted:
        if method.name == baseline.name:
            continue
        if methods is None and method.central and not _all_linked(study.network):
            left_out[method.name] = f"needs {method.needs}; --methods can name it"
            continue
        try:
            trials.run(method)
        except InputError as error:
            left_out[method.name] = _reason(method, error)
        else:
            others.append(method)
    if methods and not others and len(left_out) == len(methods):
        reasons = [f"{name}: {reason}" for name, reason in left_out.items()]
        accepted = f"methods that fit the study ({'; '.join(reasons)})"
        raise InputError("methods", ",".join(left_out), accepted)
    return Fit(baseline, tuple(others), left_out, trials.paces, measuring)


class _Trials:
    """Run methods for two rounds, which shows whether they fit and how long they take."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self._data: Data | None = None
        self._fixed: Mapping[str, Any] = fixed_settings(study.algorithm)
        self.paces: dict[str, Pace] = {}

    def run(self, method: Method) -> Engine:
        """Try a method, and return the engine that runs it.

        Some methods reject the network when they are planned, others the model in the first round.
        """
        if self._data is None:
            self._data = load(self._study.data)
        begin = time.process_time()
        algorithm = candidate(method, 0, self._fixed).algorithm
        plan = replace(self._study, algorithm=algorithm).plan(self._data)
        simulator = Simulation().start(plan)
        started = time.process_time()
        simulator.advance(1)
        last = time.process_time()
        if self._study.rounds > 1:  # the first round is slower than the others
            started, last = last, self._advance(simulator)
        self.paces[method.name] = Pace(started - begin, last - started)
        return simulator

    def _advance(self, simulator: Engine) -> float:
        simulator.advance(1)
        return time.process_time()


def _baseline(trials: _Trials) -> tuple[Method, float]:
    """Return the first baseline that can be run, and the seconds of a measurement."""
    errors = []
    for method in METHODS.values():
        if not method.baseline:
            continue
        try:
            simulator = trials.run(method)
        except InputError as error:
            errors.append(error)
            continue
        begin = time.process_time()
        simulator.record()
        return method, time.process_time() - begin
    # What is wrong whatever the method says more than which links one of them needs.
    errors.sort(key=lambda error: error.field == "network")
    raise errors[0]


def _all_linked(network: Network) -> bool:
    """True if every device is linked with all others in every round."""
    if network.period != 1:
        return False
    links = network.links(0)
    pairs = links.devices * (links.devices - 1)
    if not links.directed:
        pairs //= 2
    return len(links.a) == pairs


def _reason(method: Method, error: InputError) -> str:
    """Return why a method is left out, in short if it is for the links."""
    if error.field == "network":
        return f"needs {method.needs}"
    return str(error)

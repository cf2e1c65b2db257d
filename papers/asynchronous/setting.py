"""The setting: the contacts of a hospital ward, and devices of which some are ten times as fast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gossamer as gs
from gossamer.study import Study
from papers.field.cells import trace_path

SPLITS = {"iid": gs.Iid(), "dirichlet 0.5": gs.Dirichlet(0.5)}
# The forms in which methods run. In the last one there are no contacts.
IN_ROUNDS = "in rounds"
IN_PAIRS = "in pairs"
IN_BACKGROUND = "in the background"
ALONE = "alone"

# The resolution of the trace.
_CONTACT_SECONDS = 20.0
# 20 hours after the first contact of the log: the morning of the second day.
_MORNING = 1291597340 + 20 * 3600
_TINY_DEVICES = 10


@dataclass(frozen=True)
class Setting:
    """Contacts, durations and costs.

    Attributes:
        hours: How long a run is.
        fastest: Seconds per step of the fastest devices; those of the slowest are ten times as
            many, and the others are drawn, uniform in the logarithm.
        round_seconds: Seconds of a common round: a step of the slowest device, and its messages.
        targets: Accuracies by split; tuning is for the last.
    """

    hours: float
    fastest: float
    round_seconds: float
    targets: dict[str, tuple[float, ...]]

    def timing(self, seed: int) -> gs.Timing:
        """Return durations. A model of 2,600 bytes takes 5.3 s: a contact carries about three.

        Args:
            seed: Seed of the devices' speeds.
        """
        compute = gs.LogUniform(self.fastest, 10 * self.fastest)
        return gs.Timing(compute, rate=500.0, latency=0.1, seed=seed)


# About as many steps as contacts per device.
SLOW_STEPS = Setting(
    hours=5.5,
    fastest=20.0,
    round_seconds=220.0,
    targets={"iid": (0.65, 0.7), "dirichlet 0.5": (0.5, 0.55)},
)
TINY = Setting(
    hours=0.5, fastest=20.0, round_seconds=220.0, targets=dict.fromkeys(SPLITS, (0.1, 0.2))
)
# A message costs as much as a step.
ENERGY = gs.Energy(step=1.0, byte=1 / 2600)


@dataclass(frozen=True)
class Cell:
    """A setting, and a form in which methods run there.

    Attributes:
        setting: Contacts and durations.
        split: A key of SPLITS.
        form: One of the forms above.
    """

    setting: Setting
    split: str
    form: str

    @property
    def targets(self) -> tuple[float, ...]:
        """The accuracies to reach; tuning is for the last."""
        return self.setting.targets[self.split]

    @property
    def seconds_per_round(self) -> float:
        """How long a round of the network lasts."""
        if self.form == IN_ROUNDS:
            return self.setting.round_seconds
        return _CONTACT_SECONDS

    def study(self, algorithm: gs.Algorithm, seed: int, held_out: bool = False) -> Study:
        """Return one run.

        Args:
            algorithm: The method.
            seed: Seed of split, batches, durations and initial model.
            held_out: Measure on a tenth of the training samples, which are not trained on, as
                tuning does. The test samples are not looked at.
        """
        data: Any = gs.Digits()
        if held_out:
            data = gs.Validation(data, 0.1)
        events = None
        if self.form != IN_ROUNDS:
            events = gs.Events(seconds_per_round=_CONTACT_SECONDS)
        setting = self.setting
        # All forms are measured at the same times: after every second common round.
        between = 2 * setting.round_seconds
        return Study(
            algorithm,
            self._network(),
            data,
            SPLITS[self.split],
            gs.Softmax(),
            batch=8,
            rounds=round(setting.hours * 3600 / between) * round(between / self.seconds_per_round),
            seed=seed,
            measure=gs.Measure(
                every=round(between / self.seconds_per_round),
                at="after_mix",
                targets=tuple(f"accuracy >= {target:g}" for target in self.targets),
            ),
            timing=setting.timing(seed),
            energy=ENERGY,
            events=events,
            name="asynchronous",
        )

    def _network(self) -> gs.Network:
        """Return the contacts; the tiny setting needs no trace."""
        if self.setting == TINY:
            if self.form == ALONE:
                return gs.Random(_TINY_DEVICES, density=0.0)
            return gs.RandomRing(_TINY_DEVICES)
        path = trace_path()
        if path is None:
            raise gs.DataError("Contacts_Hospital.csv is not in GOSSAMER_OUTSIDE/traces")
        trace = gs.ContactTrace(
            path, seconds_per_round=self.seconds_per_round, start=_MORNING, beyond="repeat"
        )
        if self.form == ALONE:
            return gs.Random(trace.devices, density=0.0)
        return trace

"""Start the events engine that a method needs."""

from __future__ import annotations

from gossamer.algorithms.asynchronous import Asynchronous
from gossamer.engines.events.engine import EventEngine
from gossamer.engines.events.pair_rounds import PairEngine
from gossamer.engines.events.without_rounds import AsynchronousEngine
from gossamer.engines.plan import Plan, Snapshot


def start_events(
    plan: Plan,
    seconds_per_round: float = 1.0,
    patience: float = 1.0,
    snapshot: Snapshot | None = None,
    batched: bool = True,
    patience_seconds: float = 0.0,
) -> EventEngine:
    """Return an engine without rounds: of the form that the plan's method has for it.

    Args:
        plan: What to run.
        seconds_per_round: How long the links of a round of the network last.
        patience: How long a device waits for a neighbour, in steps of its own; methods without
            rounds do not wait.
        snapshot: The state to resume from. None: start at time 0.
        batched: Compute events that share no device together. False: one after the other, which
            gives the same result and is slow.
        patience_seconds: How long a device waits, in seconds; 0: `patience` steps.

    Raises:
        InputError: If the method cannot run without common rounds, or the plan has no timing.

    Example:
        >>> from gossamer import DPSGD, RandomRing, Study, Timing
        >>> study = Study(DPSGD(eta=0.1), RandomRing(10), timing=Timing(compute=0.1, rate=1e6))
        >>> engine = start_events(study.plan(), seconds_per_round=1.0)
        >>> engine.advance(10)
        >>> engine.record().seconds
        10.0
    """
    if isinstance(plan.algorithm, Asynchronous):
        return AsynchronousEngine(plan, seconds_per_round, snapshot, batched)
    return PairEngine(plan, seconds_per_round, patience, snapshot, batched, patience_seconds)

"""Engines run a plan in simulation: in this process, or in shards on a Ray cluster.

Every engine takes the same `Plan` and returns the same `Record`s and `Snapshot`s.
"""

from gossamer.engines.observer import Observer
from gossamer.engines.plan import Engine, Measure, Plan, Record, Snapshot
from gossamer.engines.settings import EngineSpec, Events, Ray, Simulation
from gossamer.engines.simulate import Simulator

__all__ = [
    "Engine",
    "EngineSpec",
    "Events",
    "Measure",
    "Observer",
    "Plan",
    "Ray",
    "Record",
    "Simulation",
    "Simulator",
    "Snapshot",
]

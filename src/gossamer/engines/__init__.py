"""Where a method runs. Every engine takes the same plan and gives the same records."""

from gossamer.engines.observer import Observer
from gossamer.engines.plan import Engine, Measure, Plan, Record, Snapshot
from gossamer.engines.settings import InProcess, Ray, Where
from gossamer.engines.simulate import Simulator

__all__ = [
    "Engine",
    "InProcess",
    "Measure",
    "Observer",
    "Plan",
    "Ray",
    "Record",
    "Simulator",
    "Snapshot",
    "Where",
]

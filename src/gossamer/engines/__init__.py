"""Where a method runs. Every engine takes the same plan and gives the same records."""

from gossamer.engines.peer.fleet import Device, Fleet
from gossamer.engines.plan import Engine, Measure, Plan, Record, Snapshot
from gossamer.engines.settings import InProcess, Ray, Where
from gossamer.engines.simulate import Simulator

__all__ = [
    "Device",
    "Engine",
    "Fleet",
    "InProcess",
    "Measure",
    "Plan",
    "Ray",
    "Record",
    "Simulator",
    "Snapshot",
    "Where",
]

"""The layout of a spec: its sections, their defaults, and the keys of every kind."""

from __future__ import annotations

import dataclasses
from typing import Any

from gossamer import algorithms, engines, network, tasks
from gossamer.errors import GossamerError
from gossamer.study.kinds import KINDS

Table = dict[str, Any]

# Keys at the top of a spec whose values are plain: they are fields of `Study`.
PLAIN_KEYS = ("batch", "rounds", "seed", "dtype", "device", "threads", "name")
SECTIONS = (
    "data",
    "split",
    "model",
    "network",
    "algorithm",
    "measure",
    "timing",
    "energy",
    "stream",
    "engine",
    "fleet",
)
DEFAULTS: Table = {
    "data": {"kind": "digits"},
    "split": {"kind": "iid"},
    "network": {"kind": "random", "devices": 10, "density": 0.2},
    "algorithm": {"kind": "wpm"},
    "engine": {"kind": "simulator"},
}

# The kind of a part that is the user's own code; its classes are registered by section.
OWN_CODE = "python"
# Keys of earlier versions, and what replaces them.
OLD_KEYS = {
    "accuracy_targets": 'targets = ["accuracy >= 0.9"]',
    "loss_targets": 'targets = ["loss <= 0.1"]',
}

# Keys whose values are paths, relative to the folder of the spec.
PATH_KEYS = ("path", "folder", "test_path", "tokenizer")
# Fields of an algorithm, or of another schedule, that are a number or a schedule.
SCHEDULED_FIELDS = ("eta", "p", "gain", "then")
# Fields of an algorithm that have kinds of their own, in the section of the same name.
ALGORITHM_FIELDS = (
    "mirror",
    "step",
    "direction",
    "weights",
    "compress",
    "rule",
    "algorithm",
    "optimizer",
)
# Fields of a timing: each is a number or a table with a kind.
TIMING_FIELDS = ("compute", "rate", "latency")


class SpecError(GossamerError):
    """Raised for an unknown or missing key, and for a file that is not a spec."""


def kind_of(table: Any) -> Any:
    """Return the kind of a section.

    Args:
        table: A table with a kind, or the kind alone.
    """
    if isinstance(table, dict):
        return table.get("kind")
    return table


def keys_of(section: str, kind: Any) -> list[str]:
    """Return the keys that a kind of a section accepts.

    Args:
        section: The name of the section, or of the field that holds the table.
        kind: The kind.

    Returns:
        The keys; none if the kind is not known.
    """
    cls = class_of(_section_of_kinds(section), kind)
    if cls is None:
        return []
    keys = ["kind"]
    keys += [field.name for field in init_fields(cls)]
    if section in ("network", "networks"):
        keys.append("faults")
    return keys


def init_fields(cls: type) -> list[dataclasses.Field[Any]]:
    """Return the fields that a spec can set: a kind's own first, then those of every kind.

    Args:
        cls: The dataclass of a kind. The fields that its base class has for all kinds are
            keyword-only, such as a method's `optimizer`.
    """
    fields = [field for field in dataclasses.fields(cls) if field.init]
    return sorted(fields, key=lambda field: bool(field.kw_only))


def class_of(section: str, kind: Any) -> Any:
    """Return the dataclass of a kind, or None if the section has no such kind.

    Args:
        section: The name of the section.
        kind: The kind; "python" is the user's own code, in the sections that take it.
    """
    if kind == OWN_CODE:
        return KINDS[OWN_CODE].get(section)
    if not isinstance(kind, str):
        return None
    return KINDS.get(section, {}).get(kind)


def kinds_of(section: str) -> list[str]:
    """Return the kinds that a section accepts.

    Args:
        section: The name of the section.
    """
    kinds = list(KINDS[section])
    if section in KINDS[OWN_CODE]:
        kinds.append(OWN_CODE)
    return kinds


def _section_of_kinds(key: str) -> str:
    """Return the section whose kinds the table under a key takes."""
    if key in SCHEDULED_FIELDS:
        return "schedule"
    if key in TIMING_FIELDS:
        return "quantity"
    if key == "networks":
        return "network"
    if key == "metrics":
        return "metric"
    return key


def nested_section(cls: type, field: str) -> str | None:
    """Return the section whose kinds a dataclass field takes, or None for a plain value.

    Args:
        cls: The dataclass of a kind, such as `gossamer.DPSGD`.
        field: The name of one of its fields.

    Returns:
        A section's name, such as "schedule" for a learning rate.
    """
    if issubclass(cls, algorithms.Algorithm | algorithms.PowerSchedule | algorithms.Warmup):
        if field in SCHEDULED_FIELDS:
            return "schedule"
        if field in ALGORITHM_FIELDS:
            return field
        return None
    if cls is tasks.Validation and field == "data":
        return "data"
    if field == "loss":
        return "loss"
    if cls is network.Timing and field in TIMING_FIELDS:
        return "quantity"
    if cls is network.Cycle and field == "networks":
        return "network"
    if cls is engines.Measure and field == "metrics":
        return "metric"
    return None


def item_path(path: str, items: list[Any], index: int) -> str:
    """Return the name of a list's item in messages; a single item needs no index.

    Args:
        path: The name of the list.
        items: The list.
        index: The index of the item.
    """
    if len(items) == 1:
        return path
    return f"{path}[{index}]"

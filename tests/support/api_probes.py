"""Calls of the public API with values of wrong types and ranges, for `tests/test_public_api.py`.

The calls are made of the API itself: every class and function of `gossamer.__all__`, and each of
its parameters. A new public name needs an entry in `_BASE` only if it has parameters without
defaults that no other name has.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import torch
from torch import nn

import gossamer as gs

# Names that are no entry points: exceptions and warnings, and what only a subclass can make.
_EXCEPTIONS = (BaseException,)
_ABSTRACT = {"Algorithm", "LocalSchedule", "Loss", "Metric", "MirrorMap", "Network", "Preset"}

DEVICES = 4
_MAX_DEVICES = 1000  # of a study that uses a part


@cache
def small_data() -> gs.Data:
    """Return 40 samples of two classes."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    return gs.from_arrays(x[:32], y[:32], x[32:], y[32:])


class _Frame:
    """The columns of a small table."""

    x = np.arange(12.0)
    y = np.arange(12) % 3


def _table() -> Any:
    import pyarrow

    return pyarrow.table({"x": _Frame.x, "y": _Frame.y})


def _small_study() -> gs.Study:
    return gs.Study(network=gs.Ring(DEVICES), data=small_data())


def _right(outputs: Any, targets: Any) -> Any:
    return (outputs.argmax(1) == targets).float()


# The parameters that a call cannot do without: for one name of the API, or for all.
_BASE: dict[str, Callable[[], Any]] = {
    "algorithm": lambda: gs.DPSGD(eta=0.1),
    "basis": lambda: 1,
    "between": lambda: 0.5,
    "byte": lambda: 1e-6,
    "column": lambda: "cell",
    "come_back": lambda: 0.5,
    "compute": lambda: 0.1,
    "data": small_data,
    "degree": lambda: 2,
    "density": lambda: 0.5,
    "devices": lambda: DEVICES,
    "duration": lambda: 1.0,
    "fail": lambda: 0.2,
    "first": lambda: 3.0,
    "function": lambda: lambda t: [(0, 1)],
    "high": lambda: 2.0,
    "k": lambda: 2,
    "label": lambda: "Mine",
    "leave": lambda: 0.1,
    "low": lambda: 1.0,
    "model": gs.Softmax,
    "module": lambda: nn.Linear(3, 2),
    "most": lambda: 3.0,
    "name": lambda: "mine",
    "network": lambda: gs.Ring(DEVICES),
    "networks": lambda: (gs.Ring(DEVICES),),
    "object": lambda: "own_part:make",
    "p": lambda: 3.0,
    "pairs": lambda: ((0, 1), (1, 2)),
    "paper": lambda: "Me",
    "path": lambda: Path("missing-file"),
    "probability": lambda: 0.5,
    "radius": lambda: 0.5,
    "rate": lambda: 1.0,
    "recover": lambda: 0.5,
    "rewire": lambda: 0.2,
    "rounds": lambda: 2,
    "rule": gs.Median,
    "scale": lambda: 1.0,
    "split": gs.Iid,
    "start": lambda: 0.5,
    "step": lambda: 0.1,
    "studies": lambda: [gs.Study(rounds=1)],
    "study": lambda: gs.Study(rounds=1),
    "target": lambda: "y",
    "task": lambda: _small_study().plan().task,
    "test": lambda: [(np.zeros(3), 0), (np.ones(3), 1)],
    "then": lambda: 0.1,
    "train": lambda: [(np.zeros(3), 0), (np.ones(3), 1)],
    "within": lambda: 0.5,
    "x": lambda: np.eye(3, dtype=np.float32),
    "x_test": lambda: np.eye(3, dtype=np.float32),
    "y": lambda: np.arange(3),
    "y_test": lambda: np.arange(3),
    "FunctionMetric.function": lambda: _right,
    "ByClass.column": lambda: "",
    "Power": dict,
    "PowerMap.p": lambda: 3.0,
    "PowerSchedule.p": lambda: gs.Switch(5, 20),
    "Callback.function": lambda: lambda t: [(0, 1)],
    "BaseGraph.degree": lambda: 1,
    "Broken.devices": lambda: (0,),
    "ContactLog.names": lambda: ("a", "b"),
    "ContactLog.a": lambda: np.array([0]),
    "ContactLog.b": lambda: np.array([1]),
    "ContactLog.begin": lambda: np.array([0.0]),
    "ContactLog.end": lambda: np.array([1.0]),
    "ContactLog.absolute": lambda: False,
    "Data.x": lambda: small_data().x,
    "Data.y": lambda: small_data().y,
    "Data.x_test": lambda: small_data().x_test,
    "Data.y_test": lambda: small_data().y_test,
    "Data.classes": lambda: 2,
    "Links.a": lambda: np.array([0]),
    "Links.b": lambda: np.array([1]),
    "PositionLog.names": lambda: ("a", "b"),
    "PositionLog.device": lambda: np.array([0, 1]),
    "PositionLog.time": lambda: np.array([0.0, 0.0]),
    "PositionLog.position": lambda: np.zeros((2, 2)),
    "PositionLog.absolute": lambda: False,
    "PositionLog.geographic": lambda: False,
    "Run.spec": dict,
    "Run.metrics": dict,
    "Run.summary": dict,
    "Simulator.plan": lambda: gs.Study(rounds=1).plan(),
    "TokenModel.model": lambda: nn.Linear(3, 2),
    "Validation.data": gs.Digits,
    "from_lists.lists": lambda: [[0, 1], [2]],
    "from_networkx.graphs": lambda: networkx.cycle_graph(3),
    "from_table.train": _table,
    "from_table.test": lambda: 0.2,
    "from_hf.train": lambda: None,
    "from_hf.test": lambda: None,
    "load_spec.path": lambda: Path("missing.toml"),
    "metropolis.links": lambda: gs.Ring(DEVICES).links(0),
    "power_mean.models": lambda: torch.ones(2, 3),
    "power_mean.weights": lambda: torch.full((2,), 0.5),
    "bregman.a": lambda: torch.ones(3),
    "bregman.b": lambda: torch.ones(3),
    "signed_power.x": lambda: torch.ones(3),
    "signed_power.c": lambda: 3.0,
}

# What is given for each parameter in turn.
VALUES: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "0": lambda: 0,
    "-1": lambda: -1,
    "3": lambda: 3,
    "3.0": lambda: 3.0,
    "0.5": lambda: 0.5,
    "1e300": lambda: 1e300,
    "1e-300": lambda: 1e-300,
    "nan": lambda: math.nan,
    "inf": lambda: math.inf,
    "-inf": lambda: -math.inf,
    "10**9": lambda: 10**9,
    "10**18": lambda: 10**18,
    "10**5000": lambda: 10**5000,
    "1j": lambda: 1j,
    "Decimal": lambda: Decimal("0.5"),
    "Fraction": lambda: Fraction(1, 2),
    "int8": lambda: np.int8(3),
    "uint64": lambda: np.uint64(2**64 - 1),
    "float16": lambda: np.float16(0.5),
    "float32": lambda: np.float32(0.5),
    "float32 nan": lambda: np.float32("nan"),
    "float32 3": lambda: np.float32(3),
    "bool_": lambda: np.bool_(True),
    "str_": lambda: np.str_("x"),
    "0-d array": lambda: np.array(3),
    "0-d float tensor": lambda: torch.tensor(0.5),
    "0-d int tensor": lambda: torch.tensor(3),
    "0-d tensor with gradient": lambda: torch.tensor(0.5, requires_grad=True),
    "1-d array": lambda: np.array([3.0]),
    "array": lambda: np.zeros((2, 2)),
    "object array": lambda: np.array([None, "a"], dtype=object),
    "tensor": lambda: torch.ones(3),
    "empty tensor": lambda: torch.ones(0),
    "text": lambda: "x",
    "empty text": lambda: "",
    "number as text": lambda: "3",
    "NUL": lambda: "a\0b",
    "surrogate": lambda: "\ud800",
    "long text": lambda: "x" * 5000,
    "bytes": lambda: b"x",
    "empty list": list,
    "list": lambda: [1, 2],
    "list of texts": lambda: ["a", "b"],
    "list of None": lambda: [None],
    "tuple of pairs": lambda: ((0, 1), (1, 9)),
    "huge in a list": lambda: [10**18],
    "dict": lambda: {"a": 1},
    "set": lambda: {1},
    "object": object,
    "class": lambda: gs.Ring,
    "class that needs nothing": lambda: gs.DPSGD,
    "part": lambda: gs.Ring(3),
    "function": lambda: lambda *values: None,
    "function that fails": lambda: _fail,
    "module": lambda: nn.Linear(5, 3),
    "arrays": lambda: (np.eye(3), np.arange(3)),
    "graph": lambda: networkx.path_graph(3),
    "directory": lambda: Path("."),
}


def _fail(*values: Any) -> None:
    raise gs.InputError("value", values, "nothing")


def targets() -> list[str]:
    """Return the public names that take arguments."""
    names = []
    for name in gs.__all__:
        value = getattr(gs, name)
        is_exception = isinstance(value, type) and issubclass(value, _EXCEPTIONS)
        if callable(value) and not is_exception and name not in _ABSTRACT:
            names.append(name)
    return names


def parameters(name: str) -> list[str]:
    """Return the parameters of a public name."""
    found = []
    for parameter in inspect.signature(getattr(gs, name)).parameters.values():
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            found.append(parameter.name)
    return found


def base_arguments(name: str) -> dict[str, Any]:
    """Return arguments with which a public name can be called."""
    arguments = {}
    for parameter in inspect.signature(getattr(gs, name)).parameters.values():
        kind = parameter.kind
        if kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            continue
        if parameter.default is inspect.Parameter.empty:
            own = f"{name}.{parameter.name}"
            arguments[parameter.name] = _BASE.get(own, _BASE.get(parameter.name, lambda: None))()
    return arguments


def call(name: str, parameter: str, value: Any) -> Any:
    """Call a public name with one argument changed."""
    target = getattr(gs, name)
    arguments = base_arguments(name)
    kind = inspect.signature(target).parameters[parameter].kind
    if kind is inspect.Parameter.VAR_POSITIONAL:
        return target(value, **arguments)
    arguments[parameter] = value
    return target(**arguments)


def uses(part: Any) -> Iterator[gs.Study]:
    """Yield studies that use a part that was accepted: short ones, that take little memory."""
    fields = {
        gs.Algorithm: "algorithm",
        gs.Network: "network",
        gs.Measure: "measure",
        gs.Timing: "timing",
        gs.Energy: "energy",
        gs.Events: "events",
        gs.Stream: "stream",
    }
    for cls, field in fields.items():
        small = getattr(part, "devices", DEVICES)
        if isinstance(part, cls) and (not isinstance(small, int) or small <= _MAX_DEVICES):
            yield _study(field, part)
    module = type(part).__module__
    if "split_rules" in module:
        yield _study("split", part)
    if hasattr(part, "learner"):
        yield _study("model", part)
    if isinstance(part, gs.Loss):
        yield _study("model", gs.Mlp((2,), loss=part))
    if isinstance(part, gs.Metric):
        yield _study("measure", gs.Measure(metrics=(part,)))
    if isinstance(part, gs.MirrorMap):
        yield _study("algorithm", gs.Composition(part, eta=0.01))
    if "schedules" in module:
        yield _study("algorithm", gs.Composition(eta=part))
        yield _study("algorithm", gs.WPM(p=part))
    for field in ("optimizer", "step", "direction", "compress", "weights"):
        if f"algorithms.{field}" in module or f"network.{field}" in module:
            yield _study("algorithm", gs.Composition(**{field: part}))
    if isinstance(part, gs.Study) and part.network.devices <= _MAX_DEVICES:
        yield dataclasses.replace(part, rounds=min(part.rounds, 2))


def _study(field: str, part: Any) -> gs.Study:
    others: dict[str, Any] = {
        "data": small_data(),
        "network": gs.Ring(DEVICES),
        "algorithm": gs.DPSGD(eta=0.1),
        "rounds": 2,
        "batch": 4,
    }
    return gs.Study(**(others | {field: part}))

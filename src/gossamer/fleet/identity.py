"""What two devices must have in common to exchange, and a journal with the device that resumes it.

The digest of a study covers the method with its settings, the names and shapes of the model's
parameters, dtype and seed; it does not cover the number of rounds, the measurements and the data.
Messages carry it in the field `run`, which is made of the run and the digest.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any

from torch import Tensor

from gossamer.engines.plan import Plan
from gossamer.fleet.protocol.messages import RUN_BYTES
from gossamer.fleet.settings import Fleet

_DIGEST_BYTES = 16


def study_digest(plan: Plan, start: Tensor, fleet: Fleet) -> str:
    """Return the digest of a study on devices, 32 hexadecimal digits.

    Args:
        plan: The plan.
        start: The initial model, a stack of one row.
        fleet: The settings that all devices share.
    """
    shapes = {}
    for name, x in plan.task.learner.unstack(start).items():
        shapes[name] = list(x.shape[1:])
    described = {
        "algorithm": _described(plan.algorithm),
        "model": _described(plan.task.model),
        "parameters": shapes,
        "dtype": plan.dtype,
        "seed": plan.seed,
        "wire": fleet.wire,
        "pace": fleet.pace,
    }
    text = json.dumps(described, sort_keys=True).encode()
    return hashlib.blake2b(text, digest_size=_DIGEST_BYTES).hexdigest()


def wire_run(run: bytes, digest: str) -> bytes:
    """Return the field `run` of messages, which differs for every run and study.

    Args:
        run: The run.
        digest: The digest of the study.
    """
    return hashlib.blake2b(run + bytes.fromhex(digest), digest_size=RUN_BYTES).digest()


def _described(value: Any) -> Any:
    """Return a value as JSON that is the same in every process."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {}
        for field in dataclasses.fields(value):
            fields[field.name] = _described(getattr(value, field.name))
        return [type(value).__name__, fields]
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        return float(value)  # a spec has p = 3.0 where Python code may have 3
    if isinstance(value, list | tuple):
        return [_described(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _described(item) for key, item in value.items()}
    return getattr(value, "__qualname__", type(value).__qualname__)

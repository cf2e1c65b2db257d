"""Mutated specs and what the checks say about them, for `tests/study/test_fuzz_specs.py`.

    python -m support.fuzz_specs SEED COUNT

makes COUNT specs and reads, builds and starts each as `gossamer run` does, without a round. The
process may take 2 GiB of memory beside what it has loaded, and each spec 10 s of the processor. The
specs that break one of these bounds, or raise anything but an error of gossamer, are printed as
JSON with the exception.
"""

from __future__ import annotations

import copy
import json
import math
import random
import resource
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tomli_w

MEMORY = 2 << 30  # bytes
SECONDS = 10.0  # of the processor, per spec
_AVAILABLE = 1 << 28  # bytes that the checks of a study find on this machine
_LONGEST = 2000  # characters of a sentence

_SECTIONS = ("algorithm", "network", "data", "split", "model")
# Sections that are no part with a kind, with every key that they take.
_PLAIN_SECTIONS: dict[str, Any] = {
    "measure": {
        "every": 5,
        "targets": ["accuracy >= 0.8", "loss <= 1"],
        "metrics": ["accuracy"],
        "devices": 5,
    },
    "timing": {"compute": 0.1, "latency": 0.01, "rate": 1e6},
    "energy": {"step": 0.1, "byte": 1e-6},
    "stream": {"start": 3, "rate": 1.0},
    "engine": {"kind": "events"},
}
# Values of keys that a kind cannot do without.
_NEEDED: dict[str, Any] = {
    "algorithm": {"kind": "d-psgd"},
    "basis": 1,
    "between": 0.5,
    "blocks": 2,
    "compute": 0.1,
    "come_back": 0.5,
    "data": {"kind": "digits"},
    "degree": 2,
    "density": 0.3,
    "duration": 1.0,
    "fail": 0.2,
    "first": 3.0,
    "high": 2.0,
    "leave": 0.1,
    "most": 3.0,
    "networks": [{"kind": "ring", "devices": 10}, {"kind": "full", "devices": 10}],
    "p": 3.0,
    "probability": 0.5,
    "radius": 0.5,
    "rate": 1.0,
    "recover": 0.5,
    "rewire": 0.2,
    "start": 0.5,
    "then": 0.1,
    "within": 0.5,
}
_DEVICES = 10
_ODD_VALUES: tuple[Any, ...] = (
    -1,
    0,
    1,
    2,
    -(2**63),
    2**63 - 1,
    2**64,
    10**18,
    10**400,
    -0.0,
    0.5,
    1e-300,
    1e300,
    -1e300,
    math.nan,
    math.inf,
    -math.inf,
    True,
    False,
    "",
    "a",
    "0.1",
    "softmax",
    "accuracy >= nan",
    "accuracy >= 0.5",
    "\x00",
    "ä" * 50,
    "x" * 100_000,
    "../../missing",
    "/",
    [],
    [[]],
    [0],
    [1.5, "a"],
    [10**18],
    [1] * 10_000,
    {},
    {"kind": "switch"},
    {"kind": "python", "object": "os:system"},
    {"a": {"b": {"c": 1}}},
)


class TooLong(BaseException):
    """A spec took more than its seconds; no `except Exception` catches it."""


def bases() -> Callable[[random.Random], dict[str, Any]]:
    """Return a function that makes a valid spec of random parts, with all their keys."""
    from gossamer.errors import GossamerError
    from gossamer.study.kinds import KINDS
    from gossamer.study.spec import build, sections, write

    parts: dict[str, list[Any]] = {}
    for section in (*_SECTIONS, "faults"):
        parts[section] = []
        for kind in KINDS[section]:
            table: Any = {"kind": kind}
            keys = sections.keys_of(section, kind)
            if section == "network" and "path" in keys:
                continue  # it reads a file, whose damages have tests of their own
            table |= {key: value for key, value in _NEEDED.items() if key in keys}
            if section in ("network", "data") and "devices" in keys:
                table["devices"] = _DEVICES
            try:
                part = build.build_part(section, dict(table), section, {"seed": 0})
                table = write.part_to_table(section, part)
            except GossamerError:  # it needs a file or another part
                pass
            parts[section].append(table)

    def make(rng: random.Random) -> dict[str, Any]:
        spec: dict[str, Any] = {"rounds": 20, "batch": 8, "seed": 1, "name": "mutated"}
        spec["algorithm"] = rng.choice(parts["algorithm"])
        spec["network"] = rng.choice(parts["network"])
        if rng.random() < 0.2:
            spec["data"] = rng.choice(parts["data"])
        elif rng.random() < 0.5:
            spec["split"] = rng.choice(parts["split"])
        if rng.random() < 0.2:
            spec["model"] = rng.choice(parts["model"])
        for section in rng.sample(list(_PLAIN_SECTIONS), rng.choice((0, 0, 1, 2))):
            spec[section] = _PLAIN_SECTIONS[section]
            if section == "engine":
                spec["timing"] = _PLAIN_SECTIONS["timing"]
        if rng.random() < 0.3:
            faults = [rng.choice(parts["faults"])]
            spec["network"] = spec["network"] | {"faults": faults}
        return copy.deepcopy(spec)

    return make


def mutated(spec: dict[str, Any], rng: random.Random) -> bytes:
    """Return a spec as TOML with one to three mutations of its keys and values, or of its bytes."""
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        places = list(_places(spec))
        if places:
            rng.choice(_MUTATIONS)(spec, *rng.choice(places), rng)
    data = tomli_w.dumps(spec).encode()
    if rng.random() < 0.15:
        data = damaged(data, rng)
    return data


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Return bytes with some flipped, cut off, repeated, or with others put in."""
    found = bytearray(data)
    at = rng.randrange(len(found) + 1)
    how = rng.randrange(5)
    if how == 0:
        del found[at:]
    elif how == 1:
        for _ in range(rng.randint(1, 20)):
            found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
    elif how == 2:
        found[at:at] = rng.choice((b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"[" * 5000, b"9" * 5000))
    elif how == 3:
        found[at:at] = found[: rng.randrange(len(found))]
    else:
        del found[at : at + rng.randint(1, 40)]
    return bytes(found)


def _places(table: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container of a table with each of its keys or indices."""
    keys = range(len(table)) if isinstance(table, list) else table
    for key in keys:
        yield table, key
        if isinstance(table[key], dict | list):
            yield from _places(table[key])


def _drop(spec: Any, holder: Any, key: Any, rng: random.Random) -> None:
    del holder[key]


def _replace(spec: Any, holder: Any, key: Any, rng: random.Random) -> None:
    holder[key] = copy.deepcopy(rng.choice(_ODD_VALUES))


def _move_out_of_range(spec: Any, holder: Any, key: Any, rng: random.Random) -> None:
    value = holder[key]
    if isinstance(value, float):
        holder[key] = rng.choice((-value, value * 1e6, value * 1e30, value + 1, value + 1e-9))
    elif isinstance(value, int):
        holder[key] = rng.choice((-value, value * 10**6, value * 10**30, -value - 1, value + 1))


def _misspell(spec: Any, holder: Any, key: Any, rng: random.Random) -> None:
    if isinstance(holder[key], str):
        holder[key] = _misspelt(holder[key], rng)
    elif isinstance(key, str):
        holder[_misspelt(key, rng)] = holder.pop(key)


def _misspelt(word: str, rng: random.Random) -> str:
    at = rng.randrange(len(word) + 1)
    return rng.choice((word[:at] + word[at + 1 :], word[:at] + "x" + word[at:], word.upper()))


def _nest(spec: Any, holder: Any, key: Any, rng: random.Random) -> None:
    value = holder[key]
    holder[key] = rng.choice(([value], [value, value], {"kind": value}, {"value": value}))


def _move(spec: Any, holder: Any, key: Any, rng: random.Random) -> None:
    value = holder.pop(key)
    tables = [spec, *(part for part in spec.values() if isinstance(part, dict))]
    rng.choice(tables)[str(key)] = value


def _swap(spec: Any, holder: Any, key: Any, rng: random.Random) -> None:
    other, place = rng.choice(list(_places(spec)))
    holder[key], other[place] = copy.deepcopy(other[place]), copy.deepcopy(holder[key])


_MUTATIONS: tuple[Callable[[Any, Any, Any, random.Random], None], ...] = (
    _drop,
    _replace,
    _replace,
    _replace,
    _move_out_of_range,
    _move_out_of_range,
    _misspell,
    _nest,
    _move,
    _swap,
)


def check(path: Path) -> str:
    """Read a spec, build its studies and start each; return its refusal, or "" if there is none."""
    from gossamer.engines import Simulation
    from gossamer.errors import GossamerError
    from gossamer.study import spec

    try:
        table = spec.with_settings(spec.read(path), [])
        studies = spec.studies(table, "mutated")
        spec.engine(table)
        for study in studies:
            spec.studies(spec.parse(spec.dumps(study)))
            Simulation().start(study.plan()).close()
    except GossamerError as error:
        return str(error)
    return ""


def stop(number: int, frame: Any) -> None:
    """Raise `TooLong`, as the handler of a timer."""
    raise TooLong


def main(seed: int, count: int) -> None:
    """Check so many mutated specs; print how many were refused, and those that failed."""
    warnings.simplefilter("ignore")
    import torch

    from gossamer._core import memory

    torch.set_num_threads(1)
    make = bases()
    # A machine with little memory, so that the checks refuse what does not fit the limit below.
    memory.available_memory = lambda: _AVAILABLE
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (used + MEMORY, most))
    signal.signal(signal.SIGPROF, stop)
    failures = []
    refused = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mutated.toml"
        for number in range(count):
            rng = random.Random(f"{seed} {number}")
            data = mutated(make(rng), rng)
            path.write_bytes(data)
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            try:
                sentence = check(path)
                signal.setitimer(signal.ITIMER_PROF, 0)
                refused += bool(sentence)
                if "\n" in sentence or len(sentence) > _LONGEST:
                    raise ValueError(f"not a sentence: {sentence[:_LONGEST]}")
            except (Exception, TooLong):
                signal.setitimer(signal.ITIMER_PROF, 0)
                text = data[:3000].decode(errors="replace")
                failures.append(
                    {"number": number, "spec": text, "error": traceback.format_exc()[-3000:]}
                )
    print(json.dumps({"refused": refused, "failures": failures}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

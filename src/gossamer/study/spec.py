"""A study as TOML, and back. The kinds of every section stand in one table; their fields are the dataclasses' own.

Every key has a default but those that a kind cannot do without, so an empty file is a study too: the default one.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import re
import tomllib
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pydantic
import tomli_w

from gossamer import algorithms, engines, network, tasks
from gossamer.engines import Measure
from gossamer.errors import DataError, GossamerError, InputError, nearest
from gossamer.study.kinds import KINDS, PRESETS
from gossamer.study.study import Study

Table = dict[str, Any]

_FILES = (
    "path",
    "folder",
)  # keys whose values are relative to the file, or the folder, that they are given in
_PLAIN = ("batch", "rounds", "seed", "dtype", "device", "threads", "name")
_SECTIONS = (
    "data",
    "split",
    "model",
    "network",
    "algorithm",
    "measure",
    "timing",
    "engine",
    "fleet",
)
_SCHEDULED = dict.fromkeys(("eta", "p", "gain"), "schedule")
_QUANTITIES = ("compute", "rate", "latency")  # of a timing: each a number, or a table with a kind
_DEFAULTS: Table = {
    "data": {"kind": "digits"},
    "split": {"kind": "iid"},
    "network": {"kind": "random", "devices": 10, "density": 0.2},
    "algorithm": {"kind": "wpm", "preset": "robust"},
    "engine": {"kind": "simulator"},
}


class SpecError(GossamerError):
    """A key that is not there, or a file that is not a spec."""


def read(path: Path) -> Table:
    """The tables of a TOML file; the files that it names are looked for beside it."""
    try:
        with path.open("rb") as file:
            return _beside(path.absolute().parent, tomllib.load(file))  # type: ignore[no-any-return]
    except FileNotFoundError:
        raise SpecError(
            f"there is no spec {path}; `gossamer new {path}` writes one to start from"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SpecError(f"{path} is not TOML: {error}") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None


def parse(text: str) -> Table:
    """The tables of a TOML text."""
    return tomllib.loads(text)


def _beside(folder: Path, value: Any) -> Any:
    if isinstance(value, list):
        return [_beside(folder, v) for v in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _absolute(folder, v) if key in _FILES and isinstance(v, str) else _beside(folder, v)
        for key, v in value.items()
    }


def _absolute(folder: Path, path: str | Path) -> str:
    try:
        return str(folder / Path(path).expanduser())
    except RuntimeError:  # ~somebody whom this machine does not know: taken as it is written
        return str(folder / path)


def with_settings(table: Table, settings: list[str]) -> Table:
    """The tables with `--set a.b=value` applied, one after the other; a value is TOML, or a word if it is not TOML.

    Another kind keeps the keys that it has too: `network.kind=ring` keeps the devices. `algorithm.p=5` sets p in every
    [[algorithm]], `algorithm[0].p=5` in the first.

    >>> with_settings({"network": {"kind": "random", "devices": 8, "density": 0.2}}, ["network.kind=ring", "rounds=5"])
    {'network': {'kind': 'ring', 'devices': 8}, 'rounds': 5}
    """
    table = copy.deepcopy(table)
    for setting in settings:
        key, equals, text = setting.partition("=")
        key = key.strip()
        if not equals or not all(key.split(".")):
            raise SpecError(
                f"--set {setting!r} is not accepted: give key=value, for example algorithm.p=15"
            )
        try:
            value = tomllib.loads(f"v = {text}")["v"]
        except tomllib.TOMLDecodeError:
            value = text.strip()
        *path, last = key.split(".")
        for place in _places(table, path, key):
            if last == "kind" and place.get("kind") not in (None, value):
                kept = _keys_of(re.sub(r"\[\d+\]$", "", path[-1]) if path else "", value)
                for other in [k for k in place if k not in kept]:
                    del place[other]
            place |= _beside(Path.cwd(), {last: value})
    return table


def _keys_of(section: str, kind: Any) -> list[str]:
    """The keys of a kind; none where it is not known."""
    short = _SCHEDULED | {"networks": "network"} | dict.fromkeys(_QUANTITIES, "quantity")
    kinds = KINDS.get(short.get(section, section), {})
    if not isinstance(kind, str) or kind not in kinds:
        return []
    extra = {
        "network": ["faults"],
        "networks": ["faults"],
        "algorithm": ["preset"] if kind == "wpm" else [],
    }
    return [
        "kind",
        *(f.name for f in dataclasses.fields(kinds[kind]) if f.init),
        *extra.get(section, []),
    ]


def _places(table: Table, path: list[str], key: str) -> list[Table]:
    """The tables that a dotted path leads to: all of them where a section is a list, such as several algorithms."""
    places = [table]
    for depth, step in enumerate(path):
        name, number = _INDEXED.fullmatch(step).groups()  # type: ignore[union-attr]
        following: list[Any] = []
        for place in places:
            default = _DEFAULTS.get(name, {}) if depth == 0 else {}
            inner = place.setdefault(name, copy.deepcopy(default))
            if isinstance(inner, str):  # `split = "iid"` is short for a table with that kind
                inner = place[name] = {"kind": inner}
            listed = inner if isinstance(inner, list) else [inner]
            if number is not None and int(number) >= len(listed):
                raise SpecError(
                    f"--set {key}: there is no {step}; {name} has {len(listed)}, counted from 0"
                )
            following += listed if number is None else [listed[int(number)]]
        if not all(isinstance(place, dict) for place in following):
            raise SpecError(f"--set {key}: {step} is a plain value and has no keys")
        places = following
    return places


_INDEXED = re.compile(r"(.*?)(?:\[(\d{1,9})\])?", re.DOTALL)


def studies(table: Table, name: str = "study", seed: int | None = None) -> list[Study]:
    """The studies of a spec, one for each [[algorithm]]: they differ in nothing else.

    `seed` moves every seed of the spec by as much as it moves the study's own, as `Study.with_seed` does.

    >>> [study.algorithm.label for study in studies({"algorithm": [{"kind": "dpsgd"}, {"kind": "swarm"}]})]
    ['D-PSGD', 'SwarmSGD']
    """
    check_keys(table, (*_PLAIN, *_SECTIONS), "")
    plain = {"name": name} | {
        key: _typed(Study, key, table[key], key) for key in _PLAIN if key in table
    }
    number = {"seed": plain.get("seed", 0)}
    net = _build("network", table.get("network", _DEFAULTS["network"]), "network", number)
    data_table = table.get("data", _DEFAULTS["data"])
    is_synthetic = _kind_of(data_table) in ("least-squares", "logistic")
    data = _build(
        "data", data_table, "data", {"devices": net.devices} | number if is_synthetic else {}
    )
    if is_synthetic and "split" in table:
        raise SpecError(
            f"split is not accepted: data.kind = {_kind_of(data_table)!r} gives every device its own samples; leave it out"
        )
    shared: Table = {
        "network": net,
        "data": data,
        "split": _build("split", table.get("split", _DEFAULTS["split"]), "split"),
        "model": _build(
            "model",
            table.get("model", _kind_of(data_table) if is_synthetic else "softmax"),
            "model",
        ),
        "measure": build_dataclass(Measure, table.get("measure", {}), "measure"),
        "timing": build_dataclass(network.Timing, table["timing"], "timing", number)
        if "timing" in table
        else None,
        **plain,
    }
    tables = table.get("algorithm", _DEFAULTS["algorithm"])
    listed = tables if isinstance(tables, list) else [tables]
    if not listed:
        raise SpecError(
            "algorithm = [] is not accepted: give one [algorithm] or several [[algorithm]]"
        )
    made = [
        Study(algorithm=_algorithm(one, _numbered("algorithm", listed, k)), **shared)
        for k, one in enumerate(listed)
    ]
    return made if seed is None else [study.with_seed(seed) for study in made]


def engine(table: Table) -> engines.Where:
    """Where a spec's studies run: its [engine], else this process. It is no part of what they are: results are the same."""
    built: engines.Where = _build("engine", table.get("engine", "simulator"), "engine")
    return built


def to_table(study: Study, defaults: bool = True) -> Table:
    """A study as tables: with every default written out, or with what it says besides alone."""
    table: Table = {
        key: getattr(study, key) for key in ("name", *(k for k in _PLAIN if k != "name"))
    }
    table["measure"] = dataclasses.asdict(study.measure)
    if not defaults:
        table = {key: table[key] for key in table if key in _PLAIN and key in _told(study)}
        table["measure"] = {name: getattr(study.measure, name) for name in _told(study.measure)}
    parts = [
        "data",
        *([] if hasattr(study.data, "split") else ["split"]),
        "model",
        "algorithm",
        "network",
    ]
    if study.timing is not None:
        table["timing"] = _fields(study.timing, defaults)
    written: Table = _plain(table)
    return written | {part: _as_table(part, getattr(study, part), defaults) for part in parts}


def digest(study: Study) -> str:
    """A short name for what a study says. A later version's new options do not give it another: defaults are left out."""
    table = _in_floats(to_table(dataclasses.replace(study, name="study"), defaults=False))
    text = json.dumps(table, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _in_floats(value: Any) -> Any:
    """p = 1 and p = 1.0 say the same."""
    if isinstance(value, dict):
        return {key: _in_floats(v) for key, v in value.items()}
    if isinstance(value, list):
        return [_in_floats(v) for v in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _told(part: Any) -> list[str]:
    """The fields of a dataclass that are not at their default."""

    def default(field: dataclasses.Field[Any]) -> Any:
        return (
            field.default
            if field.default_factory is dataclasses.MISSING
            else field.default_factory()
        )

    return [
        field.name
        for field in dataclasses.fields(part)
        if field.init and getattr(part, field.name) != default(field)
    ]


def dumps(study: Study) -> str:
    """A study as TOML text; `studies(parse(text))` gives it back."""
    return tomli_w.dumps(to_table(study))


def difference(old: Any, new: Any, path: str = "") -> tuple[str, Any, Any] | None:
    """The first key in which two tables differ, with its two values (None: the key is not there).

    >>> difference({"network": {"density": 0.1}}, {"network": {"density": 0.2}})
    ('network.density', 0.1, 0.2)
    """
    if isinstance(old, dict) and isinstance(new, dict):
        parts = [
            (f"{path}.{key}" if path else key, old.get(key), new.get(key)) for key in old | new
        ]
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        parts = [
            (_numbered(path, old, k), a, b) for k, (a, b) in enumerate(zip(old, new, strict=True))
        ]
    else:
        return None if old == new else (path, old, new)
    return next((found for key, a, b in parts if (found := difference(a, b, key))), None)


def _as_table(section: str, part: Any, defaults: bool = True) -> Table:
    faults: list[Table] = []
    while isinstance(part, network.Faulty):
        faults.insert(0, _as_table("faults", part.fault, defaults))
        part = part.network
    kind = next((name for name, cls in KINDS[section].items() if type(part) is cls), None)
    # What was made in Python can be described, not rebuilt; where it lies in memory is another matter in every process.
    table: Table = (
        {"kind": kind}
        if kind
        else {"kind": "python", "is": re.sub(r" at 0x[0-9a-f]+", "", repr(part))[:1000]}
    )
    fields = _fields(part, defaults) if kind else {}
    return _plain(table | fields | ({"faults": faults} if faults else {}))  # type: ignore[no-any-return]


def _fields(part: Any, defaults: bool) -> Table:
    """The fields of a part by name: all, or those that are not at their default."""
    table: Table = {}
    for name in (
        [field.name for field in dataclasses.fields(part) if field.init]
        if defaults
        else _told(part)
    ):
        value = getattr(part, name)
        nested = _nested_section(type(part), name)
        if nested and isinstance(value, tuple):
            value = [_as_table(nested, v, defaults) for v in value]
        elif nested and (dataclasses.is_dataclass(value) or callable(value)):
            value = _as_table(nested, value, defaults)
        elif name in _FILES and value is not None:
            value = _absolute(Path.cwd(), value)
        table[name] = value
    return table


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(v) for key, v in value.items() if v is not None}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        return value.item()
    return value if isinstance(value, str | int | float | bool) else str(value)


# -- building the parts ------------------------------------------------------------------------------------------------


_OF_ALGORITHMS = (
    "step",
    "direction",
    "weights",
    "compress",
    "rule",
    "algorithm",
)  # fields that have kinds of their own


def _nested_section(cls: type, field: str) -> str | None:
    """Which section's kinds a field takes, where it is not a plain value."""
    if issubclass(cls, algorithms.Algorithm):
        return _SCHEDULED.get(field, field if field in _OF_ALGORITHMS else None)
    if cls is tasks.Validation and field == "data":
        return "data"
    if cls is network.Timing and field in _QUANTITIES:
        return "quantity"
    return "network" if cls is network.Cycle and field == "networks" else None


def _kind_of(table: Any) -> Any:
    return table.get("kind") if isinstance(table, dict) else table


def _build(section: str, table: Any, path: str, given: Table | None = None) -> Any:
    """A part from its table (or from its kind alone), with values that it takes from elsewhere unless the table has them."""
    kinds, given = KINDS[section], given or {}
    if isinstance(table, str):
        table = {"kind": table}
    if not isinstance(table, dict):
        raise InputError(
            path, table, f"a table with a kind, such as {path} = {{ kind = {next(iter(kinds))!r} }}"
        )
    if "kind" not in table:
        if misspelt := next((key for key in table if nearest(key, ["kind"])), None):
            check_keys({misspelt: None}, ["kind"], path)
        raise SpecError(
            f"{path} has no kind: give {path}.kind = one of {', '.join(map(repr, kinds))}"
        )
    kind = table["kind"]
    if kind == "python":
        raise SpecError(
            f"{path} was made in Python ({table.get('is', '?')}): go on with it from Python"
        )
    if not isinstance(kind, str) or kind not in kinds:
        raise InputError(
            f"{path}.kind", kind, f"one of {', '.join(map(repr, kinds))}{nearest(str(kind), kinds)}"
        )
    known = _keys_of(section, kind)
    check_keys(table, known, path)
    rest = {
        key: value
        for key, value in (given | table).items()
        if key in known and key not in ("kind", "faults", "preset")
    }
    part = build_dataclass(kinds[kind], rest, path, given)
    faults = table.get("faults", [])
    listed = faults if isinstance(faults, list) else [faults]
    for k, fault in enumerate(listed):
        part = part & _build("faults", fault, _numbered(f"{path}.faults", listed, k), given)
    return part


def build_dataclass(cls: type, table: Any, path: str, given: Table | None = None) -> Any:
    if not isinstance(table, dict):
        raise InputError(path, table, "a table")
    fields = [f for f in dataclasses.fields(cls) if f.init]
    check_keys(table, [f.name for f in fields], path)
    values: Table = {
        key: value for key, value in (given or {}).items() if key in [f.name for f in fields]
    }
    for key, value in table.items():
        nested, here = _nested_section(cls, key), f"{path}.{key}"
        if nested == "network":
            if not isinstance(value, list):
                raise InputError(here, value, "a list of networks, each a table with a kind")
            values[key] = tuple(
                _build(nested, v, _numbered(here, value, k), given) for k, v in enumerate(value)
            )
        elif nested and (isinstance(value, dict) or nested in (*_OF_ALGORITHMS, "data")):
            values[key] = (
                _algorithm(value, here) if nested == "algorithm" else _build(nested, value, here)
            )
        else:
            values[key] = _typed(cls, key, value, here)
    for f in fields:
        if f.name not in values and f.default is f.default_factory is dataclasses.MISSING:
            raise SpecError(f"{path}.{f.name} is missing: give {_wanted(_hints(cls)[f.name])}")
    try:
        return cls(**values)
    except InputError as error:  # named and shown as the user wrote it
        raise InputError(
            f"{path}.{error.field}", table.get(error.field, error.value), error.accepted
        ) from None


def _numbered(path: str, listed: list[Any], k: int) -> str:
    return path if len(listed) == 1 else f"{path}[{k}]"


def _algorithm(table: Any, path: str) -> algorithms.Algorithm:
    if not (isinstance(table, dict) and "preset" in table):
        return _build("algorithm", table, path)  # type: ignore[no-any-return]
    preset = table["preset"]
    if table.get("kind", "wpm") != "wpm":
        raise InputError(
            f"{path}.preset",
            preset,
            f'no preset with kind = {table["kind"]!r}: only "wpm" has them',
        )
    if not isinstance(preset, str) or preset not in PRESETS:
        raise InputError(
            f"{path}.preset",
            preset,
            f"one of {', '.join(map(repr, PRESETS))}{nearest(str(preset), PRESETS)}",
        )
    # The preset's own choices, then what the table says besides.
    base = _as_table("algorithm", PRESETS[preset](p=3))
    return _build("algorithm", base | table | {"kind": "wpm"}, path)  # type: ignore[no-any-return]


def check_keys(table: Table, known: tuple[str, ...] | list[str], path: str) -> None:
    for key in table:
        if key not in known:
            where = f"{path}.{key}" if path else key
            raise SpecError(
                f"{where} is not a key that is known{nearest(key, known)}; the keys here are {', '.join(known)}"
            )


@cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


@cache
def _adapter(cls: type, field: str) -> pydantic.TypeAdapter[Any]:
    hint = _hints(cls)[field]
    if (
        typing.get_origin(hint) in _UNIONS
    ):  # what has a kind is a table or a callable, never a plain value
        others = typing.get_args(hint)
        plain = tuple(
            p
            for p in others
            if typing.get_origin(p) is not Callable and not dataclasses.is_dataclass(p)
        )
        hint = typing.Union[plain]  # noqa: UP007
    return pydantic.TypeAdapter(hint)


def _typed(cls: type, field: str, value: Any, path: str) -> Any:
    """A plain value, checked against its field's type as strictly as TOML's own types."""
    try:
        text = json.dumps(value)
        if r"\u0000" in text:  # no file has such a name
            raise ValueError
        return _adapter(cls, field).validate_json(text, strict=True)
    except (ValueError, TypeError):  # also pydantic's refusal, and what JSON does not have: dates
        raise InputError(path, value, _wanted(_hints(cls)[field])) from None


_UNIONS = (typing.Union, types.UnionType)
_WORDS = {int: "whole number", float: "number", Path: "path"}


def _wanted(hint: Any) -> str:
    """A type in the user's words.

    >>> _wanted(float), _wanted(tuple[int, ...]), _wanted(typing.Literal["a", "b"])
    ('a number', 'a list of whole numbers', "'a' or 'b'")
    """
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint in (bool, str):
        return "true or false" if hint is bool else "text"
    if hint in _WORDS:
        return f"a {_WORDS[hint]}"
    if origin is typing.Literal:
        return " or ".join(map(repr, parts))
    if origin is tuple:
        count = "" if parts[-1] is ... else f"{len(parts)} "
        return f"a list of {count}{_WORDS.get(parts[0], 'value')}s"
    if origin in _UNIONS:
        return " or ".join(
            dict.fromkeys(_wanted(part) for part in parts if part not in (str, type(None)))
        )
    return "a table with a kind"

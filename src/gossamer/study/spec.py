"""A study as TOML, and back. The kinds of every section stand in one table; their fields are the dataclasses' own."""

from __future__ import annotations

import dataclasses
import json
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

from gossamer import algorithms, network, tasks
from gossamer.engines import Measure
from gossamer.errors import DataError, GossamerError, InputError, nearest
from gossamer.study.study import Study
from gossamer.tasks import splits, synthetic

Table = dict[str, Any]

KINDS: dict[str, dict[str, type]] = {
    "data": {
        "digits": tasks.Digits,
        "mnist": tasks.Mnist,
        "fashion-mnist": tasks.FashionMnist,
        "cifar10": tasks.Cifar10,
        "arrays": tasks.Arrays,
        "least-squares": synthetic.LeastSquares,
        "logistic": synthetic.Logistic,
    },
    "split": {
        "iid": splits.Iid,
        "one-label": splits.OneLabel,
        "labels": splits.Labels,
        "dirichlet": splits.Dirichlet,
        "uneven": splits.Uneven,
        "drawn": splits.Drawn,
        "lists": splits.Lists,
    },
    "model": {
        "softmax": tasks.Softmax,
        "svm": tasks.Svm,
        "mlp": tasks.Mlp,
        "cnn": tasks.Cnn,
        "least-squares": tasks.LinearRegression,
        "logistic": tasks.LogisticRegression,
    },
    "network": {
        "random": network.Random,
        "full": network.Full,
        "ring": network.Ring,
        "random-ring": network.RandomRing,
        "erdos-renyi": network.ErdosRenyi,
        "regular": network.Regular,
        "star": network.Star,
        "mobility": network.Mobility,
        "cycle": network.Cycle,
        "file": network.Sequence,
        "contacts": network.ContactTrace,
        "positions": network.PositionTrace,
    },
    "faults": {
        "link-failure": network.LinkFailure,
        "gilbert-elliott": network.GilbertElliott,
        "churn": network.Churn,
    },
    "algorithm": {
        "wpm": algorithms.WPM,
        "dpsgd": algorithms.DPSGD,
        "swarm": algorithms.SwarmSGD,
        "allreduce": algorithms.AllReduce,
    },
    "step": {
        "constant": algorithms.Constant,
        "power": algorithms.Power,
        "matched": algorithms.Matched,
        "safe": algorithms.Safe,
        "ratio": algorithms.Ratio,
    },
    "schedule": {
        "inverse-sqrt": algorithms.InverseSqrt,
        "inverse": algorithms.Inverse,
        "cosine": algorithms.Cosine,
        "switch": algorithms.Switch,
    },
}

# A WPM table may start from one of its two named forms: preset = "paper" or "robust".
PRESETS: dict[str, Callable[..., algorithms.WPM]] = {"paper": algorithms.WPM.paper, "robust": algorithms.WPM.robust}

_PLAIN = ("batch", "rounds", "seed", "dtype", "device", "threads", "name")
_SECTIONS = ("data", "split", "model", "network", "algorithm", "measure")


class SpecError(GossamerError):
    """A key that is not there, or a file that is not a spec."""


def read(path: Path) -> Table:
    """The tables of a TOML file; the files that it names are looked for beside it."""
    try:
        with path.open("rb") as file:
            return _beside(path.absolute().parent, tomllib.load(file))  # type: ignore[no-any-return]
    except FileNotFoundError:
        raise SpecError(f"there is no spec {path}; `gossamer new {path}` writes one to start from") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
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
        key: str(folder / v) if key in ("path", "folder") and isinstance(v, str) else _beside(folder, v)
        for key, v in value.items()
    }


def with_settings(table: Table, settings: list[str]) -> Table:
    """The tables with `--set a.b=value` applied; a value is TOML, or a word if it is not TOML."""
    table = json.loads(json.dumps(table, default=str)) if settings else table
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not all(key.split(".")):
            raise SpecError(f"--set {setting!r} is not accepted: give key=value, for example algorithm.p=15")
        try:
            value = tomllib.loads(f"v = {text}")["v"]
        except tomllib.TOMLDecodeError:
            value = text
        *path, last = key.split(".")
        for place in _places(table, path, key):
            if last == "kind" and place.get("kind") not in (None, value):
                place.clear()  # another kind has other keys
            place[last] = value
    return table


def _places(table: Table, path: list[str], key: str) -> list[Table]:
    """The tables that a dotted path leads to: all of them where a section is a list, such as several algorithms."""
    places = [table]
    for step in path:
        following: list[Table] = []
        for place in places:
            inner = place.setdefault(step, {})
            if isinstance(inner, str):  # `split = "iid"` is short for a table with that kind
                inner = place[step] = {"kind": inner}
            following += inner if isinstance(inner, list) else [inner]
        if not all(isinstance(place, dict) for place in following):
            raise SpecError(f"--set {key}: {step} is a plain value and has no keys")
        places = following
    return places


def studies(table: Table, name: str = "study", seed: int | None = None) -> list[Study]:
    """The studies of a spec, one for each [[algorithm]]: they differ in nothing else."""
    _known_keys(table, (*_PLAIN, *_SECTIONS), "")
    plain = {key: _typed(Study, key, table[key], key) for key in _PLAIN if key in table}
    plain = {"name": name, **plain}
    if seed is not None:
        plain["seed"] = seed
    number = plain.get("seed", 0)
    net = _network(table.get("network", {"kind": "random", "devices": 10, "density": 0.2}), "network", number)
    data = _data(table.get("data", "digits"), net.devices, number)
    if hasattr(data, "split") and "split" in table:
        raise SpecError(f"split is not accepted: data of kind {_kind_of(table['data'])!r} comes with its devices' samples")
    shared: Table = {
        "network": net,
        "data": data,
        "split": _build("split", table.get("split", "iid"), "split"),
        "model": _build("model", table.get("model", _usual_model(data)), "model"),
        "measure": _dataclass(Measure, table.get("measure", {}), "measure"),
        **plain,
    }
    tables = table.get("algorithm", {"kind": "wpm", "preset": "robust"})
    listed = tables if isinstance(tables, list) else [tables]
    if not listed:
        raise SpecError("algorithm = [] is not accepted: give one [algorithm] or several [[algorithm]]")
    return [Study(algorithm=_algorithm(one, _numbered("algorithm", listed, k)), **shared) for k, one in enumerate(listed)]


def to_table(study: Study) -> Table:
    """A study as tables, every default written out."""
    table: Table = {key: getattr(study, key) for key in ("name", *(k for k in _PLAIN if k != "name"))}
    table["measure"] = _plain(dataclasses.asdict(study.measure))
    parts = ("data", "model", "algorithm") if hasattr(study.data, "split") else ("data", "split", "model", "algorithm")
    table |= {part: _as_table(part, getattr(study, part)) for part in parts}
    faults: list[Table] = []
    net: network.Network = study.network
    while isinstance(net, network.Faulty):
        faults.insert(0, _as_table("faults", net.fault))
        net = net.network
    table["network"] = _as_table("network", net) | ({"faults": faults} if faults else {})
    return table


def dumps(study: Study) -> str:
    """A study as TOML text; `studies(tomllib.loads(text))` gives it back."""
    return tomli_w.dumps(to_table(study))


def _as_table(section: str, part: Any) -> Table:
    kind = next((name for name, cls in KINDS[section].items() if type(part) is cls), None)
    if kind is None:  # made in Python: it can be described, not rebuilt
        return {"kind": "python", "is": repr(part)[:1000]}
    table: Table = {"kind": kind}
    for field in dataclasses.fields(part):
        if field.init:
            value = getattr(part, field.name)
            nested = _nested_section(type(part), field.name)
            if nested and isinstance(value, tuple):
                value = [_as_table(nested, v) for v in value]
            elif nested and (dataclasses.is_dataclass(value) or callable(value)):
                value = _as_table(nested, value)
            if value is not None:
                table[field.name] = value
    return _plain(table)  # type: ignore[no-any-return]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(v) for key, v in value.items() if v is not None}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        return value.item()
    return value if isinstance(value, str | int | float | bool) else str(value)


# -- building the parts ------------------------------------------------------------------------------------------------


def _nested_section(cls: type, field: str) -> str | None:
    """Which section's kinds a field takes, where it is not a plain value."""
    if issubclass(cls, algorithms.Algorithm):
        return {"step": "step", "eta": "schedule", "p": "schedule"}.get(field)
    return "network" if cls is network.Cycle and field == "networks" else None


def _kind_of(table: Any) -> Any:
    return table.get("kind") if isinstance(table, dict) else table


def _build(section: str, table: Any, path: str, given: Table | None = None) -> Any:
    """A part from its table (or from its kind alone), with values that it takes from elsewhere unless the table has them."""
    if isinstance(table, str):
        table = {"kind": table}
    if not isinstance(table, dict):
        raise InputError(path, table, f"a table with a kind, such as {path} = {{ kind = {next(iter(KINDS[section]))!r} }}")
    kinds = KINDS[section]
    if "kind" not in table:
        raise SpecError(f"{path} has no kind: give {path}.kind = one of {', '.join(map(repr, kinds))}")
    kind = table["kind"]
    if kind == "python":
        raise SpecError(f"{path} was made in Python ({table.get('is', '?')}): go on with it from Python")
    if kind not in kinds:
        raise InputError(f"{path}.kind", kind, f"one of {', '.join(map(repr, kinds))}{nearest(str(kind), kinds)}")
    rest = {key: value for key, value in table.items() if key != "kind"}
    names = {f.name for f in dataclasses.fields(kinds[kind]) if f.init}
    return _dataclass(kinds[kind], {k: v for k, v in (given or {}).items() if k in names} | rest, path)


def _dataclass(cls: type, table: Table, path: str) -> Any:
    if not isinstance(table, dict):
        raise InputError(path, table, "a table")
    names = [f.name for f in dataclasses.fields(cls) if f.init]
    _known_keys(table, names, path)
    values: Table = {}
    for key, value in table.items():
        nested, here = _nested_section(cls, key), f"{path}.{key}"
        if nested and isinstance(value, list):
            values[key] = tuple(_build(nested, v, _numbered(here, value, k)) for k, v in enumerate(value))
        elif nested and (isinstance(value, dict) or nested == "step"):
            values[key] = _build(nested, value, here)
        else:
            values[key] = _typed(cls, key, value, here)
    missing = [
        f.name
        for f in dataclasses.fields(cls)
        if f.init and f.name not in values and f.default is f.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise SpecError(f"{path}.{missing[0]} is missing: give it a value")
    try:
        return cls(**values)
    except InputError as error:
        raise error.under(path) from None


def _numbered(path: str, listed: list[Any], k: int) -> str:
    return path if len(listed) == 1 else f"{path}[{k}]"


def _network(table: Any, path: str, seed: int) -> network.Network:
    if isinstance(table, str):
        table = {"kind": table}
    rest = {key: value for key, value in table.items() if key != "faults"} if isinstance(table, dict) else table
    net: network.Network = _build("network", rest, path, {"seed": seed})
    faults = table.get("faults", []) if isinstance(table, dict) else []
    listed = faults if isinstance(faults, list) else [faults]
    for k, fault in enumerate(listed):
        net = net & _build("faults", fault, _numbered(f"{path}.faults", listed, k), {"seed": seed})
    return net


def _data(table: Any, devices: int, seed: int) -> Any:
    synthetic_kind = _kind_of(table) in ("least-squares", "logistic")
    return _build("data", table, "data", {"devices": devices, "seed": seed} if synthetic_kind else {})


def _usual_model(data: Any) -> str:
    return {synthetic.LeastSquares: "least-squares", synthetic.Logistic: "logistic"}.get(type(data), "softmax")


def _algorithm(table: Any, path: str) -> algorithms.Algorithm:
    if not (isinstance(table, dict) and "preset" in table):
        return _build("algorithm", table, path)  # type: ignore[no-any-return]
    rest = {key: value for key, value in table.items() if key != "preset"}
    preset = table["preset"]
    if preset not in PRESETS or table.get("kind", "wpm") != "wpm":
        raise InputError(f"{path}.preset", preset, '"paper" or "robust", with kind = "wpm"')
    # The preset's own choices, then what the table says besides.
    base = _as_table("algorithm", PRESETS[preset](p=3))
    return _build("algorithm", base | rest | {"kind": "wpm"}, path)  # type: ignore[no-any-return]


def _known_keys(table: Table, known: tuple[str, ...] | list[str], path: str) -> None:
    for key in table:
        if key not in known:
            where = f"{path}.{key}" if path else key
            listed = ", ".join(known) if known else "none"
            raise SpecError(f"{where} is not a key that is known{nearest(key, known)}; the keys here are: {listed}")


@cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


@cache
def _adapter(cls: type, field: str) -> pydantic.TypeAdapter[Any]:
    hint = _hints(cls)[field]
    if typing.get_origin(hint) in (
        typing.Union,
        types.UnionType,
    ):  # a schedule is a table or a callable, never a plain value
        plain = tuple(part for part in typing.get_args(hint) if typing.get_origin(part) is not Callable)
        hint = typing.Union[plain]  # noqa: UP007
    return pydantic.TypeAdapter(hint)


def _typed(cls: type, field: str, value: Any, path: str) -> Any:
    """A plain value, checked against its field's type as strictly as TOML's own types."""
    try:
        return _adapter(cls, field).validate_json(json.dumps(value, default=str), strict=True)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        wanted = first["msg"].removeprefix("Input should be ").removeprefix("a valid ")
        article = "" if wanted[0] in "'0123456789" or wanted.startswith(("a ", "an ")) else "a "
        raise InputError(path, value, f"{article}{wanted}") from None

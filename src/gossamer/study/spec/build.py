"""Build studies and their parts from the tables of a spec."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from gossamer import engines, network, tasks
from gossamer._core.type_words import describe_type
from gossamer.engines import Measure
from gossamer.errors import InputError, nearest
from gossamer.study.spec.code import refuse_code
from gossamer.study.spec.sections import (
    ALGORITHM_FIELDS,
    DEFAULTS,
    OLD_KEYS,
    OWN_CODE,
    PLAIN_KEYS,
    SECTIONS,
    SpecError,
    Table,
    class_of,
    init_fields,
    item_path,
    keys_of,
    kind_of,
    kinds_of,
    nested_section,
)
from gossamer.study.spec.values import checked_value, type_hints
from gossamer.study.study import Study
from gossamer.tasks.own_devices import brings_devices

_LONGEST_KEY = 60  # characters of a key in a message
_SYNTHETIC = ("least-squares", "logistic")  # kinds of data that bring their own split


def studies(
    table: Table, name: str = "study", seed: int | None = None, *, allow_code: bool = False
) -> list[Study]:
    """Build the studies of a spec: one per [[algorithm]], equal in everything else.

    Args:
        table: The tables of a spec.
        name: The name of the studies, if the spec gives none.
        seed: Shift every seed of the spec by as much as the study's own, as `Study.with_seed`
            does.
        allow_code: Import and run the Python code that the spec names.

    Returns:
        The studies, in the order of the algorithms.

    Raises:
        SpecError: If a key is unknown or missing, or the spec names code that is not allowed.
        InputError: If a value is not accepted.

    Example:
        >>> spec = {"algorithm": [{"kind": "d-psgd"}, {"kind": "swarm-sgd"}]}
        >>> [study.algorithm.label for study in studies(spec)]
        ['D-PSGD', 'SwarmSGD']
    """
    check_keys(table, (*PLAIN_KEYS, *SECTIONS), "")
    if not allow_code:
        refuse_code(table)
    fields: Table = {"name": name}
    for key in PLAIN_KEYS:
        if key in table:
            fields[key] = checked_value(Study, key, table[key], key)
    seed_of_spec = fields.get("seed", 0)
    fields |= _shared_parts(table, seed_of_spec)
    tables = table.get("algorithm", DEFAULTS["algorithm"])
    if not isinstance(tables, list):
        tables = [tables]
    if not tables:
        raise SpecError(
            "algorithm = [] is not accepted: give one [algorithm] or several [[algorithm]]"
        )
    built = []
    for index, one in enumerate(tables):
        path = item_path("algorithm", tables, index)
        algorithm = build_part("algorithm", one, path, {"seed": seed_of_spec})
        # The seeds of a spec are absolute: one that a run has written repeats that run exactly.
        study = Study(algorithm=algorithm, parts_seed=seed_of_spec, **fields)
        if seed is not None:
            study = study.with_seed(seed)
        built.append(study)
    return built


def _shared_parts(table: Table, seed: int) -> Table:
    """Build the parts that the studies of a spec share, by the names of `Study`'s fields."""
    given = {"seed": seed}
    net = build_part("network", table.get("network", DEFAULTS["network"]), "network", given)
    data_table = table.get("data", DEFAULTS["data"])
    data_kind = kind_of(data_table)
    model = "softmax"
    data_given: Table = {}
    if data_kind in _SYNTHETIC:
        if "split" in table:
            raise SpecError(
                f"split is not accepted: data.kind = {data_kind!r} gives every device its own "
                "samples; leave it out"
            )
        model = data_kind
        data_given = {"devices": net.devices} | given
    timing = None
    data = build_part("data", data_table, "data", data_given)
    if brings_devices(data) and "split" in table:
        raise SpecError(
            "split is not accepted: the data say which device holds which samples; leave it out, "
            "or set data.pooled = true"
        )
    split = build_part("split", table.get("split", DEFAULTS["split"]), "split")
    built_model = build_part("model", table.get("model", model), "model")
    measure = build_dataclass(Measure, table.get("measure", {}), "measure")
    if "timing" in table:
        timing = build_dataclass(network.Timing, table["timing"], "timing", given)
    energy = None
    if "energy" in table:
        energy = build_dataclass(network.Energy, table["energy"], "energy")
    stream = None
    if "stream" in table:
        stream = build_dataclass(tasks.Stream, table["stream"], "stream")
    events = None
    if kind_of(table.get("engine")) == "events":
        events = engine(table)
    return {
        "network": net,
        "data": data,
        "split": split,
        "model": built_model,
        "measure": measure,
        "timing": timing,
        "energy": energy,
        "stream": stream,
        "events": events,
    }


def engine(table: Table) -> engines.EngineSpec:
    """Build the engine of a spec: its [engine], or the simulator in this process.

    Only the engine without rounds is a part of the study: results do not depend on the others.

    Args:
        table: The tables of a spec.

    Returns:
        The engine's settings.

    Example:
        >>> engine({"engine": {"kind": "ray", "shards": 4}}).shards
        4
    """
    built: engines.EngineSpec = build_part("engine", table.get("engine", "simulator"), "engine")
    return built


def build_part(section: str, table: Any, path: str, given: Table | None = None) -> Any:
    """Build a part of a study from its table.

    Args:
        section: The section whose kinds apply.
        table: A table with a kind, or the kind alone.
        path: The table's name in messages.
        given: Values from elsewhere in the spec, for fields that the table does not set.

    Returns:
        The part: an object of the kind's dataclass.

    Raises:
        SpecError: If a key is unknown or missing.
        InputError: If a value is not accepted.
    """
    given = given or {}
    if isinstance(table, str):
        table = {"kind": table}
    _check_kind(section, table, path)
    kind = table["kind"]
    keys = keys_of(section, kind)
    check_keys(table, keys, path)
    values: Table = {}
    for key, value in (given | table).items():
        if key in keys and key not in ("kind", "faults"):
            values[key] = value
    part = build_dataclass(class_of(section, kind), values, path, given)
    faults = table.get("faults", [])
    if not isinstance(faults, list):
        faults = [faults]
    for index, fault in enumerate(faults):
        fault_path = item_path(f"{path}.faults", faults, index)
        part = part & build_part("faults", fault, fault_path, given)
    return part


def _check_kind(section: str, table: Any, path: str) -> None:
    """Raise an error unless `table` is a table whose kind is known."""
    kinds = kinds_of(section)
    names = ", ".join(map(repr, kinds))
    if not isinstance(table, dict):
        kind = kind_of(DEFAULTS.get(section, kinds[0]))
        example = f"{path} = {{ kind = {kind!r} }}"
        raise InputError(path, table, f"a table with a kind, such as {example}")
    if "kind" not in table:
        for key in table:
            if nearest(key, ["kind"]):  # a misspelt "kind"
                check_keys({key: None}, ["kind"], path)
        raise SpecError(f"{path} has no kind: give {path}.kind = one of {names}")
    kind = table["kind"]
    if kind == OWN_CODE and "is" in table:
        raise SpecError(
            f"{path} was made in Python ({table['is']}), and only a description of it is kept: "
            "make the same study in Python, and give it there"
        )
    if kind not in kinds:
        raise InputError(f"{path}.kind", kind, f"one of {names}{nearest(str(kind), kinds)}")


def build_dataclass(cls: type, table: Any, path: str, given: Table | None = None) -> Any:
    """Build a dataclass from a table of its fields.

    Args:
        cls: The dataclass.
        table: Values by field.
        path: The table's name in messages.
        given: Values for fields that the table does not set.

    Returns:
        An object of `cls`.

    Raises:
        SpecError: If a key is unknown or missing.
        InputError: If a value is not accepted.
    """
    if not isinstance(table, dict):
        raise InputError(path, table, "a table")
    fields = init_fields(cls)
    names = [field.name for field in fields]
    check_keys(table, names, path)
    values: Table = {}
    for key, value in (given or {}).items():
        if key in names:
            values[key] = value
    for key, value in table.items():
        values[key] = _field_value(cls, key, value, f"{path}.{key}", given)
    for field in fields:
        required = field.default is field.default_factory is dataclasses.MISSING
        if required and field.name not in values:
            wanted = describe_type(type_hints(cls)[field.name])
            raise SpecError(f"{path}.{field.name} is missing: give {wanted}")
    try:
        return cls(**values)
    except InputError as error:  # name and show the value as the user wrote it
        value = table.get(error.field, error.value)
        raise InputError(f"{path}.{error.field}", value, error.accepted) from None


def _field_value(cls: type, field: str, value: Any, path: str, given: Table | None) -> Any:
    """Build the value of one field: a part, a tuple of parts, or a plain value."""
    section = nested_section(cls, field)
    if section in ("network", "metric"):
        if not isinstance(value, list):
            raise InputError(path, value, f"a list of {section}s, each a kind or a table with one")
        parts = []
        for index, item in enumerate(value):
            parts.append(build_part(section, item, item_path(path, value, index), given))
        return tuple(parts)
    if section and (isinstance(value, dict) or section in (*ALGORITHM_FIELDS, "data", "loss")):
        return build_part(section, value, path, given)
    return checked_value(cls, field, value, path)


def check_keys(table: Table, known: Sequence[str], path: str) -> None:
    """Raise an error for the first key of a table that is not known.

    Args:
        table: The table.
        known: The keys that it may have.
        path: The table's name in messages; empty for the whole spec.

    Raises:
        SpecError: If a key is not known.
    """
    for key in table:
        if key in OLD_KEYS and key not in known:
            raise InputError(f"{path}.{key}", table[key], OLD_KEYS[key])
        if key not in known:
            name = _printed(key)
            if path:
                name = f"{path}.{name}"
            raise SpecError(
                f"{name} is not a known key{nearest(key, known)}; "
                f"the keys here are {', '.join(known)}"
            )


def _printed(key: str) -> str:
    """Return a key as it is named in a message: in one line, and not too long."""
    if len(key) > _LONGEST_KEY:
        key = key[: _LONGEST_KEY - 1] + "…"
    if key.isprintable():
        return key
    return repr(key)

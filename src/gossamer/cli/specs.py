"""Read the specs that commands are given, with `--set`, `--seed` and `--engine` applied."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer.cli.traces import (
    TRACE_SPLIT,
    is_trace,
    network_table,
    trace_name,
    with_rounds_of_trace,
)
from gossamer.errors import InputError

if TYPE_CHECKING:
    from gossamer.engines import EngineSpec
    from gossamer.fleet.settings import Fleet
    from gossamer.study import Study


def read_studies(
    path: Path | None,
    settings: list[str] | None,
    seed: int | None,
    engine: str | None = None,
    methods: int | None = None,
    allow_code: bool = False,
) -> tuple[list[Study], EngineSpec]:
    """Read the studies of a spec, and the engine that they run on.

    Args:
        path: The spec; None means the demo's. A trace means the demo's on the trace's network.
        settings: Values of `--set`.
        seed: Value of `--seed`.
        engine: Value of `--engine`.
        methods: Take so many methods of the demo; None means all.
        allow_code: Value of `--allow-code`.

    Returns:
        The studies, one per method, and the engine's settings.
    """
    from gossamer.cli.progress import FileBars
    from gossamer.network.traces.progress import reporting
    from gossamer.study import spec

    given = engine_settings(engine, settings)
    name, table = _read_table(path, given, methods)
    table = spec.with_settings(table, given)
    with FileBars(quiet=False) as bars, reporting(lambda path, *size: bars(path.name, *size)):
        studies = spec.studies(table, name, seed, allow_code=allow_code)
    if "rounds" not in table and path is not None and is_trace(path):
        studies = with_rounds_of_trace(studies)
    return studies, spec.engine(table)


def _read_table(
    path: Path | None, settings: list[str], methods: int | None
) -> tuple[str, dict[str, Any]]:
    """Return the name and the tables of a spec, of the demo, or of the demo on a trace."""
    from gossamer.cli.template import DEMO
    from gossamer.study import spec

    if path is not None and not is_trace(path):
        return path.stem, spec.read(path)
    table = spec.parse(DEMO)
    table["algorithm"] = table["algorithm"][:methods]
    if path is None:
        return "demo", table
    del table["rounds"]
    table["split"] = TRACE_SPLIT
    table["network"] = network_table(path, settings)
    return trace_name(path), table


def read_fleet_study(
    path: Path | str,
    devices: int | None,
    settings: list[str] | None,
    seed: int | None,
    allow_code: bool = False,
    before: Fleet | None = None,
) -> tuple[Study, Fleet]:
    """Read the one study of a spec, and its settings for real devices.

    Args:
        path: The spec, or a study in a Python file, as FILE.py:NAME.
        devices: Number of devices; None keeps the spec's.
        settings: Values of `--set`.
        seed: Value of `--seed`.
        allow_code: Value of `--allow-code`.
        before: Settings that keys of [fleet] change; None means the defaults.

    Returns:
        The study, and the section [fleet].

    Raises:
        InputError: If the spec has several methods.
    """
    from gossamer.fleet.settings import read_fleet
    from gossamer.study import spec

    if re.search(r"\.py:[\w.]+$", str(path)):
        return _study_in_python(str(path), devices, settings, seed, allow_code, before)
    path = Path(path)
    given = list(settings or [])
    if devices is not None:
        given.append(f"network.devices={devices}")
    table = spec.with_settings(spec.read(path), given)
    studies = spec.studies(table, path.stem, seed, allow_code=allow_code)
    return single_study(studies), read_fleet(table, before)


def _study_in_python(
    text: str,
    devices: int | None,
    settings: list[str] | None,
    seed: int | None,
    allow_code: bool,
    before: Fleet | None,
) -> tuple[Study, Fleet]:
    """Return a study from a Python file, and the settings of its fleet by `--set fleet.KEY=`."""
    from gossamer.fleet.code import study_in
    from gossamer.fleet.settings import read_fleet
    from gossamer.study import spec

    if not allow_code:
        raise InputError("SPEC", text, "--allow-code with it: the file is run; read it first")
    if devices is not None or seed is not None:
        given = "--devices" if devices is not None else "--seed"
        raise InputError(given, devices or seed, f"the value in {text}, which is the whole study")
    table = spec.with_settings({}, list(settings or []))
    for key in table:
        if key != "fleet":
            raise InputError("--set", key, f"fleet.KEY alone: the rest of the study is in {text}")
    return study_in(text, "SPEC"), read_fleet(table, before)


def engine_settings(engine: str | None, settings: list[str] | None) -> list[str]:
    """Return the values of `--set`, after the setting that `--engine` stands for.

    Args:
        engine: Value of `--engine`.
        settings: Values of `--set`.
    """
    given = []
    if engine is not None:
        given.append(f"engine.kind={engine}")
    return given + list(settings or [])


def single_study(studies: list[Study]) -> Study:
    """Return the only study of a spec.

    Args:
        studies: The studies of a spec.

    Raises:
        InputError: If there are several.
    """
    if len(studies) > 1:
        names = ", ".join(study.algorithm.label for study in studies)
        raise InputError("algorithm", names, "one [algorithm]; `gossamer compare` runs several")
    return studies[0]

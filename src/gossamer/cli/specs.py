"""Read the specs that commands are given, with `--set`, `--seed` and `--engine` applied."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

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
        path: The spec; None means the demo's.
        settings: Values of `--set`.
        seed: Value of `--seed`.
        engine: Value of `--engine`.
        methods: Take so many methods of the demo; None means all.
        allow_code: Value of `--allow-code`.

    Returns:
        The studies, one per method, and the engine's settings.
    """
    from gossamer.study import spec

    if path is None:
        from gossamer.cli.template import DEMO

        name = "demo"
        table = spec.parse(DEMO)
        table["algorithm"] = table["algorithm"][:methods]
    else:
        name = path.stem
        table = spec.read(path)
    table = spec.with_settings(table, engine_settings(engine, settings))
    return spec.studies(table, name, seed, allow_code=allow_code), spec.engine(table)


def read_fleet_study(
    path: Path,
    devices: int | None,
    settings: list[str] | None,
    seed: int | None,
    allow_code: bool = False,
) -> tuple[Study, Fleet]:
    """Read the one study of a spec, and its settings for real devices.

    Args:
        path: The spec.
        devices: Number of devices; None keeps the spec's.
        settings: Values of `--set`.
        seed: Value of `--seed`.
        allow_code: Value of `--allow-code`.

    Returns:
        The study, and the section [fleet].

    Raises:
        InputError: If the spec has several methods.
    """
    from gossamer.fleet.settings import read_fleet
    from gossamer.study import spec

    given = list(settings or [])
    if devices is not None:
        given.append(f"network.devices={devices}")
    table = spec.with_settings(spec.read(path), given)
    studies = spec.studies(table, path.stem, seed, allow_code=allow_code)
    return single_study(studies), read_fleet(table)


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

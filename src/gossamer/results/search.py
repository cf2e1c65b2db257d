"""The folder of a search by `gossamer tune`: what was confirmed, and all that was tried."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULT = "result.json"
CELLS = "cells"  # the folder with a run folder per run of the search
_MAX_BYTES = 20_000_000  # largest size of result.json


@dataclass(frozen=True)
class Tried:
    """A setting that a search tried, with what its longest runs achieved.

    Attributes:
        label: The method and its settings in one line.
        method: The label of the method.
        settings: The settings by name.
        rounds: Number of rounds of its longest runs.
        seeds: Number of those runs.
        last: The mean of the metric at their end; None if all diverged.
        to_target: What the target took on average; None if some run did not reach it.
    """

    label: str
    method: str
    settings: dict[str, Any]
    rounds: int
    seeds: int
    last: float | None
    to_target: float | None


@dataclass(frozen=True)
class Search:
    """What a report needs of a search.

    Attributes:
        name: The name of the study.
        verdict: Which method won, and how sure that is.
        column: The column of the measurements that decided.
        unit: Of `Tried.to_target`: "rounds", "bytes", "seconds" or "joules".
        target: The target, such as "accuracy >= 0.9"; empty if there is none.
        tried: All settings, the best of the longest runs first.
        runs: The folders of the confirming runs, the best setting first.
    """

    name: str
    verdict: str
    column: str
    unit: str
    target: str
    tried: tuple[Tried, ...]
    runs: tuple[Path, ...]


def read_search(folder: Path) -> Search | None:
    """Return the search in a folder.

    Args:
        folder: Any folder.

    Returns:
        The search; None if the folder holds none, or one of an earlier version, or a damaged one.
    """
    wrong = (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError)
    with suppress(*wrong):
        with (folder / RESULT).open("rb") as file:
            content = json.loads(file.read(_MAX_BYTES))
        return Search(
            name=str(content["name"]),
            verdict=str(content["verdict"]),
            column=str(content["metric"]),
            unit=str(content["unit"]),
            target=str(content["target"] or ""),
            tried=tuple(_tried(entry) for entry in content["tried"]),
            runs=tuple(_runs(folder, content["confirmed"])),
        )
    return None


def _tried(entry: dict[str, Any]) -> Tried:
    return Tried(
        label=str(entry["label"]),
        method=str(entry["method"]),
        settings={str(name): value for name, value in entry["settings"].items()},
        rounds=int(entry["rounds"]),
        seeds=int(entry["seeds"]),
        last=_number(entry["last"]),
        to_target=_number(entry["to_target"]),
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _runs(folder: Path, confirmed: list[dict[str, Any]]) -> list[Path]:
    found = []
    for entry in confirmed:
        for name in entry["runs"]:
            if Path(name).name != name:  # a name, not a path that leads elsewhere
                raise ValueError(name)
            if (folder / CELLS / name / "spec.toml").is_file():
                found.append(folder / CELLS / name)
    return found

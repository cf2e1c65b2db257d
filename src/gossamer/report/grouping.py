"""Group runs into methods: the runs of a method differ in their seed only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gossamer.errors import GossamerError, InputError
from gossamer.results.run import Run
from gossamer.results.settings import flat_settings, value_text
from gossamer.results.tables import Method
from gossamer.study import spec
from gossamer.study.compare import labels
from gossamer.study.restore import study_of, with_study

# Keys of a spec that do not make another method of a run.
_IGNORED_KEYS = ("seed", "name", "device", "threads")
_LABEL_SETTINGS = 4  # settings that a label shows at most


def read(folder: Path, allow_code: bool = False) -> Run:
    """Read a run, with its study where that can be built from the spec.

    Args:
        folder: The run folder.
        allow_code: Import and run the Python code that the spec names.

    Returns:
        The run, whatever its status.
    """
    return attach_study(Run.read(folder), allow_code)


def attach_study(run: Run, allow_code: bool = False) -> Run:
    """Return a run with its study, or as it is if its study cannot be built.

    Args:
        run: A run read from its folder.
        allow_code: Import and run the Python code that the spec names.
    """
    try:
        return with_study(run, allow_code=allow_code)
    except GossamerError:
        return run


def missing_study(run: Run) -> str:
    """Return why the study of a run cannot be built; an empty string if it can.

    Args:
        run: A run. Parts of its study may be made in Python, or need files that are gone.
    """
    if run.study is not None:
        return ""
    try:
        study_of(run)
    except GossamerError as error:
        return str(error)
    return ""


def short_name(run: Run) -> str:
    """Return the last two parts of a run's folder, without where it lies on this machine.

    Args:
        run: A run with a folder.

    Example:
        >>> short_name(Run({}, {}, {}, folder=Path("/home/ada/runs/demo")))
        'runs/demo'
    """
    folder = run.folder or Path()
    parts = folder.parts
    if folder.name in ("", ".", ".."):
        parts = folder.resolve().parts
    if len(parts) > 1 and parts[-2] not in ("/", "..", "."):
        return "/".join(parts[-2:])
    return folder.resolve().name


def group_by_method(runs: Sequence[Run]) -> tuple[list[Method], list[str]]:
    """Group runs into methods, in the order in which the methods first come.

    Args:
        runs: Runs of any status.

    Returns:
        The methods, each with its runs ordered by seed; and a sentence for every run that is left
        out because another run has the same spec and seed.
    """
    groups: list[list[Run]] = []
    notes = []
    for run in runs:
        group = _group_of(run, groups)
        twin = _with_seed(group, run.seed)
        if twin is not None:
            notes.append(
                f"{short_name(run)} is {short_name(twin)} once more, with the same seed: "
                "it is left out, so that it counts once."
            )
        elif group:
            group.append(run)
        else:
            groups.append([run])
    methods = []
    names = _labels([group[0] for group in groups])
    for label, group in zip(names, groups, strict=True):
        methods.append(Method(label, tuple(sorted(group, key=lambda run: run.seed))))
    return methods, notes


def differences(runs: Sequence[Run]) -> list[str]:
    """Return what differs between runs besides the method and the seed.

    Args:
        runs: One run of each method.

    Returns:
        A phrase per key of the spec; empty if the runs compare methods only.
    """
    tables = [_settings_of(run) for run in runs]
    keys = dict.fromkeys(key for table in tables for key in table)
    found = []
    for key in keys:
        if key.startswith("algorithm."):
            continue
        values = dict.fromkeys(value_text(table.get(key)) for table in tables)
        if len(values) > 1:
            found.append(f"{key} is {' or '.join(values)}")
    return found


def _group_of(run: Run, groups: Sequence[list[Run]]) -> list[Run]:
    for group in groups:
        if _differ_in_seed_only(group[0], run):
            return group
    return []


def _with_seed(group: Sequence[Run], seed: int) -> Run | None:
    for run in group:
        if run.seed == seed:
            return run
    return None


def _differ_in_seed_only(one: Run, other: Run) -> bool:
    low, high = sorted((one, other), key=lambda run: run.seed)
    if low.study is None or high.study is None:
        return bool(_without_ignored(one.spec) == _without_ignored(other.spec))
    try:
        moved = low.study.with_seed(high.seed)
    except InputError:
        return False
    return spec.difference(_own_keys(moved), _own_keys(high.study)) is None


def _own_keys(study: Any) -> dict[str, Any]:
    table = spec.to_table(study)
    return {key: value for key, value in table.items() if key not in _IGNORED_KEYS}


def _without_ignored(value: Any) -> Any:
    """Return a table without the keys that make no other method, at any depth."""
    if isinstance(value, dict):
        kept = {}
        for key, inner in value.items():
            if key not in _IGNORED_KEYS:
                kept[key] = _without_ignored(inner)
        return kept
    if isinstance(value, list):
        return [_without_ignored(inner) for inner in value]
    return value


def _labels(firsts: Sequence[Run]) -> list[str]:
    """Return a label per method, from the first run of each.

    If the runs differ in nothing but the method, these are the labels of a comparison. Otherwise
    methods that share a label are told apart by the settings in which they differ.
    """
    studies = [run.study for run in firsts]
    if None not in studies and not differences(firsts):
        return labels(studies)
    plain = [run.label for run in firsts]
    tables = [_settings_of(run) for run in firsts]
    named = []
    for label, table in zip(plain, tables, strict=True):
        alike = [tables[k] for k in range(len(firsts)) if plain[k] == label]
        own = _own_settings(table, alike)
        if own:
            more = ", …" if len(own) > _LABEL_SETTINGS else ""
            label = f"{label} ({', '.join(own[:_LABEL_SETTINGS])}{more})"
        named.append(label)
    unique = []
    for k, label in enumerate(named):
        unique.append(label if named.count(label) == 1 else f"{label} #{k + 1}")
    return unique


def _own_settings(table: dict[str, Any], others: Sequence[dict[str, Any]]) -> list[str]:
    """Return the settings of a table, as key=value, in which others differ from it."""
    own = []
    for key in dict.fromkeys(key for other in others for key in other):
        if any(other.get(key) != table.get(key) for other in others):
            own.append(f"{key.removeprefix('algorithm.')}={value_text(table.get(key))}")
    return own


def _settings_of(run: Run) -> dict[str, Any]:
    """Return the spec of a run by dotted keys, without those that make no other method."""
    return flat_settings(_without_ignored(run.spec))

"""From run folders to what a page shows: plain dictionaries with the digits that can be drawn, and the exact data."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.errors import GossamerError, InputError
from gossamer.report import pack
from gossamer.report.palette import look
from gossamer.results.run import Run
from gossamer.results.statistics import Interval, interval, rounds_to
from gossamer.study import spec
from gossamer.study.compare import labels
from gossamer.study.kinds import KINDS
from gossamer.study.restore import study_of, with_study

_POINTS = 1000  # of a curve: more cannot be told apart on a screen
_EXACT_BYTES = 64_000_000  # of all devices' measurements, before they are packed
_NO_DIFFERENCE = ("seed", "name", "device", "threads")  # what does not make another method of a run


@dataclass(frozen=True)
class Group:
    """One method: the runs of a study that differ in their seed alone. `shown` are those that its numbers are of."""

    label: str
    runs: tuple[Run, ...]

    @property
    def shown(self) -> tuple[Run, ...]:
        finished = tuple(run for run in self.runs if run.finished)
        return finished or tuple(run for run in self.runs if run.metrics)


# -- reading -----------------------------------------------------------------------------------------------------------------


def read(folder: Path) -> Run:
    """Read a run with its study, where that can be built from the spec."""
    return attach_study(Run.read(folder))


def attach_study(run: Run) -> Run:
    """Return a run with its study; as it is where parts were made in Python or files are gone."""
    try:
        return with_study(run)
    except GossamerError:
        return run


def why_no_study(run: Run) -> str:
    """Return why the study of a run cannot be built; empty if it can."""
    try:
        study_of(run)
    except GossamerError as error:
        return str(error)
    return ""


def short_name(run: Run) -> str:
    """A folder as the user knows it: not where it lies on this machine."""
    folder = run.folder or Path()
    parts = folder.resolve().parts if folder.name in ("", ".", "..") else folder.parts
    return (
        "/".join(parts[-2:])
        if len(parts) > 1 and parts[-2] not in ("/", "..", ".")
        else folder.resolve().name
    )


def grouped(runs: Sequence[Run]) -> tuple[list[Group], list[str]]:
    """The methods, in the order in which they come, and what is to be said about runs that are left out."""
    groups: list[list[Run]] = []
    notes = []
    for run in runs:
        own = next((group for group in groups if _same_but_for_the_seed(group[0], run)), None)
        twin = next((other for other in own or () if other.seed == run.seed), None)
        if twin:
            notes.append(
                f"{short_name(run)} is {short_name(twin)} once more, with the same seed: it is left out, so that it counts once."
            )
        elif own:
            own.append(run)
        else:
            groups.append([run])
    return [
        Group(label, tuple(sorted(group, key=lambda run: run.seed)))
        for label, group in zip(_labels([g[0] for g in groups]), groups, strict=True)
    ], notes


def _same_but_for_the_seed(one: Run, other: Run) -> bool:
    low, high = sorted((one, other), key=lambda run: run.seed)
    if low.study is None or high.study is None:
        return bool(_unseeded(one.spec) == _unseeded(other.spec))
    try:
        moved = low.study.with_seed(high.seed)
    except InputError:
        return False
    first, second = (
        {key: value for key, value in spec.to_table(study).items() if key not in _NO_DIFFERENCE}
        for study in (moved, high.study)
    )
    return spec.difference(first, second) is None


def _unseeded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unseeded(v) for key, v in value.items() if key not in _NO_DIFFERENCE}
    return [_unseeded(v) for v in value] if isinstance(value, list) else value


def _labels(firsts: Sequence[Run]) -> list[str]:
    """As in the tables where only the methods differ; else those that share a name are told apart by what differs."""
    studies = [run.study for run in firsts]
    if all(studies) and not differences(firsts):
        return labels([study for study in studies if study])
    plain = [run.label for run in firsts]
    flat = [dict(_flat(_unseeded(run.spec))) for run in firsts]
    named = []
    for k, label in enumerate(plain):
        alike = [flat[j] for j in range(len(firsts)) if plain[j] == label]
        own = [
            f"{key.removeprefix('algorithm.')}={_word(flat[k].get(key))}"
            for key in dict.fromkeys(key for other in alike for key in other)
            if any(other.get(key) != flat[k].get(key) for other in alike)
        ]
        named.append(
            f"{label} ({', '.join(own[:4])}{', …' if len(own) > 4 else ''})" if own else label
        )
    return [
        label if named.count(label) == 1 else f"{label} #{k + 1}" for k, label in enumerate(named)
    ]


def differences(runs: Sequence[Run]) -> list[str]:
    """What differs between studies besides the method: such numbers are no comparison of methods alone."""
    flat = [dict(_flat(_unseeded(run.spec))) for run in runs]
    keys = dict.fromkeys(key for table in flat for key in table if not key.startswith("algorithm."))
    values = {key: list(dict.fromkeys(_word(table.get(key)) for table in flat)) for key in keys}
    return [f"{key} is {' or '.join(found)}" for key, found in values.items() if len(found) > 1]


def _flat(value: Any, path: str = "") -> Iterable[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, f"{path}.{key}" if path else key)
    else:
        yield path, json.dumps(value) if isinstance(value, list) else value


def _word(value: Any) -> str:
    if value is None:
        return "not set"
    text = (
        f"{value:g}"
        if isinstance(value, float)
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )
    return text if len(text) <= 60 else text[:59] + "…"


# -- what was run, in words --------------------------------------------------------------------------------------------------

_SECTIONS = (("data", "Data"), ("split", "Split"), ("model", "Model"), ("network", "Network"))
Line = tuple[str, str]  # what it is, and what that means


def words(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """What was run: a term, and a line or two about it; where the methods differ in it, with their names."""
    terms: dict[str, Callable[[dict[str, Any]], list[Line]]] = {
        title: partial(_part, key) for key, title in _SECTIONS
    }
    terms |= {"Rounds": _rounds, "Timing": _timing}
    facts = []
    for term, of in terms.items():
        said: dict[Line, list[str]] = {}
        for group in groups:
            for line in of(group.runs[0].spec):
                said.setdefault(line, []).append(group.label)
        lines = [
            [text if len(who) == len(groups) else f"{text} ({', '.join(who)})", meaning]
            for (text, meaning), who in said.items()
        ]
        facts += [{"term": term, "lines": lines}] if lines else []
    seeds = _ranges(sorted({run.seed for group in groups for run in group.runs}))
    methods = [
        [f"{g.label}: {_settings(g.runs[0].spec.get('algorithm', {}))}", _meaning(g.runs[0])]
        for g in groups
    ]
    return [
        *facts,
        {"term": "Seeds", "lines": [[seeds, ""]]},
        {"term": "Methods", "lines": methods},
    ]


def _part(section: str, table: dict[str, Any]) -> list[Line]:
    return _described(section, table[section]) if section in table else []


def _rounds(table: dict[str, Any]) -> list[Line]:
    measure = table.get("measure", {})
    at = {"after_step": " after the step", "after_mix": " after the mix"}.get(
        measure.get("at", ""), ""
    )
    every = f"every {measure['every']} rounds" if measure.get("every") else "at the end"
    test = f"{measure['test']:,}" if measure.get("test") else "all"
    run = f"{table.get('rounds')} rounds with batches of {table.get('batch')}, in {table.get('dtype')}"
    return [
        (
            run,
            f"measured {every.replace('every 1 rounds', 'every round')}{at}, on {test} test samples",
        )
    ]


def _timing(table: dict[str, Any]) -> list[Line]:
    return (
        [(_settings(table["timing"]), "what simulated seconds are reckoned from")]
        if "timing" in table
        else []
    )


def _described(section: str, table: Any) -> list[Line]:
    """A part with its settings and what it means, and the faults on top of it."""
    if not isinstance(table, dict):
        return [(str(table), "")]
    kind = table.get("kind", "")
    lines = [
        (
            f"{kind}: {_settings(table)}".removesuffix(": "),
            _first_sentence(KINDS.get(section, {}).get(kind)),
        )
    ]
    return lines + [
        line for fault in table.get("faults", []) for line in _described("faults", fault)
    ]


def _meaning(run: Run) -> str:
    return _first_sentence(KINDS["algorithm"].get(run.spec.get("algorithm", {}).get("kind", "")))


def _first_sentence(cls: type | None) -> str:
    """What a kind is, by its own documentation."""
    return " ".join((cls.__doc__ or "").split("\n\n")[0].split()) if cls else ""


def _settings(table: dict[str, Any]) -> str:
    parts = []
    for key, value in table.items():
        if key in ("kind", "faults", "seed"):
            continue
        if isinstance(value, dict):
            inner = _settings(value)
            parts.append(f"{key} {value.get('kind', '')}{f' ({inner})' if inner else ''}")
        else:
            shown = (
                Path(value).name
                if key in ("path", "folder") and isinstance(value, str)
                else _word(value)
            )
            parts.append(f"{key} {shown}")
    return ", ".join(parts)


def _ranges(numbers: Sequence[int]) -> str:
    """0, 1, 2, 5 → "0 to 2, 5"."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][-1] + 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    return ", ".join(f"{r[0]} to {r[-1]}" if len(r) > 2 else ", ".join(map(str, r)) for r in runs)


# -- tables ------------------------------------------------------------------------------------------------------------------

Cell = dict[str, Any]


def _cell(text: str, value: float | str | None = None, note: str = "") -> Cell:
    return {"text": text, "value": value} | ({"note": note} if note else {})


def _column(label: str, unit: str = "", about: str = "", number: bool = True) -> dict[str, Any]:
    return {"label": label, "unit": unit, "about": about, "number": number}


def results(groups: Sequence[Group]) -> dict[str, Any]:
    """One row a method: means over its seeds with 95 % intervals."""
    wanted = [
        (_column("accuracy", "%", "mean over the devices, at the end"), "accuracy", 2, 100.0),
        (
            _column("worst device", "%", "the lowest accuracy of a device, at the end"),
            "accuracy_worst",
            2,
            100.0,
        ),
        (_column("loss", "", "mean test loss over the devices, at the end"), "loss", 3, 1.0),
        (
            _column("worst loss", "", "the highest loss of a device, at the end"),
            "loss_worst",
            3,
            1.0,
        ),
        (
            _column(
                "distance to mean",
                "",
                "mean of ‖w − mean of all models‖ over the devices, at the end",
            ),
            "distance",
            3,
            1.0,
        ),
        (
            _column("sent", "MB", "by all devices together; 1 MB is a million bytes"),
            "bytes",
            1,
            1e-6,
        ),
        (
            _column("time", "simulated s", "until the last device was through"),
            "simulated_seconds",
            2,
            1.0,
        ),
    ]
    classifies = any(run.has("accuracy") for group in groups for run in group.shown)
    shown = [
        column
        for column in wanted
        if any(run.has(column[1]) for group in groups for run in group.shown)
        and not (classifies and column[1] == "loss_worst")
    ]
    columns = [
        _column("method", number=False),
        _column("seeds", about="runs that the numbers are means of"),
        *(c[0] for c in shown),
    ]
    rows = []
    for group in groups:
        cells = [_cell(group.label, group.label), _seeds(group)]
        for _, name, digits, scale in shown:
            values = [_last(run, name) for run in group.shown if run.has(name)]
            cells.append(_interval(interval(values), digits, scale) if values else _cell("–"))
        rows.append(cells)
    return {"columns": columns, "rows": rows}


def _last(run: Run, name: str) -> float:
    return float(run.metrics[name][-1])


def _interval(value: Interval, digits: int, scale: float) -> Cell:
    if not math.isfinite(value.mean):
        return _cell("–")
    return _cell(value.format(digits, scale), _number(value.mean * scale))


def _seeds(group: Group) -> Cell:
    states = [f"seed {run.seed} {run.status_text}" for run in group.runs if run.status_text]
    if states and not any(run.finished for run in group.runs) and group.shown:
        last = sorted({int(run.metrics["round"][-1]) for run in group.shown})
        states.append(f"numbers are of round {_ranges(last)}")
    count, shown = len(group.runs), len(group.shown)
    return _cell(str(count) if shown == count else f"{shown} of {count}", shown, "; ".join(states))


def targets(groups: Sequence[Group]) -> dict[str, Any] | None:
    """Rounds, bytes and simulated seconds until the mean accuracy or loss has reached a target; all seeds have to."""
    kinds: list[tuple[str, float, str]] = []
    for kind in ("accuracy", "loss"):
        listed = {
            float(t)
            for g in groups
            for run in g.runs
            for t in run.spec.get("measure", {}).get(f"{kind}_targets", [])
        }
        if any(run.has(kind) for g in groups for run in g.shown):
            falling = kind == "loss"
            kinds += [
                (kind, t, f"loss {t:g}" if falling else f"{100 * t:g} %")
                for t in sorted(listed, reverse=falling)
            ]
    if not kinds:
        return None
    units = [("rounds", "round", 0, 1.0, ""), ("sent", "bytes", 1, 1e-6, "MB")]
    if any(run.has("simulated_seconds") for g in groups for run in g.shown):
        units.append(("time", "simulated_seconds", 2, 1.0, "simulated s"))
    columns = [_column("method", number=False)]
    columns += [
        _column(f"{what} to {text}", unit) for _, _, text in kinds for what, _, _, _, unit in units
    ]
    rows = []
    for group in groups:
        cells = [_cell(group.label, group.label)]
        for kind, target, _ in kinds:
            reached = [_reached(run, kind, target) for run in group.runs]
            rows_at = [row for row in reached if row is not None]
            for _, name, digits, scale, _ in units:
                if len(rows_at) < len(reached):
                    share = (
                        f"{len(rows_at)} of {len(reached)} seeds"
                        if len(reached) > 1 and rows_at
                        else "not reached"
                    )
                    cells.append(_cell("–", None, share))
                elif all(name in run.metrics for run in group.runs):
                    values = [
                        float(run.metrics[name][row])
                        for run, row in zip(group.runs, rows_at, strict=True)
                    ]
                    cells.append(_interval(interval(values), digits, scale))
                else:
                    cells.append(_cell("–"))
        rows.append(cells)
    return {"columns": columns, "rows": rows}


def _reached(run: Run, kind: str, target: float) -> int | None:
    """The row of the measurement at which a target was reached first."""
    if not run.has(kind):
        return None
    return rounds_to(
        range(len(run.metrics[kind])), run.metrics[kind], target, rising=kind == "accuracy"
    )


# -- curves ------------------------------------------------------------------------------------------------------------------

CURVES = ("accuracy", "accuracy_worst", "loss", "loss_worst", "distance")
AXES = {"round": 1.0, "bytes": 1e-6, "simulated_seconds": 1.0}


def curves(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """For each method the mean over its seeds with the half-width of the 95 % interval; runs that ended early by themselves."""
    lines = []
    for k, group in enumerate(groups):
        early = [
            run
            for run in group.runs
            if not any(run is other for other in group.shown) and run.metrics
        ]
        ended = "; ".join(
            f"seed {run.seed} {run.status_text}"
            for run in group.shown
            if run.status_text and not run.progress
        )
        drawn = [
            _line((run,), f"{group.label}, seed {run.seed}", k)
            | {"ended": "" if run.progress else run.status_text}
            for run in early
        ]
        lines.append(_line(group.shown, group.label, k) | {"ended": ended, "early": drawn})
    return lines


def _line(runs: Sequence[Run], label: str, k: int) -> dict[str, Any]:
    colour, dash = look(k)
    line: dict[str, Any] = {"label": label, "colour": colour, "dash": dash, "x": {}, "y": {}}
    if not runs:
        return line
    common = set.intersection(*(set(run.metrics["round"].tolist()) for run in runs))
    rounds = np.array(sorted(common))
    rounds = rounds[pack.evenly(len(rounds), _POINTS)]
    rows = [np.searchsorted(run.metrics["round"], rounds) for run in runs]
    for name in (*AXES, *CURVES):
        if not all(run.has(name) for run in runs):
            continue
        values = np.array(
            [run.metrics[name][row] for run, row in zip(runs, rows, strict=True)], dtype=float
        )
        if name in AXES:
            line["x"][name] = _numbers(values.mean(0) * AXES[name])
        else:
            line["y"][name] = {
                "mean": _numbers(values.mean(0)),
                "half": None if len(runs) == 1 else _numbers(_halves(values)),
            }
    return line


def _halves(values: Any) -> Any:
    """`interval` of each column, all at once."""
    from scipy.special import stdtrit

    n = len(values)
    return stdtrit(n - 1, 0.975) * values.std(0, ddof=1) / math.sqrt(n)


def _numbers(values: Any) -> list[float | None]:
    return [_number(float(v)) for v in values]


def _number(value: float) -> float | None:
    """With the digits that can be drawn; null where there is none."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


# -- the runs themselves -----------------------------------------------------------------------------------------------------


def run_facts(run: Run, label: str) -> dict[str, Any]:
    """What is said of one run."""
    return {
        "name": short_name(run),
        "label": label,
        "seed": run.seed,
        "state": run.status_text or "finished",
        "finished": run.finished,
        "rounds": run.spec.get("rounds"),
        "seconds": _number(float(run.summary.get("seconds") or 0)),
        "versions": {key: str(value) for key, value in run.summary.get("versions", {}).items()},
        "command": command(run.summary.get("command", "")),
        "spec": run.spec_text,
        "rows": len(run.metrics.get("round", ())),
    }


def data(run: Run, devices: bool = True) -> tuple[list[dict[str, Any]], str]:
    """A run's exact measurements, packed: what columns there are, and their values."""
    return pack.table(
        {name: values for name, values in run.metrics.items() if devices or values.ndim == 1}
    )


def command(words: str) -> str:
    """A command as it was given, without where Python lies on this machine."""
    first, _, rest = str(words).partition(" ")
    return (
        f"gossamer {rest}".strip()
        if Path(first).name in ("gossamer", "__main__.py")
        else str(words)
    )


def exact_devices(runs: Sequence[Run]) -> bool:
    """Whether there is room for every device's measurements."""
    return (
        sum(
            int(values.size) * 4
            for run in runs
            for values in run.metrics.values()
            if values.ndim > 1
        )
        <= _EXACT_BYTES
    )

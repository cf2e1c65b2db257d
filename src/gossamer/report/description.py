"""Describe what was run, for the first section of a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gossamer.results.settings import value_text
from gossamer.results.tables import Method, runs_of
from gossamer.study.kinds import KINDS

Line = tuple[str, str]  # a part with its settings, and what it means
_SECTIONS = {"data": "Data", "split": "Split", "model": "Model", "network": "Network"}
_MEASURED = {"after_step": " after the step", "after_mix": " after the mix"}
_NOT_SETTINGS = ("kind", "faults", "seed")


def describe(methods: Sequence[Method]) -> list[dict[str, Any]]:
    """Return what was run, as terms with a line or two each.

    Args:
        methods: The methods of a page. Where they differ, a line names those that it is about.

    Returns:
        Dictionaries with "term" and "lines"; a line is a text and its meaning.
    """
    terms: dict[str, Callable[[dict[str, Any]], list[Line]]] = {}
    for section, title in _SECTIONS.items():
        terms[title] = partial(_part_lines, section)
    terms["Rounds"] = _round_lines
    terms["Timing"] = _timing_lines
    described = []
    for term, lines_of in terms.items():
        lines = _merged_lines(methods, lines_of)
        if lines:
            described.append({"term": term, "lines": lines})
    seeds = sorted({run.seed for run in runs_of(methods)})
    described.append({"term": "Seeds", "lines": [[ranges(seeds), ""]]})
    own = []
    for method in methods:
        algorithm = method.runs[0].spec.get("algorithm", {})
        meaning = _first_paragraph("algorithm", algorithm.get("kind", ""))
        own.append([f"{method.label}: {_settings(algorithm)}", meaning])
    described.append({"term": "Methods", "lines": own})
    return described


def ranges(numbers: Sequence[int]) -> str:
    """Return ascending integers as text, with three or more in a row as a range.

    Args:
        numbers: Ascending integers.

    Example:
        >>> ranges([0, 1, 2, 5])
        '0 to 2, 5'
    """
    groups: list[list[int]] = []
    for number in numbers:
        if groups and number == groups[-1][-1] + 1:
            groups[-1].append(number)
        else:
            groups.append([number])
    texts = []
    for group in groups:
        if len(group) > 2:
            texts.append(f"{group[0]} to {group[-1]}")
        else:
            texts.extend(map(str, group))
    return ", ".join(texts)


def _merged_lines(
    methods: Sequence[Method], lines_of: Callable[[dict[str, Any]], list[Line]]
) -> list[list[str]]:
    """Return the lines of all methods, each once, with the names of its methods if not all."""
    owners: dict[Line, list[str]] = {}
    for method in methods:
        for line in lines_of(method.runs[0].spec):
            owners.setdefault(line, []).append(method.label)
    merged = []
    for (text, meaning), names in owners.items():
        if len(names) < len(methods):
            text = f"{text} ({', '.join(names)})"
        merged.append([text, meaning])
    return merged


def _part_lines(section: str, table: dict[str, Any]) -> list[Line]:
    if section not in table:
        return []
    return _described(section, table[section])


def _round_lines(table: dict[str, Any]) -> list[Line]:
    measure = table.get("measure", {})
    moment = _MEASURED.get(measure.get("at", ""), "")
    every = "at the end"
    if measure.get("every"):
        every = f"every {measure['every']} rounds".replace("every 1 rounds", "every round")
    samples = f"{measure['test']:,}" if measure.get("test") else "all"
    rounds = f"{table.get('rounds')} rounds with batches of {table.get('batch')}"
    return [
        (
            f"{rounds}, in {table.get('dtype')}",
            f"measured {every}{moment}, on {samples} test samples",
        )
    ]


def _timing_lines(table: dict[str, Any]) -> list[Line]:
    if "timing" not in table:
        return []
    return [(_settings(table["timing"]), "what simulated seconds are reckoned from")]


def _described(section: str, table: Any) -> list[Line]:
    """Return a part with its settings and its meaning, then the faults on top of it."""
    if not isinstance(table, dict):
        return [(str(table), "")]
    kind = table.get("kind", "")
    text = f"{kind}: {_settings(table)}".removesuffix(": ")
    lines = [(text, _first_paragraph(section, kind))]
    for fault in table.get("faults", []):
        lines.extend(_described("faults", fault))
    return lines


def _first_paragraph(section: str, kind: str) -> str:
    """Return the first paragraph of a kind's documentation."""
    part = KINDS.get(section, {}).get(kind)
    if part is None:
        return ""
    return " ".join((part.__doc__ or "").split("\n\n")[0].split())


def _settings(table: dict[str, Any]) -> str:
    texts = []
    for key, value in table.items():
        if key in _NOT_SETTINGS:
            continue
        if isinstance(value, dict):
            inner = _settings(value)
            text = f"{key} {value.get('kind', '')}"
            if inner:
                text += f" ({inner})"
            texts.append(text)
        elif key in ("path", "folder") and isinstance(value, str):
            texts.append(f"{key} {Path(value).name}")
        else:
            texts.append(f"{key} {value_text(value)}")
    return ", ".join(texts)

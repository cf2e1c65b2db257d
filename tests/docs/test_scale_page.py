"""The tables of the page "A million devices", from made-up results."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]


def scale_page() -> ModuleType:
    path = ROOT / "benchmarks" / "scale_page.py"
    found = importlib.util.spec_from_file_location("scale_page", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


PAGE = scale_page()


def row(devices: int, **changes: Any) -> dict[str, Any]:
    """Return a row with 9,000 bytes and 4 µs per device; 400 bytes and 0.25 µs are of links."""
    return {
        "task": "digits",
        "devices": devices,
        "parameters": 650,
        "processor seconds per round": 4e-6 * devices,
        "of that, links and weights": 0.25e-6 * devices,
        "processor microseconds per device-step": 4.0,
        "bytes beyond imports and samples": 9000 * devices,
        "bytes of links and weights": 400 * devices,
        "peak bytes": 9000 * devices + 250_000_000,
        **changes,
    }


def test_limits_that_are_missed_are_in_bold() -> None:
    rows = [row(10_000), row(1_000_000)]
    assert "| peak memory of the process, GB | 9.25 | ≤ 12 |" in PAGE.limits(rows)
    assert "| device-step / that among 10,000 | 1.00 | ≤ 1.3 |" in PAGE.limits(rows)
    assert "| links and weights, share of a round, one thread | 0.06 | ≤ 0.2 |" in PAGE.limits(rows)
    assert "| the same, two threads | 0.12 | ≤ 0.2 |" in PAGE.limits(rows)
    rows[1]["processor microseconds per device-step"] = 6.0
    assert "| device-step / that among 10,000 | **1.50** | ≤ 1.3 |" in PAGE.limits(rows)
    assert PAGE.limits(rows[:1]) == ["1,000,000 devices were not measured on this processor."]


def test_the_projection_is_the_arithmetic_of_its_constants() -> None:
    text = "\n".join(PAGE.projection({"processor": "X", "rows": [row(1_000_000)]}))
    # 10⁸ · 8,600 B = 860 GB; with 80 GB of links on the machines of both ends, 15 machines.
    assert "| 860 GB |" in text
    assert "| 100,000,000 × 2 × 400 B | 80 GB |" in text
    assert "| memory / 64 GB | 15 |" in text
    # A model goes to 14·(1 − (14/15)⁸) = 5.94 machines: 1.54 TB, 82 s at 15 · 1.25 GB/s.
    assert "× 5.94 machines | 1.54 TB |" in text
    assert "| 1.54 TB / 15 / 1.25 GB/s | 82 |" in text
    assert "| 100,000,000 × 3.75 µs / 15 / 2 | 12 |" in text
    assert "| 100,000,000 × 2 × 0.25 µs / 15 | 3 |" in text
    assert "| largest of the three | | sending |" in text


def test_a_row_without_some_measurements_has_dashes() -> None:
    assert PAGE.line(row(1000)).startswith("| digits | 1,000 | 4.0 | 6 % | – | – | – |")

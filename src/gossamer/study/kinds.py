"""What a spec can name: the registered kinds of every section."""

from __future__ import annotations

from collections.abc import Callable

from gossamer import algorithms, engines, network, tasks  # noqa: F401 - their parts register
from gossamer._core import registry
from gossamer.tasks import splits, synthetic  # noqa: F401

KINDS = registry.PARTS

# A WPM table may start from one of its two named forms: preset = "paper" or "robust".
PRESETS: dict[str, Callable[..., algorithms.WPM]] = {
    "paper": algorithms.WPM.paper,
    "robust": algorithms.WPM.robust,
}

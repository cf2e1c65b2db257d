"""What a spec can name: the registered kinds of every section."""

from __future__ import annotations

from gossamer import algorithms, engines, network, tasks  # noqa: F401 - their parts register
from gossamer._core import registry
from gossamer.study import code  # noqa: F401 - likewise
from gossamer.tasks import split_rules, synthetic  # noqa: F401 - likewise

KINDS = registry.PARTS

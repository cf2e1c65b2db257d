"""Load the packages of Hugging Face when they are needed."""

from __future__ import annotations

import importlib
from typing import Any

from gossamer.errors import MissingExtra


def load(name: str) -> Any:
    """Return a package of the extra gossamer[hf].

    Args:
        name: "transformers", "peft" or "datasets", or one of their modules.

    Raises:
        MissingExtra: If it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingExtra("hf", name.partition(".")[0]) from None

"""The measured choice of implementations, kept in the user's cache folder.

One file per processor, version of gossamer, torch and the kernels. It is never required: a file
that is damaged or of another format is ignored, and where none can be written, no measurement is
made.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from gossamer._core.processor import processor
from gossamer._core.versions import version
from gossamer.backend import limits, loader

_FORMAT = 1
_MAX_BYTES = 1 << 20  # a larger file is not ours

Table = dict[str, str]


def path() -> Path:
    """Return the file of this processor and these versions."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parts = [str(_FORMAT), processor(), version("gossamer"), version("torch")]
    digest = hashlib.blake2b("\n".join(parts).encode(), digest_size=8)
    with suppress(OSError):
        digest.update(loader.PATH.read_bytes())
    return cache / "gossamer" / f"kernels-{digest.hexdigest()}.json"


def read(keys: Sequence[str], names: Sequence[str]) -> Table | None:
    """Return the choice that is kept, or None.

    Args:
        keys: The classes of all operations.
        names: The implementations that this processor has.
    """
    try:
        file = path()
        if file.stat().st_size > _MAX_BYTES:
            return None
        found = json.loads(file.read_bytes())["choice"]
        table = {key: found[key] for key in keys}
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):
        return None
    if len(found) != len(keys) or not all(name in names for name in table.values()):
        return None
    return table


def keep(
    seconds: Mapping[str, Mapping[str, float]], keys: Sequence[str], names: Sequence[str]
) -> Table | None:
    """Write the choice that measurements lead to, unless another process was first.

    Args:
        seconds: The seconds of every implementation, by class of an operation.
        keys: The classes of all operations.
        names: The implementations that this processor has, in order of preference.

    Returns:
        The choice that is kept now; None if no file can be written.
    """
    choice = {key: fastest(seconds[key], names) for key in keys}
    milliseconds = {}
    for key, by_name in seconds.items():
        milliseconds[key] = {name: round(1000 * value, 4) for name, value in by_name.items()}
    document = {
        "processor": processor(),
        "gossamer": version("gossamer"),
        "torch": version("torch"),
        "choice": choice,
        "milliseconds": milliseconds,
    }
    with suppress(OSError, RuntimeError):
        file = path()
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.exists() and read(keys, names) is None:
            file.unlink()
        temporary = file.with_name(f".{file.name}.{secrets.token_hex(4)}.part")
        try:
            temporary.write_text(json.dumps(document, indent=2) + "\n")
            with suppress(FileExistsError):  # another process has measured meanwhile: it decides
                os.link(temporary, file)
        finally:
            temporary.unlink(missing_ok=True)
    return read(keys, names)


def fastest(seconds: Mapping[str, float], names: Sequence[str]) -> str:
    """Return the first implementation that none other beats by more than `limits.CHOICE_MARGIN`.

    Args:
        seconds: The seconds of every implementation.
        names: The implementations in order of preference.

    Example:
        >>> fastest({"avx2": 1.0, "torch": 0.98}, ["avx2", "torch"])
        'avx2'
        >>> fastest({"avx2": 1.0, "torch": 0.5}, ["avx2", "torch"])
        'torch'
    """
    shortest = min(seconds.values())
    for name in names:
        if seconds[name] <= shortest * limits.CHOICE_MARGIN:
            return name
    raise AssertionError("the shortest is never beaten")

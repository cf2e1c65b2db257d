"""The studies of a spec file, for use in Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gossamer._core.arguments import checked
from gossamer.study import spec
from gossamer.study.study import Study


@checked
def load_spec(
    path: Path | str,
    settings: Sequence[str] = (),
    seed: int | None = None,
    *,
    allow_code: bool = False,
) -> list[Study]:
    """Read the studies of a spec file: one per [[algorithm]], equal in everything else.

    Args:
        path: The TOML file.
        settings: Changes "key=value", as `--set` takes them.
        seed: The seed, as `--seed` sets it; None keeps the spec's.
        allow_code: Import and run the Python code that the spec names (kind = "python").

    Returns:
        The studies, in the order of the algorithms.

    Raises:
        GossamerError: If there is no such file, or it is no spec, or it names code that is not
            allowed.

    Example:
        >>> load_spec("study.toml", ["rounds=50"], allow_code=True)     # doctest: +SKIP
    """
    table = spec.with_settings(spec.read(Path(path)), list(settings))
    return spec.studies(table, Path(path).stem, seed, allow_code=allow_code)

"""`gossamer report` and `gossamer watch`: what they do and print."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer


def report(runs: Sequence[Path], out: Path) -> None:
    """Write the page, and say where it is."""
    from gossamer.report.page import page

    page(runs, out)
    typer.echo(f"{out}: {out.stat().st_size / 1e6:.1f} MB; opens in any browser, without the network")

"""`gossamer report` and `gossamer watch`: what they do and print."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import typer


def report(runs: Sequence[Path], out: Path) -> None:
    """Write the page, and say where it is."""
    from gossamer.report.page import page

    page(runs, out)
    typer.echo(
        f"{out}: {out.stat().st_size / 1e6:.1f} MB; opens in any browser, without the network"
    )


def watch(folder: Path, host: str, port: int) -> None:
    """Serve the live page until Ctrl-C."""
    from gossamer.report.live import Server

    with suppress(KeyboardInterrupt), Server(folder, host, port) as server:
        typer.echo(f"watching {folder} at {server.url}   (Ctrl-C ends it)")
        if host not in ("127.0.0.1", "localhost", "::1"):
            typer.echo("anybody who reaches this machine can look: there is no password", err=True)
        server.serve_forever()

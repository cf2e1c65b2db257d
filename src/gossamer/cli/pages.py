"""`gossamer report` and `gossamer watch`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import typer

from gossamer.errors import InputError


def report(runs: Sequence[Path], out: Path, allow_code: bool = False) -> None:
    """Write the report of some runs, and print where it is.

    Args:
        runs: Run folders, or folders with runs in them.
        out: The HTML file to write.
        allow_code: Import and run the Python code that the specs of the runs name.
    """
    from gossamer.report.page import page

    if out.suffix not in (".html", ".htm"):
        accepted = "a name that ends in .html; `gossamer figure` draws .pdf, .svg and .png"
        raise InputError("--out", str(out), accepted)
    page(runs, out, allow_code)
    size = out.stat().st_size / 1e6
    typer.echo(f"{out}: {size:.1f} MB; opens in any browser, without the network")


def watch(folder: Path, host: str, port: int, connect: Sequence[str] = ()) -> None:
    """Serve the live page until Ctrl-C.

    Args:
        folder: A run folder, a folder with runs in it, or a fleet's folder.
        host: The address to listen on.
        port: The port; 0 takes one that is free.
        connect: Devices of a fleet to follow over the network.
    """
    from gossamer.report.server import Server

    with suppress(KeyboardInterrupt), Server(folder, host, port, connect) as server:
        typer.echo(f"watching {folder} at {server.url}   (Ctrl-C ends it)")
        if host not in ("127.0.0.1", "localhost", "::1"):
            typer.echo("anybody who reaches this machine can look: there is no password", err=True)
        server.serve_forever()

"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a value, e.g. algorithm.p=15."),
]
Seed = Annotated[
    int | None, typer.Option(metavar="N", help="The seed of links, batches, split and start.")
]
EngineName = Annotated[
    str | None,
    typer.Option(
        "--engine", metavar="NAME", help="Where it runs: simulator, events or ray; else the spec's."
    ),
]
AllowCode = Annotated[
    bool,
    typer.Option(
        "--allow-code",
        help='Run the Python code that the spec names (kind = "python"): read it first.',
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Track = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Write for a tracker too: wandb (offline unless WANDB_MODE is set), mlflow or "
        "tensorboard.",
        autocompletion=lambda: ["wandb", "mlflow", "tensorboard"],
    ),
]

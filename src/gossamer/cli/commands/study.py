"""Commands that run studies, and the one that writes a spec."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from gossamer.cli.commands.options import AllowCode, EngineName, Json, Quiet, Seed, Set, Track
from gossamer.cli.specs import read_studies, single_study
from gossamer.cli.traces import say_understood


def run(
    spec: Annotated[
        Path | None,
        typer.Argument(
            metavar="SPEC",
            help="A spec or a contact log; without one, the demo's study.",
        ),
    ] = None,
    set_: Set = None,
    seed: Seed = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The run folder; else runs/NAME-METHOD-seedN."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where the run in this folder stopped.")
    ] = False,
    engine: EngineName = None,
    allow_code: AllowCode = False,
    track: Track = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run one method: writes a run folder, prints the result.

    With --resume and no SPEC, the spec of the folder is taken, with all that was set.
    """
    from gossamer.cli.progress import RunBars
    from gossamer.cli.show import show_notes, show_run
    from gossamer.errors import Interrupted
    from gossamer.study import run as run_study
    from gossamer.study.compare import slug
    from gossamer.study.track import trackers

    if resume and spec is None and out is not None and (out / "spec.toml").is_file():
        spec = out / "spec.toml"  # it includes the changes by --set and --seed
    studies, on_engine = read_studies(spec, set_, seed, engine, methods=1, allow_code=allow_code)
    study = single_study(studies)
    say_understood(spec, study, quiet)
    label = study.algorithm.label
    folder = out or Path("runs") / f"{study.name}-{slug(label)}-seed{study.seed}"
    with RunBars([label], quiet=quiet) as bars:
        tracking = trackers(track)
        observers = [bars, *tracking]
        try:
            done = run_study(study, folder, resume=resume, engine=on_engine, observers=observers)
        except Interrupted as error:
            if "--resume" not in str(error):  # nothing was kept
                raise
            words = ["gossamer", "run", "--resume", "--out", str(folder)]
            if engine:
                words += ["--engine", engine]
            if allow_code:
                words.append("--allow-code")
            raise Interrupted(f"{error}: {shlex.join(words)}") from None
    show_run(done, json, quiet)
    show_notes(tracking, quiet)


def compare(
    specs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="SPEC",
            help="Specs or a contact log; without one, the demo's.",
        ),
    ] = None,
    set_: Set = None,
    seed: Seed = None,
    seeds: Annotated[
        int,
        typer.Option(metavar="N", help="How many seeds; results are means with 95 % intervals."),
    ] = 1,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The folder of the runs; else runs/NAME.")
    ] = None,
    engine: EngineName = None,
    allow_code: AllowCode = False,
    track: Track = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare methods on the same links, batches and start.

    Runs that are there already are not run again; those that were stopped go on.
    """
    from gossamer.cli.progress import RunBars, ShareBar
    from gossamer.cli.show import refuse_diverged, show_comparison, show_notes
    from gossamer.study import compare as compare_studies
    from gossamer.study.compare import labels
    from gossamer.study.pools import pool_on
    from gossamer.study.track import track_finished, trackers

    studies = []
    engines = []
    paths: list[Path | None] = [None]
    if specs:
        paths = [*specs]
    for path in paths:
        found, on_engine = read_studies(path, set_, seed, engine, allow_code=allow_code)
        studies += found
        engines.append(on_engine)
    say_understood(paths[0], studies[0], quiet)
    folder = out or Path("runs") / studies[0].name
    tracking = trackers(track, folder.name)
    if engines[0].cluster() is not None:
        with pool_on(engines[0]) as pool, ShareBar(quiet, "runs") as bar:
            comparison = compare_studies(studies, seeds, folder, pool=pool, progress=bar)
        track_finished(comparison, tracking)
    else:
        with RunBars(labels(studies), seeds, quiet=quiet) as bars:
            observers = [bars, *tracking]
            comparison = compare_studies(studies, seeds, folder, observers=observers)
    show_comparison(comparison, folder, demo=not specs, as_json=json, quiet=quiet)
    show_notes(tracking, quiet)
    refuse_diverged(comparison)


def tune(
    spec: Annotated[
        Path,
        typer.Argument(
            metavar="SPEC",
            help="A spec or a contact log: its task, split, network and rounds are kept.",
        ),
    ],
    budget: Annotated[
        int, typer.Option(metavar="N", help="The work to spend, in runs of the spec's rounds.")
    ] = 200,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="TARGET",
            help='The target, as in "mae <= 40", "accuracy_merged >= 0.9", or 0.9 of the first '
            "metric; else the spec's hardest target within reach.",
        ),
    ] = None,
    goal: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="WHAT",
            help="What to save: rounds, bytes, seconds or joules; or the metric to optimise, as in "
            "rmse or rmse_merged.",
        ),
    ] = "rounds",
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Only these beside the baseline, as in wpm,nids; else all that fit the links.",
        ),
    ] = None,
    set_: Set = None,
    seed: Seed = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The folder of the runs; else runs/tune-NAME."),
    ] = None,
    workers: Annotated[int, typer.Option(metavar="N", help="Runs at a time; 0: one per core.")] = 0,
    engine: EngineName = None,
    allow_code: AllowCode = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    quiet: Quiet = False,
) -> None:
    """Search for the best method and its settings.

    The result is a ranking and the winning spec.

    Runs that are there already are not run again, so that the same command goes on where it was
    stopped.
    """
    from gossamer.cli.tune import tune as tune_study

    studies, on_engine = read_studies(spec, set_, seed, engine, allow_code=allow_code)
    study = studies[0]
    say_understood(spec, study, quiet)
    folder = out or Path("runs") / f"tune-{study.name}"
    tune_study(study, budget, target, goal, methods, folder, on_engine, workers, json, quiet)


def new(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")] = Path(
        "fleet.toml"
    ),
) -> None:
    """Write a commented spec to start from."""
    from gossamer._core.files import write_atomically
    from gossamer.cli.template import TEMPLATE
    from gossamer.errors import DataError

    if path.exists():
        raise DataError(f"{path} exists: give another name")
    write_atomically(path, TEMPLATE.encode())
    typer.echo(f"{path} is written; `gossamer run {path}` runs it")


def methods(
    what: Annotated[
        str,
        typer.Argument(
            metavar="[LIST]",
            help="methods, networks, faults, splits, models, losses, metrics, optimizers, data, "
            "mirrors, steps, directions, weights, compressors, guards, schedules or engines.",
        ),
    ] = "methods",
    json: Json = False,
) -> None:
    """List methods with their papers, or networks and other parts."""
    from gossamer.cli.methods import methods as print_methods

    print_methods(what, json)

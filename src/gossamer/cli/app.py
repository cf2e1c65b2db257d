"""The commands of `gossamer`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from gossamer.engines import EngineSpec
    from gossamer.fleet.settings import Fleet
    from gossamer.study import Study

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Train one model across devices that meet when they can: no server, links that come and go.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
network_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Look at a network, or save its links to a file.",
)
data_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Bring data sets here, checked by their hashes.",
)
app.add_typer(network_app, name="network")
fleet_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Real devices: prepare them, rehearse, watch, collect.",
)
app.add_typer(data_app, name="data")
app.add_typer(fleet_app, name="fleet")

Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a value, e.g. algorithm.p=15."),
]
Seed = Annotated[
    int | None, typer.Option(metavar="N", help="The seed of links, batches, split and start.")
]
On = Annotated[
    str | None,
    typer.Option(
        "--engine", metavar="NAME", help="Where it runs: simulator or ray; else the spec's."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Track = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Write for tensorboard too.", autocompletion=lambda: ["tensorboard"]
    ),
]


def _version(wanted: bool) -> None:
    if wanted:
        from gossamer import __version__

        typer.echo(f"gossamer {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...


@app.command()
def run(
    spec: Annotated[
        Path | None,
        typer.Argument(metavar="SPEC", help="A spec; without one, the study of the demo."),
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
    engine: On = None,
    track: Track = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run one method: writes a run folder, prints the result."""
    from gossamer.cli.show import Display, say_result
    from gossamer.study import run as run_study
    from gossamer.study.compare import slug
    from gossamer.study.track import trackers

    studies, where = _read(spec, set_, seed, engine, methods=1)
    study = _one(studies, spec)
    folder = out or Path("runs") / f"{study.name}-{slug(study.algorithm.label)}-seed{study.seed}"
    with Display(quiet) as display:
        bar = display.bar(study.algorithm.label)
        done = run_study(
            study,
            folder,
            resume=resume,
            engine=where,
            progress=bar,
            say=display.say,
            callbacks=trackers(track),
        )
    say_result(done, json)


@app.command()
def compare(
    specs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="SPEC", help="Specs; without one, the study of the demo."),
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
    engine: On = None,
    track: Track = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare methods on the same links, batches and start.

    Runs that are there already are not run again; those that were stopped go on.
    """
    from gossamer.cli.show import Display, Share, say_comparison
    from gossamer.engines import Ray
    from gossamer.errors import InputError
    from gossamer.study import compare as compare_studies
    from gossamer.study.compare import labels
    from gossamer.study.pools import pool_on
    from gossamer.study.track import trackers

    paths: list[Path] | list[None] = specs or [None]
    read = [_read(path, set_, seed, engine) for path in paths]
    studies, where = [study for found, _ in read for study in found], read[0][1]
    folder = out or Path("runs") / studies[0].name
    width, first = max(map(len, labels(studies))), studies[0].seed
    if isinstance(where, Ray):
        if track:
            raise InputError(
                "track", track, "nothing: on ray the runs of a comparison are in other processes"
            )
        with pool_on(where) as pool, Share(quiet, "runs") as share:
            methods = compare_studies(studies, seeds, folder, pool=pool, share=share)
    else:
        with Display(quiet) as display:
            methods = compare_studies(
                studies,
                seeds,
                folder,
                lambda label, seed: display.bar(f"{label:<{width}}", seed - first, seeds),
                callbacks=trackers(track),
            )
    say_comparison(methods, folder, not specs, json)


@app.command()
def runs(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder of runs.")] = Path("runs"),
    json: Json = False,
) -> None:
    """List the runs in a folder: how far, how good, and a spark line of each."""
    from gossamer.cli.runs import runs as list_runs

    list_runs(folder, json)


@app.command()
def figure(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR", help="Run folders, or folders that hold some.")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="A .pdf, .svg or .png.")
    ] = Path("figure.pdf"),
    x: Annotated[
        str,
        typer.Option(
            "--x", metavar="WHAT", help="rounds, bytes or seconds.", autocompletion=lambda: _X
        ),
    ] = "rounds",
    y: Annotated[
        str,
        typer.Option(
            "--y",
            metavar="WHAT",
            help="accuracy, worst, loss or distance.",
            autocompletion=lambda: _Y,
        ),
    ] = "accuracy",
    width: Annotated[
        str, typer.Option(metavar="WIDTH", help="column, page, or as in 84mm or 3.3in.")
    ] = "column",
) -> None:
    """Draw runs for a paper: vector, at its column's width, safe for the colour-blind, readable in grey."""
    from gossamer.cli.runs import figure as draw

    draw(folders, out, x, y, width)


_X, _Y = ["rounds", "bytes", "seconds"], ["accuracy", "worst", "loss", "distance"]


@app.command()
def tune(
    spec: Annotated[
        Path,
        typer.Argument(
            metavar="SPEC", help="A spec: its task, split, network and rounds are kept."
        ),
    ],
    budget: Annotated[
        int, typer.Option(metavar="N", help="The work to spend, in runs of the spec's rounds.")
    ] = 200,
    target: Annotated[
        float | None,
        typer.Option(
            metavar="ACC", help="The accuracy to reach; else the spec's last target within reach."
        ),
    ] = None,
    goal: Annotated[
        str, typer.Option("--for", metavar="WHAT", help="What to save: rounds, bytes or seconds.")
    ] = "rounds",
    methods: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Only these methods, as in wpm-robust,swarmsgd."),
    ] = None,
    set_: Set = None,
    seed: Seed = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The folder of the runs; else runs/tune-NAME."),
    ] = None,
    workers: Annotated[int, typer.Option(metavar="N", help="Runs at a time; 0: one a core.")] = 0,
    engine: On = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    quiet: Quiet = False,
) -> None:
    """Choose a method and its settings: the ranking, the winning spec, and why.

    Runs that are there already are not run again, so that the same command goes on where it was stopped.
    """
    from gossamer.cli.tune import tune as tune_study

    (study, *_), where = _read(spec, set_, seed, engine)
    folder = out or Path("runs") / f"tune-{study.name}"
    tune_study(study, budget, target, goal, methods, folder, where, workers, json, quiet)


@network_app.command("show")
def network_show(
    spec: Annotated[
        Path | None, typer.Argument(metavar="SPEC", help="A spec, or a .parquet file of links.")
    ] = None,
    set_: Set = None,
    seed: Seed = None,
    rounds: Annotated[
        int | None, typer.Option(metavar="N", help="How many rounds to look at; else the study's.")
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help='Write the links to this file; a network of kind "file" reads it.'
        ),
    ] = None,
    picture: Annotated[Path, typer.Option(metavar="FILE", help="Where the picture goes.")] = Path(
        "network.png"
    ),
    animate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the rounds as a moving .gif too.")
    ] = None,
    json: Json = False,
) -> None:
    """Density, degrees, smallest B of Assumption 1, spectral gap, and a picture."""
    from gossamer.cli.show import say_network
    from gossamer.errors import InputError
    from gossamer.network import Network, Sequence
    from gossamer.network import save as save_links

    net: Network
    if spec is not None and spec.suffix == ".parquet":
        net, name = Sequence(spec), spec.stem
        count = rounds if rounds is not None else net.recorded
    else:
        (study, *_), _ = _read(spec, set_, seed)
        net, name = study.network, study.name
        count = rounds if rounds is not None else study.rounds
    if count < 1 or (net.rounds is not None and count > net.rounds):
        most = (
            ""
            if net.rounds is None
            else f" and at most {net.rounds}, which is what the network has"
        )
        raise InputError("rounds", count, f"a whole number of at least 1{most}")
    if save is not None:
        save_links(net, save, count)
    if animate is not None:
        from gossamer.report.animate import animate as draw

        draw(net, count, animate, name)
    say_network(net, count, picture, name, json, animation=animate, links=save)


@data_app.command("get")
def data_get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="mnist, fashion-mnist or cifar10.")],
    from_: Annotated[
        Path | None, typer.Option("--from", metavar="DIR", help="Take the files from this folder.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Bring a data set into the cache, every file checked by its hash."""
    from gossamer.cli.show import Downloads
    from gossamer.tasks.download import get

    with Downloads(quiet) as progress:
        folder = get(name, from_, progress=progress)
    typer.echo(f"{name} is in {folder}")


@app.command()
def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Run folders, or folders of runs.")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="The page to write.")
    ] = Path("report.html"),
) -> None:
    """One page about runs: table, curves, the network over time, every device, the exact data. Opens without the network."""
    from gossamer.cli.pages import report as write_report

    write_report(runs, out)


@app.command()
def watch(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A run's folder, a comparison's, or a fleet's.")
    ],
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Where to listen; others than this machine see it only if told so.",
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", help="The port; 0: one that is free.")] = 0,
) -> None:
    """A local page that follows a running study, or a fleet, live."""
    from gossamer.cli.pages import watch as serve

    serve(folder, host, port)


@app.command()
def node(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The device's file, as `fleet init` makes it.")
    ],
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="No certificates and no encryption: for a bench, where all devices say so.",
        ),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Be one device: find neighbours, train on its own data, until the rounds are done or it is told to stop.

    Killed or stopped, the same command goes on where it was.
    """
    from gossamer.cli.fleet import node as run_node

    run_node(file, insecure, quiet)


@fleet_app.command("init")
def fleet_init(
    spec: Annotated[
        Path,
        typer.Argument(metavar="SPEC", help="A spec with one [algorithm], and perhaps a [fleet]."),
    ],
    devices: Annotated[
        int | None,
        typer.Option(metavar="N", help="How many devices; else as many as the network has."),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="The fleet's folder.")] = Path("fleet"),
    start: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="When round 0 begins, as 2030-01-31T12:00:00Z; else in 10 minutes."
        ),
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="host[:port] of each device, by commas, where multicast does not reach.",
        ),
    ] = None,
    days: Annotated[
        float, typer.Option(metavar="N", help="For how long certificates are valid.")
    ] = 365,
    samples: Annotated[
        bool,
        typer.Option("--samples/--no-samples", help="Whether to split the spec's data among them."),
    ] = True,
    set_: Set = None,
    seed: Seed = None,
) -> None:
    """Prepare a fleet: a certificate and a small file for each device, and what to copy where."""
    from gossamer.cli.fleet import init

    init(_fleet(spec, devices, set_, seed), out, start, hosts, days, samples)


@fleet_app.command("up")
def fleet_up(
    spec: Annotated[
        Path,
        typer.Argument(metavar="SPEC", help="A spec with one [algorithm], and perhaps a [fleet]."),
    ],
    devices: Annotated[
        int | None,
        typer.Option(metavar="N", help="How many devices; else as many as the network has."),
    ] = None,
    links: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Links as `network show --save` writes them; else the spec's network.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The fleet's folder; else runs/NAME-fleet.")
    ] = None,
    set_: Set = None,
    seed: Seed = None,
    quiet: Quiet = False,
) -> None:
    """Rehearse: a whole fleet on this machine, each device in its own network, links cut and healed by a trace. Needs root."""
    from gossamer.cli.fleet import up

    settings = (
        set_ if links is None else [*(set_ or []), "network.kind=file", f"network.path={links}"]
    )
    up(_fleet(spec, devices if links is None else None, settings, seed), devices, out, quiet)


@fleet_app.command("status")
def fleet_status(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The fleet's folder.")] = Path(
        "fleet"
    ),
    connect: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT", help="A device to watch, where multicast does not reach; repeat."
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print the table once, not live.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print it as JSON, once.")] = False,
) -> None:
    """Watch: who sees whom, round, accuracy, late or lost, bytes."""
    from gossamer.cli.status import status

    status(folder, connect or [], once, json)


@fleet_app.command("collect")
def fleet_collect(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="The fleet's folder, with those of the devices back in it."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The run folder; else DIR/run.")
    ] = None,
) -> None:
    """Gather models and metrics of the devices into an ordinary run folder."""
    from gossamer.cli.fleet import collect

    collect(folder, out or folder / "run")


@app.command()
def reproduce(
    paper: Annotated[str, typer.Argument(help="Which paper: wpm.")],
    parts: Annotated[
        list[str] | None, typer.Argument(help="Which tables and figures; without any, all.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="How many seeds; by default the paper's part has its own.")
    ] = None,
    tiny: Annotated[
        bool, typer.Option("--tiny", help="The same code on digits, in a minute or two.")
    ] = False,
    studies: Annotated[
        bool,
        typer.Option("--studies", help="The longer studies instead of the tables and figures."),
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the parts.")] = False,
    out: Annotated[Path | None, typer.Option(help="Where the tables and figures go.")] = None,
    workers: Annotated[int, typer.Option(help="Runs at a time; 0: one a core.")] = 0,
    engine: On = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="As in engine.address=auto."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Regenerate a paper's tables and figures beside its own numbers. Runs that are there already are not run again."""
    from gossamer.cli import reproduce as reproduction
    from gossamer.study import spec as specs
    from gossamer.study.pools import pool_on

    if list_:
        for name, module in reproduction.parts_of(reproduction.load_paper(paper)).items():
            typer.echo(f"{name:<10} {module.TITLE}")
        return
    where = specs.engine(specs.with_settings({}, _engine_setting(engine, set_)))
    with pool_on(where, workers) as pool:
        reproduction.reproduce(paper, parts or [], seeds, tiny, studies, out, pool, quiet)


@app.command()
def bench(
    seconds: Annotated[
        float,
        typer.Option(metavar="S", help="About how long to measure; longer: steadier numbers."),
    ] = 110.0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """This machine's numbers in two minutes: how fast, where time goes, what to set.

    Rounds a second by devices, model and p, on noise of MNIST's shape: nothing is downloaded. Advises on threads, dtype and how
    often to measure.
    """
    from gossamer.cli.bench import bench as measure

    measure(seconds, json, quiet)


@app.command()
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


def _read(
    spec: Path | None,
    settings: list[str] | None,
    seed: int | None,
    engine: str | None = None,
    methods: int | None = None,
) -> tuple[list[Study], EngineSpec]:
    """The studies of a spec, or the demo's with its first few methods, and where they run."""
    from gossamer.study import spec as specs

    if spec is None:
        from gossamer.cli.template import DEMO

        table: dict[str, Any] = specs.parse(DEMO)
        table["algorithm"] = table["algorithm"][:methods]
    else:
        table = specs.read(spec)
    name = "demo" if spec is None else spec.stem
    table = specs.with_settings(table, _engine_setting(engine, settings))
    return specs.studies(table, name, seed), specs.engine(table)


def _fleet(
    spec: Path, devices: int | None, settings: list[str] | None, seed: int | None
) -> tuple[Study, Fleet]:
    """The one study of a spec, and what it says about real devices."""
    from gossamer.fleet.settings import read_fleet
    from gossamer.study import spec as specs

    given = [*(settings or []), *([] if devices is None else [f"network.devices={devices}"])]
    table = specs.with_settings(specs.read(spec), given)
    return _one(specs.studies(table, spec.stem, seed), spec), read_fleet(table)


def _engine_setting(engine: str | None, settings: list[str] | None) -> list[str]:
    return [*([] if engine is None else [f"engine.kind={engine}"]), *(settings or [])]


def _one(studies: list[Study], spec: Path | None) -> Study:
    from gossamer.errors import InputError

    if len(studies) > 1:
        names = ", ".join(study.algorithm.label for study in studies)
        raise InputError("algorithm", names, "one [algorithm]; `gossamer compare` runs several")
    return studies[0]

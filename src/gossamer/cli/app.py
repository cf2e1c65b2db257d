"""The command `gossamer`: its subcommands, in the order in which `--help` lists them."""

from __future__ import annotations

from typing import Annotated

import typer

from gossamer.cli.commands import fleet, machine, network, results, study

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Train one model across devices that meet when they can: "
    "no server, links that come and go.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from gossamer import __version__

        typer.echo(f"gossamer {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None: ...


def _add_group(name: str, help: str) -> typer.Typer:
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=help)
    app.add_typer(group, name=name)
    return group


for command in (
    study.run,
    study.compare,
    results.runs,
    results.figure,
    study.tune,
    results.report,
    results.watch,
    fleet.node,
    machine.reproduce,
    machine.bench,
    study.new,
    study.methods,
):
    app.command()(command)

_group = _add_group("network", "Look at a network, or save its links to a file.")
_group.command("show")(network.network_show)

_group = _add_group("data", "Bring data sets here, checked by their hashes.")
_group.command("get")(network.data_get)

_group = _add_group("fleet", "Real devices: prepare them, rehearse, watch, collect.")
_group.command("init")(fleet.fleet_init)
_group.command("up")(fleet.fleet_up)
_group.command("status")(fleet.fleet_status)
_group.command("collect")(fleet.fleet_collect)

"""The command `gossamer`: its subcommands, in the order in which `--help` lists them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated, Any

import typer

from gossamer.cli.commands import fleet, machine, membership, network, results, study
from gossamer.errors import GossamerError, Interrupted

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Train one model across devices that meet when they can: "
    "no server, links that come and go.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Stopped(GossamerError):
    """The user stopped a command: the sentence of `Interrupted`, which typer would lose."""

    exit_code = Interrupted.exit_code


def _keep_sentence(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose `Interrupted` is raised as `Stopped`."""

    @functools.wraps(command)
    def kept(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except Interrupted as error:
            raise Stopped(str(error)) from None

    return kept


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
    results.export,
    results.watch,
    fleet.node,
    machine.reproduce,
    machine.bench,
    study.new,
    study.methods,
):
    app.command()(_keep_sentence(command))

_group = _add_group("network", "Look at a network, or save its links to a file.")
_group.command("show")(network.network_show)

_group = _add_group("data", "Bring data sets here, checked by their hashes.")
_group.command("get")(network.data_get)

_group = _add_group("fleet", "Real devices: prepare them, rehearse, watch, collect.")
_group.command("init")(fleet.fleet_init)
_group.command("up")(fleet.fleet_up)
_group.command("status")(fleet.fleet_status)
_group.command("collect")(fleet.fleet_collect)
_group.command("request")(membership.fleet_request)
_group.command("add")(membership.fleet_add)
_group.command("remove")(membership.fleet_remove)
_group.command("revoke")(membership.fleet_revoke)
_group.command("renew")(membership.fleet_renew)
_group.command("upgrade")(fleet.fleet_upgrade)
_group.command("simtest")(_keep_sentence(fleet.fleet_simtest))

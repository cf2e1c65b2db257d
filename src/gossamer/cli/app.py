"""The command `gossamer` and its subcommands."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from gossamer.cli.commands import fleet, machine, membership, network, results, study
from gossamer.cli.help import Command, Group
from gossamer.errors import GossamerError, Interrupted

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Train one model across devices that communicate only with their current "
    "neighbours: no server, links that change over time.",
    context_settings={"help_option_names": ["-h", "--help"]},
)

_ERASE_LINE = "\x1b[K"
# Commands that need torch.
_LOADING = (
    study.run,
    study.compare,
    study.tune,
    results.report,
    results.watch,
    network.network_show,
    machine.reproduce,
    machine.bench,
    fleet.node,
    fleet.fleet_init,
    fleet.fleet_up,
    fleet.fleet_collect,
)


class Stopped(GossamerError):
    """The user stopped a command: the sentence of `Interrupted`, which typer would lose."""

    exit_code = Interrupted.exit_code


def _show_loading() -> None:
    """Load torch, with a word on the terminal: a busy machine takes several seconds for it."""
    if "torch" in sys.modules or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        return
    print("loading …", end="\r", file=sys.stderr, flush=True)
    import torch  # noqa: F401

    print(_ERASE_LINE, end="", file=sys.stderr, flush=True)


def _keep_sentence(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose `Interrupted` is raised as `Stopped`."""

    @functools.wraps(command)
    def kept(*arguments: Any, **options: Any) -> None:
        if command in _LOADING and not (options.get("quiet") or options.get("json")):
            _show_loading()
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
    app.command(cls=Command)(_keep_sentence(command))

_group = _add_group("network", "Look at a network, or save its links to a file.")
_group.command("show", cls=Command)(_keep_sentence(network.network_show))

_group = _add_group("data", "Download data sets and check their hashes.")
_group.command("get", cls=Command)(network.data_get)

_group = _add_group("fleet", "Real devices: prepare them, rehearse, watch, collect.")
_group.command("init", cls=Command)(_keep_sentence(fleet.fleet_init))
_group.command("up", cls=Command)(_keep_sentence(fleet.fleet_up))
_group.command("status", cls=Command)(fleet.fleet_status)
_group.command("collect", cls=Command)(_keep_sentence(fleet.fleet_collect))
_group.command("request", cls=Command)(membership.fleet_request)
_group.command("add", cls=Command)(membership.fleet_add)
_group.command("remove", cls=Command)(membership.fleet_remove)
_group.command("revoke", cls=Command)(membership.fleet_revoke)
_group.command("renew", cls=Command)(membership.fleet_renew)
_group.command("upgrade", cls=Command)(fleet.fleet_upgrade)
_group.command("simtest", cls=Command)(_keep_sentence(fleet.fleet_simtest))

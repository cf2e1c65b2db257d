"""Help texts: an example per command, commands in groups, and no types of Python."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup

# The commands of each group, in the order of `gossamer --help`.
GROUPS = {
    "Run": ("run", "compare", "reproduce", "new"),
    "Look at results": ("runs", "report", "figure", "watch", "export", "network"),
    "Choose a method": ("tune", "methods"),
    "Real devices": ("fleet", "node"),
    "Data and machine": ("data", "bench"),
}
# One command line per command; those of a group by both words.
EXAMPLES = {
    "run": "gossamer run fleet.toml --set algorithm.p=15 --out runs/p15",
    "compare": "gossamer compare fleet.toml --seeds 5",
    "reproduce": "gossamer reproduce wpm iid",
    "new": "gossamer new fleet.toml",
    "runs": "gossamer runs runs/demo",
    "report": "gossamer report runs/demo -o report.html",
    "figure": "gossamer figure runs/demo -o figure.pdf --x bytes",
    "watch": "gossamer watch runs/demo",
    "export": "gossamer export runs/demo --to csv -o runs.csv",
    "tune": "gossamer tune fleet.toml --budget 60 --methods wpm,d-psgd",
    "methods": "gossamer methods networks",
    "node": "gossamer node n3.toml",
    "bench": "gossamer bench --seconds 30",
    "network show": "gossamer network show contacts.csv --seconds 60",
    "data get": "gossamer data get mnist",
    "fleet init": "gossamer fleet init fleet.toml --devices 5 --out fleet",
    "fleet up": "gossamer fleet up fleet.toml --devices 5",
    "fleet status": "gossamer fleet status fleet",
    "fleet collect": "gossamer fleet collect fleet",
    "fleet request": "gossamer fleet request n3",
    "fleet add": "gossamer fleet add fleet --request device.csr",
    "fleet remove": "gossamer fleet remove fleet n6",
    "fleet revoke": "gossamer fleet revoke fleet n6",
    "fleet renew": "gossamer fleet renew fleet",
    "fleet upgrade": "gossamer fleet upgrade fleet new.toml",
    "fleet simtest": "gossamer fleet simtest --seeds 20",
}


class Command(TyperCommand):
    """A command whose help ends with its example."""

    def __init__(self, name: str | None, **settings: Any) -> None:
        super().__init__(name, **settings)
        for parameter in self.params:
            if parameter.param_type_name == "argument":  # SPEC rather than SPEC <path>
                setattr(parameter, "display_type_rich", _no_type)  # noqa: B010

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the parts of the usage line: `SPEC` rather than `{SPEC}`."""
        return [_plain(piece) for piece in super().collect_usage_pieces(ctx)]

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the example."""
        words = ctx.command_path.split()[1:]
        example = EXAMPLES.get(" ".join(words))
        if example:
            with formatter.section("Example"):
                formatter.write_dl([(example, "")], col_max=len(example))


class Group(TyperGroup):
    """The commands of `gossamer`, by what they are for."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section per group of commands."""
        widest = max(map(len, self.list_commands(ctx)))
        for title, names in GROUPS.items():
            rows = []
            for name in names:
                command = self.get_command(ctx, name)
                if command is not None:
                    summary = command.get_short_help_str(formatter.width - widest - 4)
                    rows.append((name.ljust(widest), summary))
            with formatter.section(title):
                formatter.write_dl(rows)
        formatter.write(
            "\n`gossamer COMMAND --help` has the options of a command and an example.\n"
        )


def _no_type(ctx: Any) -> None:
    return None


def _plain(piece: str) -> str:
    """Return an argument of a usage line as other programs show it: `DIR` for a needed one."""
    repeated = piece.endswith("...")
    name = piece.removesuffix("...")
    if name.startswith("{"):
        name = name.strip("{}")
    if name.startswith("[["):  # a metavar with brackets of its own
        name = name[1:-1]
        repeated = False
    if repeated:
        return f"{name}..."
    return name

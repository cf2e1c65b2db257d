"""Tables in Markdown that are made from the code, so that no key, default or option is copied by hand.

A block begins with a line like `<!-- kinds network -->` and ends with `<!-- end -->`. What stands between is made:

    <!-- kinds SECTION -->     the kinds of a section of a spec, each with what it is and its keys
    <!-- keys NAME -->         the keys of a section without kinds: study, measure, timing, fleet

`python docs/blocks.py FILE…` fills the blocks; with --check it only says what is stale. Two lists are made when the site is
built, from one line each: `<!-- commands -->`, and `<!-- api ROOM… -->`, the public names of rooms of the package.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import gossamer
from gossamer import engines, network
from gossamer.fleet import settings
from gossamer.study import Study, spec
from gossamer.study.spec.sections import PLAIN_KEYS

_BLOCK = re.compile(r"^<!-- (?P<what>kinds|keys) (?P<name>\w+) -->\n.*?^<!-- end -->", re.M | re.S)
_PLAIN = {
    "study": Study,
    "measure": engines.Measure,
    "timing": network.Timing,
    "fleet": settings.Fleet,
}


def filled(text: str) -> str:
    """A page with every block made anew."""

    def block(found: re.Match[str]) -> str:
        rows = (_kinds if found["what"] == "kinds" else _keys)(found["name"])
        return "\n".join([found[0].partition("\n")[0], *rows, "<!-- end -->"])

    return _BLOCK.sub(block, text)


def first_sentence(cls: type) -> str:
    """What a class is, in the first line or lines of its docstring."""
    paragraph = (cls.__doc__ or "").strip().split("\n\n")[0]
    return (
        re.split(r"(?<=[.:])\s+(?=[A-Z`])", " ".join(paragraph.split()), maxsplit=1)[0].rstrip(":.")
        + "."
    )


def _kinds(section: str) -> list[str]:
    rows = []
    for kind, cls in spec.KINDS[section].items():
        keys = ", ".join(_key(cls, field) for field in _fields(cls))
        rows.append((f"`{kind}`", f"`{cls.__name__}`", _cell(first_sentence(cls)), keys or "none"))
    return _table(("kind", "Python", "what it is", "keys"), rows)


def _keys(name: str) -> list[str]:
    cls = _PLAIN[name]
    kept = [field for field in _fields(cls) if name != "study" or field.name in PLAIN_KEYS]
    return _table(("key", "default", "accepted"), (_row(cls, field) for field in kept))


def _fields(cls: type) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(cls) if field.init]


def _row(cls: type, field: dataclasses.Field[Any]) -> tuple[str, str, str]:
    return f"`{field.name}`", _default(cls, field) or "needed", _cell(_accepted(cls, field))


def _key(cls: type, field: dataclasses.Field[Any]) -> str:
    """As `name = default`; bold where a value is needed."""
    default = _default(cls, field)
    name = (
        f"`{field.name} = {default.strip('`')}`" if default.startswith("`") else f"`{field.name}`"
    )
    return name if default else f"**{name}**"


def _default(cls: type, field: dataclasses.Field[Any]) -> str:
    """As TOML has it; a dash where nothing is the default, nothing where a value is needed."""
    if field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    elif field.default is not dataclasses.MISSING:
        value = field.default
    else:
        return ""
    if value is None:
        return "–"
    return f"`{_toml(cls, field.name, value)}`"


def _toml(cls: type, name: str, value: Any) -> str:
    section = spec.nested_section(cls, name)
    for kind, made in spec.KINDS.get(section or "", {}).items():
        if type(value) is made:
            return f'"{kind}"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(cls, name, v) for v in value)}]"
    return (
        f'"{value}"'
        if isinstance(value, str | Path)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


def _accepted(cls: type, field: dataclasses.Field[Any]) -> str:
    section = spec.nested_section(cls, field.name)
    wanted = spec.describe_type(spec.type_hints(cls)[field.name]).replace("'", '"')
    if not section:
        return wanted
    a = f"a {section}" if section[0] not in "aeiou" else f"an {section}"
    what = "networks" if section == "network" else a
    return wanted.replace("a list of values", "a list").replace("a table with a kind", what)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    head = list(head)
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def commands() -> str:
    """Every command with its options."""
    import typer

    from gossamer.cli.app import app

    lines: list[str] = []
    for path, command in walk(typer.main.get_command(app)):
        arguments = [_argument(p) for p in command.params if p.param_type_name == "argument"]
        about = " ".join((command.help or "").split())
        lines += ["", f"## {path}", "", " ".join(["    gossamer", path, *arguments]), "", about, ""]
        lines += _table(
            ("option", "what it does", "default"),
            (_option(p) for p in command.params if not p.hidden),
        )
    return "\n".join(lines)


def _argument(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    more = f"{name}…" if parameter.nargs == -1 else name
    return more if parameter.required else f"[{more}]"


def walk(group: Any, before: str = "") -> Iterable[tuple[str, Any]]:
    """Every command below a group of commands, with the words that lead to it."""
    for name, command in group.commands.items():
        path = f"{before} {name}".strip()
        if hasattr(command, "commands"):
            yield from walk(command, path)
        elif not command.hidden:
            yield path, command


def _option(parameter: Any) -> tuple[str, str, str]:
    value = (
        ""
        if parameter.param_type_name == "argument" or parameter.is_flag
        else f" {_argument(parameter).strip('[]')}"
    )
    given = parameter.default
    told = (
        ""
        if given is None or given is False or given == ""
        else "on"
        if given is True
        else f"`{given}`"
    )
    names = (
        [_argument(parameter)]
        if parameter.param_type_name == "argument"
        else [*parameter.opts, *parameter.secondary_opts]
    )
    return ", ".join(f"`{name}{value}`" for name in names), _cell(parameter.help or ""), told


def api(words: str) -> str:
    """What mkdocstrings is to show: all public names of these rooms of the package, or a whole module."""
    shown = []
    for word in words.split():
        names = sorted(gossamer._ROOMS.get(word, "").split(), key=str.lower)
        shown += [f"::: gossamer.{word}.{name}" for name in names] or [f"::: gossamer.{word}"]
    return "\n\n".join(shown)


def main(words: list[str]) -> int:
    stale = [
        path
        for path in map(Path, words)
        if path.suffix == ".md" and filled(path.read_text()) != path.read_text()
    ]
    for path in stale:
        if "--check" in words:
            print(f"{path} is stale: python docs/blocks.py {path}")
        else:
            path.write_text(filled(path.read_text()))
    return 1 if stale and "--check" in words else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

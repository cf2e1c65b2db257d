"""Generate the tables of the documentation from the code.

A block begins with a line like `<!-- kinds network -->` and ends with `<!-- end -->`; the lines in
between are generated:

    <!-- kinds SECTION -->     the kinds of a section of a spec, with description and keys
    <!-- keys NAME -->         the keys of a section without kinds: study, measure, timing,
                               energy, stream, fleet, and of every method
    <!-- methods -->           the registered methods, with file, paper and needs
    <!-- results NAME -->      the results of benchmarks/NAME.py (or NAME/run.py), one table per
                               processor

`python docs/blocks.py FILE…` fills the blocks; with --check it only lists the stale files. Two
lists are generated when the site is built: `<!-- commands -->`, and `<!-- api PACKAGE… -->`, the
public names of packages.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import gossamer
from gossamer import engines, network, tasks
from gossamer.algorithms import METHODS, Algorithm
from gossamer.fleet import settings
from gossamer.study import Study, spec
from gossamer.study.spec.sections import PLAIN_KEYS, init_fields

_BLOCK = re.compile(
    r"^<!-- (?P<what>kinds|keys|methods|results) ?(?P<name>\w*) -->\n.*?^<!-- end -->", re.M | re.S
)
_RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results"
_PLAIN = {
    "study": Study,
    "method": Algorithm,
    "measure": engines.Measure,
    "timing": network.Timing,
    "energy": network.Energy,
    "stream": tasks.Stream,
    "fleet": settings.Fleet,
}


def filled(text: str) -> str:
    """Return the text of a page with every block generated anew."""

    def block(found: re.Match[str]) -> str:
        makers = {"kinds": _kinds, "keys": _keys, "methods": _methods, "results": _results}
        rows = makers[found["what"]](found["name"])
        return "\n".join([found[0].partition("\n")[0], *rows, "<!-- end -->"])

    return _BLOCK.sub(block, text)


def first_sentence(cls: type) -> str:
    """Return the first sentence of the docstring of a class."""
    paragraph = (cls.__doc__ or "").strip().split("\n\n")[0]
    return (
        re.split(r"(?<=[.:])\s+(?=[A-Z`])", " ".join(paragraph.split()), maxsplit=1)[0].rstrip(":.")
        + "."
    )


def _kinds(section: str) -> list[str]:
    rows = []
    for kind, cls in spec.KINDS[section].items():
        keys = ", ".join(_key(cls, field) for field in _own_fields(cls))
        rows.append((f"`{kind}`", f"`{cls.__name__}`", _cell(first_sentence(cls)), keys or "none"))
    return _table(("kind", "Python", "description", "keys"), rows)


def _methods(_: str) -> list[str]:
    """Return the table of the registered methods."""
    rows = []
    for name, method in METHODS.items():
        file = f"[{method.file}](../../src/gossamer/algorithms/{method.file})"
        rows.append(
            (f"[{name}]({name}.md)", file, method.paper, method.needs, method.without_rounds)
        )
    return _table(("method", "file", "paper", "needs", "without rounds"), rows)


def _results(name: str) -> list[str]:
    """Return the tables of a benchmark, one per processor that was measured."""
    lines = []
    for file in sorted(_RESULTS.glob(f"{name}-*.md")):
        lines += [*file.read_text().splitlines(), ""]
    return lines


def _keys(name: str) -> list[str]:
    cls = _PLAIN[name]
    kept = []
    for field in _fields(cls):
        if name != "study" or field.name in PLAIN_KEYS:
            kept.append(field)
    return _table(("key", "default", "accepted"), (_row(cls, field) for field in kept))


def _fields(cls: type) -> list[dataclasses.Field[Any]]:
    return init_fields(cls)


def _own_fields(cls: type) -> list[dataclasses.Field[Any]]:
    """Return the fields of a class, without those that are the same for every method."""
    shared = {field.name: field.default for field in dataclasses.fields(Algorithm)}
    return [field for field in _fields(cls) if shared.get(field.name, ...) != field.default]


def _row(cls: type, field: dataclasses.Field[Any]) -> tuple[str, str, str]:
    return f"`{field.name}`", _default(cls, field) or "required", _cell(_accepted(cls, field))


def _key(cls: type, field: dataclasses.Field[Any]) -> str:
    """Return `name = default`; bold if a value is required."""
    default = _default(cls, field)
    if not default:
        return f"**`{field.name}`**"
    if not default.startswith("`"):
        return f"`{field.name}`"
    return f"`{field.name} = {default.strip('`')}`"


def _default(cls: type, field: dataclasses.Field[Any]) -> str:
    """Return the default as TOML; a dash for None, an empty text if a value is required."""
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
    if isinstance(value, str | Path):
        return f'"{value}"'
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def _accepted(cls: type, field: dataclasses.Field[Any]) -> str:
    section = spec.nested_section(cls, field.name)
    wanted = spec.describe_type(spec.type_hints(cls)[field.name]).replace("'", '"')
    if not section:
        return wanted
    what = f"a {section}"
    if section[0] in "aeiou":
        what = f"an {section}"
    if section == "network":
        what = "networks"
    return wanted.replace("a list of values", "a list").replace("a table with a kind", what)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    head = list(head)
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def commands() -> str:
    """Return a section for every command with its options."""
    import typer

    from gossamer.cli.app import app

    lines: list[str] = []
    for path, command in walk(typer.main.get_command(app)):
        arguments = []
        for p in command.params:
            if p.param_type_name == "argument":
                arguments.append(_argument(p))
        about = " ".join((command.help or "").split())
        lines += ["", f"## {path}", "", " ".join(["    gossamer", path, *arguments]), "", about, ""]
        lines += _table(
            ("option", "description", "default"),
            (_option(p) for p in command.params if not p.hidden),
        )
    return "\n".join(lines)


def _argument(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    if parameter.nargs == -1:
        name += "…"
    if not parameter.required:
        name = f"[{name}]"
    return name


def walk(group: Any, before: str = "") -> Iterable[tuple[str, Any]]:
    """Yield every command below a group, with its full name."""
    for name, command in group.commands.items():
        path = f"{before} {name}".strip()
        if hasattr(command, "commands"):
            yield from walk(command, path)
        elif not command.hidden:
            yield path, command


def _option(parameter: Any) -> tuple[str, str, str]:
    value = ""
    names = [_argument(parameter)]
    if parameter.param_type_name != "argument":
        names = [*parameter.opts, *parameter.secondary_opts]
        if not parameter.is_flag:
            value = f" {_argument(parameter).strip('[]')}"
    shown = ", ".join(f"`{name}{value}`" for name in names)
    return shown, _cell(parameter.help or ""), _shown_default(parameter.default)


def _shown_default(default: Any) -> str:
    if default is None or default is False or default == "":
        return ""
    if default is True:
        return "on"
    return f"`{default}`"


def api(words: str) -> str:
    """Return the mkdocstrings directives for the public names of some packages.

    A package without names in `gossamer.__all__` is shown as a whole module.
    """
    shown = []
    for word in words.split():
        package = f"gossamer.{word}"
        paths = []
        for path in _public_paths():
            if f"{path}.".startswith(f"{package}."):
                paths.append(path)
        for path in paths or [package]:
            shown.append(f"::: {path}")
    return "\n\n".join(shown)


def _public_paths() -> list[str]:
    """Return where every public name is defined, in alphabetical order of the names."""
    paths = []
    for name in sorted(gossamer.__all__, key=str.lower):
        module = getattr(getattr(gossamer, name), "__module__", None)
        # A value such as METHODS has no module: it is shown among the methods.
        paths.append(f"{module}.{name}" if module else f"gossamer.algorithms.{name}")
    return paths


def main(words: list[str]) -> int:
    check = "--check" in words
    code = 0
    for path in map(Path, words):
        if path.suffix != ".md":
            continue
        text = path.read_text()
        new = filled(text)
        if new == text:
            continue
        if check:
            print(f"{path} is stale: python docs/blocks.py {path}")
            code = 1
        else:
            path.write_text(new)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`gossamer report`: runs as one HTML file that loads nothing else."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from gossamer._core.files import write_atomically
from gossamer.report import grouping
from gossamer.report.content import report_content
from gossamer.report.page_search import search_content
from gossamer.results import palette
from gossamer.results.find import select_runs
from gossamer.results.search import read_search

_WEB = files("gossamer.report") / "web"
# The page's modules; each imports only from those before it.
_MODULES = (
    "elements",
    "numbers",
    "colours",
    "address",
    "unpack",
    "scale",
    "statistics",
    "quantities",
    "table",
    "sections",
    "export",
    "plot",
    "chart",
    "selection",
    "parallel",
    "search",
    "curves",
    "network",
    "contacts",
    "device",
    "devices",
    "timeline",
    "network_section",
    "weights",
    "runs",
)


def page(runs: Sequence[Path], out: Path, allow_code: bool = False) -> None:
    """Write the report of some runs.

    Args:
        runs: Run folders, folders with runs in them, or the folder of a search.
        out: The HTML file to write.
        allow_code: Import and run the Python code that the specs of the runs name.

    Raises:
        GossamerError: A path holds no run, or a run cannot be read.

    Example:
        >>> page([Path("runs/demo")], Path("report.html"))    # doctest: +SKIP
    """
    found = [grouping.read(folder, allow_code) for folder in select_runs(runs)]
    content, blocks = report_content(found)
    search = read_search(runs[0]) if len(runs) == 1 else None
    if search is not None:
        content |= {
            "title": f"{search.name}: search",
            "answer": search.verdict,
            "search": search_content(search, found[0].columns),
        }
    write_atomically(out, assemble("report", content["title"], content, blocks).encode())


def assemble(
    main: str, title: str, content: Any, blocks: Sequence[str] = (), connect: str = "'none'"
) -> str:
    """Return a page as HTML; its policy lets only its own script and style run.

    Args:
        main: The name of the page's main module: "report" or "live".
        title: The title in the browser's tab.
        content: What the page shows, as plain values for JSON.
        blocks: Packed measurements, one per run.
        connect: Where the page may connect to, as a source of Content-Security-Policy.
    """
    policy = (
        f"default-src 'none'; script-src '{_hash(script(main))}'; style-src '{_hash(style())}'; "
        f"img-src data:; connect-src {connect}; base-uri 'none'; form-action 'none'"
    )
    data = []
    for k, block in enumerate(blocks):
        data.append(f'<script type="application/octet-stream" id="data-{k}">{block}</script>')
    encoded = json.dumps(content, separators=(",", ":"), allow_nan=False)
    values = {
        "policy": policy,
        "title": html.escape(title),
        "style": style(),
        "content": encoded.replace("<", "\\u003c"),
        "data": "\n".join(data),
        "script": script(main),
    }
    return _filled("page.html", values)


@cache
def script(main: str) -> str:
    """Return the page's modules as one script, in which every module has a scope of its own.

    Args:
        main: The name of the main module, which comes last.
    """
    parts = [_scoped(name) for name in _MODULES]
    return "\n".join([*parts, _without_imports(_source(main))])


def _scoped(name: str) -> str:
    """Return a module as a function that is called at once and returns its exports."""
    source = _source(name)
    exports = re.findall(r"(?m)^export (?:async )?(?:function\*?|const) (\w+)", source)
    body = re.sub(r"(?m)^export ", "", _without_imports(source))
    return f"const {name}Module = (() => {{\n{body}return {{ {', '.join(exports)} }};\n}})();"


def _without_imports(source: str) -> str:
    """Return a module whose imports are taken from the scopes of the others."""
    return re.sub(r'(?m)^import (\{[^}]*\}) from "\./(\w+)\.js";', r"const \1 = \2Module;", source)


def _source(name: str) -> str:
    return (_WEB / f"{name}.js").read_text(encoding="utf-8")


@cache
def style() -> str:
    """Return the page's style sheet, with the colours of the palette."""
    values = {
        "light_colours": _variables(palette.LIGHT_PAGE),
        "dark_colours": _variables(palette.DARK_PAGE),
    }
    return _filled("style.css", values)


def _variables(colours: Sequence[str]) -> str:
    """Return colours as CSS variables --c0, --c1, …"""
    return " ".join(f"--c{k}: {colour};" for k, colour in enumerate(colours))


def _filled(name: str, values: dict[str, str]) -> str:
    """Return a file with every {{key}} replaced by its value."""
    template = (_WEB / name).read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], template)


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"

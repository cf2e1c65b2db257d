"""`gossamer report`: runs as one HTML file that needs nothing else, not even the network."""

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
from gossamer._core.versions import version
from gossamer.errors import GossamerError
from gossamer.network import Network
from gossamer.report import gather, links, pack
from gossamer.report.gather import Group
from gossamer.results.find import select_runs
from gossamer.results.run import Run
from gossamer.study import Study

_LINK_BYTES = 2_000_000  # of all networks' rounds together, before they are packed
_MAX_FRAMES = 600  # rounds of a network that are drawn


def page(runs: Sequence[Path], out: Path) -> None:
    """Write the report of some runs, or of folders with runs in them.

    page([Path("runs/demo")], Path("report.html"))
    """
    content, blocks = gathered([gather.read(folder) for folder in select_runs(runs)])
    write_atomically(out, assemble("report", content["title"], content, blocks).encode())


def gathered(runs: Sequence[Run]) -> tuple[dict[str, Any], list[str]]:
    """What the page shows, and each run's exact measurements."""
    groups, notes = gather.grouped(runs)
    kept = [run for group in groups for run in group.runs]
    devices = gather.exact_devices(kept)
    if not devices:
        notes.append(
            "There are too many devices and measurements for one page: each device's own are left in the run folders."
        )
    data = [gather.data(run, devices) for run in kept]
    drawn, of_run = networks(kept)
    more = [
        {"columns": columns} | network for (columns, _), network in zip(data, of_run, strict=True)
    ]
    return contents(groups, notes, more, drawn), [block for _, block in data]


def contents(
    groups: Sequence[Group],
    notes: Sequence[str],
    more: Sequence[dict[str, Any]],
    networks: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """All that a page says; `more` is about each run."""
    kept = [(run, group) for group in groups for run in group.runs]
    differ = gather.differences([group.runs[0] for group in groups])
    said = f"The runs differ in more than their method: {'; '.join(differ[:8])}{'; …' if len(differ) > 8 else ''}."
    ended = [
        f"{gather.short_name(run)} ({group.label}, seed {run.seed}) {run.status_text}."
        for run, group in kept
        if run.status_text and not run.progress
    ]
    names = dict.fromkeys(run.name for run, _ in kept)
    measures = [run.spec.get("measure", {}) for run, _ in kept]
    return {
        "title": ", ".join(names),
        "version": version("gossamer"),
        "notes": [*([said] if differ else []), *notes, *ended],
        "words": gather.words(groups),
        "results": gather.results(groups),
        "targets": gather.targets(groups),
        "accuracy_targets": sorted(
            {t for measure in measures for t in measure.get("accuracy_targets", [])}
        ),
        "loss_targets": sorted(
            {t for measure in measures for t in measure.get("loss_targets", [])}
        ),
        "curves": gather.curves(groups),
        "runs": [
            gather.run_facts(run, group.label) | facts
            for (run, group), facts in zip(kept, more, strict=True)
        ],
        "networks": list(networks),
    }


def networks(runs: Sequence[Run]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The networks as they are drawn, each once, and for each run which is its own or why it has none."""
    wanted: dict[str, tuple[Any, bool, set[int]]] = {}
    keys: list[str | None] = []
    for run in runs:
        if run.study is None or not run.metrics:
            keys.append(None)
            continue
        halfway = measured_halfway(run.study)
        key = json.dumps([run.spec["network"], halfway], sort_keys=True, default=str)
        wanted.setdefault(key, (run.study.network, halfway, set()))[2].update(
            run.metrics["round"].tolist()
        )
        keys.append(key)
    drawn: dict[str, dict[str, Any]] = {}
    refused: dict[str, str] = {}
    for key, (network, halfway, measured) in wanted.items():
        rounds = shown_rounds(network, sorted(measured), len(wanted))
        try:
            drawn[key] = links.Drawn(network, rounds, halfway).frames(rounds)
        except GossamerError as error:  # such as a trace that has become shorter
            refused[key] = str(error)
    places = {key: k for k, key in enumerate(drawn)}
    of_run = []
    for run, own in zip(runs, keys, strict=True):
        why = gather.why_no_study(run) or refused.get(own or "", "nothing has been measured yet")
        of_run.append({"network": places[own]} if own in places else {"network": None, "why": why})
    return list(drawn.values()), of_run


def measured_halfway(study: Study) -> bool:
    return study.measure.at != f"after_{study.algorithm.ends_with}"


def shown_rounds(network: Network, rounds: Sequence[int], networks: int) -> list[int]:
    """As many of the rounds as there is room for, evenly chosen."""
    a_round = min(network.devices, links.MAX_DRAWN) ** 2 // (8 if network.directed else 16) + 1
    most = max(2, min(_MAX_FRAMES, _LINK_BYTES // (a_round * networks)))
    return [rounds[k] for k in pack.evenly(len(rounds), most)]


# -- one file ----------------------------------------------------------------------------------------------------------------

_WEB = files("gossamer.report") / "web"
_PARTS = (
    "elements",
    "numbers",
    "unpack",
    "table",
    "chart",
    "network",
    "devices",
    "sections",
)  # each needs only those before it


@cache
def script(main: str) -> str:
    """The page's modules as one: in their order, without what ties them together as files."""
    sources = [(_WEB / f"{name}.js").read_text(encoding="utf-8") for name in (*_PARTS, main)]
    return "\n".join(re.sub(r"(?m)^(import [^;]*;\n|export )", "", source) for source in sources)


@cache
def style() -> str:
    return (_WEB / "style.css").read_text(encoding="utf-8")


def assemble(
    main: str, title: str, content: Any, blocks: Sequence[str] = (), connect: str = "'none'"
) -> str:
    """The page: only its own script and style may run in it, and it may `connect` nowhere."""
    policy = (
        f"default-src 'none'; script-src '{_hash(script(main))}'; style-src '{_hash(style())}'; "
        f"img-src data:; connect-src {connect}; base-uri 'none'; form-action 'none'"
    )
    data = [
        f'<script type="application/octet-stream" id="data-{k}">{block}</script>'
        for k, block in enumerate(blocks)
    ]
    values = {
        "policy": policy,
        "title": html.escape(title),
        "style": style(),
        "content": json.dumps(content, separators=(",", ":"), allow_nan=False).replace(
            "<", "\\u003c"
        ),
        "data": "\n".join(data),
        "script": script(main),
    }
    template = (_WEB / "page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], template)


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"

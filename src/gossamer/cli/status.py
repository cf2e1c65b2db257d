"""How a fleet is: a row for each device, from the files that devices write and from what they say over the network.

What they say is read into numbers and known words before anything is shown: no text of a device gets to a terminal.
"""

from __future__ import annotations

import json as json_text
import math
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Literal

import pydantic
import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table as Grid
from rich.text import Text

from gossamer.errors import DataError
from gossamer.fleet import node
from gossamer.fleet import provision as fleet
from gossamer.fleet.access import STATUS_BYTES, Settings
from gossamer.fleet.settings import Device

Doing = Literal["waiting", "joining", "running", "done", "stopped", "diverged", "unreadable"]
_ENDED = ("done", "stopped", "diverged")  # after which a device says nothing more
_COUNTS = ("committed", "failed", "in doubt", "late", "missed")
_EVERY = 1.0  # seconds between two looks
_LISTEN = 6.0  # seconds in which every device in reach is heard: found, and then said again
_LINE = 5.0  # seconds between two plain lines


def _number(value: Any) -> Any:
    """What JSON has no word for, and Python writes all the same, is no number."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


_Whole = Annotated[int, pydantic.Field(ge=0, lt=1 << 53)]
_Some = Annotated[tuple[_Whole, ...], pydantic.Field(max_length=1 << 16)]


@dataclass(frozen=True)
class Status:
    """What a device says of itself; `time` is when, by the clock here if it came over the network."""

    doing: Doing
    time: Annotated[float, pydantic.Field(ge=0, lt=1e11, allow_inf_nan=False)]
    round: _Whole = 0
    rounds: _Whole = 0
    near: _Some = ()
    met: _Some = ()
    accuracy: Annotated[
        Annotated[float, pydantic.Field(ge=0, le=1)] | None, pydantic.BeforeValidator(_number)
    ] = None
    loss: Annotated[float | None, pydantic.BeforeValidator(_number)] = None
    pending: _Whole = 0
    counts: Annotated[dict[str, _Whole], pydantic.Field(max_length=100)] = field(
        default_factory=dict
    )

    @property
    def refused(self) -> int:
        return sum(count for name, count in self.counts.items() if name.startswith("refused"))


_READER = pydantic.TypeAdapter(Status)


def read(data: bytes, devices: int, now: float) -> Status:
    """What a device has said, if it makes sense: nobody has to keep to what `Node` would say.

    >>> read(b'{"doing": "running", "time": 5, "near": [0, 2, 9]}', devices=3, now=7.0).near
    (0, 2)
    >>> read(b"[[[", devices=3, now=7.0).doing
    'unreadable'
    """
    try:
        said = _READER.validate_json(data, strict=True)
    except ValueError:
        return Status("unreadable", 0.0)
    near, met = (tuple(sorted({j for j in some if j < devices})) for some in (said.near, said.met))
    return replace(
        said, round=min(said.round, said.rounds), near=near, met=met, time=min(said.time, now)
    )


class Watched:
    """The devices of a folder, and what is known of each."""

    def __init__(self, folder: Path) -> None:
        files = sorted(folder.glob("n*.toml"), key=lambda path: (len(path.name), path.name))
        if not files:
            raise DataError(f"{folder} has no fleet: `gossamer fleet init` makes one")
        self.devices = {device.device: device for device in map(fleet.read_device, files)}
        self.any: Device = next(iter(self.devices.values()))
        self._heard: dict[int, Status] = {}
        self._hearing = threading.Lock()

    def hear(self, device: int, data: bytes) -> None:
        """A device has said something over the network. What it says of the time is its own affair."""
        said = replace(
            read(data[:STATUS_BYTES], len(self.any.names), time.time()), time=time.time()
        )
        with self._hearing:
            self._heard[device] = said

    @property
    def heard(self) -> int:
        """How many devices have said something over the network."""
        return len(self._heard)

    def look(self) -> dict[int, Status]:
        """The newest of every device that is known."""
        with self._hearing:
            found = dict(self._heard)
        for i, device in self.devices.items():
            with suppress(OSError), (device.folder / node.STATUS).open("rb") as file:
                written = read(file.read(STATUS_BYTES * 16), len(self.any.names), time.time())
                if i not in found or written.time > found[i].time:
                    found[i] = written
        return found

    def silent(self, said: Status) -> float | None:
        """For how many seconds a device has said nothing though it should have; None if it has kept to its time.

        It says something at least twice a slot, over the network every few seconds; before round 0, to its disk, nothing.
        """
        since = time.time() - max(said.time, self.any.started() if said.doing == "waiting" else 0.0)
        late = since > max(_LISTEN, 2 * self.any.fleet.slot) + self.any.fleet.lease
        return since if late and said.doing not in (*_ENDED, "unreadable") else None

    def all_done(self) -> bool:
        found = self.look()
        return len(found) == len(self.any.names) and all(
            said.doing == "done" for said in found.values()
        )

    def names(self, devices: Iterable[int]) -> list[str]:
        return [self.any.names[j] for j in devices]

    def line(self) -> str:
        """The fleet in one line: its round, the mean accuracy, and how many of the links that are seen were used."""
        known = {i: said for i, said in self.look().items() if said.doing != "unreadable"}
        if not known:
            return "no device has been heard of"
        here = {i: said for i, said in known.items() if self.silent(said) is None}
        running = {i: said for i, said in here.items() if said.doing not in _ENDED}
        middle = sorted(known.values(), key=lambda said: said.round)[
            len(known) // 2
        ]  # whatever one of them says
        words = [f"round {middle.round}/{middle.rounds}"]
        if measured := [said.accuracy for said in known.values() if said.accuracy is not None]:
            words.append(f"accuracy {100 * sum(measured) / len(measured):.1f} %")
        if running:
            met, near = (
                {
                    frozenset((i, j))
                    for i, said in running.items()
                    for j in getattr(said, key)
                    if i != j
                }
                for key in ("met", "near")
            )
            words.append(f"links {len(met)}/{len(met | near)}")
        if away := len(self.any.names) - len(here):
            words.append(f"{away} of {len(self.any.names)} devices silent or not seen")
        return "  ".join(words)

    def rows(self) -> list[dict[str, Any]]:
        """All that is known, as plain values: what `--json` prints."""
        found = self.look()
        return [{"name": name, **self._row(found.get(i))} for i, name in enumerate(self.any.names)]

    def _row(self, said: Status | None) -> dict[str, Any]:
        if said is None:
            return {"doing": "not seen"}
        silent = self.silent(said)
        return {
            "doing": said.doing,
            "silent": None if silent is None else round(silent, 1),
            "round": said.round,
            "rounds": said.rounds,
            "sees": self.names(said.near),
            "met": self.names(said.met),
            "accuracy": said.accuracy,
            "loss": said.loss,
            **{name.replace(" ", "_"): said.counts.get(name, 0) for name in _COUNTS},
            "pending": said.pending,
            "refused": said.refused,
            "bytes_sent": said.counts.get("bytes sent", 0),
        }


# -- the table ---------------------------------------------------------------------------------------------------------------

_STYLES = {
    "running": "green",
    "done": "bold green",
    "diverged": "red",
    "unreadable": "red",
    "not seen": "dim",
}
# Key of a row, heading, a shorter one, whether it is there though 0 everywhere: what goes wrong has a column when it does.
_NUMBERS = (
    ("committed", "exchanges", "exch", True),
    ("failed", "failed", "fail", False),
    ("in_doubt", "in doubt", "doubt", False),
    ("late", "late", "late", False),
    ("missed", "missed", "miss", False),
    ("pending", "pending", "pend", False),
    ("refused", "refused", "ref", False),
)


def table(watched: Watched, console: Console) -> Group:
    """The fleet as it is now: a line about all of it, and a row for each device, as wide as there is room."""
    rows, endless = watched.rows(), console.options.update(width=1000)
    for names, narrow in ((True, False), (False, False), (False, True)):
        grid = _grid(rows, names, narrow)
        if console.measure(grid, options=endless).maximum <= console.width:
            break
    return Group(Text(watched.line(), style="bold"), grid)


def _grid(rows: list[dict[str, Any]], names: bool, narrow: bool) -> Grid:
    """With the names of neighbours, or how many they are; or narrow, for 80 columns and everything that can go wrong."""
    numbers = [
        number for number in _NUMBERS if number[3] or any(row.get(number[0]) for row in rows)
    ]
    grid = Grid(
        box=None, pad_edge=False, padding=(0, 1 if narrow else 2, 0, 0), header_style="bold"
    )
    for heading in ("device", "doing"):
        grid.add_column(heading, no_wrap=True)
    for heading in ("round", "met", "acc") if narrow else ("round", "sees", "met", "accuracy"):
        grid.add_column(
            heading,
            no_wrap=True,
            justify="left" if names and heading in ("sees", "met") else "right",
        )
    for _, heading, short, _ in numbers:
        grid.add_column(short if narrow else heading, no_wrap=True, justify="right")
    grid.add_column("sent", no_wrap=True, justify="right")
    for row in rows:
        grid.add_row(Text(row["name"]), *_cells(row, names, narrow, [key for key, *_ in numbers]))
    return grid


def _cells(row: dict[str, Any], names: bool, narrow: bool, numbers: list[str]) -> list[Text]:
    silent = row.get("silent")
    doing = (
        Text(row["doing"], _STYLES.get(row["doing"], ""))
        if silent is None
        else Text(f"silent {_span(silent)}", "yellow")
    )
    if row["doing"] in ("not seen", "unreadable"):
        return [doing]
    accuracy = (
        "–" if row["accuracy"] is None else f"{100 * row['accuracy']:.1f}{'' if narrow else ' '}%"
    )
    sees, met = (
        " ".join(row[key]) or "–" if names else str(len(row[key])) for key in ("sees", "met")
    )
    words = (
        [str(row["round"]), f"{met}/{sees}"]
        if narrow
        else [f"{row['round']}/{row['rounds']}", sees, met]
    )
    trouble = [
        Text(str(row[key]), "" if key == "committed" or not row[key] else "yellow")
        for key in numbers
    ]
    return [doing, *map(Text, words), Text(accuracy), *trouble, Text(_size(row["bytes_sent"]))]


def _span(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.0f} h"
    )


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


# -- the commands ------------------------------------------------------------------------------------------------------------


def status(folder: Path, connect: list[str], once: bool, json: bool) -> None:
    """Watch a fleet until all are done, or Ctrl-C; once, where nobody can watch."""
    watched, console = Watched(folder), Console()
    with ExitStack() as stack, suppress(KeyboardInterrupt):
        network = _listen(watched, folder, connect, stack)
        if json or once or not console.is_terminal:
            if network:
                _hear_all(watched)
            if json:
                typer.echo(
                    json_text.dumps(
                        {"summary": watched.line(), "devices": watched.rows()},
                        indent=2,
                        allow_nan=False,
                    )
                )
            else:
                wide = console if console.is_terminal else Console(width=160)
                wide.print(table(watched, wide), highlight=False)
            return
        stack.callback(console.show_cursor)  # Ctrl-C may come just when the table has hidden it
        with Live(table(watched, console), console=console, auto_refresh=False) as live:
            while not watched.all_done():
                time.sleep(_EVERY)
                live.update(table(watched, console), refresh=True)


def _listen(watched: Watched, folder: Path, connect: list[str], stack: ExitStack) -> bool:
    """Join the fleet's network, if it can be joined from here; whether it was."""
    from gossamer.fleet.observer import Observer

    common, certificates = watched.any.fleet, folder / fleet.OBSERVER
    ends = fleet.endpoints([part.strip() for one in connect for part in one.split(",")], "connect")
    if not (ends or common.multicast):
        return False  # nobody can be found without being told where: a rehearsal, or a fleet with hosts
    if not (ends or common.insecure or certificates.is_dir()) and watched.look():
        return False  # a device's own folder
    settings = Settings(
        run=watched.any.run,
        names=watched.any.names,
        certificates=None if common.insecure else certificates,
        insecure=common.insecure,
        connect=tuple(ends),
        multicast=common.multicast,
        lease=common.lease,
    )
    stack.enter_context(closing(Observer(settings, watched.hear)))
    return True


def _hear_all(watched: Watched) -> None:
    until = time.monotonic() + _LISTEN
    while time.monotonic() < until and watched.heard < len(watched.any.names):
        time.sleep(0.1)


class Table:
    """A rehearsal as it goes on: a live table in a terminal; a plain line now and then elsewhere; nothing if quiet."""

    def __init__(self, folder: Path, quiet: bool) -> None:
        self._watched, self._quiet, self._console = Watched(folder), quiet, Console(stderr=True)
        self._live = (
            Live(console=self._console, auto_refresh=False)
            if self._console.is_terminal and not quiet
            else None
        )
        self._said = time.monotonic()

    def __enter__(self) -> Table:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.show(now=True)
        if self._live is not None:
            self._live.stop()

    def show(self, now: bool = False) -> None:
        """How it is now; `now`: though it was shown a moment ago."""
        if self._live is not None:
            self._live.update(table(self._watched, self._console), refresh=True)
        elif not self._quiet and (now or time.monotonic() - self._said > _LINE):
            self._said = time.monotonic()
            self._console.print(self._watched.line(), highlight=False)

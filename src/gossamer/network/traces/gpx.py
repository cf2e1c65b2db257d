"""Read tracks of GPS receivers in GPX, the GPS Exchange Format.

A file is a device per track; a folder is a device per file, named as the file. Only track points
are read, each with its latitude, longitude and time. The files are XML; declarations of document
types, which can define entities, are refused, and sizes are bounded.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from xml.parsers import expat

from gossamer.errors import DataError
from gossamer.network.traces import progress, text

_MAX_FILES = 100_000  # files in a folder
_MAX_TEXT = 200  # characters of a time or a name
_BLOCK = 2**20  # bytes that are parsed at once


@dataclass(eq=False)
class Track:
    """The fixes of one device.

    Attributes:
        name: Name of the device.
        time: Time of each fix, in seconds since 1970.
        latitude: Latitude in degrees.
        longitude: Longitude in degrees.
    """

    name: str
    time: array[float] = field(default_factory=lambda: array("d"))
    latitude: array[float] = field(default_factory=lambda: array("d"))
    longitude: array[float] = field(default_factory=lambda: array("d"))


def is_gpx(path: Path) -> bool:
    """True if a path is a folder, or a file with the name of a GPX file.

    Args:
        path: The path.
    """
    return path.is_dir() or _is_gpx_name(path)


def read_tracks(path: Path) -> list[Track]:
    """Read a GPX file, or all GPX files of a folder.

    Args:
        path: The file or folder. Files may be compressed with gzip.

    Returns:
        The tracks that have fixes, with different names.

    Raises:
        DataError: If a file cannot be read, is not GPX, or there are no fixes.
    """
    if not path.is_dir():
        tracks = _read_file(path, text.MAX_BYTES)[0]
        return _with_own_names(path, tracks)
    files = sorted(file for file in path.iterdir() if _is_gpx_name(file))
    if not files or len(files) > _MAX_FILES:
        raise DataError(f"{path} has {len(files):,} GPX files; give a folder with 1 to 100,000")
    tracks = []
    left = text.MAX_BYTES
    for file in files:
        parts, size = _read_file(file, left)
        left -= size
        whole = Track(file.name.partition(".")[0])
        for part in parts:
            whole.time.extend(part.time)
            whole.latitude.extend(part.latitude)
            whole.longitude.extend(part.longitude)
        tracks.append(whole)
    return _with_own_names(path, tracks)


def _is_gpx_name(path: Path) -> bool:
    return path.name.lower().endswith((".gpx", ".gpx.gz"))


def _with_own_names(path: Path, tracks: list[Track]) -> list[Track]:
    """Return the tracks that have fixes; number those of the same name."""
    count: dict[str, int] = {}
    kept = []
    for track in tracks:
        if len(track.time):
            count[track.name] = count.get(track.name, 0) + 1
            if count[track.name] > 1:
                track.name = f"{track.name} ({count[track.name]})"
            kept.append(track)
    if not kept:
        raise DataError(f"{path} has no track points; give GPX files with tracks")
    return kept


def _read_file(path: Path, most: int) -> tuple[list[Track], int]:
    """Return the tracks of a file, and its size in bytes."""
    data = text.read_bytes(path, most)
    reader = _Reader(path)
    try:
        for begin in range(0, len(data), _BLOCK):
            reader.parser.Parse(data[begin : begin + _BLOCK], False)
            progress.report(path, min(len(data), begin + _BLOCK), len(data))
        reader.parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise reader.error(f"this is not XML ({expat.ErrorString(error.code)})") from None
    return reader.tracks, len(data)


class _Reader:
    """Collects track points from the events of an XML parser."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tracks: list[Track] = []
        self.inside: list[str] = []  # names of the elements that are open
        self.text = ""
        self.time: float | None = None
        self.position = (0.0, 0.0)
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self.begin
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.characters
        self.parser.StartDoctypeDeclHandler = self.refuse_doctype

    def error(self, reason: str) -> DataError:
        return DataError(f"{self.path}, line {self.parser.CurrentLineNumber}: {reason}")

    def refuse_doctype(self, *_: object) -> None:
        raise self.error("a document type is not accepted; give plain GPX")

    def begin(self, name: str, attributes: dict[str, str]) -> None:
        name = name.rpartition(":")[2]
        if not self.inside and name != "gpx":
            raise self.error(f"expected a <gpx> file, not <{name[:20]}>")
        self.inside.append(name)
        self.text = ""
        if name == "trk":
            self.tracks.append(Track(f"track {len(self.tracks) + 1}"))
        elif name == "trkpt":
            self.time = None
            self.position = (
                self.degrees(attributes, "lat", 90.0),
                self.degrees(attributes, "lon", 180.0),
            )

    def degrees(self, attributes: dict[str, str], name: str, most: float) -> float:
        try:
            value = float(attributes.get(name, ""))
        except ValueError:
            value = most + 1
        if not -most <= value <= most:
            given = attributes.get(name, "")[:20]
            raise self.error(f"{name} {given!r} is not a number from {-most:g} to {most:g}")
        return value

    def characters(self, text: str) -> None:
        if len(self.text) < _MAX_TEXT:
            self.text += text

    def end(self, _: str) -> None:
        name = self.inside.pop()
        parent = self.inside[-1] if self.inside else ""
        if name == "name" and parent == "trk" and self.text.strip():
            self.tracks[-1].name = self.text.strip()[:60]
        elif name == "time" and parent == "trkpt":
            self.time = self.moment()
        elif name == "trkpt":
            self.add_fix()

    def moment(self) -> float:
        try:
            moment = datetime.fromisoformat(self.text.strip())
        except ValueError:
            shown = self.text.strip()[:30]
            raise self.error(f"the time {shown!r} is not a date") from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return moment.timestamp()

    def add_fix(self) -> None:
        if self.time is None:
            raise self.error("a track point has no time")
        if not self.tracks:
            raise self.error("a track point is in no track")
        track = self.tracks[-1]
        track.time.append(self.time)
        track.latitude.append(self.position[0])
        track.longitude.append(self.position[1])

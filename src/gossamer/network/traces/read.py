"""Read a log of contacts or positions.

The modules that parse text are loaded with the first log: they need pyarrow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from gossamer._core import checks
from gossamer._core.arguments import checked
from gossamer.network.traces.logs import ContactLog, PositionLog

FORMATS = ("auto", "contacts", "intervals")


@checked
def read_contacts(
    path: str | Path, columns: Sequence[str] | Mapping[str, str] = (), format: str = "auto"
) -> ContactLog:
    """Read a log of contacts.

    A line is a contact of two devices at a moment (`time a b`), for a while (`time a b duration`,
    or begin, end and both devices), or the begin or end of a contact (`time CONN a b up`, as the
    ONE simulator writes). Contact plans of ION are read too, see `gossamer.network.traces.plan`.

    Columns are separated by spaces, tabs, commas or semicolons. What they are is told from the
    header, or from the values if there is none. Two further columns are a property of the two
    devices, such as their class. The file may be compressed with gzip.

    Times are seconds, unix times in seconds or milliseconds, ISO dates, or times of day, see
    `gossamer.network.traces.times`. Devices have any names, see `gossamer.network.traces.ids`.

    Args:
        path: The log.
        columns: What the columns are, if that is not clear: a name per column, such as
            `["time", "a", "b", "-"]` ("-" leaves a column out), or by role the name in the
            header, such as `{"time": "When", "a": "Tag", "b": "Peer"}`.
        format: "contacts" or "intervals" (`time CONN a b up`) to refuse other formats; "auto"
            to accept any.

    Returns:
        The contacts, in the order of the log.

    Raises:
        DataError: If the log cannot be read, has a wrong line, or is not clear.
        InputError: If `columns` do not fit the log.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "contacts.csv"
        >>> _ = path.write_text("time,id1,id2\\n0,ann,ben\\n20,ben,cas\\n")
        >>> log = read_contacts(path)
        >>> log.names, log.a.tolist(), log.b.tolist(), log.begin.tolist()
        (('ann', 'ben', 'cas'), [0, 1], [1, 2], [0.0, 20.0])
    """
    from gossamer.network.traces.contact_rows import contacts_of

    checks.one_of("format", format, FORMATS)
    return contacts_of(Path(path), columns, format)


@checked
def read_positions(
    path: str | Path,
    columns: Sequence[str] | Mapping[str, str] = (),
    geographic: bool = False,
) -> PositionLog:
    """Read a log of positions.

    The log is text with the columns `time device x y`, in this order or as its header says, or it
    is GPX: a file with a track per device, or a folder with a file per device. Separators, times
    and names of devices are as in `read_contacts`.

    Args:
        path: The log.
        columns: What the columns are, if that is not clear: a name per column, or by role the
            name in the header. Roles are time, device, x, y, latitude and longitude.
        geographic: True if x and y are latitude and longitude.

    Returns:
        The fixes, in the order of the log.

    Raises:
        DataError: If the log cannot be read, has a wrong line, or is not clear.
        InputError: If `columns` do not fit the log.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "fixes.csv"
        >>> _ = path.write_text("id,t,lat,lon\\nann,0,48.2,16.3\\nben,0,48.3,16.3\\n")
        >>> log = read_positions(path)
        >>> log.names, log.geographic, log.position.tolist()
        (('ann', 'ben'), True, [[48.2, 16.3], [48.3, 16.3]])
    """
    from gossamer.network.traces.position_rows import positions_of

    return positions_of(Path(path), columns, geographic)

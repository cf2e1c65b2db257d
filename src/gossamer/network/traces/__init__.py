"""Networks from logs of real fleets: contacts (`ContactTrace`) or positions (`PositionTrace`)."""

from gossamer.network.traces.contacts import ContactTrace
from gossamer.network.traces.logs import ContactLog, PositionLog
from gossamer.network.traces.positions import PositionTrace
from gossamer.network.traces.read import read_contacts, read_positions
from gossamer.network.traces.reader import TraceReader

__all__ = [
    "ContactLog",
    "ContactTrace",
    "PositionLog",
    "PositionTrace",
    "TraceReader",
    "read_contacts",
    "read_positions",
]

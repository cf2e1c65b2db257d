"""Networks from logs of real fleets: contacts (`ContactTrace`) or positions (`PositionTrace`)."""

from gossamer.network.traces.contacts import ContactTrace
from gossamer.network.traces.positions import PositionTrace
from gossamer.network.traces.reader import TraceReader

__all__ = ["ContactTrace", "PositionTrace", "TraceReader"]

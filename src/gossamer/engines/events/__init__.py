"""The engine without rounds: devices compute at their own pace and meet when they can.

Everything happens twice: first the times, then the models. A timeline fixes from draws and
durations alone what happens to whom and when (`timeline` for methods with rounds, of which each
meeting is one; `background` for methods without rounds). `waves` then finds the events that share
no device, and an engine computes each wave as stacked calls of the method (`pair_rounds`,
`without_rounds`).
"""

from gossamer.engines.events.engine import EventEngine
from gossamer.engines.events.event_list import EventList
from gossamer.engines.events.start import start_events
from gossamer.engines.events.timeline import Timeline

__all__ = ["EventEngine", "EventList", "Timeline", "start_events"]

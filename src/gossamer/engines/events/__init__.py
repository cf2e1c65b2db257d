"""The engine without rounds: devices compute at their own pace and meet in pairs.

`timeline` fixes who meets whom and when, from draws and durations alone; `waves` finds the meetings
that share no device; `engine` runs each wave as one stacked call of the method.
"""

from gossamer.engines.events.engine import EventEngine
from gossamer.engines.events.timeline import Meetings, Timeline

__all__ = ["EventEngine", "Meetings", "Timeline"]

"""The executable specification: every algorithm, device by device and message by message.

Each method follows its paper, slowly and plainly. It shares with the simulator only the data, the
learner's gradient (for one device at a time), the links, and the named draws.

`devices` is what a device can do and how devices exchange messages, `rounds` one round of every
algorithm, `optimizers` the local step, `weights` the weight rules, `steps` the mirror step and the
compression.
"""

from support.reference.rounds import Reference
from support.reference.steps import power

__all__ = ["Reference", "power"]

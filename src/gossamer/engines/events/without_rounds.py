"""Methods without rounds: steps, and messages that travel while devices compute."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from gossamer.algorithms import State
from gossamer.algorithms.asynchronous import Asynchronous
from gossamer.backend import average_pairs, copy_rows, get_rows, set_rows
from gossamer.engines.batch_gradient import BatchGradient
from gossamer.engines.events.activity import activity
from gossamer.engines.events.background import BackgroundTimeline
from gossamer.engines.events.engine import EventEngine
from gossamer.engines.events.event_list import (
    EXCHANGE,
    FORGET,
    KEEP,
    RECEIVE,
    RESUME,
    SEND,
    STEP,
    EventList,
)
from gossamer.engines.events.timeline_state import PREFIX
from gossamer.engines.plan import Plan, Record, Snapshot
from gossamer.errors import InputError
from gossamer.network.base import IntArray

_READ = PREFIX + "read"
_SENT = PREFIX + "sent"
_KEPT = PREFIX + "kept"
_STALENESS = PREFIX + "staleness"
_STALENESS_SUM = PREFIX + "staleness_sum"


class AsynchronousEngine(EventEngine):
    """Runs a method without rounds: devices compute all the time, while their messages travel.

    Args:
        plan: What to run; its method is `Asynchronous`.
        seconds_per_round: How long the links of a round of the network last.
        snapshot: The state to resume from. None: start at time 0.
        batched: Compute events that share no device together.

    Raises:
        InputError: If the plan has no timing, or one-way links where both devices send.
    """

    def __init__(
        self,
        plan: Plan,
        seconds_per_round: float,
        snapshot: Snapshot | None = None,
        batched: bool = True,
    ) -> None:
        method = plan.algorithm
        assert isinstance(method, Asynchronous)
        if plan.network.directed:
            accepted = (
                "symmetric links: in the events engine devices that are linked hear each other"
            )
            raise InputError("network", "directed", accepted)
        super().__init__(plan, seconds_per_round, snapshot, batched)
        self._method = method
        # The samples of the steps of a round, and which of them each event needs.
        self._samples: IntArray | None = None
        self._sample_row: IntArray = np.empty(0, dtype=np.int64)
        if snapshot is None:
            start = self.worker.start().expand(len(self._devices), -1)
            self._state = method.first_asynchronous_state(start)
        first = self._devices[:1]
        _, message = method.send(self._state_of(first), first, torch.zeros_like(first))
        self._message_bytes = message.shape[1] * self._dtype.itemsize
        self._timeline = BackgroundTimeline(plan, self._message_bytes, seconds_per_round, batched)
        self._activity = activity(self._timeline.source, self._timeline, in_pairs=False)
        if snapshot is None:
            # The models at which the devices compute, and the messages that are on their way.
            self._read = self.models().clone()
            self._sent = message.new_zeros(len(self._devices), message.shape[1])
            self._kept = self._sent.clone() if method.on_cut == "keep" else None
            # Exchanges that changed a device's model since it began to compute, and their number
            # in all steps that have ended.
            self._staleness = np.zeros(len(self._devices), dtype=np.int64)
            self._staleness_sum = np.zeros(len(self._devices), dtype=np.int64)
        else:
            self._timeline.restore(snapshot.tensors)
            self._restore_activity(snapshot.tensors)
            self._read = snapshot.tensors[_READ].to(self._device, copy=True)
            self._sent = snapshot.tensors[_SENT].to(self._device, copy=True)
            self._kept = None
            if method.on_cut == "keep":
                self._kept = snapshot.tensors[_KEPT].to(self._device, copy=True)
            self._staleness = snapshot.tensors[_STALENESS].numpy().copy()
            self._staleness_sum = snapshot.tensors[_STALENESS_SUM].numpy().copy()

    # -- events -----------------------------------------------------------------------------------

    def _begin_round(self, events: EventList) -> None:
        """Draw the samples of all steps."""
        self._samples = None
        if self._batched and self.plan.stream is None:
            steps = events.kind == STEP
            self._samples = self.worker.draw_samples(events.a_count[steps], events.a[steps])
            self._sample_row = np.cumsum(steps) - 1

    def _run_wave(self, events: EventList, wave: IntArray, t: int) -> None:
        kind = events.kind[wave[0]]
        a = torch.from_numpy(events.a[wave]).to(self._device)
        if kind == STEP:
            samples = None
            if self._samples is not None:
                samples = self._samples[self._sample_row[wave]]
            arrived = self._arrived(events.time[wave], a)
            gradient = BatchGradient(self.worker, events.a_count[wave], None, a, samples, arrived)
            self._step(a, gradient, t)
        elif kind == SEND:
            self._send(a, torch.from_numpy(events.a_count[wave]).to(self._device))
        elif kind == EXCHANGE:
            self._exchange(a, torch.from_numpy(events.b[wave]).to(self._device))
        elif kind == RECEIVE:
            b = torch.from_numpy(events.b[wave]).to(self._device)
            sent_by_a = get_rows(self._sent, a)
            self._receive(b, received=sent_by_a, sent=get_rows(self._sent, b))
        elif kind == KEEP:
            self._messages_kept.index_copy_(0, a, self._sent[a])
        elif kind == RESUME:
            self._sent.index_copy_(0, a, self._messages_kept[a])
        elif kind == FORGET:
            self._undo(a, self._messages_kept[a])
        else:
            self._undo(a, self._sent[a])

    def _step(self, rows: Tensor, gradient: BatchGradient, t: int) -> None:
        """Apply the gradients of some devices, which then begin to compute the next."""
        w_read = get_rows(self._read, rows)
        state = self._method.next_step(self._state_of(rows), w_read, gradient, rows, t)
        self._set_state_of(rows, state)
        set_rows(self._read, rows, self._method.models(state))
        numbers = rows.cpu().numpy()
        self._staleness_sum[numbers] += self._staleness[numbers]
        self._staleness[numbers] = 0

    def _send(self, rows: Tensor, number: Tensor) -> None:
        if self._method.message is not None:
            copy_rows(self._sent, rows, self._state[self._method.message])
            return
        before = self._state_of(rows)
        state, message = self._method.send(before, rows, number)
        self._set_changed(rows, before, state)
        set_rows(self._sent, rows, message)

    def _exchange(self, a: Tensor, b: Tensor) -> None:
        """Let the messages of both devices of each pair arrive."""
        if self._method.averaged is not None:
            average_pairs(self._state[self._method.averaged], a, b, self._sent)
            self._count_received(a)
            self._count_received(b)
            return
        sent_by_a = get_rows(self._sent, a)
        sent_by_b = get_rows(self._sent, b)
        self._receive(a, received=sent_by_b, sent=sent_by_a)
        self._receive(b, received=sent_by_a, sent=sent_by_b)

    def _receive(self, receivers: Tensor, received: Tensor, sent: Tensor) -> None:
        state = self._method.receive(self._state_of(receivers), received, sent)
        self._set_state_of(receivers, state)
        self._count_received(receivers)

    def _count_received(self, receivers: Tensor) -> None:
        self._staleness[receivers.cpu().numpy()] += 1
        self._traffic.messages += len(receivers)
        self._traffic.bytes += len(receivers) * self._message_bytes

    def _undo(self, rows: Tensor, messages: Tensor) -> None:
        before = self._state_of(rows)
        self._set_changed(rows, before, self._method.undo_send(before, messages))

    def _set_changed(self, rows: Tensor, before: State, after: State) -> None:
        """Set the rows of the tensors that an operation has not returned as they were."""
        self._set_state_of(rows, {name: x for name, x in after.items() if x is not before[name]})

    @property
    def _messages_kept(self) -> Tensor:
        """The messages that were cut and are kept, one row per device."""
        assert self._kept is not None
        return self._kept

    # -- results ----------------------------------------------------------------------------------

    def record(self) -> Record:
        steps = self._timeline.total_steps
        staleness = float(self._staleness_sum.sum()) / max(1, steps)
        return replace(super().record(), staleness=staleness)

    # -- snapshots --------------------------------------------------------------------------------

    def snapshot(self, copy: bool = True) -> Snapshot:
        found = super().snapshot(copy)
        found.tensors[_READ] = self._read.detach().to("cpu", copy=copy)
        found.tensors[_SENT] = self._sent.detach().to("cpu", copy=copy)
        if self._kept is not None:
            found.tensors[_KEPT] = self._kept.detach().to("cpu", copy=copy)
        found.tensors[_STALENESS] = torch.from_numpy(self._staleness.copy())
        found.tensors[_STALENESS_SUM] = torch.from_numpy(self._staleness_sum.copy())
        return found

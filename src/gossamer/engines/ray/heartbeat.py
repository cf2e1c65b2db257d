"""Whether the shards are alive, apart from how long their work takes."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Any

import ray

_EVERY = 1.0  # seconds between two questions to a shard
_LONGEST_STEP = 2.0  # seconds that count between two checks: this process may have been stopped


class Silent(Exception):
    """A shard gives no sign of life, or all of them wait for each other."""


class Heartbeats:
    """Asks shards at work for a sign of life, during one call of the driver.

    A shard that computes, measures or saves may take any time. It is lost if it does not answer;
    and if all shards that have not finished wait for others, they cannot reach each other.

    Args:
        handles: The actors.
        limit: Seconds of silence, or of waiting for each other, that end a run.
    """

    def __init__(self, handles: Sequence[Any], limit: float) -> None:
        self._handles = handles
        self._limit = limit
        self._checked = time.monotonic()
        self._silent = [0.0] * len(handles)
        self._waiting = [0.0] * len(handles)
        self._asked: dict[int, Any] = {}
        self._next = self._checked + _EVERY

    def check(self, working: Collection[int]) -> None:
        """Collect the answers and ask again. Call it about once per second.

        Args:
            working: Numbers of the shards that have not finished.

        Raises:
            Silent: If a shard is silent for too long, or all wait for each other for too long.
        """
        now = time.monotonic()
        passed = min(now - self._checked, _LONGEST_STEP)
        self._checked = now
        for number in working:
            if number in self._asked:
                self._collect(number, passed)
        silent = [str(number) for number in working if self._silent[number] > self._limit]
        if silent:
            raise Silent(
                f"no sign of life from shard {', '.join(silent)} for {self._limit:g} s "
                "(engine.wait)"
            )
        several = len(self._handles) > 1
        if several and working and all(self._waiting[k] > self._limit for k in working):
            raise Silent(
                f"all shards have waited for others for {self._limit:g} s (engine.wait): they "
                "cannot reach each other"
            )
        if now >= self._next:
            self._next = now + _EVERY
            for number in working:
                if number not in self._asked:
                    self._asked[number] = self._handles[number].seconds_waiting.remote()

    def _collect(self, number: int, passed: float) -> None:
        answers, _ = ray.wait([self._asked[number]], timeout=0)
        if not answers:
            self._silent[number] += passed
            return
        del self._asked[number]
        self._silent[number] = 0.0
        try:
            self._waiting[number] = ray.get(answers[0])
        except ray.exceptions.RayError:  # the call itself will say what has happened
            self._waiting[number] = 0.0

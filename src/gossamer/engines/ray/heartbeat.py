"""Whether the shards are alive, apart from how long their work takes."""

from __future__ import annotations

import socket
import time
from collections.abc import Collection, Sequence
from typing import Any

import ray

from gossamer.errors import Lost

_EVERY = 1.0  # seconds between two questions to a shard
_LONGEST_STEP = 2.0  # seconds that count between two checks: this process may have been stopped


# Ray ends a process that has not reached the control process of its cluster for 60 s, whatever it
# does at that moment, with exit code 1.
_CONTROL_SECONDS = 30.0
_CONTROL_EVERY = 2.0  # seconds between two attempts to reach it
_CONNECT_SECONDS = 1.0  # timeout of one attempt


class ControlProcess:
    """Watches Ray's control process (the GCS), without which this process would be ended.

    A cluster whose control process is restarted in time goes on.

    Args:
        advice: What the message says at its end.
    """

    def __init__(self, advice: str = "--resume continues the run") -> None:
        self._address = str(ray.get_runtime_context().gcs_address)
        self._advice = advice
        self._checked = time.monotonic()
        self._away = 0.0  # seconds since it was reached
        self.gone = False

    def check_sometimes(self) -> None:
        """Call `check`, unless that was done a moment ago."""
        if time.monotonic() - self._checked > _CONTROL_EVERY:
            self.check()

    def check(self) -> bool:
        """Try to reach it. Return True if it has been reached.

        Raises:
            Lost: If it has not been reached for too long.
        """
        reached = self._is_reachable()
        now = time.monotonic()
        # This process may have been stopped in between.
        self._away += min(now - self._checked, _CONTROL_EVERY + _LONGEST_STEP)
        self._checked = now
        if reached:
            self._away = 0.0
        if self._away > _CONTROL_SECONDS:
            self.gone = True
            raise Lost(
                f"Ray's control process (the GCS) at {self._address} cannot be reached for "
                f"{_CONTROL_SECONDS:g} s: the cluster is gone; {self._advice}"
            )
        return reached

    def _is_reachable(self) -> bool:
        host, _, port = self._address.rpartition(":")
        try:
            address = (host.strip("[]"), int(port))
            socket.create_connection(address, timeout=_CONNECT_SECONDS).close()
        except OSError:
            return False
        return True


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

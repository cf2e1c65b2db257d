"""Simulated time, and processes of which exactly one runs at a time.

A node is blocking code, and an algorithm asks for a mix in the middle of its round. Instead of
rewriting all algorithms as coroutines, each process is a thread that runs only while it holds the
baton. It hands the baton on where it waits, and nowhere else. So the order of events depends on the
seed alone.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from functools import partial
from random import Random

# Calls of a process into the simulation without a wait, after which it counts as spinning.
_MAX_CALLS = 20_000


class Violation(Exception):
    """Something that must hold does not.

    Args:
        rule: The rule that is broken.
        sentence: What happened.
    """

    def __init__(self, rule: str, sentence: str) -> None:
        super().__init__(rule, sentence)
        self.rule = rule
        self.sentence = sentence

    def __str__(self) -> str:
        return f"{self.rule}: {self.sentence}"


class Killed(BaseException):
    """The process is killed at this point. Only its machine survives."""


class Process:
    """A process; made by `Scheduler.spawn`.

    Attributes:
        killed: True if it is to end at the next point where it can.
        waits_until: When its wait ends, in simulated seconds; None: it does not wait.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.killed = False
        self.ended = False
        self.waits_until: float | None = None
        self.ticket = 0  # number of its last wait: a wake-up for an earlier one is void
        self.calls = 0  # into the simulation since its last wait
        self.baton = threading.Semaphore(0)
        self.thread: threading.Thread | None = None


class Scheduler:
    """Runs events and processes in the order of simulated time.

    Args:
        seed: Seed of everything that is drawn.

    Example:
        >>> scheduler = Scheduler(seed=1)
        >>> def run():
        ...     scheduler.sleep(2.0)
        ...     print("awake at", scheduler.now)
        >>> process = scheduler.spawn("sleeper", run)
        >>> scheduler.run(until=10.0)
        awake at 2.0
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.events = 0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._processes: list[Process] = []
        self._running: Process | None = None
        self._next: Process | None = None
        self._until = 0.0
        self._raised: BaseException | None = None
        self._ending = False
        self._main = threading.Semaphore(0)

    # -- events ------------------------------------------------------------------------------------

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Run an action at a time, after those that were scheduled for it before.

        Args:
            when: Simulated seconds; not before now.
            action: What to run.
        """
        self._number += 1
        heapq.heappush(self._queue, (max(when, self.now), self._number, action))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Run an action in some seconds.

        Args:
            seconds: From now.
            action: What to run.
        """
        self.at(self.now + seconds, action)

    def run(self, until: float) -> None:
        """Run events until a time, or until none are left; then end all processes.

        Args:
            until: Simulated seconds.

        Raises:
            Violation: If one was raised in an event or a process.
        """
        self._until = until
        try:
            self._dispatch(None)
        finally:
            self._end_processes()
        if self._raised is not None:
            raise self._raised

    # -- processes ---------------------------------------------------------------------------------

    def spawn(self, name: str, function: Callable[[], None]) -> Process:
        """Start a process now.

        Args:
            name: Its name.
            function: What it runs. It may end by `Killed`; any other exception ends the run.
        """
        process = Process(name)
        thread = threading.Thread(target=self._main_of, args=(process, function), daemon=True)
        process.thread = thread
        process.waits_until = self.now
        process.ticket = 1
        self._processes.append(process)
        self.at(self.now, partial(self._resume, process, 1))
        thread.start()
        return process

    def sleep(self, seconds: float) -> None:
        """Wait in the running process.

        Args:
            seconds: Simulated seconds.

        Raises:
            Killed: If it is killed meanwhile.
        """
        process = self.current()
        process.calls = 0
        process.ticket += 1
        process.waits_until = self.now + max(0.0, seconds)
        self.at(process.waits_until, partial(self._resume, process, process.ticket))
        self._dispatch(process)
        if process.killed:
            raise Killed

    def wake(self, process: Process) -> None:
        """End the wait of a process now, if it waits.

        Args:
            process: The process.
        """
        if process.waits_until is not None:
            self.at(self.now, partial(self._resume, process, process.ticket))

    def kill(self, process: Process) -> None:
        """Kill a process: it ends where it waits, or at its next call into the simulation.

        Args:
            process: The process.
        """
        process.killed = True
        self.wake(process)

    def current(self) -> Process:
        """Return the running process, at one of its calls into the simulation.

        Raises:
            Killed: If it is killed.
            Violation: If it calls without end and never waits.
        """
        process = self._running
        assert process is not None, "called outside a process"
        if process.killed:
            raise Killed
        process.calls += 1
        if process.calls > _MAX_CALLS:
            raise Violation("nothing waits for ever", f"{process.name} is in a loop without a wait")
        return process

    # -- the baton ---------------------------------------------------------------------------------

    def _resume(self, process: Process, ticket: int) -> None:
        if process.waits_until is not None and process.ticket == ticket:
            process.waits_until = None
            self._next = process

    def _dispatch(self, waiting: Process | None) -> None:
        """Run events until one resumes a process, and hand it the baton; wait to get it back.

        Args:
            waiting: The process that waits; None: the caller of `run`.
        """
        process = self._next_process()
        if process is not waiting:
            self._hand_to(process)
            if waiting is None:
                self._main.acquire()
            else:
                waiting.baton.acquire()
        self._running = waiting

    def _next_process(self) -> Process | None:
        """Return the process that is to run next; None: the run is over."""
        if self._raised is not None or self._ending:
            return None
        try:
            while self._queue and self._queue[0][0] <= self._until:
                when, _, action = heapq.heappop(self._queue)
                self.now = when
                self.events += 1
                self._running = None
                action()
                if self._next is not None:
                    process = self._next
                    self._next = None
                    return process
        except BaseException as error:
            self._raised = error
        return None

    def _hand_to(self, process: Process | None) -> None:
        if process is None:
            self._main.release()
        else:
            process.baton.release()

    def _main_of(self, process: Process, function: Callable[[], None]) -> None:
        process.baton.acquire()
        self._running = process
        try:
            if not process.killed:
                function()
        except Killed:
            pass
        except BaseException as error:
            if self._raised is None:
                self._raised = error
        process.ended = True
        process.waits_until = None
        self._hand_to(self._next_process())

    def _end_processes(self) -> None:
        """End all threads, one after the other."""
        self._ending = True
        for process in self._processes:
            process.killed = True
            if not process.ended:
                process.waits_until = None
                process.baton.release()
                self._main.acquire()
            assert process.thread is not None
            process.thread.join()
        self._processes.clear()

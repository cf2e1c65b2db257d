"""The process of one device in a rehearsal: it enters its namespace and runs the device."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from gossamer.errors import GossamerError
from gossamer.fleet.service import run_device
from gossamer.fleet.settings import read_device

OUTPUT = "device.log"  # output of a device's process, in the device's folder
_CLONE_NEWNET = 0x40000000
_PRELOADED = ["gossamer.fleet.service", "gossamer.fleet.transport.zenoh", "zenoh"]
# Rehearsals may run in several threads. Starting a process polls those of all threads, and if two
# threads poll the same exit code at once, one of them gets a wrong result.
_lock = threading.RLock()


class DeviceProcess:
    """The process of one device, forked from one that has loaded all libraries.

    A hundred devices start within seconds and share that memory. What runs is what `gossamer node`
    runs.

    Args:
        file: The device's file.
        namespace: The network namespace to enter.
    """

    def __init__(self, file: Path, namespace: str) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_PRELOADED)
        self._connection, other_end = context.Pipe()
        self._process: BaseProcess = context.Process(
            target=_main,
            args=(str(file), namespace, other_end),
            name=f"gossamer-{file.stem}",
            daemon=True,
        )
        self._output = file.with_suffix("") / OUTPUT
        with _lock:
            self._process.start()
        other_end.close()

    @property
    def pid(self) -> int:
        """Process id."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def sentinel(self) -> int:
        """Handle that is ready once the process ends, for `multiprocessing.connection.wait`."""
        return self._process.sentinel

    @property
    def exit_code(self) -> int | None:
        """Exit code; None while the process runs."""
        with _lock:
            return self._process.exitcode

    def is_ready(self, timeout: float) -> bool:
        """Wait until the device is ready; return False if it ends or a timeout is over.

        Args:
            timeout: Seconds to wait.
        """
        if not self._connection.poll(timeout):
            return False
        with suppress(EOFError, OSError):
            return self._connection.recv_bytes() == b"ready"
        return False

    def set_start(self, start: float) -> None:
        """Tell the device when round 0 begins.

        Args:
            start: Seconds since 1970.
        """
        self._connection.send(start)

    def end(self, by: signal.Signals, timeout: float) -> bool:
        """End the process by a signal.

        Args:
            by: The signal.
            timeout: Seconds to wait, after which the process is killed.

        Returns:
            False if it had to be killed.
        """
        with suppress(ProcessLookupError):
            os.kill(self.pid, by)
        if not wait([self.sentinel], timeout):
            self._process.kill()
            return False
        self.close()
        with _lock:
            self._process.join()
        return True

    def close(self) -> None:
        """Close the connection to a process that has ended."""
        self._connection.close()

    def last_output(self) -> str:
        """Return the last line that the process printed."""
        with suppress(OSError):
            lines = self._output.read_text(errors="replace").strip().splitlines()
            if lines:
                return lines[-1]
        return "no output"


def _main(path: str, namespace: str, connection: Connection) -> None:
    device = read_device(Path(path))
    output = os.open(device.folder / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(output, stream)
    stopped = threading.Event()
    # Ctrl-C reaches the whole process group; the parent ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.set())
    enter(namespace)

    def started() -> float:
        connection.send_bytes(b"ready")
        start: Any = connection.recv()
        threading.Thread(target=_stop_with_parent, args=(connection, stopped), daemon=True).start()
        return float(start)

    try:
        # The parent has written the folder, from a study whose code it has run.
        run_device(device, stopped, started, allow_code=True)
    except GossamerError as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(error.exit_code)


def _stop_with_parent(connection: Connection, stopped: threading.Event) -> None:
    """Stop the device when the parent process is gone."""
    with suppress(EOFError, OSError):
        connection.recv_bytes()
    stopped.set()


def enter(namespace: str) -> None:
    """Move this thread, and those that it starts, into a network namespace.

    Args:
        namespace: Name of the namespace.

    Raises:
        GossamerError: If the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{namespace}") as file:
        if libc.setns(file.fileno(), _CLONE_NEWNET):
            raise GossamerError(
                f"cannot enter the network {namespace}: {os.strerror(ctypes.get_errno())}"
            )

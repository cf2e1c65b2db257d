"""The connection to a Ray cluster: join or start one, reserve CPUs, leave the host as it was."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import ray
from ray.util.placement_group import placement_group, remove_placement_group

from gossamer._core.interrupts import defer_interrupts
from gossamer.engines.ray import adapter
from gossamer.errors import InputError

if TYPE_CHECKING:
    from gossamer.engines.settings import Ray

# What the processes of a cluster read when they start; values that the user has set are kept.
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",  # no telemetry
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # the default of Ray 2.60; some versions warn
}
_QUIET: dict[str, Any] = {
    "log_to_driver": False,
    "configure_logging": False,
    "logging_level": "ERROR",
}
_RAY_VARIABLES = ("RAY_", "PYTHONBREAKPOINT")  # prefixes of the variables that `ray.init` sets
_PROBE_SECONDS = 10.0  # for a TCP connection to the address of a cluster


def connect(settings: Ray, max_shards: int = 1 << 30) -> ExitStack:
    """Join the cluster that the settings name, or start one on this machine.

    If the process is connected to Ray already, that connection is used.

    Args:
        settings: The settings of the engine.
        max_shards: Most shards that the run can use.

    Returns:
        A context manager. Closing it disconnects (and stops the cluster if it was started here),
        and restores the environment, signal handlers and logging of the process.

    Raises:
        InputError: If there is no cluster at the address.
    """
    if ray.is_initialized():
        return ExitStack()
    with ExitStack() as undo:
        undo.enter_context(_host_restored())
        undo.enter_context(adapter.no_ray_messages())
        logging.getLogger("ray").setLevel(logging.ERROR)
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        try:
            if settings.address:
                _probe(settings.address, settings.wait)
                ray.init(address=settings.address, **_QUIET)
            else:
                _start_local(min(settings.shards, max_shards))
        except (OSError, RuntimeError, ValueError) as error:
            accepted = (
                'the address of a running Ray cluster, "auto" for that of this machine, '
                'or "" to start one'
            )
            reason = str(error).splitlines()[0]
            raise InputError("engine.address", settings.address, f"{accepted} ({reason})") from None
        undo.callback(ray.shutdown)
        return undo.pop_all()


def _start_local(shards: int) -> None:
    """Start a cluster on this machine that cannot be reached from outside."""
    cpus = max(os.cpu_count() or 1, shards)  # there may be more shards than cores
    # Ctrl-C stops the run; the cluster must outlive it until the state is saved.
    with defer_interrupts():
        ray.init(
            address="local",
            num_cpus=cpus,
            include_dashboard=False,
            **_QUIET,
            **adapter.LISTEN_ON_LOOPBACK,
        )


def _probe(address: str, wait: float) -> None:
    """Raise OSError if nothing listens at "host:port": Ray would retry for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        timeout = min(wait, _PROBE_SECONDS)
        socket.create_connection((host.strip("[]"), int(port)), timeout=timeout).close()


@contextmanager
def _host_restored() -> Iterator[None]:
    """Restore what `ray.init` changes in the process and `ray.shutdown` does not restore."""
    environment = {}
    for name, value in os.environ.items():
        if name.startswith(_RAY_VARIABLES):
            environment[name] = value
    excepthook = sys.excepthook
    level = logging.getLogger("ray").level
    on_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        for name in [name for name in os.environ if name.startswith(_RAY_VARIABLES)]:
            del os.environ[name]
        for name, value in environment.items():
            os.environ[name] = value
        sys.excepthook = excepthook
        logging.getLogger("ray").setLevel(level)
        if _in_main_thread() and on_sigterm is not None:  # others may not set handlers
            signal.signal(signal.SIGTERM, on_sigterm)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def reserve_cpus(count: int, wait: float) -> Any:
    """Reserve one CPU per shard.

    Args:
        count: Number of shards.
        wait: Most seconds to wait for free CPUs.

    Returns:
        A Ray placement group with one bundle per shard.

    Raises:
        InputError: If the cluster does not have enough free CPUs in time.
    """
    group = placement_group([{"CPU": 1}] * count)
    if group.wait(timeout_seconds=wait):
        return group
    remove_placement_group(group)
    total = int(ray.cluster_resources().get("CPU", 0))
    free = int(ray.available_resources().get("CPU", 0))
    raise InputError(
        "engine.shards",
        count,
        f"at most {max(1, free)} now: the cluster has {total} CPUs, {free} of them free, "
        f"and no more became free in {wait:g} s",
    )

"""The connection to a Ray cluster: join or start one, reserve room, leave the host as it was."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import ray

from gossamer._core.carried import carrying_own_code
from gossamer._core.interrupts import defer_interrupts
from gossamer._core.process import environment_defaults
from gossamer.engines.ray import adapter
from gossamer.errors import GossamerError, InputError

if TYPE_CHECKING:
    from gossamer.engines.settings import Ray

Report = Callable[[str], None]  # receives one sentence, from any thread

# What the processes of a cluster read when they start; values that the user has set are kept.
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",  # no telemetry
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # the default of Ray 2.60; some versions warn
}
_QUIET: dict[str, Any] = {
    "log_to_driver": False,
    "configure_logging": False,
    "logging_level": "WARNING",
}
_RAY_VARIABLES = ("RAY_", "PYTHONBREAKPOINT")  # prefixes of the variables that `ray.init` sets
_PROBE_SECONDS = 10.0  # timeout of a TCP connection to a cluster
_TOKEN_BYTES = 32
_HOW_TO_GIVE_A_TOKEN = (
    "put the token of the cluster into ~/.ray/auth_token, or its path into RAY_AUTH_TOKEN_PATH"
)


def ignore(text: str) -> None:
    """Report nothing."""


def connect(settings: Ray, max_shards: int = 1 << 30, report: Report = ignore) -> ExitStack:
    """Join the cluster that the settings name, or start one on this machine.

    If the process is connected to Ray already, that connection is used.

    Args:
        settings: The settings of the engine.
        max_shards: Most shards that the run can use.
        report: Called with what Ray warns of, and with a sentence if the start takes long.

    Returns:
        A context manager. Closing it disconnects (and stops the cluster if it was started here),
        and restores the environment, signal handlers and logging of the process.

    Raises:
        InputError: If there is no cluster at the address.
        GossamerError: If the cluster does not accept the token of this process.
    """
    if ray.is_initialized():
        return ExitStack()
    with ExitStack() as undo:
        undo.enter_context(_host_restored())
        undo.enter_context(adapter.ray_messages_to(report))
        undo.enter_context(environment_defaults(**_ENVIRONMENT))
        try:
            if settings.address:
                _probe(settings.address, settings.wait)
                _choose_token_mode(settings.address)
                environment = settings.runtime_env or None
                ray.init(address=settings.address, runtime_env=environment, **_QUIET)
            else:
                _start_local(settings, min(settings.shards, max_shards), report)
        except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            if isinstance(error, GossamerError):
                raise
            accepted = (
                'the address of a running Ray cluster, "auto" for that of this machine, '
                'or "" to start one'
            )
            reason = str(error).splitlines()[0]
            raise InputError("engine.address", settings.address, f"{accepted} ({reason})") from None
        undo.callback(ray.shutdown)
        return undo.pop_all()


def sending_code(settings: Ray) -> AbstractContextManager[None]:
    """Pickle the user's own code with what needs it, in a block.

    Processes of this machine import it; those of a cluster may not have it.

    Args:
        settings: The settings of the engine.
    """
    environment = settings.runtime_env
    sent_by_ray = "working_dir" in environment or "py_modules" in environment
    elsewhere = bool(settings.address) and not sent_by_ray
    return carrying_own_code(ray.cloudpickle, modules_too=elsewhere)


def _start_local(settings: Ray, shards: int, report: Report) -> None:
    """Start a cluster on this machine that cannot be reached from outside.

    It has a token of its own, which only its processes know: Ray would write one into the home
    folder, where it changes how later clusters are joined.
    """
    cpus = max(os.cpu_count() or 1, shards * max(1, settings.cpus))  # may be more than cores
    resources = {name: amount * cpus for name, amount in settings.resources.items()}
    if "RAY_AUTH_MODE" not in os.environ:
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(_TOKEN_BYTES)
        os.environ.pop("RAY_AUTH_TOKEN_PATH", None)
        adapter.reload_token()
    # Ctrl-C stops the run; the cluster must outlive it until the state is saved.
    with defer_interrupts():
        adapter.start_local(
            report,
            num_cpus=cpus,
            include_dashboard=False,
            resources=resources or None,
            runtime_env=settings.runtime_env or None,
            **_QUIET,
        )


def _probe(address: str, wait: float) -> None:
    """Raise OSError if nothing listens at "host:port": Ray would retry for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        timeout = min(wait, _PROBE_SECONDS)
        socket.create_connection((host.strip("[]"), int(port)), timeout=timeout).close()


def _choose_token_mode(given: str) -> None:
    """Use a token if and only if the cluster asks for one.

    A process that asks for tokens refuses those of a cluster without them: all actors would be
    lost, without a cause.

    Raises:
        GossamerError: If the cluster refuses this process.
    """
    address = adapter.address_of(given)
    if not address:
        return
    asks = adapter.asks_for_token(address)
    if asks is None:  # no response: let Ray report the reason
        return
    if not asks:
        if os.environ.get("RAY_AUTH_MODE") == "token":
            raise GossamerError(
                f"RAY_AUTH_MODE is token, but the cluster at {address} runs without tokens: "
                "restart it with RAY_AUTH_MODE=token, or unset the variable"
            )
        os.environ["RAY_AUTH_MODE"] = "disabled"
        adapter.reload_token()
        return
    if not adapter.has_token():
        raise GossamerError(
            f"the cluster at {address} asks for a token, and there is none on this machine: "
            + _HOW_TO_GIVE_A_TOKEN
        )
    os.environ["RAY_AUTH_MODE"] = "token"
    adapter.reload_token()
    if not adapter.accepts_this_process(address):
        raise GossamerError(
            f"the cluster at {address} refuses the token of this machine: {_HOW_TO_GIVE_A_TOKEN}"
        )


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
        adapter.reload_token()
        sys.excepthook = excepthook
        logging.getLogger("ray").setLevel(level)
        if _in_main_thread() and on_sigterm is not None:  # others may not set handlers
            signal.signal(signal.SIGTERM, on_sigterm)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()

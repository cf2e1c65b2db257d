"""Everything for which Ray and torch.distributed have no public API, in one place.

Tested with ray 2.60.0 and torch 2.13.0. After an upgrade of either, run `pytest tests/engines
-m cluster`: each function below is used by these tests.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import ray
import torch
from ray._private import ray_constants, services
from ray.core.generated import gcs_service_pb2, gcs_service_pb2_grpc
from torch import Tensor

dist: Any = torch.distributed  # mostly without type annotations
_raylet: Any = ray._raylet  # without type annotations

_LOOPBACK = "127.0.0.1"  # Ray's servers listen on all addresses if a node has any other one
_START_SECONDS = 600  # timeout for a local cluster to start; Ray's own is 30
_SAY_SECONDS = 10.0  # duration of a start after which it is reported
_PROBE_SECONDS = 5.0  # timeout of one request to a cluster
# What Ray reports of its processes, although the engine reports it too or has decided it.
_NOT_REPORTED = re.compile(
    r"worker died or was killed|Token authentication is|listen_error_messages"
    r"|actor died|will be restarted|overriding CUDA_VISIBLE_DEVICES",
    re.IGNORECASE,
)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_MAX_CHARACTERS = 500  # length to which messages of Ray are cut


# -- messages ----------------------------------------------------------------------------------


@contextmanager
def ray_messages_to(report: Callable[[str], None]) -> Iterator[None]:
    """Pass the warnings of Ray to a function, instead of printing them.

    `log_to_driver=False` switches off the logs of workers only. Messages of the raylet, for example
    that memory is short, are still printed to stdout, where the results of a command go.

    Args:
        report: Called with each message, from any thread.
    """

    def print_to_stdstream(data: dict[str, Any], *arguments: Any, **keywords: Any) -> None:
        _report(" ".join(data.get("lines", [])), report)

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            _report(record.getMessage(), report)

    worker = ray._private.worker
    original = worker.print_to_stdstream
    logger = logging.getLogger("ray")
    level = logger.level
    propagate = logger.propagate
    handlers = logger.handlers[:]  # Ray's own one prints
    worker.print_to_stdstream = print_to_stdstream
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    logger.handlers[:] = [Handler(logging.WARNING)]
    try:
        yield
    finally:
        worker.print_to_stdstream = original
        logger.handlers[:] = handlers
        logger.setLevel(level)
        logger.propagate = propagate


def _report(text: str, report: Callable[[str], None]) -> None:
    text = " ".join(_COLOURS.sub("", text).split())
    if text and not _NOT_REPORTED.search(text):
        report(text[:_MAX_CHARACTERS])


def cause_of_death(error: ray.exceptions.RayActorError) -> str:
    """Return why an actor died, in one clause.

    Args:
        error: What Ray raised.
    """
    text = _COLOURS.sub("", error.error_msg)
    place = ""
    address = re.search(r"^\s*ip: (\S+)", text, re.MULTILINE)
    if address:
        place = f" on {address[1]}"
    # Of every process that ended, Ray guesses that it was "killed ... due to high memory usage".
    if re.search(r"memory (pressure|usage threshold)|OutOfMemoryError", text):
        return f"Ray killed its process{place}, since the machine ran out of memory"
    if "node has died" in text or "node was" in text:
        return f"its machine{place} left the cluster"
    if "ray.kill" in text:
        return f"its process{place} was killed by ray.kill"
    if "worker process has died" in text or "connection error code" in text:
        return (
            f"its process{place} ended without a Python error: it was killed (signal 9; "
            "by the system if memory ran out), or crashed"
        )
    lines = [line.strip() for line in text.splitlines()[1:] if not line.startswith("\t")]
    return " ".join(lines)[:_MAX_CHARACTERS] or " ".join(text.split())[:_MAX_CHARACTERS]


def cause_in_creation(error: Exception) -> str:
    """Return the last line of what an actor raised while it was created.

    Args:
        error: What Ray raised: its text ends with the traceback of the other process.
    """
    lines = [line.strip() for line in _COLOURS.sub("", str(error)).splitlines() if line.strip()]
    for line in reversed(lines):
        if re.match(r"[A-Za-z_][\w.]*(Error|Exception|Warning|Exit|Interrupt)\b", line):
            return line[:_MAX_CHARACTERS]
    return lines[-1][:_MAX_CHARACTERS]


# -- the start of a local cluster ----------------------------------------------------------------


def start_local(report: Callable[[str], None], **arguments: Any) -> None:
    """Call `ray.init` for a cluster that listens on loopback only, and wait long enough for it.

    Ray replaces the address of loopback by one that other machines reach, which it finds by a
    connection to an outside address. Its node manager ends if one of its helpers has not loaded in
    15 seconds, which happens on a busy machine, or one that loads Ray for the first time; then all
    is started again.

    Args:
        report: Called with a sentence if the start takes long.
        **arguments: Arguments of `ray.init`.

    Raises:
        RuntimeError: If the cluster did not start in ten minutes.
    """
    several_machines = ray_constants.ENABLE_RAY_CLUSTER
    dashboard_seconds = ray_constants.RAY_DASHBOARD_STARTUP_TIMEOUT_S
    os.environ.setdefault(ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR, "0")  # read by Ray's processes
    os.environ.setdefault("RAY_gcs_server_port_wait_time_s", str(_START_SECONDS))
    os.environ.setdefault("RAY_worker_register_timeout_seconds", str(_START_SECONDS))
    ray_constants.ENABLE_RAY_CLUSTER = False
    ray_constants.RAY_DASHBOARD_STARTUP_TIMEOUT_S = _START_SECONDS
    began = time.monotonic()
    try:
        while True:
            starting = _Starting(report, began)
            try:
                with starting.watched():
                    ray.init(address="local", _node_ip_address=_LOOPBACK, **arguments)
                return
            except _Ended:
                starting.end_processes()
                if time.monotonic() - began > _START_SECONDS:
                    raise RuntimeError(f"Ray did not start in {_START_SECONDS} s") from None
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = several_machines
        ray_constants.RAY_DASHBOARD_STARTUP_TIMEOUT_S = dashboard_seconds


class _Ended(BaseException):
    """A process of the cluster ended while it was starting, or the time for the start is over.

    Ray catches every `RuntimeError` there.
    """


class _Starting:
    """One attempt to start the processes of a local cluster."""

    def __init__(self, report: Callable[[str], None], began: float) -> None:
        self._report = report
        self._began = began
        self._said = False
        self._processes: list[Any] = []

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note the processes that Ray starts, and wait for its node as long as it takes."""
        start_process = services.start_ray_process
        get_node = services.get_node

        def start(*arguments: Any, **keywords: Any) -> Any:
            info = start_process(*arguments, **keywords)
            self._processes.append(info.process)
            return info

        def wait_for_node(*arguments: Any) -> Any:
            while True:
                try:
                    return get_node(*arguments)
                except RuntimeError:
                    self._check()
                    time.sleep(0.2)

        services.start_ray_process = start
        services.get_node = wait_for_node
        try:
            yield
        finally:
            services.start_ray_process = start_process
            services.get_node = get_node

    def _check(self) -> None:
        seconds = time.monotonic() - self._began
        if seconds > _START_SECONDS:
            raise _Ended
        if seconds > _SAY_SECONDS and not self._said:
            self._said = True
            self._report(
                f"Ray has been starting for {seconds:.0f} s: the first start on a machine or a "
                f"busy one is slow, and may take up to {_START_SECONDS} s"
            )
        if any(process.poll() is not None for process in self._processes):
            raise _Ended

    def end_processes(self) -> None:
        """Kill all processes of the attempt."""
        for process in reversed(self._processes):
            process.kill()
            process.wait()


# -- tokens --------------------------------------------------------------------------------------


def reload_token() -> None:
    """Make Ray read RAY_AUTH_MODE and the token again; versions before 2.52 have neither."""
    with suppress(AttributeError):
        _raylet.Config.initialize("")
        _raylet.AuthenticationTokenLoader.instance().reset_cache()


def has_token() -> bool:
    """True if there is a token, in one of the places where Ray looks for it."""
    if os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH"):
        return True
    return (Path.home() / ".ray" / "auth_token").is_file()


def asks_for_token(address: str) -> bool | None:
    """Ask a cluster whether it refuses a process without a token.

    Ray's own client prints a warning if it is refused.

    Args:
        address: "host:port" of the cluster.

    Returns:
        None if the cluster does not answer.
    """
    messages: Any = gcs_service_pb2  # its classes are made when it is imported
    request = messages.GetClusterIdRequest()
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        stub = gcs_service_pb2_grpc.NodeInfoGcsServiceStub(channel)
        try:
            stub.GetClusterId(request, timeout=_PROBE_SECONDS)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNAUTHENTICATED:
                return True
            return None
    return False


def accepts_this_process(address: str) -> bool | None:
    """Ask a cluster whether it accepts the token of this process.

    Args:
        address: "host:port" of the cluster.

    Returns:
        None if the cluster does not answer.
    """
    try:
        _raylet.GcsClient(address=address)
    except Exception as error:  # Ray has no common class for these
        if "InvalidAuthToken" in str(error) or "Unauthenticated" in str(error):
            return False
        return None
    return True


def address_of(given: str) -> str:
    """Return "host:port" of the cluster that an address such as "auto" stands for; "": none."""
    if "://" in given:
        return ""
    with suppress(ConnectionError):
        return services.canonicalize_bootstrap_address(given) or ""
    return ""


# -- torch.distributed ---------------------------------------------------------------------------


_REDUCTIONS = {
    "sum": dist.ReduceOp.SUM,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
}


class GlooGroup:
    """A gloo process group that listens on a given address.

    `torch.distributed.init_process_group` accepts the name of a network interface
    (`GLOO_SOCKET_IFNAME`), but not an address. Ray knows the address of a node; Python's standard
    library has no portable way to find the interface that has it.

    Args:
        store: A `torch.distributed` store that all processes of the group share.
        rank: Number of this process.
        size: Number of processes.
        host: Address to listen on.
        timeout: Seconds after which an operation fails.
    """

    def __init__(self, store: Any, rank: int, size: int, host: str, timeout: float) -> None:
        options = dist.ProcessGroupGloo._Options()
        options._timeout = timedelta(seconds=timeout)
        # Two processes connect when they first exchange something, not all with all.
        device = dist.ProcessGroupGloo.create_device(hostname=host, lazy_init=True)
        options._devices = [device]
        self._group = dist.ProcessGroupGloo(store, rank, size, options)
        self.rank = rank
        self.size = size

    def send(self, x: Tensor, rank: int, tag: int) -> Any:
        """Start to send a tensor; the result has a method `wait`."""
        return self._group.send([x], rank, tag)

    def receive(self, x: Tensor, rank: int, tag: int) -> Any:
        """Start to receive into a tensor; the result has a method `wait`."""
        return self._group.recv([x], rank, tag)

    def all_reduce(self, x: Tensor, operation: str) -> Any:
        """Start to replace a tensor by that of all processes; the result has a method `wait`.

        Args:
            x: The tensor.
            operation: "sum", "max" or "min".
        """
        return self._group.allreduce([x], _REDUCTIONS[operation])

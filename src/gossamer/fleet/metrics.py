"""Metrics of a device for Prometheus: a page of text on a loopback address or a Unix socket."""

from __future__ import annotations

import ipaddress
import os
import re
import resource
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from gossamer._core.http_server import BoundedHTTPServer
from gossamer.errors import InputError

STATES = ("waiting", "joining", "running", "resting", "done", "stopped", "diverged")
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PATH = "/metrics"
_UNIX = "unix:"
_ADDRESS = re.compile(r"(\[[0-9a-f:.]+\]|[0-9.]+|localhost):([0-9]{1,5})")
_MAX_CONNECTIONS = 4
_REQUEST_SECONDS = 5  # timeout of a request
_ACCEPTED = "a loopback address, such as 127.0.0.1:9464, or unix:PATH"


@dataclass(frozen=True)
class Facts:
    """What metrics say beside the status of a device.

    Args:
        device: Its name.
        run: The run, 32 hexadecimal digits.
        version: The version of gossamer.
        samples: Number of samples that it trains on.
        certificate_expiry: When its certificate expires, in seconds since 1970; None without one.
    """

    device: str
    run: str
    version: str
    samples: int
    certificate_expiry: float | None = None


def page(status: Mapping[str, Any], facts: Facts) -> bytes:
    """Return the metrics of a device in Prometheus' text format.

    Args:
        status: The newest status of the device.
        facts: What else is known.

    Example:
        >>> facts = Facts("n3", "00" * 16, "0.2.0", samples=40)
        >>> text = page({"doing": "running", "round": 7, "metrics": {"accuracy": 0.5}}, facts)
        >>> [line for line in text.decode().splitlines() if "round" in line or "accuracy" in line]
        ['# HELP gossamer_round Rounds done.', '# TYPE gossamer_round gauge', 'gossamer_round 7', \
'# HELP gossamer_rounds Rounds of the run.', '# TYPE gossamer_rounds gauge', 'gossamer_rounds 0', \
'gossamer_metric{name="accuracy"} 0.5']
    """
    return ("\n".join(_lines(status, facts)) + "\n").encode()


def _lines(status: Mapping[str, Any], facts: Facts) -> Iterator[str]:
    info = {"device": facts.device, "run": facts.run, "version": facts.version}
    yield from _family("info", "gauge", "What the device is.", [(info, 1)])
    states = [({"state": state}, int(status.get("doing") == state)) for state in STATES]
    yield from _family("state", "gauge", "What the device does: one is 1.", states)
    yield from _family("round", "gauge", "Rounds done.", [({}, status.get("round", 0))])
    yield from _family("rounds", "gauge", "Rounds of the run.", [({}, status.get("rounds", 0))])
    near = len(status.get("near", ()))
    yield from _family("neighbours", "gauge", "Devices with a link.", [({}, near)])
    pending = status.get("pending", 0)
    yield from _family("pending", "gauge", "Exchanges in doubt.", [({}, pending)])
    yield from _family("samples", "gauge", "Samples to train on.", [({}, facts.samples)])
    if "loss" in status:
        yield from _family("loss", "gauge", "Newest loss.", [({}, status["loss"])])
    measured = [({"name": name}, value) for name, value in status.get("metrics", {}).items()]
    if measured:
        yield from _family("metric", "gauge", "Newest value of each metric.", measured)
    noted: dict[str, int] = {}
    for notice in status.get("notices", ()):
        noted[notice["kind"]] = noted.get(notice["kind"], 0) + notice["count"]
    if noted:
        text = "What the owner of the fleet should look at."
        kinds = [({"kind": kind}, count) for kind, count in sorted(noted.items())]
        yield from _family("notices", "gauge", text, kinds)
    yield from _count_lines(status.get("counts", {}))
    when = status.get("time", 0.0)
    yield from _family("status_time_seconds", "gauge", "Time of the status.", [({}, when)])
    if facts.certificate_expiry is not None:
        ends: list[tuple[dict[str, str], Any]] = [({}, facts.certificate_expiry)]
        text = "When the certificate expires."
        yield from _family("certificate_expiry_time_seconds", "gauge", text, ends)
    yield from _process_lines()


def _count_lines(counts: Mapping[str, int]) -> Iterator[str]:
    sizes = []
    events = []
    for name, count in sorted(counts.items()):
        if name.startswith("bytes "):
            sizes.append(({"direction": name.removeprefix("bytes ")}, count))
        else:
            events.append(({"event": name}, count))
    if sizes:
        yield from _family("bytes_total", "counter", "Bytes of messages.", sizes)
    if events:
        text = "Messages and exchanges, by what became of them."
        yield from _family("events_total", "counter", text, events)


def _process_lines() -> Iterator[str]:
    """Yield what Prometheus' own clients say of a process, under the same names."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    seconds = usage.ru_utime + usage.ru_stime
    text = "Processor time."
    yield from _family("cpu_seconds_total", "counter", text, [({}, seconds)], "process")
    with suppress(OSError, ValueError, IndexError):  # Linux only
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        size = pages * os.sysconf("SC_PAGE_SIZE")
        text = "Resident memory."
        yield from _family("resident_memory_bytes", "gauge", text, [({}, size)], "process")


def _family(
    name: str,
    kind: str,
    text: str,
    values: list[tuple[dict[str, str], Any]],
    prefix: str = "gossamer",
) -> Iterator[str]:
    full = f"{prefix}_{name}"
    yield f"# HELP {full} {text}"
    yield f"# TYPE {full} {kind}"
    for labels, value in values:
        written = ",".join(f'{key}="{_escaped(label)}"' for key, label in labels.items())
        braces = f"{{{written}}}" if written else ""
        yield f"{full}{braces} {_number(value)}"


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: Any) -> str:
    if value is None:
        return "NaN"
    if isinstance(value, int):
        return str(value)
    number = float(value)
    if number != number:
        return "NaN"
    if number in (float("inf"), float("-inf")):
        return "+Inf" if number > 0 else "-Inf"
    return repr(number)


class MetricsServer:
    """Serves the metrics of a device to this machine until it is closed.

    Args:
        address: A loopback address as host:port, or unix:PATH.
        content: Returns the page.

    Raises:
        InputError: If the address is not a loopback address, or cannot be bound.

    Example:
        MetricsServer("127.0.0.1:9464", lambda: page(status, facts))
    """

    def __init__(self, address: str, content: Callable[[], bytes]) -> None:
        self._path: Path | None = None
        try:
            if address.startswith(_UNIX):
                self._path = Path(address.removeprefix(_UNIX))
                _remove_socket(self._path)
                self._server: _Server = _UnixServer(str(self._path), content)
            else:
                self._server = _bound(address, content)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise InputError("metrics", address, f"{_ACCEPTED}, that is free ({why})") from None
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="gossamer-metrics", daemon=True
        )
        self._thread.start()

    @property
    def address(self) -> Any:
        """The address that is bound."""
        return self._server.socket.getsockname()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        if self._path is not None:
            _remove_socket(self._path)


class _Server(BoundedHTTPServer):
    def __init__(self, address: Any, content: Callable[[], bytes]) -> None:
        self.content = content
        super().__init__(address, _Handler, _MAX_CONNECTIONS)

    def server_bind(self) -> None:
        """Bind without looking up a name, which may ask the network."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_name = "localhost"
        self.server_port = 0


class _Server6(_Server):
    address_family = socket.AF_INET6


class _UnixServer(_Server):
    address_family = getattr(socket, "AF_UNIX", socket.AF_INET)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _REQUEST_SECONDS
    server_version = "gossamer"
    sys_version = ""

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != _PATH:
            self._send(HTTPStatus.NOT_FOUND, f"metrics are at {_PATH}\n".encode())
            return
        self._send(HTTPStatus.OK, self.server.content())

    def _send(self, status: HTTPStatus, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return ""  # a Unix socket has none

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the log belongs to the device."""


def _bound(address: str, content: Callable[[], bytes]) -> _Server:
    found = _ADDRESS.fullmatch(address)
    if not found:
        raise InputError("metrics", address, _ACCEPTED)
    host = "127.0.0.1" if found[1] == "localhost" else found[1].strip("[]")
    try:
        local = ipaddress.ip_address(host)
    except ValueError:
        raise InputError("metrics", address, _ACCEPTED) from None
    if not local.is_loopback:
        raise InputError("metrics", address, _ACCEPTED)
    kind = _Server6 if local.version == 6 else _Server
    return kind((host, int(found[2])), content)


def _remove_socket(path: Path) -> None:
    """Remove a socket that a killed process has left, and nothing else."""
    if path.is_socket():
        with suppress(FileNotFoundError):
            path.unlink()

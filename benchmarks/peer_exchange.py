"""Time of an exchange between real devices, relative to plain zenoh.

    python benchmarks/peer_exchange.py
    python benchmarks/peer_exchange.py --neighbours 1 --parameters 1000000

It needs gossamer[peer], Linux and root, and takes ten minutes. The second command runs a part of it
and only prints.

One device exchanges a float32 vector with each of its neighbours, which have no other neighbour.
Each device is a process in its own network namespace, with mutual TLS. An exchange is complete when
the vectors and acks of all neighbours have arrived. Three ways alternate:

    raw          zenoh with its default settings: one put per neighbour, and a short put as ack
    transport    `Zenoh.send` and `receive`, and a short message as ack
    edges        `Edges.exchange`: headers, checksums, checks of every value, and a journal (not
                 flushed to the disk)

A ratio is the median over blocks; a time is that of the best block. The ratios of processor time,
of all devices together, depend less on other load on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

OUT = Path(__file__).parent / "results" / "peer_exchange.json"
PARAMETERS = {7_850: 100, 1_000_000: 12, 25_000_000: 1}  # with the exchanges per block
NEIGHBOURS = (1, 3, 8)
WAYS = ("raw", "transport", "edges")
TURNS = 7
HEAD = (
    "| parameters | neighbours | raw | transport | edges | transport / raw | edges / raw "
    "| transport, CPU | edges, CPU |",
    "|---|---|---|---|---|---|---|---|---|",
)
RUN = "benchmark"
TIMEOUT = 120.0  # seconds


class Raw:
    """Exchanges over plain zenoh."""

    def __init__(
        self, device: int, neighbours: list[int], certificates: Path, connect: list[str]
    ) -> None:
        import zenoh

        key = str(certificates / "device.key")
        certificate = str(certificates / "device.pem")
        tls = {
            "root_ca_certificate": str(certificates / "ca.pem"),
            "enable_mtls": True,
            "listen_private_key": key,
            "listen_certificate": certificate,
            "connect_private_key": key,
            "connect_certificate": certificate,
            "verify_name_on_connect": False,
        }
        config = {
            "mode": "peer",
            "listen": {"endpoints": ["tls/0.0.0.0:7448"]},
            "connect": {
                "endpoints": [f"tls/{host}:7448" for host in connect],
                "timeout_ms": -1,
                "exit_on_failure": False,
            },
            "scouting": {"multicast": {"enabled": False}, "gossip": {"enabled": False}},
            "transport": {
                "link": {"protocols": ["tls"], "tls": tls},
                "shared_memory": {"enabled": False},
            },
        }
        self.device = device
        self.neighbours = neighbours
        self._session = zenoh.open(zenoh.Config.from_json5(json.dumps(config)))
        self._block = zenoh.CongestionControl.BLOCK
        # Acks have a queue of their own, so that they do not wait behind vectors.
        self._ack_priority = zenoh.Priority.INTERACTIVE_HIGH
        self._changed = threading.Condition()
        self._received: Counter[tuple[str, int]] = Counter()
        self._vectors: dict[int, bytes] = {}
        self._threads = ThreadPoolExecutor(len(neighbours))
        handler = zenoh.handlers.Callback(self._on_sample, indirect=False)
        self._subscriber = self._session.declare_subscriber(f"raw/*/*/{device}", handler)

    def linked(self) -> bool:
        """True if all neighbours are connected."""
        return len(list(self._session.info.links())) == len(self.neighbours)

    def exchanges(self, count: int, vector: bytes) -> list[float]:
        """Run some exchanges, and return the seconds of each."""
        times = []
        for _ in range(count):
            began = time.perf_counter()
            self._exchange(vector)
            times.append(time.perf_counter() - began)
        return times

    def _exchange(self, vector: bytes) -> None:
        for other in self.neighbours[1:]:
            self._threads.submit(self._put, "vector", other, vector)
        self._put("vector", self.neighbours[0], vector)
        with self._changed:
            wanted = [(kind, other) for kind in ("vector", "ack") for other in self.neighbours]
            if not self._changed.wait_for(
                lambda: all(self._received[key] for key in wanted), TIMEOUT
            ):
                raise TimeoutError(f"raw: {self._received}")
            self._received.subtract(wanted)

    def _put(self, kind: str, other: int, content: bytes, **more: Any) -> None:
        key = f"raw/{kind}/{self.device}/{other}"
        self._session.put(key, content, congestion_control=self._block, express=True, **more)

    def _on_sample(self, sample: Any) -> None:
        _, kind, other, _ = str(sample.key_expr).split("/")
        if kind == "vector":
            self._vectors[int(other)] = sample.payload.to_bytes()
            self._put("ack", int(other), b"ok", priority=self._ack_priority)
        with self._changed:
            self._received[kind, int(other)] += 1
            self._changed.notify()


def over_transport(transport: Any, neighbours: list[int], count: int, vector: bytes) -> list[float]:
    """Run some exchanges over a transport, and return the seconds of each."""
    times = []
    received: Counter[tuple[str, int]] = Counter()
    wanted = [(kind, other) for kind in ("vector", "ack") for other in neighbours]
    for _ in range(count):
        began = time.perf_counter()
        for other in neighbours:
            transport.send(other, vector)
        while not all(received[key] for key in wanted):
            message = transport.receive(TIMEOUT)
            if message is None:
                raise TimeoutError(f"transport: {received}, {transport.counts}")
            sender, content = message[:2]
            if len(content) > 2:
                transport.send(sender, b"ok")
                received["vector", sender] += 1
            else:
                received["ack", sender] += 1
        received.subtract(wanted)
        times.append(time.perf_counter() - began)
    return times


class OverEdges:
    """Exchanges over `Edges`, as rounds of one device."""

    def __init__(self, transport: Any, neighbours: list[int], folder: Path) -> None:
        self._transport = transport
        self._neighbours = frozenset(neighbours)
        self._folder = folder
        self._t = 0

    def exchanges(self, count: int, parameters: int) -> list[float]:
        """Run some exchanges, and return the seconds of each."""
        import torch

        from gossamer.fleet.protocol.edges import Edges
        from gossamer.fleet.protocol.journal import Journal
        from gossamer.fleet.protocol.messages import Kind
        from gossamer.fleet.protocol.wire import Expected

        expected = Expected(bytes(16), frozenset(Kind), ((parameters,),), torch.float32, 1e6)
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            edges = Edges(self._transport, Journal(Path(folder), sync=False), expected)
            edges.start(lambda: {"w": torch.zeros(1)}, round=self._t)
            x = torch.rand(parameters)
            times = []
            for _ in range(count):
                until = time.monotonic() + TIMEOUT
                began = time.perf_counter()
                done = edges.exchange(
                    (self._t, 0),
                    x,
                    until,
                    lambda a, b: 1 / (1 + max(a, b)),
                    partners=self._neighbours,
                )
                times.append(time.perf_counter() - began)
                # End the round, so that the next one writes to the same file.
                edges.finish(self._t, {"w": torch.zeros(1)})
                self._t += 1
                if len(done.committed) != len(self._neighbours):
                    raise TimeoutError(f"edges: {edges.counts}, {self._transport.counts}")
            return times


def device(given: dict[str, Any]) -> None:
    """Run one device: read commands, one JSON document per line, and answer each."""
    import torch

    from gossamer.fleet.transport.zenoh import LinkSettings, Zenoh

    torch.set_num_threads(1)
    number = given["device"]
    neighbours = given["neighbours"]
    folder = Path(given["folder"])
    certificates = folder / f"n{number}"
    names = tuple(f"n{i}" for i in range(given["devices"]))
    connect = tuple(f"{host}:7447" for host in given["connect"])
    settings = LinkSettings(
        RUN, names, certificates, connect=connect, multicast=False, lease=10.0, largest=1 << 27
    )
    transport = Zenoh(number, settings)
    raw = Raw(number, neighbours, certificates, given["connect"])
    edges = OverEdges(transport, neighbours, folder)
    until = time.monotonic() + TIMEOUT
    while not raw.linked() or transport.neighbours() != frozenset(neighbours):
        if time.monotonic() > until:
            raise TimeoutError(f"device {number} does not find its neighbours")
        time.sleep(0.02)
    print("ready", flush=True)
    for line in sys.stdin:
        way, count, parameters = json.loads(line)
        vector = os.urandom(4 * parameters)
        began = time.process_time()
        if way == "raw":
            times = raw.exchanges(count, vector)
        elif way == "transport":
            times = over_transport(transport, neighbours, count, vector)
        else:
            times = edges.exchanges(count, parameters)
        processor = (time.process_time() - began) / count
        print(json.dumps([statistics.mean(times), processor]), flush=True)
    transport.close()
    os._exit(0)  # zenoh takes long to shut down


def measured(
    neighbours: int, sizes: tuple[int, ...]
) -> dict[int, dict[str, list[tuple[float, float]]]]:
    """Measure all ways to exchange.

    Args:
        neighbours: Number of neighbours.
        sizes: Numbers of parameters.

    Returns:
        By size and way, for each block: the mean seconds per exchange, and the processor time of
        all devices per exchange.
    """
    from gossamer.fleet import keys
    from gossamer.fleet.namespaces import VirtualNetwork, address

    result: dict[int, dict[str, list[tuple[float, float]]]] = {
        size: {way: [] for way in WAYS} for size in sizes
    }
    with (
        tempfile.TemporaryDirectory() as root,
        VirtualNetwork(1 + neighbours, f"exchange-{os.getpid()}-") as network,
    ):
        folder = Path(root)
        keys.make_authority(folder / "authority", "benchmark", days=2)
        processes = []
        for number in range(1 + neighbours):
            keys.make_certificate(folder / f"n{number}", folder / "authority", f"n{number}", days=1)
            if number:
                network.link(0, number, up=True)
        for number in range(1 + neighbours):
            given = {
                "device": number,
                "devices": 1 + neighbours,
                "neighbours": [0] if number else list(range(1, 1 + neighbours)),
                "folder": root,
                "connect": [address(0)] if number else [],
            }
            command = [sys.executable, __file__, "--device", json.dumps(given)]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            processes.append(network.run(number, command, env=environment, **pipes))

        def read() -> list[str]:
            lines = [process.stdout.readline().strip() for process in processes]
            if not all(lines):
                raise SystemExit("a device has ended; see above")
            return lines

        def block(way: str, size: int, count: int) -> tuple[float, float]:
            for process in processes:
                process.stdin.write(json.dumps([way, count, size]) + "\n")
                process.stdin.flush()
            times = [json.loads(line) for line in read()]
            return times[0][0], sum(processor for _, processor in times)

        read()
        for size in sizes:
            for way in WAYS:
                block(way, size, 1)
            for number in range(TURNS):
                for way in WAYS[number % 3 :] + WAYS[: number % 3]:
                    result[size][way].append(block(way, size, PARAMETERS[size]))
    return result


def line(row: dict[str, Any]) -> str:
    """Return a row of the table as Markdown."""
    parameters, neighbours, *rest = row.values()
    cells = [f"{parameters:,}", str(neighbours)]
    for seconds in rest[:3]:
        cells.append(f"{1e3 * seconds:,.3g} ms" if seconds < 1 else f"{seconds:.3g} s")
    cells += [f"{ratio:.2f}×" for ratio in rest[3:]]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Measure, print the table, and write it if everything was measured."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--neighbours", type=int, nargs="+", default=NEIGHBOURS)
    options.add_argument(
        "--parameters", type=int, nargs="+", choices=PARAMETERS, default=tuple(PARAMETERS)
    )
    options.add_argument("--device", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.device:
        device(json.loads(chosen.device))
        return
    rows: list[dict[str, Any]] = []
    print("\n".join(HEAD))
    for neighbours in chosen.neighbours:
        for size, blocks in measured(neighbours, chosen.parameters).items():
            row = {"parameters": size, "neighbours": neighbours}
            row |= {f"{way}, seconds": min(seconds for seconds, _ in blocks[way]) for way in WAYS}
            for column, name in enumerate(("", ", processor time")):
                for way in WAYS[1:]:
                    pairs = zip(blocks[way], blocks["raw"], strict=True)
                    ratios = [times[column] / raw[column] for times, raw in pairs]
                    row[f"{way} / raw{name}"] = statistics.median(ratios)
            rows.append(row)
            print(line(row), flush=True)
    if (chosen.neighbours, chosen.parameters) == (NEIGHBOURS, tuple(PARAMETERS)):
        OUT.parent.mkdir(exist_ok=True)
        OUT.write_text(
            json.dumps({"exchanges": rows, "turns": TURNS, "machine": platform.machine()}, indent=2)
            + "\n"
        )
        OUT.with_suffix(".md").write_text("\n".join([*HEAD, *map(line, rows)]) + "\n")


if __name__ == "__main__":
    main()

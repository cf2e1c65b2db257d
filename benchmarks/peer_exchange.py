"""What an exchange between real devices takes, against the raw speed of what carries it.

    python benchmarks/peer_exchange.py                                        needs gossamer[peer], Linux and root; ten minutes
    python benchmarks/peer_exchange.py --neighbours 1 --parameters 1000000    a part of it; only printed

One device exchanges a vector of float32 with each of its neighbours, which have no other. Each device is a process in a network
namespace of its own; certificates on both ends (mutual TLS). An exchange is over when a neighbour's vector is here, and its
word that it has ours, of all neighbours. Three ways take turns:

    raw          zenoh with its own settings: one put a neighbour, of the same bytes, and a short put as the answer
    transport    `Zenoh.send` and `receive`, and a short message as the answer
    edges        `Edges.exchange`: with headers, checksums, checks of every value, and a journal (not flushed to the disk)

A ratio is that of one turn, and of all turns the median; the times are those of the best turn. The ratios of processor time, of
all devices together, are less at the mercy of what else the machine does.
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
PARAMETERS = {7_850: 100, 1_000_000: 12, 25_000_000: 1}  # and how many exchanges are one turn
NEIGHBOURS = (1, 3, 8)
WAYS = ("raw", "transport", "edges")
TURNS = 7
HEAD = (
    "| parameters | neighbours | raw | transport | edges | transport / raw | edges / raw | transport, CPU | edges, CPU |",
    "|---|---|---|---|---|---|---|---|---|",
)
RUN = "benchmark"
SECONDS = 120.0  # until something that must come is said never to come


class Raw:
    """Nothing but zenoh."""

    def __init__(
        self, device: int, near: list[int], certificates: Path, connect: list[str]
    ) -> None:
        import zenoh

        key, certificate = str(certificates / "device.key"), str(certificates / "device.pem")
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
        self.device, self.near = device, near
        self._session = zenoh.open(zenoh.Config.from_json5(json.dumps(config)))
        self._block = zenoh.CongestionControl.BLOCK
        self._answers = (
            zenoh.Priority.INTERACTIVE_HIGH
        )  # in a queue of their own: not behind what is being sent
        self._changed = threading.Condition()
        self._came: Counter[tuple[str, int]] = Counter()
        self._vectors: dict[int, bytes] = {}
        self._threads = ThreadPoolExecutor(len(near))
        own = zenoh.handlers.Callback(self._heard, indirect=False)
        self._subscriber = self._session.declare_subscriber(f"raw/*/*/{device}", own)

    def linked(self) -> bool:
        return len(list(self._session.info.links())) == len(self.near)

    def exchanges(self, count: int, vector: bytes) -> list[float]:
        times = []
        for _ in range(count):
            began = time.perf_counter()
            self._exchange(vector)
            times.append(time.perf_counter() - began)
        return times

    def _exchange(self, vector: bytes) -> None:
        for other in self.near[1:]:
            self._threads.submit(self._put, "vector", other, vector)
        self._put("vector", self.near[0], vector)
        with self._changed:
            wanted = [(what, other) for what in ("vector", "answer") for other in self.near]
            if not self._changed.wait_for(lambda: all(self._came[one] for one in wanted), SECONDS):
                raise TimeoutError(f"raw: {self._came}")
            self._came.subtract(wanted)

    def _put(self, what: str, other: int, content: bytes, **more: Any) -> None:
        key = f"raw/{what}/{self.device}/{other}"
        self._session.put(key, content, congestion_control=self._block, express=True, **more)

    def _heard(self, sample: Any) -> None:
        _, what, other, _ = str(sample.key_expr).split("/")
        if what == "vector":
            self._vectors[int(other)] = sample.payload.to_bytes()
            self._put("answer", int(other), b"ok", priority=self._answers)
        with self._changed:
            self._came[what, int(other)] += 1
            self._changed.notify()


def over_transport(transport: Any, near: list[int], count: int, vector: bytes) -> list[float]:
    """So many exchanges over a Transport; the time of each."""
    times, came = [], Counter[tuple[str, int]]()
    wanted = [(what, other) for what in ("vector", "answer") for other in near]
    for _ in range(count):
        began = time.perf_counter()
        for other in near:
            transport.send(other, vector)
        while not all(came[one] for one in wanted):
            arrived = transport.receive(SECONDS)
            if arrived is None:
                raise TimeoutError(f"transport: {came}, {transport.counts}")
            if len(arrived[1]) > 2:
                transport.send(arrived[0], b"ok")
            came["vector" if len(arrived[1]) > 2 else "answer", arrived[0]] += 1
        came.subtract(wanted)
        times.append(time.perf_counter() - began)
    return times


class OverEdges:
    """So many exchanges over Edges, as rounds of one device."""

    def __init__(self, transport: Any, near: list[int], folder: Path) -> None:
        self._transport, self._near, self._folder, self._t = transport, frozenset(near), folder, 0

    def exchanges(self, count: int, parameters: int) -> list[float]:
        import torch

        from gossamer.fleet.protocol.edges import Edges
        from gossamer.fleet.protocol.journal import Journal
        from gossamer.fleet.protocol.messages import Kind
        from gossamer.fleet.protocol.wire import Expected

        expected = Expected(bytes(16), frozenset(Kind), ((parameters,),), torch.float32, 1e6)
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            edges = Edges(self._transport, Journal(Path(folder), sync=False), expected)
            edges.start(lambda: {"w": torch.zeros(1)}, round=self._t)
            x, times = torch.rand(parameters), []
            for _ in range(count):
                until = time.monotonic() + SECONDS
                began = time.perf_counter()
                done = edges.exchange(
                    (self._t, 0), x, until, lambda a, b: 1 / (1 + max(a, b)), partners=self._near
                )
                times.append(time.perf_counter() - began)
                edges.finish(
                    self._t, {"w": torch.zeros(1)}
                )  # the round is over, so that the next writes where this one did
                self._t += 1
                if len(done.committed) != len(self._near):
                    raise TimeoutError(f"edges: {edges.counts}, {self._transport.counts}")
            return times


def device(given: dict[str, Any]) -> None:
    """One device: reads commands, one JSON a line, and answers each."""
    import torch

    from gossamer.fleet.transport.zenoh import LinkSettings, Zenoh

    torch.set_num_threads(1)
    number, near, folder = given["device"], given["near"], Path(given["folder"])
    certificates, names = folder / f"n{number}", tuple(f"n{i}" for i in range(given["devices"]))
    connect = tuple(f"{host}:7447" for host in given["connect"])
    settings = LinkSettings(
        RUN, names, certificates, connect=connect, multicast=False, lease=10.0, largest=1 << 27
    )
    transport = Zenoh(number, settings)
    raw = Raw(number, near, certificates, given["connect"])
    edges = OverEdges(transport, near, folder)
    until = time.monotonic() + SECONDS
    while not raw.linked() or transport.neighbours() != frozenset(near):
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
            times = over_transport(transport, near, count, vector)
        else:
            times = edges.exchanges(count, parameters)
        print(
            json.dumps([statistics.mean(times), (time.process_time() - began) / count]), flush=True
        )
    transport.close()
    os._exit(0)  # without zenoh's long good-bye


def measured(
    neighbours: int, sizes: tuple[int, ...]
) -> dict[int, dict[str, list[tuple[float, float]]]]:
    """By size and way, of each turn: the mean time of an exchange for the device, and of all devices' processors."""
    from gossamer.fleet import keys
    from gossamer.fleet.namespaces import VirtualNetwork, address

    result: dict[int, dict[str, list[tuple[float, float]]]] = {
        size: {way: [] for way in WAYS} for size in sizes
    }
    with (
        tempfile.TemporaryDirectory() as made,
        VirtualNetwork(1 + neighbours, f"exchange-{os.getpid()}-") as ground,
    ):
        folder = Path(made)
        keys.make_authority(folder / "authority", "benchmark", days=2)
        processes = []
        for number in range(1 + neighbours):
            keys.make_certificate(folder / f"n{number}", folder / "authority", f"n{number}", days=1)
            if number:
                ground.link(0, number, up=True)
        for number in range(1 + neighbours):
            near = list(range(1, 1 + neighbours)) if number == 0 else [0]
            given = {"device": number, "devices": 1 + neighbours, "near": near, "folder": made}
            given["connect"] = [address(0)] if number else []
            words = [sys.executable, __file__, "--device", json.dumps(given)]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            processes.append(
                ground.run(number, words, env={**os.environ, "OMP_NUM_THREADS": "1"}, **pipes)
            )

        def read() -> list[str]:
            lines = [process.stdout.readline().strip() for process in processes]
            if not all(lines):
                raise SystemExit("a device has ended; see above")
            return lines

        def turn(way: str, size: int, count: int) -> tuple[float, float]:
            for process in processes:
                process.stdin.write(json.dumps([way, count, size]) + "\n")
                process.stdin.flush()
            times = [json.loads(line) for line in read()]
            return times[0][0], sum(busy for _, busy in times)

        read()
        for size in sizes:
            for way in WAYS:
                turn(way, size, 1)
            for number in range(TURNS):
                for way in WAYS[number % 3 :] + WAYS[: number % 3]:
                    result[size][way].append(turn(way, size, PARAMETERS[size]))
    return result


def line(row: dict[str, Any]) -> str:
    """A row of the table."""
    parameters, neighbours, *rest = row.values()
    times = [
        f"{1e3 * seconds:,.3g} ms" if seconds < 1 else f"{seconds:.3g} s" for seconds in rest[:3]
    ]
    return f"| {' | '.join([f'{parameters:,}', str(neighbours), *times, *(f'{ratio:.2f}×' for ratio in rest[3:])])} |"


def main() -> None:
    options = argparse.ArgumentParser()
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
        for size, turns in measured(neighbours, chosen.parameters).items():
            row = {"parameters": size, "neighbours": neighbours}
            row |= {f"{way}, seconds": min(seconds for seconds, _ in turns[way]) for way in WAYS}
            for place, what in enumerate(("", ", processor time")):
                for way in WAYS[1:]:
                    ratios = [
                        mine[place] / raw[place]
                        for mine, raw in zip(turns[way], turns["raw"], strict=True)
                    ]
                    row[f"{way} / raw{what}"] = statistics.median(ratios)
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

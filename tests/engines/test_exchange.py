"""Rows between shards: by shared memory and by gloo, in threads of this process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

pytest.importorskip("ray", reason="the extra gossamer[ray] is not installed")

import gossamer as gs
from gossamer.engines import Simulator
from gossamer.engines.ray import shared_memory
from gossamer.engines.ray.adapter import GlooGroup, dist
from gossamer.engines.ray.exchange import Disconnected, GlooExchange
from gossamer.engines.ray.shared_memory import SharedBuffer, machine_id
from gossamer.engines.shard import Shard

NAME = "gossamer-test-exchange"
SHARDS = 2


@pytest.fixture(autouse=True)
def _no_buffers_left() -> Any:
    yield
    shared_memory.remove_buffers(NAME)


def in_two_shards(
    folder: Path, machines: list[str], run: Callable[[int, GlooExchange], Any]
) -> list[Any]:
    """Run a function in two connected shards, each in a thread."""
    connected = threading.Barrier(SHARDS, timeout=60.0)

    def shard(number: int) -> Any:
        store = dist.FileStore(str(folder / "store"), SHARDS)
        group = GlooGroup(store, number, SHARDS, "127.0.0.1", timeout=60.0)
        # A shard that ended before the other one is connected would fail its connection.
        connected.wait()
        return run(number, GlooExchange(group, machines, NAME))

    with ThreadPoolExecutor(SHARDS) as pool:
        return list(pool.map(shard, range(SHARDS)))


def rows_of(number: int, round: int, count: int) -> Tensor:
    return torch.arange(count * 3.0).view(count, 3) + 100 * number + 1000 * round


@pytest.mark.parametrize(
    "machines",
    [
        pytest.param(
            ["here", "here"],
            marks=pytest.mark.skipif(not machine_id(), reason="no shared memory"),
            id="shared memory",
        ),
        pytest.param(["here", "there"], id="gloo"),
    ],
)
def test_rows_arrive_in_every_round(machines: list[str], tmp_path: Path) -> None:
    """Messages grow from round to round, so that buffers are replaced by larger ones."""
    chosen = [np.array([0]), np.array([1, 3]), np.arange(500), np.array([2])]

    def run(number: int, exchange: GlooExchange) -> list[Tensor]:
        other = 1 - number
        received = []
        for round, rows in enumerate(chosen):
            x = rows_of(number, round, 500)
            wait = exchange.exchange_rows(x, {other: rows}, {other: len(rows)})
            received.append(wait()[other].clone())
        return received

    results = in_two_shards(tmp_path, machines, run)
    for number, received in enumerate(results):
        for round, rows in enumerate(chosen):
            assert torch.equal(received[round], rows_of(1 - number, round, 500)[rows])


@pytest.mark.parametrize("machines", [["here", "here"], ["here", "there"]], ids=["shared", "gloo"])
def test_values_that_go_one_way_only(machines: list[str], tmp_path: Path) -> None:
    """A shard that receives nothing still counts the message: buffers alternate between slots."""
    owner = np.array([0, 1])
    sent = [  # values and receivers, by round and sender
        [([1, 2, 3], [1, 0, 1]), ([], [])],
        [([4, 5], [1, 1]), ([6], [0])],
        [([], []), ([7, 8], [0, 0])],
        [([9], [0]), ([], [])],
        [([10, 11], [1, 0]), ([12], [0])],
    ]

    def run(number: int, exchange: GlooExchange) -> list[list[int]]:
        shard = Shard(owner, number, exchange)
        received = []
        for values, to in (by_sender[number] for by_sender in sent):
            found = shard.send(np.array(values, dtype=np.int64), np.array(to, dtype=np.int64))
            received.append(found.tolist())
        return received

    first, second = in_two_shards(tmp_path, machines, run)
    assert first == [[2], [6], [7, 8], [9], [11, 12]]
    assert second == [[1, 3], [4, 5], [], [], [10]]


@pytest.mark.parametrize("machines", [["here", "here"], ["here", "there"]], ids=["shared", "gloo"])
def test_a_run_on_own_links(machines: list[str], tmp_path: Path) -> None:
    study = gs.Study(gs.DPSGD(0.1), gs.Random(300, 0.02), rounds=3, batch=2, dtype="float64")
    plan = study.plan()
    owner = np.arange(300) // 150

    def run(number: int, exchange: GlooExchange) -> Tensor:
        simulator = Simulator(plan, None, Shard(owner, number, exchange))
        simulator.advance(3)
        return simulator.models()

    whole = Simulator(plan)
    whole.advance(3)
    models = torch.cat(in_two_shards(tmp_path, machines, run))
    torch.testing.assert_close(models, whole.models(), rtol=1e-12, atol=1e-12)


def test_all_reduce_gives_all_shards_the_same_bits(tmp_path: Path) -> None:
    x = torch.rand(2, 1001, 2, dtype=torch.float64)

    def run(number: int, exchange: GlooExchange) -> list[Tensor]:
        own = x[number].t()  # not contiguous, and not to be changed
        before = own.clone()
        reduced = [exchange.all_reduce(own, operation) for operation in ("sum", "max", "min")]
        assert torch.equal(own, before)
        flags = exchange.all_reduce(torch.tensor([number], dtype=torch.uint8), "min")
        return [*reduced, flags]

    expected = [x.sum(0).t(), x.amax(0).t(), x.amin(0).t(), torch.zeros(1, dtype=torch.uint8)]
    for found in in_two_shards(tmp_path, ["", ""], run):
        assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_a_shard_that_is_gone_is_reported(tmp_path: Path) -> None:
    def run(number: int, exchange: GlooExchange) -> str:
        exchange.all_reduce(torch.zeros(1), "sum")  # shards connect when they first exchange
        if number == 1:
            return "ended"
        try:
            exchange.all_reduce(torch.zeros(1), "sum")
        except Disconnected:
            return "disconnected"
        return "reduced"

    assert in_two_shards(tmp_path, ["", ""], run) == ["disconnected", "ended"]


@pytest.mark.skipif(not machine_id(), reason="no shared memory")
def test_a_full_memory_falls_back_to_gloo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("os.posix_fallocate", refuse)
    machine = machine_id()

    def run(number: int, exchange: GlooExchange) -> Tensor:
        other = 1 - number
        wait = exchange.exchange_rows(rows_of(number, 0, 4), {other: np.array([3])}, {other: 1})
        return wait()[other]

    results = in_two_shards(tmp_path, [machine, machine], run)
    assert torch.equal(results[0], rows_of(1, 0, 4)[[3]])
    assert not list(Path("/dev/shm").glob(f"{NAME}-*"))


@pytest.mark.skipif(not machine_id(), reason="no shared memory")
def test_both_ends_of_a_buffer_see_the_same_slots() -> None:
    path = shared_memory.buffer_path(NAME, 0, 1, 7)
    sender = SharedBuffer.create(path, 100, 7)
    receiver = SharedBuffer.open(path, 7)
    assert not path.exists()
    like = torch.empty(1, 5, dtype=torch.float64)
    for message in range(4):
        sender.rows(message, 2, like).fill_(message)
        assert (receiver.rows(message, 2, like) == message).all()
        if message:
            assert (receiver.rows(message - 1, 2, like) == message - 1).all()


@pytest.mark.parametrize("machines", [["here", "here"], ["here", "there"]], ids=["shared", "gloo"])
def test_rows_of_models_with_half_the_bytes(machines: list[str], tmp_path: Path) -> None:
    """Rows are rounded to bfloat16; degrees and other numbers are exact."""
    count = 40

    def run(number: int, exchange: GlooExchange) -> list[Tensor]:
        half = GlooExchange(exchange._group, machines, NAME, dtype=torch.bfloat16)
        other = 1 - number
        received = []
        rows = np.arange(count)
        for x in (torch.arange(count) + 1001, rows_of(number, 1, count) / 7):
            received.append(half.exchange_rows(x, {other: rows}, {other: count})()[other].clone())
        return received

    for number, (degrees, found) in enumerate(in_two_shards(tmp_path, machines, run)):
        assert torch.equal(degrees, torch.arange(count) + 1001)
        sent = rows_of(1 - number, 1, count) / 7
        assert found.dtype == torch.float32
        assert torch.equal(found, sent.to(torch.bfloat16).float())


def own_connections() -> int:
    """Return how many ends of established TCP connections this process has."""
    own = set()
    for name in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{name}"
        if os.path.islink(path):
            own.add(os.readlink(path))
    count = 0
    for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        count += words[3] == "01" and f"socket:[{words[9]}]" in own
    return count


@pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="counts sockets of Linux")
def test_shards_connect_to_those_that_they_exchange_with(tmp_path: Path) -> None:
    """Six shards in a ring have six connections, not the fifteen of all pairs."""
    shards = 6
    step = threading.Barrier(shards, timeout=60.0)
    before = own_connections()
    counts = []

    def shard(number: int) -> float:
        store = dist.FileStore(str(tmp_path / "store"), shards)
        group = GlooGroup(store, number, shards, "127.0.0.1", timeout=60.0)
        machines = [str(k) for k in range(shards)]
        exchange = GlooExchange(group, machines, NAME)
        step.wait()
        if number == 0:
            counts.append(own_connections() - before)
        step.wait()
        neighbours = [(number + 1) % shards, (number - 1) % shards]
        x = rows_of(number, 0, 4)
        send = {k: np.array([1, 2]) for k in neighbours}
        received = exchange.exchange_rows(x, send, dict.fromkeys(neighbours, 2))()
        for k in neighbours:
            assert torch.equal(received[k], rows_of(k, 0, 4)[1:3])
        total = exchange.all_reduce(torch.tensor([float(number)]), "sum")
        step.wait()
        if number == 0:
            counts.append(own_connections() - before)
        step.wait()
        return float(total)

    with ThreadPoolExecutor(shards) as pool:
        assert list(pool.map(shard, range(shards))) == [15.0] * shards
    assert counts == [0, 2 * shards]  # both ends are of this process

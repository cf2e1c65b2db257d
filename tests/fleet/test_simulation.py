"""The deterministic simulation of real nodes: no rule is broken, planted bugs are found, and the
same seed gives the same bytes.
"""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from support.command import REAL, gossamer, real
from support.planted_bugs import BUGS

from gossamer._core.files import write_atomically
from gossamer.errors import DataError, Lost
from gossamer.fleet.simulation.clock import SimulatedClock, SimulatedStop
from gossamer.fleet.simulation.disk import SimulatedDisk
from gossamer.fleet.simulation.fleet import simulate
from gossamer.fleet.simulation.network import NetworkFaults, SimulatedNetwork
from gossamer.fleet.simulation.scenario import METHODS, draw_scenario
from gossamer.fleet.simulation.scheduler import Killed, Scheduler, Violation
from gossamer.fleet.simulation.seeds import Total, simulate_seeds

SEEDS = 200
WITHIN = 2000  # seeds, in which each planted bug must be found


# -- the real nodes --------------------------------------------------------------------------------


def test_no_rule_is_broken() -> None:
    """Every kind of fault occurs in these seeds, and devices apply exchanges all the same."""
    total = Total()
    for result in simulate_seeds(0, SEEDS, 1, threading.Event()):
        assert not result.violation, f"gossamer fleet simtest --seed {result.seed}"
        total.add(result)
    for fault in (
        "kills",
        "power failures",
        "stops",
        "pauses",
        "clock jumps",
        "went back",
        "refused by guards",
        "disk errors",
        "full disks",
        "stalls",
        "cuts",
        "partitions",
        "silences",
        "lost",
        "delayed",
        "duplicated",
        "corrupted",
        "in doubt",
        "applied late",
        "dropped",
        "restarts tried",
    ):
        assert total.counts[fault] > 0, fault
    assert total.counts["applied"] > 20 * SEEDS


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[name](monkeypatch)
    assert any(simulate(seed).violation for seed in range(WITHIN))


def test_scenarios_cover_both_paces_and_all_methods() -> None:
    drawn = Counter((draw_scenario(s).fleet.pace, draw_scenario(s).method) for s in range(SEEDS))
    assert len(drawn) == 2 * len(METHODS)
    assert min(drawn.values()) >= SEEDS // 20


# Bugs that the simulation has found and that are fixed, with a seed that found each. A change of
# what seeds stand for needs new seeds: `test_a_planted_bug_is_found` finds them.
FOUND = {
    "a new write-ahead log is not synced in its folder": 0,
    "an error of the disk ends the node with a traceback": 5,
}


@pytest.mark.parametrize("name", FOUND)
def test_a_bug_stays_fixed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = FOUND[name]
    assert not simulate(seed).violation
    BUGS[name](monkeypatch)
    assert simulate(seed).violation


def test_the_same_seed_gives_the_same_bytes() -> None:
    """Again, after other seeds, and in a process that hashes otherwise."""
    digests = [simulate(seed).digest for seed in range(6)]
    assert len(set(digests)) == 6
    assert [simulate(seed).digest for seed in reversed(range(6))] == digests[::-1]
    script = (
        "from gossamer.fleet.simulation.fleet import simulate\n"
        "print(*[simulate(seed).digest for seed in range(6)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONHASHSEED": "77"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == digests


def test_no_thread_is_left() -> None:
    before = threading.active_count()
    for seed in range(5):
        simulate(seed)
    assert threading.active_count() == before


# -- the command -----------------------------------------------------------------------------------


def test_the_command_simulates_seeds() -> None:
    result = gossamer("fleet", "simtest", "--seeds", 3)
    assert result.code == 0
    assert result.out.startswith("3 seeds in ")
    assert " 0 failures\nfaults: " in result.out


def test_a_failure_is_one_line_with_the_command_that_replays_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    BUGS["a confirmed exchange is applied twice"](monkeypatch)
    result = gossamer("fleet", "simtest", "--seeds", 4)
    assert result.code == 1
    lines = [line for line in result.out.splitlines() if line.startswith("seed ")]
    assert lines
    words = lines[0].rsplit("replay: gossamer ", 1)[1].split()
    replayed = gossamer(*words)
    assert replayed.code == 1
    rule = lines[0].split(": ", 1)[1].split(" (")[0]
    assert rule in replayed.out
    assert replayed.out == gossamer(*words).out


def test_two_processes_simulate_the_same_as_one() -> None:
    one = {result.seed: result for result in simulate_seeds(5, 21, 1, threading.Event())}
    two = {result.seed: result for result in simulate_seeds(5, 21, 2, threading.Event())}
    assert one == two


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_signal_to_all_processes_prints_what_was_done(jobs: int, number: int) -> None:
    """A terminal and `timeout` send it to the whole group."""
    process = subprocess.Popen(
        [*REAL, "fleet", "simtest", "--seeds", "1000000", "--jobs", str(jobs)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    process.stderr.readline()  # of progress
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "seeds in" in out
    assert "stopped after" in err
    assert "Traceback" not in err


def test_a_process_that_is_ended_by_others_is_named() -> None:
    results = simulate_seeds(0, 1000, 2, threading.Event())
    next(results)
    children = multiprocessing.active_children()
    assert len(children) == 2
    children[0].kill()
    with pytest.raises(Lost, match=r"the process that simulated seeds .* give fewer --jobs"):
        for _ in results:
            pass
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(
    "words", [("--seeds", "0"), ("--first", "-1"), ("--jobs", "0"), ("--seed", "-1")]
)
def test_numbers_out_of_range_are_refused(words: tuple[str, str]) -> None:
    result = real("fleet", "simtest", *words)
    assert result.code == 2
    assert words[0] in result.err
    assert "Traceback" not in result.err


# -- the scheduler ---------------------------------------------------------------------------------


def test_exactly_one_process_runs_at_a_time() -> None:
    scheduler = Scheduler(1)
    seen: list[tuple[float, str]] = []
    running = 0

    def run(name: str, seconds: float) -> None:
        nonlocal running
        for _ in range(50):
            running += 1
            assert running == 1
            seen.append((scheduler.now, name))
            running -= 1
            scheduler.sleep(seconds)

    for name, seconds in (("a", 1.0), ("b", 1.5), ("c", 0.7)):
        scheduler.spawn(name, lambda name=name, seconds=seconds: run(name, seconds))
    scheduler.run(1000.0)
    assert seen == sorted(seen, key=lambda entry: entry[0])
    assert len(seen) == 150


def test_a_killed_process_ends_at_its_wait() -> None:
    scheduler = Scheduler(1)
    ended: list[float] = []

    def run() -> None:
        try:
            scheduler.sleep(100.0)
        except Killed:
            ended.append(scheduler.now)
            raise

    process = scheduler.spawn("it", run)
    scheduler.at(3.0, lambda: scheduler.kill(process))
    scheduler.run(1000.0)
    assert ended == [3.0]


def test_a_loop_without_a_wait_is_found() -> None:
    scheduler = Scheduler(1)

    def run() -> None:
        while True:
            scheduler.current()

    scheduler.spawn("it", run)
    with pytest.raises(Violation, match="loop without a wait"):
        scheduler.run(1.0)


def test_an_exception_in_a_process_ends_the_run() -> None:
    scheduler = Scheduler(1)
    scheduler.spawn("waits", lambda: scheduler.sleep(1e9))

    def run() -> None:
        raise KeyError("it")

    scheduler.spawn("fails", run)
    with pytest.raises(KeyError):
        scheduler.run(10.0)


def test_a_wait_ends_when_the_process_is_told_to_stop() -> None:
    scheduler = Scheduler(1)
    clock = SimulatedClock(scheduler, rate=2.0)
    stop = SimulatedStop(scheduler, clock)
    waited: list[tuple[bool, float]] = []

    def run() -> None:
        waited.append((stop.wait(10.0), scheduler.now))
        waited.append((stop.wait(10.0), scheduler.now))

    process = scheduler.spawn("it", run)
    scheduler.at(7.0, stop.set)
    scheduler.at(7.0, lambda: scheduler.wake(process))
    scheduler.run(100.0)
    assert waited == [(False, 5.0), (True, 7.0)]  # its clock runs twice as fast


# -- the disk --------------------------------------------------------------------------------------


class NoFaults:
    """A disk without faults, whose syncs take no time."""

    space = 1 << 30

    def before(self, operation: str, path: Path) -> None:
        pass

    def written(self, size: int) -> int:
        written = min(size, self.space)
        self.space -= written
        return written

    def sync_seconds(self) -> float:
        return 0.0


def on_disk(function, faults=None):  # type: ignore[no-untyped-def]
    """Run a function with a simulated disk in a process, and return the disk."""
    scheduler = Scheduler(1)
    disk = SimulatedDisk(scheduler, faults or NoFaults())
    scheduler.spawn("it", lambda: function(disk))
    scheduler.run(100.0)
    return disk


def left_by_power_failures(disk: SimulatedDisk, path: Path) -> set[bytes | None]:
    return {disk.after_power_failure(random.Random(seed)).get(path) for seed in range(200)}


FILE = Path("/n0/file")


def test_what_was_synced_survives_a_power_failure() -> None:
    disk = on_disk(lambda disk: write_atomically(FILE, b"new", sync_folder=True, disk=disk))
    assert left_by_power_failures(disk, FILE) == {b"new"}
    assert disk.after_power_failure(None) == {FILE: b"new"}


def test_a_write_that_was_not_synced_may_be_torn_or_lost() -> None:
    def write(disk: SimulatedDisk) -> None:
        write_atomically(FILE, b"old", sync_folder=True, disk=disk)
        with disk.update(FILE, 0o600) as file:
            file.write(b"NEW")

    left = left_by_power_failures(on_disk(write), FILE)
    assert left == {b"old", b"Nld", b"NEd", b"NEW"}


def test_a_name_that_was_not_synced_may_be_lost_with_its_file() -> None:
    disk = on_disk(lambda disk: write_atomically(FILE, b"new", disk=disk))
    assert left_by_power_failures(disk, FILE) == {None, b"new"}
    assert disk.after_power_failure(None) == {}


def test_a_rename_before_the_sync_may_leave_a_torn_file() -> None:
    disk = on_disk(
        lambda disk: write_atomically(FILE, b"new", sync=False, sync_folder=True, disk=disk)
    )
    assert left_by_power_failures(disk, FILE) == {b"", b"n", b"ne", b"new"}


def test_a_full_disk_takes_a_part_of_a_write() -> None:
    faults = NoFaults()
    faults.space = 2

    def write(disk: SimulatedDisk) -> None:
        with pytest.raises(OSError, match="No space left") as raised, disk.create(FILE, 0) as file:
            file.write(b"new")
        assert raised.value.errno == errno.ENOSPC
        with pytest.raises(DataError, match="No space left"):
            write_atomically(FILE, b"other", disk=disk)

    disk = on_disk(write, faults)
    assert disk.peek_all() == {FILE: b"ne"}


def test_a_failed_sync_does_not_count_later() -> None:
    """As on Linux: after the error the pages count as clean, though they are not on disk."""

    class FailsOnce(NoFaults):
        failed = False

        def before(self, operation: str, path: Path) -> None:
            if operation == "sync" and not self.failed:
                self.failed = True
                raise OSError(errno.EIO, "Input/output error")

    def write(disk: SimulatedDisk) -> None:
        with disk.create(FILE, 0) as file:
            file.write(b"new")
            with pytest.raises(OSError, match="Input/output"):
                disk.sync(file)
            disk.sync(file)
        disk.sync_folder(FILE.parent)

    disk = on_disk(write, FailsOnce())
    assert disk.peek(FILE) == b"new"
    assert disk.after_power_failure(None) == {FILE: b""}


def test_a_process_that_was_killed_writes_no_more() -> None:
    def write(disk: SimulatedDisk) -> None:
        with disk.create(FILE, 0) as file:
            file.write(b"new")
            disk.fail_power(random.Random(1))
            with pytest.raises(OSError, match="Bad file"):
                file.write(b"more")

    on_disk(write)


# -- the network -----------------------------------------------------------------------------------


def test_a_message_does_not_reach_a_process_that_was_restarted() -> None:
    scheduler = Scheduler(1)
    network = SimulatedNetwork(scheduler, 2, NetworkFaults(latency=5.0, lease=0.1))
    clock = SimulatedClock(scheduler)
    received: list[object] = []

    def sender() -> None:
        transport = network.open(0, scheduler.current(), clock)
        scheduler.sleep(1.0)
        assert transport.neighbours() == {1}
        transport.send(1, b"first")
        scheduler.sleep(3.0)
        transport.send(1, b"second")
        scheduler.sleep(10.0)

    def receiver() -> None:
        network.open(1, scheduler.current(), clock)
        scheduler.sleep(2.0)
        network.close(1)
        again = network.open(1, scheduler.current(), clock)
        received.append(again.receive(20.0))

    scheduler.spawn("sender", sender)
    scheduler.spawn("receiver", receiver)
    scheduler.run(100.0)
    assert received == [(0, b"second")]


def test_each_end_notices_on_its_own_that_a_link_is_cut() -> None:
    scheduler = Scheduler(3)
    network = SimulatedNetwork(scheduler, 2, NetworkFaults(lease=1.0))
    clock = SimulatedClock(scheduler)
    seen: list[tuple[bool, bool]] = []

    def run(device: int) -> None:
        network.open(device, scheduler.current(), clock)
        scheduler.sleep(20.0)

    def look() -> None:
        seen.append((1 in network.seen_by(0), 0 in network.seen_by(1)))

    scheduler.spawn("n0", lambda: run(0))
    scheduler.spawn("n1", lambda: run(1))
    scheduler.at(5.0, lambda: network.set_link(0, 1, False))
    for number in range(1, 100):
        scheduler.at(4.0 + number / 40, look)
    scheduler.run(30.0)
    assert seen[0] == (True, True)
    assert seen[-1] == (False, False)
    assert {(True, False), (False, True)} & set(seen)

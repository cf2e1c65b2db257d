"""Speed-up by shards: strong and weak scaling, sweeps, and the cost model of "Scaling out".

    python benchmarks/ray_engine.py            needs MNIST and gossamer[ray]; some minutes when idle
    python benchmarks/ray_engine.py --model    only the traffic, and the model from the last times
    python benchmarks/ray_engine.py --driver 100000     start and memory of the driver, two shards

One process, one shard and two shards alternate, and so do the two ways to run a sweep. 200 devices
and two threads run after them, alone. Of scaling the best block counts, of sweeps the median.
"""

from __future__ import annotations

import own_process  # noqa: F401  # isort: skip

import argparse
import json
import platform
import re
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

import gossamer as gs
from gossamer.engines import Ray, Simulator
from gossamer.engines.ray.partition import boundary_rows, partition
from gossamer.study.ray_tasks import RayTasks
from gossamer.study.sweep import sweep

OUT = Path(__file__).parent / "results" / "ray_engine.json"
PARAMETERS = 7850
TURNS = 9
RATE = 1.25e9  # bytes per second of a machine's network (10 Gbit/s); assumed
LATENCY = 1e-3  # seconds per exchange; assumed


def study(devices: int, batch: int = 64, **more: object) -> gs.Study:
    """Return the study that all measurements run."""
    network = gs.Random(devices, 8 / (devices - 1))
    measure = gs.Measure(every=0)
    return gs.Study(
        gs.DPSGD(0.05),
        network,
        gs.Mnist(),
        gs.Iid(),
        batch=batch,
        rounds=10**6,
        measure=measure,
        **more,
    )


def seconds_per_round(engines: dict[str, object], rounds: int) -> dict[str, float]:
    """Return the seconds per round of each engine, the best of several blocks.

    The best, because a shard that waits for another is delayed by any other load on the machine.

    Args:
        engines: The engines, which alternate.
        rounds: Rounds per block.
    """
    found: dict[str, list[float]] = {name: [] for name in engines}
    for engine in engines.values():
        engine.advance(engine.round + 5)
    for _ in range(TURNS):
        for name, engine in engines.items():
            began = time.perf_counter()
            engine.advance(engine.round + rounds)
            found[name].append((time.perf_counter() - began) / rounds)
    return {name: min(times) for name, times in found.items()}


def scaling() -> dict[str, float]:
    """Return the seconds per round of 400 devices, and of 200 devices per shard."""
    data = gs.Mnist().load()

    def started(devices: int, shards: int) -> object:
        plan = study(devices, threads=1).plan(data)
        return Simulator(plan) if shards == 0 else Ray(shards=shards, checkpoint=1e6).start(plan)

    from gossamer.engines.ray.cluster import connect

    connection = connect(Ray(shards=4))  # enough for all engines that alternate
    result: dict[str, float] = {}
    engines = {
        "one process": started(400, 0),
        "one shard": started(400, 1),
        "two shards": started(400, 2),
    }
    result |= seconds_per_round(engines, 20)
    half = {"one shard, 200": started(200, 1)}
    for engine in (engines["one shard"], engines["two shards"]):
        engine._actors.stop()
    result |= seconds_per_round(half, 40)
    half["one shard, 200"].close()
    connection.close()
    result |= seconds_per_round({"two threads": Simulator(study(400, threads=2).plan(data))}, 40)
    return result


def sweeps() -> dict[str, float]:
    """Return the seconds of eight runs, in a loop and as Ray tasks, without start-up."""
    from gossamer.engines.ray.cluster import connect

    cells = [
        replace(
            study(20, 128, threads=1),
            rounds=600,
            seed=seed,
            measure=gs.Measure(every=100, test=1000),
        )
        for seed in range(8)
    ]
    data = gs.Mnist().load()
    connection = connect(Ray())
    with tempfile.TemporaryDirectory() as folder:
        # Starts the processes and loads the data.
        sweep([replace(cell, rounds=5) for cell in cells], Path(folder) / "warm", RayTasks())
        times: dict[str, list[float]] = {"serial": [], "ray": []}
        for turn in range(3):
            began = time.perf_counter()
            for number, cell in enumerate(cells):
                gs.run(cell, Path(folder) / f"serial-{turn}-{number}", data=data, keep_models=False)
            times["serial"].append(time.perf_counter() - began)
            began = time.perf_counter()
            sweep(cells, Path(folder) / f"ray-{turn}", RayTasks())
            times["ray"].append(time.perf_counter() - began)
    connection.close()
    return {name: statistics.median(several) for name, several in times.items()}


def moved() -> dict[str, float]:
    """Return the traffic per round with random and with local links, and the time per link."""
    network = gs.Random(400, 8 / 399)
    owner = np.arange(400) * 2 // 400
    rows = [boundary_rows(network.links(t), owner) for t in range(20)]
    times = []
    for t in range(50):
        began = time.perf_counter()
        made = gs.metropolis(network.links(t))
        times.append((time.perf_counter() - began) / len(made.value))
    mobile = gs.Mobility(10_000, radius=0.015, min_speed=0.0001, max_speed=0.0002)
    shards = 8
    links = mobile.links(50)
    by_number = boundary_rows(links, np.arange(10_000) * shards // 10_000)
    placed = boundary_rows(links, partition(mobile, shards, 100))
    return {
        "boundary rows per round": float(np.mean(rows)),
        "bytes per round": float(np.mean(rows)) * PARAMETERS * 4,
        "seconds per link": min(times),
        "10,000 mobile devices on 8 shards, rows in the order of their numbers": by_number,
        "10,000 mobile devices on 8 shards, rows as placed": placed,
    }


def memory(name: str) -> int:
    """Return a size of this process in MB.

    Args:
        name: "VmRSS", or "VmHWM" for the largest so far.
    """
    status = Path("/proc/self/status").read_text()
    found = re.search(rf"{name}:\s+(\d+)", status)
    return int(found[1]) * 1024 // 10**6


def driver(devices: int) -> dict[str, float]:
    """Return the seconds that a run on two shards takes to start, and the driver's memory in MB.

    Args:
        devices: Number of devices, with 32 samples of the digits each and random links.
    """
    from gossamer import backend
    from gossamer.engines.ray.cluster import connect
    from gossamer.results.folder import RunFolder

    network = gs.Random(devices, 8 / (devices - 1))
    measure = gs.Measure(every=0, test=200)
    plan = gs.Study(
        gs.DPSGD(0.05), network, gs.Digits(), gs.Drawn(32), batch=16, rounds=10, measure=measure
    ).plan()
    connection = connect(Ray(shards=2))
    result: dict[str, float] = {"devices": devices, "MB before the start": memory("VmRSS")}
    began = time.perf_counter()
    engine = Ray(shards=2).start(plan)
    result["seconds to start"] = round(time.perf_counter() - began, 1)
    engine.advance(2)
    engine.record()
    result["MB after a measurement, at most"] = memory("VmHWM")
    engine._take_checkpoint()
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder(Path(folder))
        run.write_parts_of_snapshot(engine.parts("state"), backend.choices())
        result["MB after a checkpoint, at most"] = memory("VmHWM")
        run.write_parts_of_models(engine.parts("models"))
    result["MB after the models, at most"] = memory("VmHWM")
    result["MB of models"] = devices * plan.task.learner.parameters * 4 // 10**6
    engine.close()
    connection.close()
    return result


def cost(
    devices: int,
    machines: int,
    step: float,
    link: float,
    elsewhere: float,
    cores: int = 16,
    degree: int = 8,
) -> float:
    """Return the modelled seconds of a round on several machines.

    A shard computes the links and weights of its own devices. A row that has neighbours on
    other machines is sent to each of these machines, at RATE.

    Args:
        devices: Number of devices.
        machines: Number of machines.
        step: Seconds of one device's step and mix on one core, measured.
        link: Seconds to compute one link and its weight, measured.
        elsewhere: Share of a machine's rows that have neighbours on other machines.
        cores: Shards per machine.
        degree: Neighbours per device.
    """
    devices_here = devices / machines
    seconds = step * devices_here / cores + link * devices_here * degree / 2
    if machines == 1:
        return seconds
    return seconds + bytes_sent(devices, machines, elsewhere, degree) / RATE + LATENCY


def bytes_sent(devices: int, machines: int, elsewhere: float, degree: int = 8) -> float:
    """Return the bytes that a machine sends per round, and receives.

    Args:
        devices: Number of devices.
        machines: Number of machines.
        elsewhere: Share of a machine's rows that have neighbours on other machines.
        degree: Neighbours per device.
    """
    receivers = min(machines * (1 - (1 - 1 / machines) ** degree), degree)
    return devices / machines * elsewhere * receivers * PARAMETERS * 4


def model(step: float, link: float) -> list[str]:
    """Return a table of the modelled time of a round, with random links and with local ones.

    Args:
        step: Seconds of one device's step and mix on one core.
        link: Seconds to compute one link and its weight.
    """
    lines = [
        "| devices | machines | random links | speed-up | local links, 5 % elsewhere | speed-up |",
        "|---|---|---|---|---|---|",
    ]
    for devices in (10**5, 10**6):
        for machines in (1, 16, 64, 256):
            line = f"| {devices:,} | {machines} |"
            for share in (1.0, 0.05):
                seconds = cost(devices, machines, step, link, share)
                speed_up = cost(devices, 1, step, link, 1.0) / seconds
                line += f" {seconds:.2g} s | {speed_up:.1f}× |"
            lines.append(line)
    return lines


def large(step: float, link: float) -> list[str]:
    """Return a table of a round on 100 machines: time, traffic and memory, from measured terms.

    Args:
        step: Seconds of one device's step and mix on one core.
        link: Seconds to compute one link and its weight.
    """
    lines = [
        "| devices | links | time per round | rows sent and received per machine "
        "| models per machine | an array with a number per device |",
        "|---|---|---|---|---|---|",
    ]
    for devices in (10**7, 10**8):
        for links, share in (("random", 1.0), ("5 % elsewhere", 0.05)):
            seconds = cost(devices, 100, step, link, share)
            sent = bytes_sent(devices, 100, share) / 1e9
            models = devices / 100 * PARAMETERS * 4 / 1e9
            lines.append(
                f"| {devices:,} | {links} | {seconds:.3g} s | {sent:.3g} GB | {models:.2g} GB "
                f"| {devices * 8 / 1e9:.2g} GB |"
            )
    return lines


def main() -> None:
    """Measure, and print the ratios and the model."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--model", action="store_true", help="do not measure times")
    options.add_argument("--driver", type=int, help="only start and memory, of so many devices")
    given = options.parse_args()
    if given.driver:
        print(json.dumps(driver(given.driver), indent=2))
        return
    if not given.model:
        result = {"scaling": scaling(), "sweeps": sweeps(), "machine": platform.machine()}
        times = result["scaling"]
        runs = result["sweeps"]
        result["ratios"] = {
            "two shards against one process, one thread": times["one process"]
            / times["two shards"],
            "two threads against one": times["one process"] / times["two threads"],
            "one shard against one process": times["one process"] / times["one shard"],
            "weak: 200 devices on one shard against 400 on two": times["one shard, 200"]
            / times["two shards"],
            "sweep as Ray tasks against a loop": runs["serial"] / runs["ray"],
        }
        OUT.parent.mkdir(exist_ok=True)
        OUT.write_text(json.dumps(result, indent=2) + "\n")
    result = json.loads(OUT.read_text()) | {"moved": moved()}
    OUT.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result["ratios"] | result["moved"], indent=2))
    step = result["scaling"]["one process"] / 400
    print("\n".join(model(step, result["moved"]["seconds per link"])))
    print("\n".join(large(step, result["moved"]["seconds per link"])))


if __name__ == "__main__":
    main()

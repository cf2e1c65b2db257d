"""What shards gain: strong and weak scaling, sweeps, and the model of cost behind the page "Scaling out".

    python benchmarks/ray_engine.py            needs MNIST and gossamer[ray]; a few minutes on an idle machine
    python benchmarks/ray_engine.py --model    only what travels, and the model's table from the times of the last run

One process, one shard and two shards take turns, and so do the two ways of a sweep; 200 devices and two threads are run after
them, by themselves. Of scaling the best turn counts, of sweeps the median.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

import gossamer as gs
from gossamer.engines import Ray, Simulator
from gossamer.engines.ray.partition import boundary_rows, partition
from gossamer.study.pools import RayTasks
from gossamer.study.sweep import sweep

OUT = Path(__file__).parent / "results" / "ray_engine.json"
PARAMETERS = 7850
TURNS = 9
RATE, LATENCY = (
    1.25e9,
    1e-3,
)  # bytes a second of a machine's network (10 Gbit/s), seconds of an exchange: assumed


def study(devices: int, batch: int = 64, **more: object) -> gs.Study:
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


def seconds_a_round(engines: dict[str, object], rounds: int) -> dict[str, float]:
    """The time of a round, the best of several turns: a shard that waits for another feels whatever else the machine does."""
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
    """Rounds of 400 devices, and of 200 a shard."""
    data = gs.Mnist().load()

    def started(devices: int, shards: int) -> object:
        plan = study(devices, threads=1).plan(data)
        return Simulator(plan) if shards == 0 else Ray(shards=shards, checkpoint=1e6).start(plan)

    from gossamer.engines.ray.cluster import connect

    connection = connect(Ray(shards=4))  # room for all that take turns
    result: dict[str, float] = {}
    engines = {
        "one process": started(400, 0),
        "one shard": started(400, 1),
        "two shards": started(400, 2),
    }
    result |= seconds_a_round(engines, 20)
    half = {"one shard, 200": started(200, 1)}
    for engine in (engines["one shard"], engines["two shards"]):
        engine._actors.stop()
    result |= seconds_a_round(half, 40)
    half["one shard, 200"].close()
    connection.close()
    result |= seconds_a_round({"two threads": Simulator(study(400, threads=2).plan(data))}, 40)
    return result


def sweeps() -> dict[str, float]:
    """Eight runs one after the other in one process with one thread, and as Ray tasks; start-up not counted."""
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
        sweep(
            [replace(cell, rounds=5) for cell in cells], Path(folder) / "warm", RayTasks()
        )  # processes up, data there
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
    """What travels in a round, with random links and with local ones, and what it takes to make a link and its weights."""
    network, owner = gs.Random(400, 8 / 399), np.arange(400) * 2 // 400
    rows = [boundary_rows(network.links(t), owner) for t in range(20)]
    times = []
    for t in range(50):
        began = time.perf_counter()
        made = gs.metropolis(network.links(t))
        times.append((time.perf_counter() - began) / len(made.value))
    mobile, parts = gs.Mobility(10_000, radius=0.015, min_speed=0.0001, max_speed=0.0002), 8
    plain, links = np.arange(10_000) * parts // 10_000, mobile.links(50)
    return {
        "boundary rows a round": float(np.mean(rows)),
        "bytes a round": float(np.mean(rows)) * PARAMETERS * 4,
        "seconds a link": min(times),
        "10,000 mobile devices on 8 shards, rows in the order of their numbers": boundary_rows(
            links, plain
        ),
        "10,000 mobile devices on 8 shards, rows as placed": boundary_rows(
            links, partition(mobile, parts, 100)
        ),
    }


def cost(
    devices: int,
    machines: int,
    step: float,
    link: float,
    elsewhere: float,
    cores: int = 16,
    degree: int = 8,
) -> float:
    """The seconds of a round on machines of `cores` shards each.

    step: of one device's step and mix on one core, measured. Every shard makes all links and weights, `link` seconds each. Of
    a machine's rows the share `elsewhere` has neighbours on other machines, and goes to each machine that has one, at RATE.
    """
    here, apart = devices / machines, machines * (1 - (1 - 1 / machines) ** degree) * (machines > 1)
    rows = here * elsewhere * min(apart, degree)
    return (
        step * here / cores
        + link * devices * degree / 2
        + rows * PARAMETERS * 4 / RATE
        + LATENCY * (machines > 1)
    )


def model(step: float, link: float) -> list[str]:
    """The time of a round by devices and machines, where links are drawn anew everywhere, and where they are local."""
    lines = [
        "| devices | machines | random links | speed-up | local links, 5 % elsewhere | speed-up |",
        "|---|---|---|---|---|---|",
    ]
    for devices in (10**5, 10**6):
        for machines in (1, 16, 64, 256):
            times = [cost(devices, machines, step, link, share) for share in (1.0, 0.05)]
            faster = [cost(devices, 1, step, link, 1.0) / time for time in times]
            cells = " | ".join(
                f"{time:.2g} s | {gain:.1f}×" for time, gain in zip(times, faster, strict=True)
            )
            lines.append(f"| {devices:,} | {machines} | {cells} |")
    return lines


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("--model", action="store_true")
    if not options.parse_args().model:
        result = {"scaling": scaling(), "sweeps": sweeps(), "machine": platform.machine()}
        times, runs = result["scaling"], result["sweeps"]
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
    print(
        "\n".join(model(result["scaling"]["one process"] / 400, result["moved"]["seconds a link"]))
    )

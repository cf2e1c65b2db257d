"""What shards gain: strong and weak scaling, sweeps, and the model of cost behind the page "Scaling out".

    python benchmarks/ray_engine.py            needs MNIST and gossamer[ray]; a few minutes on an idle machine
    python benchmarks/ray_engine.py --model    only the model's table, from the figures of the last run below

Every figure is a ratio of medians of runs that take turns, so that what else the machine does falls on all alike.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

import gossamer as gs
from gossamer.engines import Ray, Simulator
from gossamer.engines.placement import boundary_rows
from gossamer.study.pools import RayTasks
from gossamer.study.sweep import sweep

OUT = Path(__file__).parent / "results" / "ray_engine.json"
PARAMETERS = 7850
TURNS = 5


def study(devices: int, batch: int = 64, **more: object) -> gs.Study:
    network = gs.Random(devices, 8 / (devices - 1))
    measure = gs.Measure(every=0)
    return gs.Study(gs.DPSGD(0.05), network, gs.Mnist(), gs.Iid(), batch=batch, rounds=10**6, measure=measure, **more)


def seconds_a_round(engines: dict[str, object], rounds: int) -> dict[str, float]:
    """The median over turns of the time of a round; the engines take turns."""
    found: dict[str, list[float]] = {name: [] for name in engines}
    for engine in engines.values():
        engine.advance(engine.round + 5)
    for _ in range(TURNS):
        for name, engine in engines.items():
            began = time.perf_counter()
            engine.advance(engine.round + rounds)
            found[name].append((time.perf_counter() - began) / rounds)
    return {name: statistics.median(times) for name, times in found.items()}


def scaling() -> dict[str, float]:
    """Rounds of 400 devices, and of 200 a shard."""
    data = gs.Mnist().load()

    def started(devices: int, shards: int) -> object:
        plan = study(devices, threads=1).plan(data)
        return Simulator(plan) if shards == 0 else Ray(shards=shards, checkpoint=1e6).start(plan)

    from gossamer.engines.ray import connect, ray

    connect(Ray(shards=4))  # room for all that take turns
    result: dict[str, float] = {}
    engines = {"one process": started(400, 0), "one shard": started(400, 1), "two shards": started(400, 2)}
    result |= seconds_a_round(engines, 40)
    half = {"one shard, 200": started(200, 1)}
    for engine in (engines["one shard"], engines["two shards"]):
        engine._stop()
    result |= seconds_a_round(half, 40)
    half["one shard, 200"].close()
    ray.shutdown()
    result |= seconds_a_round({"two threads": Simulator(study(400, threads=2).plan(data))}, 40)
    return result


def sweeps() -> dict[str, float]:
    """Eight runs one after the other in one process with one thread, and as Ray tasks; start-up not counted."""
    from gossamer.engines.ray import connect, ray

    cells = [
        replace(study(20, 128, threads=1), rounds=600, seed=seed, measure=gs.Measure(every=100, test=1000)) for seed in range(8)
    ]
    data = gs.Mnist().load()
    connect(Ray())
    with tempfile.TemporaryDirectory() as folder:
        sweep([replace(cell, rounds=5) for cell in cells], Path(folder) / "warm", RayTasks())  # processes up, data there
        times: dict[str, list[float]] = {"serial": [], "ray": []}
        for turn in range(3):
            began = time.perf_counter()
            for number, cell in enumerate(cells):
                gs.run(cell, Path(folder) / f"serial-{turn}-{number}", data=data, keep_models=False)
            times["serial"].append(time.perf_counter() - began)
            began = time.perf_counter()
            sweep(cells, Path(folder) / f"ray-{turn}", RayTasks())
            times["ray"].append(time.perf_counter() - began)
    ray.shutdown()
    return {name: statistics.median(several) for name, several in times.items()}


def moved() -> dict[str, float]:
    """What gloo costs between two processes here, by the size of what is sent: a time to begin, and a rate."""
    network, owner = gs.Random(400, 8 / 399), np.arange(400) * 2 // 400
    rows = [boundary_rows(network.links(t), owner) for t in range(20)]
    return {"boundary rows a round": float(np.mean(rows)), "bytes a round": float(np.mean(rows)) * PARAMETERS * 4}


def modelled(devices: int, machines: int, cost: Callable[[int, int], float]) -> str:
    one, many = cost(devices, 1), cost(devices, machines)
    return f"| {devices:,} | {machines} | {many:.3g} s | {one / many:.0f}× | {one / many / machines:.0%} |"


def model(step: float, links: float, rate: float, latency: float, degree: float = 8, cores: int = 16) -> list[str]:
    """The time of a round on machines of `cores` shards each, by devices and machines, for random links and for local ones.

    step: seconds of one device's step and mix on one core; links: seconds to make one link and its weight, which every shard
    does for all; rate: bytes a second of a machine's network; latency: of one exchange.
    """
    lines = ["| devices | machines | a round | against one machine | efficiency |", "|---|---|---|---|---|"]

    def cost(devices: int, machines: int) -> float:
        shards = machines * cores
        here = devices / machines
        apart = 1 - 1 / machines
        # a device's row goes to every machine that has one of its neighbours
        rows = here * machines * (1 - (1 - 1 / machines) ** degree) * apart if machines > 1 else 0.0
        return step * devices / shards + links * devices * degree / 2 + rows * PARAMETERS * 4 / rate + latency * (machines > 1)

    return lines + [modelled(d, m, cost) for d in (10**5, 10**6) for m in (1, 16, 64, 256)]


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("--model", action="store_true")
    if not options.parse_args().model:
        result = {"scaling": scaling(), "sweeps": sweeps(), "moved": moved(), "machine": platform.machine()}
        times, runs = result["scaling"], result["sweeps"]
        result["ratios"] = {
            "two shards against one process, one thread": times["one process"] / times["two shards"],
            "two threads against one": times["one process"] / times["two threads"],
            "one shard against one process": times["one process"] / times["one shard"],
            "weak: 200 devices on one shard against 400 on two": times["one shard, 200"] / times["two shards"],
            "sweep as Ray tasks against a loop": runs["serial"] / runs["ray"],
        }
        OUT.parent.mkdir(exist_ok=True)
        OUT.write_text(json.dumps(result, indent=2) + "\n")
        print(json.dumps(result["ratios"], indent=2))
    times = json.loads(OUT.read_text())["scaling"]
    print("\n".join(model(step=times["one process"] / 400, links=1e-7, rate=1.25e9, latency=1e-3)))

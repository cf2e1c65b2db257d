"""The same job on other people's tools, beside ours and beside the bare yardstick.

    python benchmarks/peers/run.py all                    install every peer, run them, write results/peers.json and a chart
    python benchmarks/peers/run.py gossipy fluke          some of them, the table only
    python benchmarks/peers/run.py all --seconds 30       longer; --limit, --devices, --data, --envs: see --help

**The job.** Softmax regression on MNIST, batch 128, one step a round, D-PSGD or the peer's nearest thing, about four links
a device: drawn afresh each round where the peer can, a fixed random graph where it cannot. Evaluation is off, or as little
as the peer allows. The measure is device-steps a second after a warm-up, on this machine.

**How it is kept fair.** Every peer comes from the package index into an environment of its own and is used as its own
documentation and examples do, in its fastest documented mode: see its adapter beside this file. Where torch runs in the
peer's main process, one and two threads take turns and the better counts, for ours too. All run under the same clock
(job.py). Ours and the yardstick run just before and just after each peer, and the ratio is the median of ours before and
after over the peer's. Memory is the sum, over the processes of a run, of each one's peak resident size; every run holds the
data once more, 180 MiB. A peer that cannot be installed, refuses the job or does not finish is reported with the reason.

**What it needs.** MNIST in the cache (`gossamer data get mnist`); 8 GB of disk; for decent-bench a Python 3.13 or newer, on
the PATH, from pyenv or from `uv python install 3.13`; on Linux, a pip that finds CPU builds of torch (its index as an
extra index in pip's configuration): CUDA builds are refused, they are gigabytes. As root on Linux the peers run in a
network namespace of their own, with the loopback only.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results"
PICTURE = HERE.parents[1] / "docs" / "pictures" / "peers.svg"
TORCH = "2.13.0"
INSTALL_LIMIT = 900.0
Row = dict[str, Any]


@dataclass(frozen=True)
class Peer:
    """What to install, which adapter runs it, and how many times as fast ours must be."""

    package: str
    adapter: str
    at_least: float
    extras: str = ""
    more: tuple[str, ...] = ("torch",)
    python: tuple[int, int] = (3, 11)


PEERS = {
    "decent-bench": Peer("decent-bench", "decent_bench.py", 5.0, more=(), python=(3, 13)),
    "gossipy": Peer(
        "gossipy-dfl", "gossipy.py", 20.0, more=("torch", "torchvision")
    ),  # imported but not asked for
    "fluke": Peer("fluke-fl", "fluke.py", 20.0),
    "Flower": Peer("flwr", "flower.py", 20.0, extras="[simulation]"),
    # Not p2pfl[torch], which asks for the torchvision of early 2024 and so for a torch of then. It imports what [dp] brings,
    # and the version of datasets that it pins needs a huggingface_hub and a pyarrow of before.
    "p2pfl": Peer(
        "p2pfl",
        "p2pfl.py",
        20.0,
        extras="[dp]",
        more=(
            "torch",
            "torchvision",
            "torchmetrics",
            "lightning",
            "huggingface_hub<1",
            "pyarrow<20",
        ),
    ),
}


class Unavailable(Exception):
    """Why a peer could not be run, in one line."""


def interpreter(oldest: tuple[int, int]) -> str:
    """A Python of at least this version: this one, one on the PATH, pyenv's or uv's."""
    if sys.version_info[:2] >= oldest:
        return sys.executable
    names = [f"python3.{minor}" for minor in range(oldest[1], oldest[1] + 3)]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [
        path
        for name in names
        for path in (shutil.which(name), *map(str, pyenv.glob(f"*/bin/{name}")))
        if path
    ]
    if shutil.which("uv"):
        found += subprocess.run(
            ["uv", "python", "find", names[0]], capture_output=True, text=True
        ).stdout.split("\n")[:1]
    for path in filter(None, found):
        if (
            subprocess.run([path, "-c", "pass"], capture_output=True).returncode == 0
        ):  # a shim may point nowhere
            return path
    raise Unavailable(f"needs Python {oldest[0]}.{oldest[1]} or newer, not found here")


def install(peer: Peer, envs: Path) -> Path:
    """The Python of the peer's environment; made when it is not there yet. Torch as ours, and never a CUDA build."""
    env = envs / peer.package
    python, ready = env / "bin" / "python", env / "ready"
    if ready.exists():
        return python
    shutil.rmtree(env, ignore_errors=True)
    log(f"installing {peer.package}")
    subprocess.run([interpreter(peer.python), "-m", "venv", str(env)], check=True)
    constraints = env / "constraints.txt"
    constraints.write_text(f"torch=={TORCH}{'+cpu' if sys.platform == 'linux' else ''}\n")
    words = [
        str(python),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--constraint",
        str(constraints),
    ]
    try:
        done = subprocess.run(
            [*words, peer.package + peer.extras, *peer.more],
            capture_output=True,
            text=True,
            timeout=INSTALL_LIMIT,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"not installed in {INSTALL_LIMIT:.0f} s") from None
    if done.returncode:
        reasons = [
            line for line in done.stderr.splitlines() if line.startswith("ERROR")
        ] or done.stderr.splitlines()[-1:]
        raise Unavailable("cannot be installed: " + reasons[0].removeprefix("ERROR: ")[:300])
    mend_torchvision(env)
    ready.touch()
    return python


def mend_torchvision(env: Path) -> None:
    """Lets a torchvision that was built for CUDA, as the index has it, be imported beside a CPU build of torch.

    Its compiled part does not load then, and it takes two operators of that part for granted. Declared they need to be only:
    the peers import it for its data sets, if at all.
    """
    schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    declare = "".join(
        f'torch.library.define("torchvision::{name}", "{schema}")\n' for name in ("nms", "qnms")
    )
    for file in env.glob("lib/python*/site-packages/torchvision/_meta_registrations.py"):
        if subprocess.run(
            [str(env / "bin" / "python"), "-c", "import torchvision"], capture_output=True
        ).returncode:
            file.write_text(
                file.read_text().replace(
                    "import torch.library\n", "import torch.library\n" + declare, 1
                )
            )


def alone(command: Sequence[str]) -> list[str]:
    """The command with no network but the loopback, where that can be had."""
    if (
        sys.platform == "linux"
        and os.geteuid() == 0
        and shutil.which("unshare")
        and shutil.which("ip")
    ):
        return ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *command]
    return list(command)


def stat(pid: int) -> list[str]:
    """Linux's fields of a process after its name: 1 its parent, 19 when it started, which tells it from a later namesake."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


def end(process: subprocess.Popen[str], seen: Iterable[tuple[int, str]]) -> None:
    """Ends what a run started and left behind: Ray's processes outlive their driver for a while."""
    process.kill()
    for pid, start in seen:
        try:
            if stat(pid)[19] == start:
                os.kill(pid, signal.SIGKILL)
        except OSError:  # it has ended
            continue


def descendants(root: int) -> dict[tuple[int, str], int]:
    """The process and all that came from it, by number and start, with the peak resident size in KiB. Linux; else nothing."""
    parent, found = {}, {}
    for pid in (int(place.name) for place in Path("/proc").glob("[0-9]*")):
        try:
            peak = [
                line.split()[1]
                for line in Path(f"/proc/{pid}/status").read_text().splitlines()
                if "VmHWM" in line
            ]
            parent[pid], found[pid] = int(stat(pid)[1]), (stat(pid)[19], int(*peak))
        except OSError:  # it has ended
            continue
    family, size = {root} & parent.keys(), 0
    while len(family) > size:
        size = len(family)
        family |= {pid for pid, above in parent.items() if above in family}
    return {(pid, found[pid][0]): found[pid][1] for pid in family}


def run_job(
    python: Path | str,
    adapter: str,
    given: argparse.Namespace,
    devices: int,
    seconds: float,
    package: str = "",
) -> Row:
    """One run of an adapter in a process of its own: its line, and the memory of its processes."""
    words = [
        str(python),
        "-P",
        str(HERE / "job.py"),
        adapter,
        "--data",
        str(given.file),
        "--devices",
        str(devices),
    ]
    words += [
        "--seconds",
        str(seconds),
        "--limit",
        str(given.limit),
        *(["--package", package] if package else []),
    ]
    environment = (
        os.environ
        | {
            "OMP_WAIT_POLICY": "PASSIVE",  # for all, as ours sets it: two threads beside another busy process crawl without
            "FLWR_TELEMETRY_ENABLED": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
            "HF_HUB_OFFLINE": "1",
            "MPLBACKEND": "agg",
        }
    )
    peaks: dict[tuple[int, str], int] = {}
    with (
        (given.envs / f"{Path(adapter).stem}-{devices}.log").open("w") as trouble,
        tempfile.TemporaryDirectory() as place,
    ):
        process = subprocess.Popen(
            alone(words),
            stdout=subprocess.PIPE,
            stderr=trouble,
            text=True,
            env=environment,
            cwd=place,
            start_new_session=True,
        )
        until = (
            time.monotonic() + given.limit + 60
        )  # job.py gives up by itself; this is for when it cannot
        while process.poll() is None and time.monotonic() < until:
            peaks |= {
                who: max(peak, peaks.get(who, 0)) for who, peak in descendants(process.pid).items()
            }  # 0 once it ended
            time.sleep(0.5)
        end(process, peaks)
        lines = process.communicate()[0].splitlines()
    row: Row = json.loads(lines[-1]) if lines else {"error": f"no answer in {given.limit:.0f} s"}
    return row | {"peak_mib": round(sum(peaks.values()) / 1024)}


def speed(row: Row) -> float:
    return row["device_steps"] / row["seconds"] if "device_steps" in row else float("nan")


def measure(names: Sequence[str], given: argparse.Namespace) -> list[Row]:
    """Every peer between two runs of ours and of the yardstick; what follows one peer goes before the next."""
    pythons: dict[str, Path | Unavailable] = {}
    for name in names:
        try:
            pythons[name] = install(PEERS[name], given.envs)
        except Unavailable as reason:
            pythons[name] = reason
    rows: list[Row] = []
    for devices in given.devices:
        before = beside(given, devices)
        for name in names:
            peer, python = PEERS[name], pythons[name]
            row: Row = {
                "peer": name,
                "package": peer.package,
                "devices": devices,
                "at_least": peer.at_least,
            }
            if isinstance(python, Unavailable):
                row["error"] = str(python)
            else:
                log(f"{name}, {devices} devices")
                row |= run_job(python, peer.adapter, given, devices, given.seconds, peer.package)
                after = beside(given, devices)
                for who in before:
                    row[who] = statistics.median([speed(before[who]), speed(after[who])])
                    row[f"{who}_mib"] = max(before[who]["peak_mib"], after[who]["peak_mib"])
                    row[f"{who}_runs"] = [before[who], after[who]]
                before = after
            if "device_steps" in row:
                row["device_steps_per_s"] = speed(row)
                row["ratio"] = row["ours"] / speed(row)
            rows.append(row)
    return rows


def beside(given: argparse.Namespace, devices: int) -> dict[str, Row]:
    """Ours and the yardstick, now."""
    log(f"ours and the yardstick, {devices} devices")
    return {
        who: run_job(sys.executable, f"{who}.py", given, devices, given.seconds / 2)
        for who in ("ours", "bare")
    }


def table(rows: Sequence[Row]) -> str:
    lines = [
        "| peer | devices | steps/s | ours beside it | yardstick | ours is faster by | asked | peak MiB (ours) | licence |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        who = f"{row['peer']} {row.get('version', '')}".strip()
        if "ratio" in row:
            value, ratio = number(row["device_steps_per_s"]), f"{number(row['ratio'])}×"
        else:
            value, ratio = row["error"], "–"
        beside = [number(row[who]) if who in row else "–" for who in ("ours", "bare")]
        memory = f"{row['peak_mib']:,} ({row['ours_mib']:,})" if "peak_mib" in row else "–"
        cells = [
            who,
            str(row["devices"]),
            value,
            *beside,
            ratio,
            f"≥ {row['at_least']:.0f}×",
            memory,
            row.get("licence", "–"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    notes = {f"{row['peer']}: {row['notes']}" for row in rows if "notes" in row}
    return "\n".join([*lines, "", *(f"- {note}" for note in sorted(notes, key=str.lower))])


def chart(rows: Sequence[Row], path: Path) -> None:
    """Device-steps a second of each, a panel for each number of devices; what did not run says so in its place."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    from gossamer.report.figures import STYLE
    from gossamer.results.palette import COLOURS

    counts = sorted({row["devices"] for row in rows}, reverse=True)
    with mpl.rc_context(STYLE | {"svg.hashsalt": "gossamer", "axes.grid": False}):
        figure, axes = plt.subplots(1, len(counts), figsize=(4.6 * len(counts), 3.0), squeeze=False)
        for axis, devices in zip(axes[0], counts, strict=True):
            here = [row for row in rows if row["devices"] == devices]
            bars: list[tuple[str, float, str]] = [
                (
                    label,
                    statistics.median([row[who] for row in here if who in row] or [float("nan")]),
                    "",
                )
                for who, label in (("bare", "bare torch"), ("ours", "gossamer"))
            ]
            some = sorted(here, key=lambda row: row.get("device_steps_per_s", 0.0), reverse=True)
            bars += [
                (row["peer"], row.get("device_steps_per_s", float("nan")), row.get("error", ""))
                for row in some
            ]
            colours = ["0.75", COLOURS[0], *[COLOURS[1]] * len(some)]
            values = [value if value == value else 0.0 for _, value, _ in bars]
            axis.barh([label for label, _, _ in bars], values, color=colours, height=0.65)
            axis.set_xscale("log")
            least = 1.0 if min(filter(None, values)) > 1 else 0.1
            axis.set_xlim(least, 10 * max(values))
            for place, (_, value, error) in enumerate(bars):
                told, where = (number(value), value) if value == value else (short(error), least)
                axis.text(where, place, f" {told}", va="center", fontsize=8)
            axis.invert_yaxis()
            axis.tick_params(axis="y", length=0)
            axis.set_title(f"{devices} devices", fontsize=10)
            axis.set_xlabel("device-steps a second (log scale)")
        figure.savefig(path, metadata={"Date": None})


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}" if value < 10 else f"{value:.1f}"


def short(reason: str) -> str:
    return reason if len(reason) <= 40 else reason[:38].rstrip() + " …"


def log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "peers",
        nargs="+",
        choices=["all", *PEERS],
        metavar="PEER",
        help=f"all, or some of {', '.join(PEERS)}",
    )
    parser.add_argument(
        "--data", type=Path, help="the folder of MNIST's idx files (default: the cache)"
    )
    cache = Path("~/.cache/gossamer-peers")
    parser.add_argument(
        "--envs",
        type=Path,
        default=cache,
        help="where the environments are kept (default: %(default)s)",
    )
    parser.add_argument("--devices", type=int, nargs="+", default=[100, 10])
    parser.add_argument(
        "--seconds", type=float, default=12.0, help="measured for each peer; half of it for ours"
    )
    parser.add_argument(
        "--limit", type=float, default=120.0, help="seconds after which a run is given up"
    )
    given = parser.parse_args()
    names = list(PEERS) if "all" in given.peers else given.peers
    given.envs = given.envs.expanduser().resolve()
    given.envs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        import numpy as np

        import gossamer as gs

        data = gs.Mnist(given.data).load()
        given.file = Path(place) / "mnist.npz"
        np.savez(given.file, x=data.x.reshape(len(data.x), -1).numpy(), y=data.y.numpy())
        del data
        rows = measure(names, given)
    print(table(rows))
    if "all" in given.peers:
        machine = {"machine": platform.machine(), "cores": os.cpu_count(), "torch": TORCH}
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "peers.json").write_text(
            json.dumps(machine | {"rows": rows}, indent=2, ensure_ascii=False) + "\n"
        )
        (RESULTS / "peers.md").write_text(table(rows) + "\n")
        chart(rows, PICTURE)


if __name__ == "__main__":
    main()

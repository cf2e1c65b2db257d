"""The same task with other tools, gossamer and the yardstick.

    python benchmarks/peers/run.py all                 run every tool and write the results
    python benchmarks/peers/run.py gossipy fluke       some of them; only print the table
    python benchmarks/peers/run.py all --seconds 30    longer; for other options see --help
    python benchmarks/peers/run.py decentralizepy --installed decentralizepy=PYTHON --update
                                                       add one tool to this processor's results

The results are written to benchmarks/results/peers-PROCESSOR-INSTRUCTIONS.json and .md.

**The common task.** Softmax regression on MNIST, batch 128, one step per round, D-PSGD or the
tool's nearest method, about four links per device: new links each round if the tool has them, else
a fixed random graph. Evaluation is off, or as little as the tool allows. The result is device-steps
per second after a warm-up, on this machine.

**Other tasks.** A tool that is made for federated averaging can be compared with FedAvg in
gossamer: softmax regression as above, all devices in every round, and a small convolutional network
on CIFAR-10, batch 32 (cnn.py). There is no yardstick for these.

**Fairness.** Every tool is installed from the package index into an environment of its own and used
as its documentation and examples do, in its fastest documented mode; its adapter is in this folder.
If torch runs in the tool's main process, one and two threads alternate and the faster counts, for
gossamer too. All use the same clock (job.py). gossamer and the yardstick run just before and just
after each tool, and the ratio is the median of gossamer's two speeds over the tool's speed. Memory
is the sum of the peak resident sizes of all processes of a run; every run also holds the data, 180
MiB of MNIST or 590 MiB of CIFAR-10 per process. A tool that cannot be installed, does not run the
task or does not finish is reported with the reason. A ratio below its limit is in bold.

A tool that is not on the package index is run with the Python of an environment in which it has
been installed from a checkout, if --installed names it.

**Requirements.** MNIST and CIFAR-10 in the cache (`gossamer data get mnist`); 8 GB of disk; for
decent-bench Python 3.13 or newer, on the PATH, from pyenv or from `uv python install 3.13`; for pfl
Python 3.12 or older; on Linux, a pip that finds CPU builds of torch (by an extra index in its
configuration); CUDA builds, which are very large, are refused. As root on Linux the tools run in a
network namespace with only the loopback.
"""

from __future__ import annotations

import argparse
import json
import os
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
INSTALL_LIMIT = 900.0  # seconds
Row = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """What the tools and gossamer run.

    Attributes:
        title: Method and model, for the table.
        data: The data set, "mnist" or "cifar10".
        references: The adapters of gossamer ("ours") and, if there is one, the yardstick ("bare").
    """

    title: str
    data: str
    references: dict[str, str]


COMMON = Task("D-PSGD, softmax", "mnist", {"ours": "ours.py", "bare": "bare.py"})
FEDAVG = Task("FedAvg, softmax", "mnist", {"ours": "ours_fedavg.py"})
FEDAVG_CNN = Task("FedAvg, CNN", "cifar10", {"ours": "ours_fedavg.py"})
TASKS = (COMMON, FEDAVG, FEDAVG_CNN)


@dataclass(frozen=True)
class Peer:
    """A tool to compare with.

    Attributes:
        package: Its name on the package index.
        adapter: The file that runs it.
        at_least: How many times as fast gossamer should be; None without a target.
        task: What gossamer runs beside it.
        extras: Extras of the package.
        more: Other packages to install.
        python: The oldest Python that it supports.
        processes: The number of processes that torchrun starts; one is started without it.
        unavailable: Why it is not measured. No package is looked up then: a package of its name
            that appears later may be another project's.
    """

    package: str
    adapter: str
    at_least: float | None
    task: Task = COMMON
    extras: str = ""
    more: tuple[str, ...] = ("torch",)
    python: tuple[int, int] = (3, 11)
    processes: int = 1
    unavailable: str = ""


NOT_ON_THE_INDEX = "not on the package index; its repository has to be cloned"

PEERS = {
    "decent-bench": Peer("decent-bench", "decent_bench.py", 5.0, more=(), python=(3, 13)),
    # It imports torchvision without declaring the dependency.
    "gossipy": Peer("gossipy-dfl", "gossipy.py", 20.0, more=("torch", "torchvision")),
    "fluke": Peer("fluke-fl", "fluke.py", 20.0),
    "Flower": Peer("flwr", "flower.py", 20.0, extras="[simulation]"),
    # Not p2pfl[torch], which requires a torchvision, and so a torch, of early 2024. It imports what
    # [dp] installs, and the version of datasets that it pins needs an older huggingface_hub and
    # pyarrow.
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
    "decentralizepy": Peer(
        "decentralizepy", "decentralizepy.py", 5.0, unavailable=NOT_ON_THE_INDEX
    ),
    "decentralized-learning-simulator": Peer(
        "decentralized-learning-simulator", "", 5.0, unavailable=NOT_ON_THE_INDEX
    ),
    "pfl": Peer("pfl", "pfl_research.py", 5.0, FEDAVG),
    "pfl-2-processes": Peer("pfl", "pfl_research.py", 5.0, FEDAVG, processes=2),
    "pfl-cnn": Peer("pfl", "pfl_research.py", None, FEDAVG_CNN),
    "pfl-cnn-2-processes": Peer("pfl", "pfl_research.py", None, FEDAVG_CNN, processes=2),
}


class Unavailable(Exception):
    """The reason why a tool cannot be run, in one line."""


def interpreter(oldest: tuple[int, int]) -> str:
    """Return a Python of at least this version: this one, or one of the PATH, pyenv or uv."""
    if sys.version_info[:2] >= oldest:
        return sys.executable
    names = [f"python3.{minor}" for minor in range(oldest[1], oldest[1] + 3)]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = []
    for name in names:
        found.append(shutil.which(name))
        found += map(str, pyenv.glob(f"*/bin/{name}"))
    if shutil.which("uv"):
        command = ["uv", "python", "find", names[0]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found += done.stdout.split("\n")[:1]
    for path in filter(None, found):
        # A shim of pyenv may exist without its Python.
        if subprocess.run([path, "-c", "pass"], capture_output=True, check=False).returncode == 0:
            return path
    raise Unavailable(f"needs Python {oldest[0]}.{oldest[1]} or newer, not found here")


def install(peer: Peer, envs: Path) -> Path:
    """Create the environment of a tool if it does not exist, and return its Python.

    torch has the version that gossamer is tested with, and is never a CUDA build.
    """
    if peer.unavailable:
        raise Unavailable(peer.unavailable)
    env = envs / peer.package
    python = env / "bin" / "python"
    ready = env / "ready"
    if ready.exists():
        return python
    shutil.rmtree(env, ignore_errors=True)
    log(f"installing {peer.package}")
    subprocess.run([interpreter(peer.python), "-m", "venv", str(env)], check=True)
    constraints = env / "constraints.txt"
    constraints.write_text(f"torch=={TORCH}{'+cpu' if sys.platform == 'linux' else ''}\n")
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--constraint", str(constraints), peer.package + peer.extras, *peer.more]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"not installed in {INSTALL_LIMIT:.0f} s") from None
    if done.returncode:
        lines = done.stderr.splitlines()
        reasons = [line for line in lines if line.startswith("ERROR")] or lines[-1:]
        raise Unavailable("cannot be installed: " + reasons[0].removeprefix("ERROR: ")[:300])
    repair_torchvision(env)
    ready.touch()
    return python


def repair_torchvision(env: Path) -> None:
    """Make a torchvision that was built for CUDA importable with a CPU build of torch.

    Its compiled part does not load then, but two operators of that part must at least be declared.
    The tools import torchvision for its data sets, if at all.
    """
    schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    declare = "".join(
        f'torch.library.define("torchvision::{name}", "{schema}")\n' for name in ("nms", "qnms")
    )
    for file in env.glob("lib/python*/site-packages/torchvision/_meta_registrations.py"):
        command = [str(env / "bin" / "python"), "-c", "import torchvision"]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            text = file.read_text()
            line = "import torch.library\n"
            file.write_text(text.replace(line, line + declare, 1))


def without_network(command: Sequence[str]) -> list[str]:
    """Return the command with no network but the loopback, if this machine allows it."""
    is_root = sys.platform == "linux" and os.geteuid() == 0
    if is_root and shutil.which("unshare") and shutil.which("ip"):
        return ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *command]
    return list(command)


def stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name: 1 is the parent, 19 the start time.

    The start time distinguishes a process from a later one with the same number.
    """
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


def end(process: subprocess.Popen[str], seen: Iterable[tuple[int, str]]) -> None:
    """Kill the processes that a run started: those of Ray outlive their driver for a while."""
    process.kill()
    for pid, start in seen:
        try:
            if stat(pid)[19] == start:
                os.kill(pid, signal.SIGKILL)
        except OSError:  # it has ended
            continue


def descendants(root: int) -> dict[tuple[int, str], int]:
    """Return a process and its descendants with their peak resident sizes (Linux only).

    Args:
        root: Number of the process.

    Returns:
        The sizes in KiB, by number and start time.
    """
    parent = {}
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        try:
            fields = stat(pid)
            peak = 0
            for line in (folder / "status").read_text().splitlines():
                if line.startswith("VmHWM"):
                    peak = int(line.split()[1])
        except OSError:  # it has ended
            continue
        parent[pid] = int(fields[1])
        found[pid] = (fields[19], peak)
    family = {root} & parent.keys()
    size = 0
    while len(family) > size:
        size = len(family)
        family |= {pid for pid, above in parent.items() if above in family}
    return {(pid, found[pid][0]): found[pid][1] for pid in family}


def run_job(
    python: Path | str,
    adapter: str,
    task: Task,
    given: argparse.Namespace,
    devices: int,
    seconds: float,
    package: str = "",
    processes: int = 1,
) -> Row:
    """Run an adapter in a process of its own, or in several.

    Args:
        python: The Python of its environment.
        adapter: The file of the adapter.
        task: The task, which names the data.
        given: The options of the command line.
        devices: Number of devices.
        seconds: Seconds to measure.
        package: The package whose version and licence are reported.
        processes: The number of processes; several are started by torchrun.

    Returns:
        Its result, with the memory of its processes.
    """
    command = [str(python)]
    if processes > 1:
        command += ["-m", "torch.distributed.run", "--standalone", "--nnodes=1"]
        command += [f"--nproc-per-node={processes}"]
    command += [str(HERE / "job.py"), adapter]
    command += ["--data", str(given.files[task.data]), "--devices", str(devices)]
    command += ["--seconds", str(seconds), "--limit", str(given.limit)]
    if package:
        command += ["--package", package]
    environment = {
        **os.environ,
        "PYTHONSAFEPATH": "1",  # as -P: no adapter hides the package that it is named after
        # As gossamer sets it: without it, two threads next to another busy process are very slow.
        "OMP_WAIT_POLICY": "PASSIVE",
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "HF_HUB_OFFLINE": "1",
        "MPLBACKEND": "agg",
    }
    log_name = f"{Path(adapter).stem}-{task.data}-{devices}-{processes}.log"
    peaks: dict[tuple[int, str], int] = {}
    with (
        (given.envs / log_name).open("w") as log_file,
        tempfile.TemporaryDirectory() as folder,
    ):
        process = subprocess.Popen(
            without_network(command),
            stdout=subprocess.PIPE,
            stderr=log_file,
            text=True,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
        # job.py stops by itself; this is for when it cannot.
        until = time.monotonic() + given.limit + 60
        while process.poll() is None and time.monotonic() < until:
            for key, peak in descendants(process.pid).items():
                peaks[key] = max(peak, peaks.get(key, 0))  # the peak is 0 once a process has ended
            time.sleep(0.5)
        code = process.poll()
        end(process, peaks)
        lines = process.communicate()[0].splitlines()
    if lines:
        row: Row = json.loads(lines[-1])
    elif code is None:
        row = {"error": f"no answer in {given.limit:.0f} s"}
    else:
        row = {"error": f"ended with exit code {code} and without a result"}
    return row | {"peak_mib": round(sum(peaks.values()) / 1024)}


def speed(row: Row) -> float:
    """Return device-steps per second; NaN if the run failed."""
    if "device_steps" not in row:
        return float("nan")
    return row["device_steps"] / row["seconds"]


def measure(names: Sequence[str], given: argparse.Namespace) -> list[Row]:
    """Install the tools, and run them task by task."""
    pythons: dict[str, Path | Unavailable] = {}
    for name in names:
        peer = PEERS[name]
        if peer.package in pythons:
            continue
        if peer.package in given.installed:
            pythons[peer.package] = given.installed[peer.package]
            continue
        try:
            pythons[peer.package] = install(peer, given.envs)
        except Unavailable as reason:
            pythons[peer.package] = reason
    rows: list[Row] = []
    for devices in given.devices:
        for task in TASKS:
            chosen = [name for name in names if PEERS[name].task is task]
            rows += measure_task(task, chosen, pythons, given, devices)
    return rows


def measure_task(
    task: Task,
    names: Sequence[str],
    pythons: dict[str, Path | Unavailable],
    given: argparse.Namespace,
    devices: int,
) -> list[Row]:
    """Run every tool of a task between two runs of gossamer and of the yardstick.

    The runs after one tool are those before the next.

    Args:
        task: The task.
        names: Its tools, keys of PEERS.
        pythons: The Python of each package, or why there is none.
        given: The options of the command line.
        devices: Number of devices.

    Returns:
        One row per tool.
    """
    rows: list[Row] = []
    before: dict[str, Row] = {}
    for name in names:
        peer = PEERS[name]
        python = pythons[peer.package]
        row: Row = {
            "peer": name,
            "package": peer.package,
            "task": task.title,
            "devices": devices,
            "at_least": peer.at_least,
        }
        rows.append(row)
        if isinstance(python, Unavailable):
            row["error"] = str(python)
            continue
        before = before or references(task, given, devices)
        log(f"{name}, {devices} devices")
        row |= run_job(
            python,
            peer.adapter,
            task,
            given,
            devices,
            given.seconds,
            peer.package,
            peer.processes,
        )
        after = references(task, given, devices)
        for key in before:
            row[key] = statistics.median([speed(before[key]), speed(after[key])])
            row[f"{key}_mib"] = max(before[key]["peak_mib"], after[key]["peak_mib"])
            row[f"{key}_runs"] = [before[key], after[key]]
        before = after
        if "device_steps" in row:
            row["device_steps_per_s"] = speed(row)
            row["ratio"] = row["ours"] / speed(row)
    return rows


def references(task: Task, given: argparse.Namespace, devices: int) -> dict[str, Row]:
    """Run gossamer ("ours") and the yardstick ("bare"), if the task has one, now."""
    log(f"{' and '.join(task.references)}, {task.title}, {devices} devices")
    found = {}
    for key, adapter in task.references.items():
        found[key] = run_job(sys.executable, adapter, task, given, devices, given.seconds / 2)
    return found


def table(rows: Sequence[Row]) -> str:
    """Return the table as Markdown, with the notes on each tool."""
    lines = [
        "| tool | task | devices | steps/s | gossamer | yardstick | gossamer is faster by | limit "
        "| peak MiB (gossamer) | licence |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        value = row.get("error", "–")
        ratio = "–"
        if "ratio" in row:
            value = number(row["device_steps_per_s"])
            ratio = f"{number(row['ratio'])}×"
            if row["at_least"] and row["ratio"] < row["at_least"]:
                ratio = f"**{ratio}**"
        limit = "–"
        if row["at_least"]:
            limit = f"≥ {row['at_least']:.0f}×"
        memory = "–"
        if "peak_mib" in row:
            memory = f"{row['peak_mib']:,} ({row['ours_mib']:,})"
        cells = [
            f"{row['peer']} {row.get('version', '')}".strip(),
            row["task"],
            str(row["devices"]),
            value,
            *(number(row[key]) if key in row else "–" for key in ("ours", "bare")),
            ratio,
            limit,
            memory,
            row.get("licence", "–"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", *notes(rows)])


def notes(rows: Sequence[Row]) -> list[str]:
    """Return what each tool, and gossamer beside it, does, as the lines of a list."""
    names: dict[str, list[str]] = {}
    for row in rows:
        found = {row["peer"]: row}
        if "ours_runs" in row:
            found[f"gossamer ({row['task']})"] = row["ours_runs"][0]
        for name, of in found.items():
            named = names.setdefault(of.get("notes", ""), [])
            if name not in named:
                named.append(name)
    names.pop("", None)  # runs that ended before they could say it
    lines = [f"- {', '.join(named)}: {note}" for note, named in names.items()]
    return sorted(lines, key=str.lower)


def chart(rows: Sequence[Row], title: str, path: Path) -> None:
    """Draw the device-steps per second of softmax regression, a panel per number of devices.

    Args:
        rows: The results; tools that were not run are left out.
        title: The processor.
        path: The file to write.
    """
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    from gossamer.report.figures import STYLE
    from gossamer.results.palette import COLOURS

    counts = sorted({row["devices"] for row in rows}, reverse=True)
    with mpl.rc_context(STYLE | {"svg.hashsalt": "gossamer", "axes.grid": False}):
        figure, axes = plt.subplots(1, len(counts), figsize=(4.6 * len(counts), 3.6), squeeze=False)
        for axis, devices in zip(axes[0], counts, strict=True):
            panel = []
            for row in rows:
                is_shown = "ours" in row and row["task"] != FEDAVG_CNN.title
                if is_shown and row["devices"] == devices:
                    panel.append(row)
            panel.sort(key=lambda row: row.get("device_steps_per_s", 0.0), reverse=True)
            labels = []
            values = []
            texts = []
            colours = []
            for label, colour, key, task in (
                ("bare torch", "0.75", "bare", COMMON),
                ("gossamer", COLOURS[0], "ours", COMMON),
                ("gossamer, FedAvg", COLOURS[0], "ours", FEDAVG),
            ):
                speeds = [row[key] for row in panel if row["task"] == task.title and key in row]
                if speeds:
                    labels.append(label)
                    values.append(statistics.median(speeds))
                    texts.append(number(values[-1]))
                    colours.append(colour)
            for row in panel:
                labels.append(row["peer"])
                values.append(row.get("device_steps_per_s", 0.0))
                texts.append(number(values[-1]) if values[-1] else short(row.get("error", "")))
                colours.append(COLOURS[1])
            axis.barh(labels, values, color=colours, height=0.65)
            axis.set_xscale("log")
            least = 1.0 if min(filter(None, values)) > 1 else 0.1
            axis.set_xlim(least, 10 * max(values))
            for y, (value, text) in enumerate(zip(values, texts, strict=True)):
                axis.text(value or least, y, f" {text}", va="center", fontsize=8)
            axis.invert_yaxis()
            axis.tick_params(axis="y", length=0)
            axis.set_title(f"{devices} devices", fontsize=10)
            axis.set_xlabel("device-steps per second (log scale)")
        figure.suptitle(title, fontsize=10)
        figure.savefig(path, metadata={"Date": None})


def number(value: float) -> str:
    """Return a number with about three digits."""
    if value >= 100:
        return f"{value:,.0f}"
    if value < 10:
        return f"{value:.2g}"
    return f"{value:.1f}"


def short(reason: str) -> str:
    """Return a reason that fits in the chart."""
    if len(reason) <= 40:
        return reason
    return reason[:38].rstrip() + " …"


def log(line: str) -> None:
    """Print progress to standard error."""
    print(line, file=sys.stderr, flush=True)


def write_data(names: Sequence[str], given: argparse.Namespace, folder: Path) -> dict[str, Path]:
    """Write the data sets that some tools need as arrays, which need no gossamer to be read.

    Args:
        names: The tools, keys of PEERS.
        given: The options of the command line.
        folder: Where to write them.

    Returns:
        The files by data set.
    """
    import numpy as np

    import gossamer as gs

    files = {}
    for name in sorted({PEERS[name].task.data for name in names}):
        if name == "mnist":
            data = gs.Mnist(given.data).load()
            x = data.x.reshape(len(data.x), -1)
        else:
            data = gs.Cifar10().load()
            x = data.x
        files[name] = folder / f"{name}.npz"
        np.savez(files[name], x=x.numpy(), y=data.y.numpy())
    return files


def write(rows: list[Row], update: bool) -> None:
    """Write the results as JSON, as a section of the speed page, and as a picture.

    Args:
        rows: The results.
        update: Keep the rows of other tools in the results of this processor.
    """
    sys.path.append(str(HERE.parent))
    from result_names import file_name, title

    from gossamer.backend import versions

    made_by = versions()
    processor = made_by["processor"]
    path = RESULTS / f"{file_name('peers', processor)}.json"
    if update:
        earlier = json.loads(path.read_text())
        made_by = earlier["versions"]
        rows = merged(earlier["rows"], rows)
    found = {"versions": made_by, "cores": os.cpu_count(), "peers_torch": TORCH, "rows": rows}
    path.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    heading = f"#### {title(processor)}\n\ngossamer {made_by['gossamer']}, torch {TORCH}.\n\n"
    path.with_suffix(".md").write_text(heading + table(rows) + "\n")
    chart(rows, title(processor), PICTURE)
    log(f"written: {path}")


def merged(rows: Sequence[Row], newer: Sequence[Row]) -> list[Row]:
    """Return rows in which those of the same tool and number of devices are replaced by newer ones.

    Args:
        rows: The rows of a results file.
        newer: The rows of tools that were run again.
    """
    by_key = {(row["peer"], row["devices"]): row for row in rows}
    for row in newer:
        by_key[row["peer"], row["devices"]] = row
    return list(by_key.values())


def main() -> None:
    """Run the tools, print the table, and write it if all were run."""
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
        help="folder of the environments (default: %(default)s)",
    )
    parser.add_argument("--devices", type=int, nargs="+", default=[100, 10])
    parser.add_argument(
        "--seconds",
        type=float,
        default=12.0,
        help="time to measure each tool; half of it for gossamer",
    )
    parser.add_argument(
        "--limit", type=float, default=120.0, help="seconds after which a run is aborted"
    )
    parser.add_argument(
        "--installed",
        action="append",
        default=[],
        metavar="NAME=PYTHON",
        help="the Python of an environment in which a tool is installed already",
    )
    parser.add_argument(
        "--update",
        action="store_true",
        help="replace the rows of these tools in the results of this processor",
    )
    given = parser.parse_args()
    given.installed = dict(pair.split("=", 1) for pair in given.installed)
    names = list(PEERS) if "all" in given.peers else given.peers
    given.envs = given.envs.expanduser().resolve()
    given.envs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        given.files = write_data(names, given, Path(folder))
        rows = measure(names, given)
    print(table(rows))
    if "all" in given.peers or given.update:
        write(rows, given.update)


if __name__ == "__main__":
    main()

"""What goes wrong on a Ray cluster: the cause is named, and nothing is waited for in vain.

All clusters run in network namespaces that have the loopback interface only.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.loopback import python
from support.processes import DEADLINE

pytest.importorskip("ray", reason="the extra gossamer[ray] is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200), pytest.mark.cluster]


def test_the_cause_of_a_failure_is_the_message(tmp_path: Path) -> None:
    """In one cluster: code that cannot be imported, that raises, and that kills its process."""
    code = """
import os
import time
from dataclasses import dataclass
import gossamer as gs
from gossamer.engines.observer import Observer
from gossamer.engines.ray.cluster import connect
from gossamer.network import Links

driver = os.getpid()

def fail():
    raise ModuleNotFoundError("No module named 'robots'")

class Missing:
    def __reduce__(self):
        return fail, ()

@dataclass(frozen=True)
class Failing(gs.Network):
    devices: int = 6
    what: object = None

    def links(self, t):
        if t == 30 and os.getpid() != driver:
            if self.what == "raise":
                raise ValueError("no links in round 30")
            if self.what == "kill":
                os.kill(os.getpid(), 9)
        return Links.of(6, [(i, i + 1) for i in range(5)])

class Messages(Observer):
    def __init__(self):
        self.texts = []

    def message(self, text):
        self.texts.append(text)

connection = connect(gs.Ray(shards=2))
result = {"home": os.listdir(os.environ["HOME"])}
for what in ("import", "raise", "kill"):
    network = Failing(what=Missing() if what == "import" else what)
    messages = Messages()
    began = time.monotonic()
    try:
        study = gs.Study(gs.DPSGD(0.1), network, rounds=60)
        gs.run(study, engine=gs.Ray(shards=2, wait=600), observers=[messages])
    except Exception as error:
        notes = " ".join(getattr(error, "__notes__", []))
        result[what] = [type(error).__name__, str(error), notes, messages.texts]
connection.close()
"""
    found = python(code, tmp_path)
    assert ".ray" not in found["home"]  # a token in it would change later clusters
    kind, text, _, messages = found["import"]
    assert kind == "GossamerError"
    assert "cannot start: ModuleNotFoundError: No module named 'robots'; install the mod" in text
    assert not messages  # it is not tried again
    kind, text, notes, _ = found["raise"]
    assert (kind, text) == ("ValueError", "no links in round 30")
    assert "in links" in notes  # the traceback of the shard
    kind, text, _, messages = found["kill"]
    assert kind == "Lost"
    assert "shards were lost 4 times without a new round in between" in text
    assert "ended without a Python error: it was killed (signal 9;" in text
    assert len(messages) >= 4


def test_work_may_take_longer_than_the_limit_of_silence(tmp_path: Path) -> None:
    """An evaluation that takes longer than `engine.wait` is no loss."""
    code = """
import os
import time
import torch
import gossamer as gs
from gossamer.engines.observer import Observer

driver = os.getpid()

class Messages(Observer):
    def __init__(self):
        self.texts = []

    def message(self, text):
        self.texts.append(text)

def slow(outputs, targets):
    if os.getpid() != driver:
        time.sleep(4)
    return torch.zeros(())

measure = gs.Measure(every=0, metrics=(gs.FunctionMetric(slow, "slow", "lower"),), test=8)
messages = Messages()
study = gs.Study(gs.DPSGD(0.1), gs.Ring(4), rounds=3, measure=measure)
gs.run(study, engine=gs.Ray(shards=2, wait=5), observers=[messages])
result = messages.texts
"""
    texts = python(code, tmp_path)
    assert not any("shard" in text for text in texts), texts


def test_ten_kills_and_a_stopped_process(tmp_path: Path) -> None:
    """The models are equal bit for bit, as long as rounds are won between the losses."""
    code = """
import os
import random
import signal
import threading
import time
import torch
import gossamer as gs
from gossamer.engines.observer import Observer
from gossamer.engines.ray.cluster import connect

ROUNDS = 6000

class Messages(Observer):
    def __init__(self):
        self.texts = []

    def message(self, text):
        self.texts.append(text)

def shards():
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = open(f"/proc/{pid}/cmdline").read()
            own = given["mark"] in open(f"/proc/{pid}/environ").read()
        except OSError:
            continue
        if own and line.startswith("ray::ShardActor"):
            found.append(int(pid))
    return found

def signal_one(number, others):
    pids = [pid for pid in shards() if pid not in others]
    if pids:
        os.kill(random.choice(pids), number)

result = {}
connection = connect(gs.Ray(shards=2))
study = gs.Study(gs.WPM(3, 0.02), gs.Ring(12), rounds=ROUNDS, dtype="float64")
settings = gs.Ray(shards=2, wait=20, checkpoint=1)

def run(number, times):
    messages = Messages()
    others = shards()  # of the run before, which may not have ended
    engine = settings.start(study.plan(), observer=messages)
    timers = []
    pause = 5 if number == signal.SIGKILL else 60
    last = [0, -pause]

    def stop():
        # One loss after the other: two at once count as one. A signal to a process that ends
        # anyway is no loss, so it is sent again after a pause.
        losses = sum("all shards restarted" in text for text in messages.texts)
        now = time.monotonic()
        due = losses > last[0] or now > last[1] + pause
        if losses < times and due and engine.round > losses * ROUNDS / (times + 1):
            last[:] = losses, now
            timer = threading.Timer(0.2 * random.random(), signal_one, [number, others])
            timer.start()
            timers.append(timer)
        return False

    engine.advance(ROUNDS, stop)
    for timer in timers:
        timer.join()
    models = engine.models()
    engine.close()
    return models, messages.texts

whole, _ = run(signal.SIGKILL, 0)
models, texts = run(signal.SIGKILL, 10)
result["ten"] = [bool(torch.equal(models, whole)), texts]
models, texts = run(signal.SIGSTOP, 1)
result["stopped"] = [bool(torch.equal(models, whole)), texts]
connection.close()
"""
    found = python(code, tmp_path, seconds=4 * DEADLINE, mark="GOSSAMER_TEST")
    same, texts = found["ten"]
    assert same, texts
    assert sum("all shards restarted" in text for text in texts) >= 10, texts
    same, texts = found["stopped"]
    assert same, texts
    assert any("no sign of life from shard" in text for text in texts), texts


def test_a_full_object_store(tmp_path: Path) -> None:
    """States that do not fit into Ray's memory are restored all the same."""
    code = """
import os
import signal
import numpy as np
import ray
import torch
import gossamer as gs
from gossamer.engines.observer import Observer

class Messages(Observer):
    def __init__(self):
        self.texts = []

    def message(self, text):
        self.texts.append(text)

os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
ray.init(
    num_cpus=2,
    include_dashboard=False,
    log_to_driver=False,
    object_store_memory=80_000_000,
    _node_ip_address="127.0.0.1",
)
full = ray.put(np.ones(60_000_000, dtype=np.uint8))
study = gs.Study(
    gs.DPSGD(0.1), gs.Ring(8000), gs.Digits(), gs.Drawn(2), batch=1, rounds=24, dtype="float64",
    measure=gs.Measure(every=0, test=1),
)
plan = study.plan()
settings = gs.Ray(shards=2, wait=60)
whole = settings.start(plan)
whole.advance(24)
expected = whole.models()
whole.close()

def shards():
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = open(f"/proc/{pid}/cmdline").read()
            own = given["mark"] in open(f"/proc/{pid}/environ").read()
        except OSError:
            continue
        if own and line.startswith("ray::ShardActor"):
            found.add(int(pid))
    return found

messages = Messages()
before = shards()  # of the first run, which may not have ended
engine = settings.start(plan, observer=messages)
for goal in (8, 16):
    engine.advance(goal)
    engine._take_checkpoint()
os.kill(min(shards() - before), signal.SIGKILL)
engine.advance(24)
result = [bool(torch.equal(engine.models(), expected)), messages.texts]
result.append(int(ray.get(full).sum()))
engine.close()
ray.shutdown()
"""
    same, texts, total = python(code, tmp_path, seconds=4 * DEADLINE, mark="GOSSAMER_TEST")
    assert same, texts
    assert any("all shards restarted from round 16" in text for text in texts), texts
    assert total == 60_000_000

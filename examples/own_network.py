"""Use your own links: networkx graphs, a function of the round, and a contact log."""

import itertools
import tempfile
from pathlib import Path

import networkx as nx

import gossamer as gs
from gossamer.theory import check_assumption1

DEVICES = 10
ROUNDS = 100

# 1. networkx graphs, used in turn: a ring and two clusters.
graphs = gs.from_networkx([nx.cycle_graph(DEVICES), nx.connected_caveman_graph(2, DEVICES // 2)])


# 2. A function of the round: a car passes one roadside unit after the other.
def passing_car(t: int) -> list[tuple[int, int]]:
    return [(0, 1 + t % (DEVICES - 1))]


function = gs.Callback(DEVICES, passing_car)


# 3. A contact log, `time CONN a b up|down`. This one is synthetic: every 5 seconds two vehicles
#    meet for 20 seconds.
def write_log(path: Path) -> None:
    pairs = list(itertools.combinations(range(DEVICES), 2))
    meetings = [(5 * k, *pairs[17 * k % len(pairs)]) for k in range(2 * ROUNDS)]
    events = [(time, f"CONN {a} {b} up") for time, a, b in meetings] + [
        (time + 20, f"CONN {a} {b} down") for time, a, b in meetings
    ]
    path.write_text("".join(f"{time} {event}\n" for time, event in sorted(events)))


with tempfile.TemporaryDirectory() as folder:
    log = Path(folder) / "contacts.txt"
    write_log(log)
    contacts = gs.ContactTrace(log, DEVICES, seconds_per_round=10)

    print(f"{'links':10}{'links/round':>14}{'B':>4}{'accuracy':>10}{'worst':>8}{'distance':>10}")
    for name, network in (("graphs", graphs), ("function", function), ("log", contacts)):
        study = gs.Study(gs.WPM(p=3, eta=0.05), network, split=gs.OneLabel(), rounds=ROUNDS)
        result = gs.run(study).summary
        links = sum(len(network.links(t)) for t in range(ROUNDS)) / ROUNDS
        b = check_assumption1(network, ROUNDS).b  # the links of B rounds connect all devices
        print(
            f"{name:10}{links:14.1f}{b.aligned if b else '–':>4}{result['accuracy']:10.3f}"
            f"{result['accuracy_worst']:8.3f}{result['distance']:10.3f}"
        )

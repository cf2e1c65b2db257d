"""Adapter of gossamer, by its public names: FedAvg with all devices in every round."""

import runpy
from pathlib import Path

THREADS = (1, 2)
NOTES = "federated averaging, all devices train each round; the links of the network are not used"


def run(x, y, devices, tick):
    import gossamer as gs

    if x.ndim == 2:
        model = gs.Softmax()
        batch = 128
    else:
        cnn = runpy.run_path(str(Path(__file__).with_name("cnn.py")))
        model = gs.Module(cnn["make"])
        batch = cnn["BATCH"]
    data = gs.from_arrays(x, y, x[:1], y[:1])
    network = gs.Ring(devices)
    study = gs.Study(gs.FedAvg(0.01), network, data, model=model, batch=batch, threads=1)
    simulator = gs.Simulator(study.plan(data))
    while True:
        simulator.advance(simulator.round + 1)
        tick(devices)

"""Adapter of gossamer, by its public names."""

THREADS = (1, 2)
NOTES = "the task as it is: new links each round, Metropolis weights"


def run(x, y, devices, tick):
    import gossamer as gs

    data = gs.from_arrays(x, y, x[:1], y[:1])
    network = gs.ErdosRenyi(devices, probability=min(1.0, 4 / (devices - 1)))
    study = gs.Study(gs.DPSGD(0.01), network, data, model=gs.Softmax(), batch=128, threads=1)
    simulator = gs.Simulator(study.plan(data))
    while True:
        simulator.advance(simulator.round + 1)
        tick(devices)

"""Adapter of Flower: a ServerApp and a ClientApp on its Ray engine, as in its quickstart."""

THREADS = (1,)
NOTES = (
    "federated averaging: it has no links between clients, all train each round and a server "
    "averages; one worker with one thread per core; evaluation off, telemetry off"
)


def run(x, y, devices, tick):
    import os
    from pathlib import Path

    import numpy as np
    import torch
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    folder = Path.cwd()
    shares = np.random.default_rng(0).permutation(len(x)).reshape(devices, -1)
    for device, share in enumerate(shares):
        np.save(folder / f"x{device}.npy", x[share])
        np.save(folder / f"y{device}.npy", y[share])

    client = ClientApp()
    server = ServerApp()

    @client.train()
    def train(msg, context):
        torch.set_num_threads(1)
        device = context.node_config["partition-id"]
        # A worker serves all clients, so it reads only what it needs.
        inputs = np.load(folder / f"x{device}.npy", mmap_mode="r")
        labels = np.load(folder / f"y{device}.npy", mmap_mode="r")
        picked = torch.randint(len(inputs), (128,)).numpy()
        model = torch.nn.Linear(784, 10)
        model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        loss = torch.nn.functional.cross_entropy(
            model(torch.from_numpy(inputs[picked])), torch.from_numpy(labels[picked])
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        content = {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord({"num-examples": 128}),
        }
        return Message(content=RecordDict(content), reply_to=msg)

    class Averaging(FedAvg):
        def aggregate_train(self, server_round, replies):
            replies = list(replies)
            result = super().aggregate_train(server_round, replies)
            tick(sum(not reply.has_error() for reply in replies))
            return result

    @server.main()
    def main(grid, context):
        strategy = Averaging(
            fraction_evaluate=0.0, min_train_nodes=devices, min_available_nodes=devices
        )
        strategy.start(grid, ArrayRecord(torch.nn.Linear(784, 10).state_dict()), num_rounds=10**6)

    cores = os.cpu_count()
    resources = {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"num_cpus": cores},
    }
    run_simulation(server, client, num_supernodes=devices, backend_config=resources)

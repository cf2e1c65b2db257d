"""Adapter of fluke: GossipDFL, its decentralised algorithm, with a random topology."""

THREADS = (1, 2)
NOTES = (
    "gossip: each device sends its model to one random neighbour per round and averages what it "
    "receives; a device that receives nothing takes no step, and only steps taken count; a fixed "
    "random graph; it shuffles all samples of a device for each batch; no evaluation"
)


def run(x, y, devices, tick):
    import networkx as nx
    import numpy as np
    import torch
    from fluke import DDict, FlukeENV
    from fluke.algorithms.decentralized import GossipDFL, Topology
    from fluke.data import DataSplitter, DummyDataContainer, FastDataLoader
    from fluke.utils import ClientObserver, FederationObserver

    class Rounds(ClientObserver, FederationObserver):
        steps = 0

        def end_fit(self, round, client_id, model, loss, **kwargs):
            self.steps += 1

        def end_round(self, round):
            tick(self.steps)
            self.steps = 0

    FlukeENV().set_seed(0)
    FlukeENV().set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
    inputs = torch.from_numpy(x)
    labels = torch.from_numpy(y)
    shares = np.random.default_rng(0).permutation(len(x)).reshape(devices, -1)
    loaders = [
        FastDataLoader(
            inputs[share],
            labels[share],
            num_labels=10,
            batch_size=128,
            shuffle=True,
            single_batch=True,
        )
        for share in shares
    ]
    data = DummyDataContainer(loaders, [None] * devices, None, num_classes=10)
    client = {
        "batch_size": 128,
        "local_epochs": 1,
        "loss": "CrossEntropyLoss",
        "policy": "aggregate",
    }
    client |= {
        "optimizer": {"name": "SGD", "lr": 0.01},
        "scheduler": {"name": "StepLR", "step_size": 1, "gamma": 1},
    }
    algorithm = GossipDFL(
        n_clients=devices,
        data_splitter=DataSplitter(data),
        hyper_params=DDict(model=torch.nn.Linear(784, 10), client=client),
        topology=Topology(nx.random_regular_graph(min(4, devices - 1), devices, seed=0)),
    )
    algorithm.set_callbacks(Rounds())
    algorithm.run(10**9)

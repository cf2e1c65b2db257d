"""Adapter of decentralizepy: one process per device, as in its eval/testing.py."""

import logging
import sys
import time
import types

THREADS = (1,)
NOTES = (
    "D-PSGD, Metropolis weights, a fixed random graph; one process per device with one thread of "
    "torch, pickled models over TCP (ZeroMQ) on the loopback; the task's data set and model "
    "in its interfaces; no evaluation, no log; installed from a checkout of its repository; memory "
    "that its processes share is counted in each"
)


def run(x, y, devices, tick):
    import networkx as nx
    import torch
    from decentralizepy.datasets.Dataset import Dataset
    from decentralizepy.graphs.Graph import Graph
    from decentralizepy.mappings.Linear import Linear
    from decentralizepy.models.Model import Model
    from decentralizepy.node.DPSGDNode import DPSGDNode
    from decentralizepy.training.Training import Training
    from torch import multiprocessing
    from torch.utils.data import DataLoader, TensorDataset

    steps = multiprocessing.Value("q", 0)
    inputs = torch.from_numpy(x)
    labels = torch.from_numpy(y)

    class Share(Dataset):
        def get_trainset(self, batch_size, shuffle):
            mine = slice(self.uid, None, devices)
            samples = TensorDataset(inputs[mine], labels[mine])
            return DataLoader(samples, batch_size=batch_size, shuffle=shuffle)

        def get_testset(self):
            return None

    class Softmax(Model):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(784, 10)

        def forward(self, batch):
            return self.linear(batch)

    class Counted(Training):
        def train(self, dataset):
            super().train(dataset)
            with steps.get_lock():
                steps.value += 1

    # The tool finds these classes by the name of a module.
    task = types.ModuleType("common_task")
    task.Share = Share
    task.Softmax = Softmax
    task.Counted = Counted
    sys.modules["common_task"] = task

    # An optimiser imports torch's compiler: once here, not in every process.
    torch.optim.SGD(Softmax().parameters(), lr=0.01)

    graph = Graph(devices)
    for uid, neighbours in nx.random_regular_graph(4, devices, seed=0).adjacency():
        graph.adj_list[uid] = set(neighbours)
    with open("addresses.json", "w") as file:
        file.write('{"0": "127.0.0.1"}')
    settings = {
        "DATASET": {
            "dataset_package": "common_task",
            "dataset_class": "Share",
            "model_class": "Softmax",
        },
        "OPTIMIZER_PARAMS": {
            "optimizer_package": "torch.optim",
            "optimizer_class": "SGD",
            "lr": 0.01,
        },
        "TRAIN_PARAMS": {
            "training_package": "common_task",
            "training_class": "Counted",
            "rounds": 1,
            "full_epochs": False,
            "batch_size": 128,
            "shuffle": True,
            "loss_package": "torch.nn",
            "loss_class": "CrossEntropyLoss",
        },
        "COMMUNICATION": {
            "comm_package": "decentralizepy.communication.TCP",
            "comm_class": "TCP",
            "addresses_filepath": "addresses.json",
        },
        "SHARING": {
            "sharing_package": "decentralizepy.sharing.Sharing",
            "sharing_class": "Sharing",
        },
    }
    for rank in range(devices):
        never = 10**9
        arguments = [rank, 0, Linear(1, devices), graph, settings, never, ".", "."]
        arguments += [logging.WARNING, never, never, 0]
        multiprocessing.Process(target=DPSGDNode, args=arguments, daemon=True).start()
    counted = 0
    while True:
        time.sleep(0.002)
        found = steps.value
        if found >= counted + devices:
            tick(found - counted)
            counted = found

"""Adapter of pfl-research, in one process or two, as in its image classification benchmark."""

import runpy
from pathlib import Path

THREADS = (1, 2)
NOTES = (
    "FedAvg in the SimulatedBackend, all users in every round, one local step on samples drawn at "
    "random from the user's, which are tensors in memory; evaluation only in the first round, no "
    "privacy mechanism, metrics are not printed; without its option torch.compile, which was no "
    "faster; several processes are started by torchrun, as its documentation recommends"
)


def run(x, y, devices, tick):
    import numpy as np
    import torch
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByUser
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data import FederatedDataset
    from pfl.data.dataset import Dataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
    from pfl.metrics import Metrics, Weighted
    from pfl.model.pytorch import PyTorchModel

    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002  # it draws from this generator, alike in all processes
    cnn = runpy.run_path(str(Path(__file__).with_name("cnn.py")))
    is_softmax = x.ndim == 2
    batch = 128 if is_softmax else cnn["BATCH"]

    class Classifier(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.Linear(784, 10) if is_softmax else cnn["make"]()

        def forward(self, inputs):
            return self.layers(inputs)

        def loss(self, inputs, labels):
            return torch.nn.functional.cross_entropy(self(inputs), labels)

        @torch.no_grad()
        def metrics(self, inputs, labels):
            return {"loss": Weighted(self.loss(inputs, labels).item() * len(labels), len(labels))}

    inputs = torch.from_numpy(x)
    labels = torch.from_numpy(y)
    shares = torch.randperm(len(x)).view(devices, -1)

    def user(number):
        picked = shares[number][torch.randint(shares.shape[1], (batch,))]
        return Dataset([inputs[picked], labels[picked]], user_id=str(number))

    class Tick(TrainingProcessCallback):
        def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
            tick(devices)
            return False, Metrics()

    users = FederatedDataset(user, get_user_sampler("minimize_reuse", range(devices)))
    module = Classifier()
    model = PyTorchModel(
        model=module,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(module.parameters(), 1.0),
    )
    rounds = 10**6
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=rounds,
            train_cohort_size=devices,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(
            training_data=users, val_data=users, postprocessors=[WeightByUser()]
        ),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_learning_rate=0.01,
            local_num_epochs=None,
            local_num_steps=1,
            local_batch_size=batch,
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=batch),
        callbacks=[Tick()],
        send_metrics_to_platform=False,
    )

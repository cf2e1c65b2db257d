"""The convolutional network of the tasks on CIFAR-10, the same for every tool (see run.py)."""

BATCH = 32


def make():
    """Return the network that ../speed.py measures too."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(2048, 10),
    )

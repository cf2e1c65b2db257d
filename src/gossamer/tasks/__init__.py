"""What is learned: data, its split among the devices, and a model. Knows nothing of networks."""

from gossamer.tasks.array_files import Arrays
from gossamer.tasks.class_metrics import Accuracy, IoU, MacroF1, Perplexity, TopKAccuracy
from gossamer.tasks.data import Data, from_arrays, from_dataset
from gossamer.tasks.image_sets import Cifar10, Digits, FashionMnist, Mnist
from gossamer.tasks.learner import Learner, Scores
from gossamer.tasks.linear import LinearRegression, LogisticRegression, Softmax, Svm
from gossamer.tasks.losses import (
    AbsoluteError,
    BinaryCrossEntropy,
    CrossEntropy,
    FunctionLoss,
    Huber,
    Loss,
    SquaredError,
)
from gossamer.tasks.metric import Metric
from gossamer.tasks.models import Cnn, Mlp, Module
from gossamer.tasks.number_metrics import MAE, R2, RMSE
from gossamer.tasks.own_metrics import FunctionMetric
from gossamer.tasks.split_files import Lists
from gossamer.tasks.split_rules import ByClass, Dirichlet, Drawn, Iid, Labels, OneLabel, Uneven
from gossamer.tasks.splits import Split, from_lists
from gossamer.tasks.stream import Stream
from gossamer.tasks.tables import Table, from_table
from gossamer.tasks.task import Model, Task
from gossamer.tasks.validation import Validation
from gossamer.tasks.worker import Worker

# isort: split
# Last, since kinds are listed in the order in which they are registered.
from gossamer.tasks.hf import HuggingFace, TokenModel, Transformers, from_hf

__all__ = [
    "MAE",
    "R2",
    "RMSE",
    "AbsoluteError",
    "Accuracy",
    "Arrays",
    "BinaryCrossEntropy",
    "ByClass",
    "Cifar10",
    "Cnn",
    "CrossEntropy",
    "Data",
    "Digits",
    "Dirichlet",
    "Drawn",
    "FashionMnist",
    "FunctionLoss",
    "FunctionMetric",
    "Huber",
    "HuggingFace",
    "Iid",
    "IoU",
    "Labels",
    "Learner",
    "LinearRegression",
    "Lists",
    "LogisticRegression",
    "Loss",
    "MacroF1",
    "Metric",
    "Mlp",
    "Mnist",
    "Model",
    "Module",
    "OneLabel",
    "Perplexity",
    "Scores",
    "Softmax",
    "Split",
    "SquaredError",
    "Stream",
    "Svm",
    "Table",
    "Task",
    "TokenModel",
    "TopKAccuracy",
    "Transformers",
    "Uneven",
    "Validation",
    "Worker",
    "from_arrays",
    "from_dataset",
    "from_hf",
    "from_lists",
    "from_table",
]

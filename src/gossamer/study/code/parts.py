"""Own data, split, model, network and method in a spec."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from numpy.typing import NDArray
from torch import nn

from gossamer._core.registry import register
from gossamer.algorithms import Algorithm
from gossamer.errors import InputError
from gossamer.network import Network
from gossamer.network.base import Fault, Faulty, Links
from gossamer.study.code.base import Code, Forwarding, is_maker
from gossamer.tasks import Data, Loss, Model, Module
from gossamer.tasks.data import Source
from gossamer.tasks.learner import Learner
from gossamer.tasks.split_rules import SplitRule
from gossamer.tasks.splits import Split, own_split


@register("python", "model")
@dataclass(frozen=True)
class ModelCode(Code):
    """A torch module, a function or class that makes one, or a model of gossamer.

    A function may have a parameter `data`, which receives the training data.

    Args:
        object: "module:name", such as "my_model:make".
        path: The folder of the module; relative to the spec's folder, or to the current one.
        arguments: Keyword arguments of the function.
        sources: Digests of the files, which have to be these; filled in if it is empty.
        loss: The loss of a torch module. Default: as in `Module`.

    Example:
        >>> ModelCode("my_model:make", arguments={"width": 64})         # doctest: +SKIP
    """

    loss: Loss | None = None

    section = "model"
    accepted = "a torch.nn.Module, a function that makes one, or a model of gossamer"
    given = ("data",)

    def learner(self, data: Data) -> Learner:
        with self._running():
            value = self._value
            if isinstance(value, nn.Module):
                return Module(value, self.loss).learner(data)
            if not is_maker(value):
                return self._learner_of(value, data)
            with torch.random.fork_rng(devices=[]):
                made = self._called(data=data)
            if isinstance(made, nn.Module):
                return Module(lambda: self._called(data=data), self.loss).learner(data)
            return self._learner_of(made, data)

    def _learner_of(self, model: Any, data: Data) -> Learner:
        if not isinstance(model, Model):
            raise self._refused(model)
        if self.loss is not None:
            accepted = f"none: {self.object} is a model of gossamer, which has its own"
            raise InputError("model.loss", self.loss, accepted)
        return model.learner(data)


@register("python", "data")
@dataclass(frozen=True)
class DataCode(Code):
    """A `Data`, a source of data, or a function or class that makes one of them.

    Args:
        object: "module:name", such as "my_data:load".
        path: The folder of the module; relative to the spec's folder, or to the current one.
        arguments: Keyword arguments of the function.
        sources: Digests of the files, which have to be these; filled in if it is empty.
    """

    section = "data"
    names_itself = False
    accepted = "a gossamer.Data, a source with a method load, or a function that returns one"

    def load(self) -> Data:
        """Return the data; a function is called again every time."""
        with self._running():
            data = self._value
            if is_maker(data):
                data = self._called()
            if isinstance(data, Source):
                if own_split(data) is not None:
                    raise self._refused(data)
                data = data.load()
            if not isinstance(data, Data):
                raise self._refused(data)
            return data


@register("python", "split")
@dataclass(frozen=True)
class SplitCode(Code):
    """A `Split`, a rule with a method `make`, or a function or class that makes one of them.

    A function may have the parameters `y`, `devices`, `seed` and `groups`, which it then receives.

    Args:
        object: "module:name", such as "my_data:by_writer".
        path: The folder of the module; relative to the spec's folder, or to the current one.
        arguments: Keyword arguments of the function.
        sources: Digests of the files, which have to be these; filled in if it is empty.
    """

    section = "split"
    names_itself = False
    accepted = "a gossamer Split, a rule with a method make, or a function that returns one"
    given = ("y", "devices", "seed", "groups")

    def make_for(
        self, y: NDArray[Any], devices: int, seed: int, groups: Mapping[str, Sequence[str]]
    ) -> Split:
        """Divide the samples among the devices.

        Args:
            y: The label or target of every sample.
            devices: Number of devices.
            seed: The study's seed.
            groups: What the network knows of its devices: by name, one value per device.
        """
        with self._running():
            split = self._value
            if is_maker(split):
                split = self._called(y=y, devices=devices, seed=seed, groups=groups)
            if isinstance(split, SplitRule):
                split = split.make_for(y, devices, seed, groups)
            if not isinstance(split, Split):
                raise self._refused(split)
            return split


@register("python", "network")
@dataclass(frozen=True)
class NetworkCode(Forwarding):
    """A `Network`, or a function or class that makes one.

    A function may have a parameter `seed`, which receives the seed.

    Args:
        object: "module:name", such as "my_network:Convoy".
        path: The folder of the module; relative to the spec's folder, or to the current one.
        arguments: Keyword arguments of the function.
        sources: Digests of the files, which have to be these; filled in if it is empty.
        seed: Seed of the links.
    """

    section = "network"
    accepted = "a gossamer.Network, or a function that returns one"
    kind = Network

    def __and__(self, fault: Fault) -> Network:
        return Faulty(cast(Network, self), fault)

    def __iter__(self) -> Iterator[Links]:
        return iter(self.made)

    @property
    def schedule(self) -> Network | None:
        """The network as this part, which can be written to a spec, if it is a schedule."""
        if self.made.schedule is None:
            return None
        return cast(Network, self)


@register("python", "algorithm")
@dataclass(frozen=True)
class AlgorithmCode(Forwarding):
    """An `Algorithm`, or a function or class that makes one.

    A function may have a parameter `seed`, which receives the seed.

    Args:
        object: "module:name", such as "my_method:SignSGD".
        path: The folder of the module; relative to the spec's folder, or to the current one.
        arguments: Keyword arguments of the function.
        sources: Digests of the files, which have to be these; filled in if it is empty.
        seed: Seed of what is random in the method.
    """

    section = "algorithm"
    accepted = "a gossamer.Algorithm, or a function that returns one"
    kind = Algorithm

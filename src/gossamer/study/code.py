"""The user's own code as a part of a study: `{ kind = "python", object = "my_model:make" }`.

A part names an object in a Python file, and behaves like the object that it names, or that the
named function makes. It is written to a spec as the same table. Only its fields are pickled: a
process that receives it imports the same file, and compares its digest first.
"""

from __future__ import annotations

import inspect
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import partial, wraps
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gossamer._core.own_code import OwnCode
from gossamer._core.registry import register
from gossamer.algorithms import Algorithm
from gossamer.errors import InputError
from gossamer.network import Network
from gossamer.network.base import Fault, Faulty, Links
from gossamer.tasks import Data, Model, Module
from gossamer.tasks.data import Source
from gossamer.tasks.learner import Learner
from gossamer.tasks.losses import FunctionLoss, Loss, Terms
from gossamer.tasks.split_rules import SplitRule
from gossamer.tasks.splits import Split, own_split


@dataclass(frozen=True)
class Code:
    """An object of the user's own code, in a section of a spec.

    Creating it imports the module. Attributes that it lacks are those of the object.

    Attributes:
        object: "module:name", such as "my_model:make".
        path: The folder of the module; relative to the spec's folder, or to the current one.
        arguments: Keyword arguments of the object, if it is a function or a class.
        sources: The files of the module, each with a digest, as they have to be; filled in if it
            is empty.

    Raises:
        InputError: If the object cannot be imported or made, or is not what the section needs.
    """

    object: str
    path: Path = Path()
    arguments: dict[str, Any] = field(default_factory=dict, hash=False)
    sources: tuple[str, ...] = ()

    _code: ClassVar[OwnCode]  # set on each object, like the two below, and not a field
    _value: ClassVar[Any]
    _made: ClassVar[Any]
    section: ClassVar[str]
    accepted: ClassVar[str]  # what the object has to be, in words
    names_itself: ClassVar[bool] = True  # False where a study adds the section to errors
    given: ClassVar[tuple[str, ...]] = ()  # what functions receive by these names

    def __post_init__(self) -> None:
        _set(self, "path", Path.cwd() / self.path)
        self._load()

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields: what was made belongs to this process."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def made(self) -> Any:
        """The object that this part stands for."""
        if "_made" not in vars(self):  # in a process that has received the part
            try:
                with self._named():
                    self._load()
            except InputError as error:
                accepted = f"{error.accepted}, on {platform.node()}"
                raise InputError(error.field, error.value, accepted) from None
        return vars(self)["_made"]

    def _load(self) -> None:
        code = OwnCode(self.object, self.path)
        if self.sources:
            self._check_sources(code)
        _set(self, "sources", code.sources)
        _set(self, "_code", code)
        _set(self, "_value", code.load())
        if _is_maker(self._value):
            self._check_arguments()
        elif self.arguments:
            accepted = f"none: {self.object} is an object, not a function"
            raise InputError("arguments", self.arguments, accepted)
        _set(self, "_made", self._make())

    def _check_sources(self, code: OwnCode) -> None:
        """Refuse files that are not those that the spec was written with."""
        found = dict(source.split(" ", 1) for source in code.sources)
        for source in self.sources:
            name, _, digest = source.partition(" ")
            if found.get(name) != digest:
                accepted = (
                    f"the file that this was written for: {self.path / name} has changed "
                    f"(it is {found.get(name, 'not imported')} now)"
                )
                raise InputError("sources", source, accepted)

    def _make(self) -> Any:
        """Return the object that this part stands for, checked."""
        return self._value

    def _check_arguments(self) -> None:
        """Refuse arguments that the function or class does not take."""
        signature = _signature(self._value)
        if signature is None:
            return
        try:
            signature.bind(*self._positional(), **self._keywords(dict.fromkeys(self.given)))
        except TypeError as error:
            accepted = f"what {self.object}{signature} takes; {error}"
            raise InputError("arguments", self.arguments, accepted) from None

    def _positional(self) -> tuple[None, ...]:
        """Return as many values as the object is called with by position."""
        return ()

    def _keywords(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments, with those given values that the function has a parameter for."""
        signature = _signature(self._value)
        keywords = {}
        for name, value in given.items():
            if signature is not None and name in signature.parameters:
                keywords[name] = value
        return keywords | self.arguments

    def _function(self) -> Any:
        """Return the function of (outputs, targets) itself, or what a class makes."""
        made = self._value
        if isinstance(made, type):
            made = self._called()
        elif self.arguments:
            made = partial(made, **self.arguments)
        if not callable(made):
            raise self._refused(made)
        return made

    def _called(self, **given: Any) -> Any:
        """Call the function or class, and return what it makes."""
        with self._code.refusing():
            return self._value(**self._keywords(given))

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Name the section in errors that no reader of a spec has seen."""
        try:
            yield
        except InputError as error:
            if self.names_itself and error.field in _FIELDS:
                raise error.under(self.section) from error.__cause__
            raise

    @contextmanager
    def _running(self) -> Iterator[Any]:
        """Import the code if this process has not, and turn what it raises into one sentence."""
        made = self.made
        with self._named(), self._code.refusing():
            yield made

    def _refused(self, made: Any) -> InputError:
        verb = "is"
        if made is not self._value:
            verb = "returns"
        accepted = f"{self.accepted}; it {verb} a {type(made).__name__}"
        return InputError("object", self.object, accepted)


_FIELDS = ("object", "arguments", "sources")


@dataclass(frozen=True)
class _Forwarding(Code):
    """A part that has the attributes and methods of the object that it stands for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        value = getattr(self.made, name)
        if inspect.ismethod(value):
            return self._guarded(value)
        return value

    def _guarded(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._running():
                return method(*args, **kwargs)

        return call


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
            if not _is_maker(value):
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


@register("python", "loss")
@dataclass(frozen=True)
class LossCode(Code, Loss):
    """A function of (outputs, targets), a `Loss`, or a class that makes one of them.

    Args:
        object: "module:name", such as "my_model:loss".
        path: The folder of the module; relative to the spec's folder, or to the current one.
        arguments: Keyword arguments of the function, after outputs and targets, or of the class.
        sources: Digests of the files, which have to be these; filled in if it is empty.
    """

    section = "model.loss"
    accepted = "a function of (outputs, targets), or a loss of gossamer"

    def _positional(self) -> tuple[None, ...]:
        if isinstance(self._value, type):
            return ()
        return (None, None)  # outputs and targets

    def _make(self) -> Loss:
        made = self._function()
        if isinstance(made, Loss):
            return made
        return FunctionLoss(made)

    def terms(self, outputs: Tensor, targets: Tensor) -> Terms:
        with self._running() as loss:
            found: Terms = loss.terms(outputs, targets)
            return found

    def stacked_terms(self, outputs: Tensor, targets: Tensor) -> Terms:
        with self._running() as loss:
            found: Terms = loss.stacked_terms(outputs, targets)
            return found

    def misfit(self, outputs: torch.Size, targets: torch.Size, classes: int | None) -> str:
        return str(self.made.misfit(outputs, targets, classes))

    def check_targets(self, field: str, targets: Tensor, outputs: torch.Size) -> None:
        self.made.check_targets(field, targets, outputs)


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
            if _is_maker(data):
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

    A function may have the parameters `y`, `devices` and `seed`, which it then receives.

    Args:
        object: "module:name", such as "my_data:by_writer".
        path: The folder of the module; relative to the spec's folder, or to the current one.
        arguments: Keyword arguments of the function.
        sources: Digests of the files, which have to be these; filled in if it is empty.
    """

    section = "split"
    names_itself = False
    accepted = "a gossamer Split, a rule with a method make, or a function that returns one"
    given = ("y", "devices", "seed")

    def make(self, y: NDArray[Any], devices: int, seed: int) -> Split:
        """Divide the samples among the devices.

        Args:
            y: The label or target of every sample.
            devices: Number of devices.
            seed: The study's seed.
        """
        with self._running():
            split = self._value
            if _is_maker(split):
                split = self._called(y=y, devices=devices, seed=seed)
            if isinstance(split, SplitRule):
                split = split.make(y, devices, seed)
            if not isinstance(split, Split):
                raise self._refused(split)
            return split


@register("python", "network")
@dataclass(frozen=True)
class NetworkCode(_Forwarding):
    """A `Network`, or a function or class that makes one.

    A function may have a parameter `seed`, which receives the seed.

    Args:
        object: "module:name", such as "my_network:Convoy".
        path: The folder of the module; relative to the spec's folder, or to the current one.
        arguments: Keyword arguments of the function.
        sources: Digests of the files, which have to be these; filled in if it is empty.
        seed: Seed of the links.
    """

    seed: int = 0

    section = "network"
    accepted = "a gossamer.Network, or a function that returns one"
    given = ("seed",)

    def _make(self) -> Network:
        made = self._value
        if _is_maker(made):
            made = self._called(seed=self.seed)
        if not isinstance(made, Network):
            raise self._refused(made)
        return made

    def __and__(self, fault: Fault) -> Network:
        return Faulty(cast(Network, self), fault)

    def __iter__(self) -> Iterator[Links]:
        return iter(self.made)


@register("python", "algorithm")
@dataclass(frozen=True)
class AlgorithmCode(_Forwarding):
    """An `Algorithm`, or a function or class that makes one.

    A function may have a parameter `seed`, which receives the seed.

    Args:
        object: "module:name", such as "my_method:SignSGD".
        path: The folder of the module; relative to the spec's folder, or to the current one.
        arguments: Keyword arguments of the function.
        sources: Digests of the files, which have to be these; filled in if it is empty.
        seed: Seed of what is random in the method.
    """

    seed: int = 0

    section = "algorithm"
    accepted = "a gossamer.Algorithm, or a function that returns one"
    given = ("seed",)

    def _make(self) -> Algorithm:
        made = self._value
        if _is_maker(made):
            made = self._called(seed=self.seed)
        if not isinstance(made, Algorithm):
            raise self._refused(made)
        return made


def _set(part: Code, name: str, value: Any) -> None:
    """Set an attribute of a frozen dataclass."""
    object.__setattr__(part, name, value)


def _signature(function: Any) -> inspect.Signature | None:
    """Return the signature of a function or class; None if Python does not know it."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _is_maker(value: Any) -> bool:
    """True for a function or a class, which makes a part; False for a part."""
    return isinstance(value, type) or inspect.isroutine(value) or isinstance(value, partial)

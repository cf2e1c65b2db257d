"""Random operations of torch, drawn by name.

A module may draw random values in any operation of torch: attention with dropout, noise, sampling.
Each operation is replaced by one whose values are a hash of the device's key, the number of the
operation within the pass, and the element. They are the same on every engine, and for a stack of
devices as for each device alone. Operations that cannot be replaced are refused by their name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from gossamer.errors import InputError

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as int64: spreads consecutive elements
_MURMUR_FACTORS = (-49064778989728563, -4265267296055464877)
_LOW_31_BITS = 0x7FFFFFFF
_LOW_53_BITS = (1 << 53) - 1
_PURPOSE = 0x52616E646F6D4F70  # separates these draws from the masks of `F.dropout`
_MAX_RANDOM = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}

Size = list[int]


def element_bits(keys: Tensor, count: int) -> Tensor:
    """Return random bits for each element: [count], or [devices, count] for several keys.

    Args:
        keys: 64 random bits, or one such number per device.
        count: Number of elements.
    """
    element = torch.arange(count, device=keys.device)
    # int64 wraps around, as the hash needs it.
    return murmur(element * _GOLDEN + murmur(keys)[..., None])


def murmur(bits: Tensor) -> Tensor:
    """Return MurmurHash3's finaliser, as in `draws`. The mask makes >> a shift of unsigned bits.

    Args:
        bits: int64.
    """
    for factor in _MURMUR_FACTORS:
        bits = (bits ^ ((bits >> 33) & _LOW_31_BITS)) * factor
    return bits ^ ((bits >> 33) & _LOW_31_BITS)


def top_31_bits(bits: Tensor) -> Tensor:
    """Return the highest 31 bits as numbers from 0 to 2³¹ − 1.

    Args:
        bits: int64.
    """
    return (bits >> 33) & _LOW_31_BITS


class RandomOps(TorchDispatchMode):
    """Replaces every random operation of a forward pass.

    It works below vmap: tensors have the devices as leading axis.

    Args:
        keys: 64 random bits per device of a stack, or of one device; None in evaluation, where
            nothing may be drawn.
        name: Name of the module, for messages.
    """

    def __init__(self, keys: Tensor | None, name: str) -> None:
        super().__init__()
        self._keys = keys
        self._name = name
        self._start = None if keys is None else murmur(keys ^ _PURPOSE)
        self.drawn = 0  # operations of this pass so far

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Do not load torch's compiler, which takes a second and is not used here."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not _can_draw(func) or _draws_nothing(func, args, kwargs):
            return func(*args, **kwargs)
        operation = func.overloadpacket.__name__
        replacement = _REPLACEMENTS.get(operation)
        used = f"{self._name} with torch.{operation}"
        if self._start is None:
            accepted = "a module that draws only while self.training is true"
            raise InputError("module", f"{used} in evaluation", accepted)
        if replacement is None:
            accepted = "a module that draws uniform, normal, exponential or whole numbers"
            raise InputError("module", used, accepted)
        if kwargs.pop("generator", None) is not None:
            accepted = "a module whose draws have no generator of their own"
            raise InputError("module", used, accepted)
        self.drawn += 1
        return replacement(self, func, args, kwargs)

    @property
    def stacked(self) -> bool:
        """True if tensors have the devices as leading axis."""
        return self._keys is not None and self._keys.dim() == 1

    def bits(self, shape: torch.Size, stream: int = 0) -> Tensor:
        """Return random bits in a shape.

        Args:
            shape: The shape, with the devices first in a stack.
            stream: Number of the draw, if an operation needs several.
        """
        assert self._start is not None
        keys = self._start + 2 * self.drawn + stream
        count = shape.numel()
        if self.stacked:
            count //= len(keys)
        return element_bits(keys, count).view(shape)

    def uniform(self, shape: torch.Size, dtype: torch.dtype, stream: int = 0) -> Tensor:
        """Return values that are uniform on [0, 1) in a dtype, never rounded up to 1."""
        digits = _MAX_RANDOM.get(dtype, 53)
        top = (self.bits(shape, stream) >> (64 - digits)) & ((1 << digits) - 1)
        return top.to(torch.float64) * 2.0**-digits

    def normal(self, shape: torch.Size) -> Tensor:
        """Return standard normal values, by the method of Box and Muller, in float64."""
        radius = (-2 * torch.log1p(-self.uniform(shape, torch.float64))).sqrt()
        return radius * torch.cos(2 * math.pi * self.uniform(shape, torch.float64, 1))


Replacement = Callable[[RandomOps, Any, Any, Any], Any]


@cache
def _can_draw(func: Any) -> bool:
    """True if torch marks an operation as one that uses its generator."""
    return torch.Tag.nondeterministic_seeded in func.tags


def _draws_nothing(func: Any, args: Any, kwargs: Any) -> bool:
    """True if an operation that can draw does not do so with these arguments."""
    operation = func.overloadpacket.__name__
    if operation == "_fused_sdp_choice":  # torch chooses an implementation of attention
        return True
    switch = _SWITCHES.get(operation, "dropout_p")
    for number, argument in enumerate(func._schema.arguments):
        if argument.name == switch:
            given = args[number] if number < len(args) else argument.default_value
            return not kwargs.get(switch, given)
    return False


_SWITCHES = {
    "rrelu_with_noise": "training",
    "rrelu_with_noise_": "training",
    "native_dropout": "train",
}
"""Argument without which an operation draws nothing; `dropout_p` for those of attention."""


def _in_place(values: Callable[..., Tensor]) -> Replacement:
    """Return the replacement of an operation that fills a tensor."""

    def replace(draws: RandomOps, func: Any, args: Any, kwargs: Any) -> Tensor:
        target: Tensor = args[0]
        return target.copy_(values(draws, target.shape, target.dtype, *args[1:], **kwargs))

    return replace


def _like(values: Callable[..., Tensor]) -> Replacement:
    """Return the replacement of an operation that returns a tensor like its first argument."""

    def replace(draws: RandomOps, func: Any, args: Any, kwargs: Any) -> Tensor:
        like: Tensor = args[0]
        options = _options(kwargs)
        out = torch.empty_like(like, **options)
        return out.copy_(values(draws, out.shape, out.dtype, *args[1:], **kwargs))

    return replace


def _factory(values: Callable[..., Tensor], default: torch.dtype | None = None) -> Replacement:
    """Return the replacement of an operation that makes a tensor of a given size."""

    def replace(draws: RandomOps, func: Any, args: Any, kwargs: Any) -> Tensor:
        options = _options(kwargs)
        *given, size = args
        out = torch.empty(size, **({"dtype": default} | options))
        return out.copy_(values(draws, out.shape, out.dtype, *given, **kwargs))

    return replace


def _options(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Take the type and place of a new tensor out of the arguments of an operation."""
    options = {}
    for name in ("dtype", "layout", "device", "pin_memory", "memory_format"):
        value = kwargs.pop(name, None)
        if value:
            options[name] = value
    return options


def _uniform(
    draws: RandomOps, shape: torch.Size, dtype: torch.dtype, low: float = 0.0, high: float = 1.0
) -> Tensor:
    return draws.uniform(shape, dtype) * (high - low) + low


def _normal(
    draws: RandomOps, shape: torch.Size, dtype: torch.dtype, mean: Any = 0.0, std: Any = 1.0
) -> Tensor:
    return draws.normal(shape) * std + mean


def _exponential(
    draws: RandomOps, shape: torch.Size, dtype: torch.dtype, rate: float = 1.0
) -> Tensor:
    # Never 0, as torch promises: its logarithm is taken.
    tiny = torch.finfo(dtype).tiny
    return (-torch.log1p(-draws.uniform(shape, torch.float64)) / rate).clamp_min(tiny)


def _bernoulli(
    draws: RandomOps, shape: torch.Size, dtype: torch.dtype, p: float | Tensor = 0.5
) -> Tensor:
    limit = p.double() * 2.0**31 if isinstance(p, Tensor) else int(p * 2.0**31)
    return top_31_bits(draws.bits(shape)) < limit


def _integers(draws: RandomOps, shape: torch.Size, dtype: torch.dtype, *bounds: int) -> Tensor:
    low, high = (0, *bounds)[-2:]
    return low + ((top_31_bits(draws.bits(shape)) * (high - low)) >> 31)


def _random_bernoulli(draws: RandomOps, func: Any, args: Any, kwargs: Any) -> Tensor:
    like: Tensor = args[0]
    p = kwargs.get("p", (*args[1:], like)[0])  # without p, the tensor holds the probabilities
    return torch.empty_like(like).copy_(_bernoulli(draws, like.shape, like.dtype, p))


def _random_normal(draws: RandomOps, func: Any, args: Any, kwargs: Any) -> Tensor:
    mean, std, *size = args if len(args) > 1 else (*args, 1.0)
    if size:
        return _factory(_normal)(draws, func, (mean, std, *size), kwargs)
    like = mean if isinstance(mean, Tensor) else std
    shape = torch.broadcast_shapes(*(t.shape for t in (mean, std) if isinstance(t, Tensor)))
    return _normal(draws, shape, like.dtype, mean, std).to(like.dtype)


def _random_multinomial(draws: RandomOps, func: Any, args: Any, kwargs: Any) -> Tensor:
    weights: Tensor = args[0]
    count: int = args[1]
    replacement = kwargs.get("replacement", (*args[2:], False)[0])
    shape = weights.shape[:-1]
    if replacement:
        # Inverse of the cumulative distribution.
        total = weights.double().cumsum(-1)
        u = draws.uniform(torch.Size((*shape, count)), torch.float64)
        found = torch.searchsorted(total, u * total[..., -1:], right=True)
        return found.clamp_max(weights.shape[-1] - 1)
    # Exponential races: the first `count` to arrive, in order.
    race = _exponential(draws, weights.shape, torch.float64) / weights.double()
    return race.topk(count, dim=-1, largest=False).indices


def _random_permutation(draws: RandomOps, func: Any, args: Any, kwargs: Any) -> Tensor:
    if draws.stacked:
        raise RuntimeError("torch.randperm cannot run stacked")
    options = {"dtype": torch.int64} | _options(kwargs)
    return draws.bits(torch.Size((args[0],))).argsort().to(**options)


def _random_rrelu(draws: RandomOps, func: Any, args: Any, kwargs: Any) -> Tensor:
    values, noise, low, high = args[:4]
    drawn = _uniform(draws, values.shape, values.dtype, low, high).to(values.dtype)
    noise.copy_(drawn.where(values <= 0, 1.0))
    if func.overloadpacket.__name__.endswith("_"):
        return values.mul_(noise)
    return values * noise


def _random_dropout(draws: RandomOps, func: Any, args: Any, kwargs: Any) -> tuple[Tensor, Tensor]:
    values: Tensor = args[0]
    p: float = args[1]
    kept = _bernoulli(draws, values.shape, values.dtype, 1 - p)
    return values * kept / max(1 - p, 2.0**-31), kept


def _log_normal(draws: RandomOps, shape: torch.Size, dtype: torch.dtype, *given: float) -> Tensor:
    mean, std = (*given, *(1.0, 2.0)[len(given) :])  # torch's defaults
    return _normal(draws, shape, dtype, mean, std).exp()


def _cauchy(
    draws: RandomOps, shape: torch.Size, dtype: torch.dtype, median: float = 0.0, sigma: float = 1.0
) -> Tensor:
    return median + sigma * torch.tan(math.pi * (draws.uniform(shape, torch.float64) - 0.5))


def _geometric(draws: RandomOps, shape: torch.Size, dtype: torch.dtype, p: float) -> Tensor:
    return 1 + (torch.log1p(-draws.uniform(shape, torch.float64)) / math.log1p(-p)).floor()


_REPLACEMENTS: dict[str, Replacement] = {
    "bernoulli": _random_bernoulli,
    "bernoulli_": _in_place(_bernoulli),
    "cauchy_": _in_place(_cauchy),
    "exponential_": _in_place(_exponential),
    "geometric_": _in_place(_geometric),
    "log_normal_": _in_place(_log_normal),
    "multinomial": _random_multinomial,
    "native_dropout": _random_dropout,
    "normal": _random_normal,
    "normal_": _in_place(_normal),
    "rand": _factory(_uniform),
    "rand_like": _like(_uniform),
    "randint": _factory(_integers, torch.int64),
    "randint_like": _like(_integers),
    "randn": _factory(_normal),
    "randn_like": _like(_normal),
    "randperm": _random_permutation,
    "rrelu_with_noise": _random_rrelu,
    "rrelu_with_noise_": _random_rrelu,
    "uniform_": _in_place(_uniform),
}

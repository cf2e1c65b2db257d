"""Models of transformers as models of a study: from a config or a folder, whole or by LoRA."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from gossamer._core import checks
from gossamer._core.memory import available_memory
from gossamer._core.registry import register
from gossamer.errors import InputError
from gossamer.tasks.data import Data
from gossamer.tasks.hf import lora, packages
from gossamer.tasks.hf.tokens import TokenModel
from gossamer.tasks.learner import Learner
from gossamer.tasks.losses import Loss
from gossamer.tasks.models import Module

# By head: the class of transformers, and the task of peft.
_HEADS = {
    "sequence-classification": ("AutoModelForSequenceClassification", "SEQ_CLS"),
    "causal-lm": ("AutoModelForCausalLM", "CAUSAL_LM"),
}


@register("model", "transformers")
@dataclass(frozen=True)
class Transformers:
    """A model of transformers, by its config or from a folder; trained whole or by LoRA adapters.

    The samples are token ids [samples, length], as `from_hf` makes them. Weights are read from
    `.safetensors` files alone; nothing is downloaded, unpickled or executed.

    A model by config starts anew with every seed. A model from a folder starts as it was saved;
    only a head that the folder lacks, or has for another number of classes, is new. With `lora`,
    the model is frozen and held once for all devices; the adapters, and the head of a classifier,
    are trained, mixed, sent and saved. They start anew with every seed, the base does not.

    Args:
        folder: Folder that `save_pretrained` wrote.
        config: Instead of a folder: a table of the config with its `model_type`, or a config
            object of transformers.
        head: What the model is for. A classifier gets as many outputs as the data has classes, or
            values to predict.
        lora: Settings of the adapters: a table with r, alpha, dropout, target_modules,
            modules_to_save or any other key of `peft.LoraConfig`, or such a config.
        pad: Token id of padding; default: that of the config.
        loss: The loss; default: that of the targets.

    Raises:
        InputError: If there is neither folder nor config or both, or a value is not accepted.

    Example:
        >>> config = {"model_type": "bert", "hidden_size": 64, "num_attention_heads": 2}
        >>> Transformers(config=config, lora={"r": 4}).lora          # doctest: +SKIP
        {'r': 4}
    """

    folder: str | None = None
    config: dict[str, Any] | None = None
    head: Literal["sequence-classification", "causal-lm"] = "sequence-classification"
    lora: dict[str, Any] | None = None
    pad: int | None = None
    loss: Loss | None = None

    def __post_init__(self) -> None:
        checks.one_of("head", self.head, _HEADS)
        if self.folder is not None:
            object.__setattr__(self, "folder", str(self.folder))
        if self.config is not None:
            object.__setattr__(self, "config", _config_table(self.config))
        if self.lora is not None:
            object.__setattr__(self, "lora", lora.settings(self.lora))
        if self.pad is not None:
            checks.whole("pad", self.pad, 0)
        if (self.folder is None) == (self.config is None):
            raise InputError("folder", self.folder, "either a folder or a config")

    def learner(self, data: Data) -> Learner:
        if len(data.shape) != 1:
            accepted = "token ids, one row per sample, as from_hf makes them"
            raise InputError("data", f"samples of shape {list(data.shape)}", accepted)
        config = self._config(data)
        _check_tokens(data, config)
        if self.lora is None:
            return Module(lambda: TokenModel(self._model(config), self.pad), self.loss).learner(
                data
            )
        base = _Base(self, config)
        adapters = self._lora_config()
        return Module(
            lambda: TokenModel(lora.adapt(base.model(), adapters), self.pad), self.loss
        ).learner(data)

    def save_adapter(
        self, models: Mapping[str, Tensor], folder: Path | str, device: int | None = None
    ) -> None:
        """Write trained adapters as a folder that `peft.PeftModel.from_pretrained` reads.

        Args:
            models: The models of all devices, as `Run.models` has them.
            folder: Where to write. It is created.
            device: Number of the device; None: the mean of all devices' adapters.

        Raises:
            InputError: If the model has no adapters, or there is no such device.

        Example:
            >>> model.save_adapter(run.models, "adapter", device=3)   # doctest: +SKIP
        """
        if self.lora is None:
            raise InputError("lora", None, "a model with adapters; this one is trained whole")
        devices = len(next(iter(models.values())))
        if device is not None:
            checks.whole("device", device, 0, devices - 1, "the number of a device")
        own = {}
        for name, x in models.items():
            own[name] = x.mean(0) if device is None else x[device]
        lora.save(own, self._lora_config(), Path(folder))

    def _lora_config(self) -> Any:
        assert self.lora is not None
        return lora.config(self.lora, _HEADS[self.head][1], self.folder)

    def _config(self, data: Data) -> Any:
        """Return the config of transformers, with the number of outputs that the data asks for."""
        transformers = packages.load("transformers")
        fields: dict[str, Any] = {}
        if self.head == "sequence-classification":
            fields["num_labels"] = data.classes or max(1, data.y[0].numel())
        if self.folder is not None:
            _check_folder(self.folder)
            with self._refusing(), _quiet():
                return transformers.AutoConfig.from_pretrained(
                    self.folder, local_files_only=True, trust_remote_code=False, **fields
                )
        table = dict(self.config or {}) | fields
        with self._refusing(), _quiet():
            return transformers.AutoConfig.for_model(table.pop("model_type"), **table)

    def _model(self, config: Any) -> nn.Module:
        """Make or load the model."""
        auto = getattr(packages.load("transformers"), _HEADS[self.head][0])
        with self._refusing(), _quiet():
            _check_memory(auto, config)
            if self.folder is None:
                made: nn.Module = auto.from_config(config, trust_remote_code=False)
                return made
            loaded: nn.Module = auto.from_pretrained(
                self.folder,
                config=config,
                dtype=torch.float32,
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
                ignore_mismatched_sizes=True,
            )
            return loaded

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        """Turn what transformers refuses into one sentence."""
        try:
            yield
        except InputError:
            raise
        except (ValueError, TypeError, OSError, RuntimeError, SafetensorError) as error:
            if "allocate" in str(error):  # torch reports a lack of memory as a RuntimeError
                raise
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            field = "config"
            value: Any = self.config
            if self.folder is not None:
                field = "folder"
                value = self.folder
            accepted = f"a model that transformers has for {self.head}; it says: {reason}"
            raise InputError(field, value, accepted) from None


class _Base:
    """The frozen model that adapters are added to, made when it is first asked for."""

    def __init__(self, source: Transformers, config: Any) -> None:
        self._source = source
        self._config = config
        self._made: nn.Module | None = None

    def model(self) -> nn.Module:
        if self._made is None:
            self._made = self._source._model(self._config)
        return self._made


def _config_table(config: Any) -> dict[str, Any]:
    """Return a config as a plain table."""
    if not isinstance(config, Mapping):
        if not hasattr(config, "to_diff_dict"):
            accepted = "a table with a model_type, or a config object of transformers"
            raise InputError("config", config, accepted)
        config = config.to_diff_dict()
        config.pop("transformers_version", None)
    known = packages.load("transformers").CONFIG_MAPPING
    kind = config.get("model_type")
    if kind not in known:
        accepted = "a model_type that transformers has, such as 'bert', 'gpt2' or 'llama'"
        raise InputError("config.model_type", kind, accepted)
    return dict(config)


def _check_folder(folder: str) -> None:
    """Refuse a folder that `save_pretrained` did not write, or that has pickled weights only."""
    path = Path(folder)
    if not (path / "config.json").is_file() or not any(path.glob("*.safetensors")):
        accepted = "a folder with config.json and .safetensors files, as save_pretrained writes it"
        raise InputError("folder", folder, accepted)


def _check_tokens(data: Data, config: Any) -> None:
    """Refuse tokens that the model has no embedding for, and samples that are too long."""
    largest = int(max(data.x.max(), data.x_test.max()))
    least = int(min(data.x.min(), data.x_test.min()))
    for token in (least, largest):
        if not 0 <= token < config.vocab_size:
            accepted = f"token ids from 0 to {config.vocab_size - 1}, the model's vocabulary"
            raise InputError("data", f"token {token}", accepted)
    longest = getattr(config, "max_position_embeddings", None)
    if longest is not None and data.shape[0] > longest:
        accepted = f"at most {longest} tokens per sample, the positions of the model"
        raise InputError("max_length", data.shape[0], accepted)


def _check_memory(auto: Any, config: Any) -> None:
    """Refuse a model that is larger than the memory, before it is made or read."""
    with torch.device("meta"):  # shapes alone
        skeleton = auto.from_config(config, trust_remote_code=False)
    needed = 0
    for p in skeleton.parameters():
        needed += p.numel() * torch.float32.itemsize
    available = available_memory()
    if available is not None and needed > available:
        accepted = (
            f"a smaller one: its weights take {needed / 2**30:.1f} GiB, and "
            f"{available / 2**30:.1f} GiB are available"
        )
        raise InputError("model", config.model_type, accepted)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Switch off progress bars and notes of transformers."""
    logging = packages.load("transformers").utils.logging
    before = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()

"""LoRA adapters of peft: their settings as a plain table, and their files."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from gossamer._core.files import os_errors, write_atomically
from gossamer.errors import InputError, nearest
from gossamer.tasks.hf import packages

_ADAPTER = "default"  # the name that peft gives to a model's only adapter
_SHORT = {"alpha": "lora_alpha", "dropout": "lora_dropout"}


def settings(lora: Any) -> dict[str, Any]:
    """Return the settings of adapters as a plain table, from a table or a `peft.LoraConfig`.

    Args:
        lora: The table or the config.

    Raises:
        InputError: If it is neither, or a key is not one of `peft.LoraConfig`.
    """
    if isinstance(lora, Mapping):
        table = dict(lora)
    elif hasattr(lora, "to_dict"):
        table = _changed(lora)
    else:
        raise InputError("lora", lora, "a table of settings, or a peft.LoraConfig")
    known = _known_keys()
    for key in table:
        if key not in known:
            accepted = f"keys of peft.LoraConfig, such as r, alpha, dropout{nearest(key, known)}"
            raise InputError("lora", key, accepted)
    return table


def _known_keys() -> list[str]:
    fields = packages.load("peft").LoraConfig.__dataclass_fields__
    return [*_SHORT, *fields]


def _changed(config: Any) -> dict[str, Any]:
    """Return what a config sets otherwise than by default, in types that TOML has."""
    default = type(config)().to_dict()
    long_to_short = {long: short for short, long in _SHORT.items()}
    table: dict[str, Any] = {}
    for key, value in config.to_dict().items():
        if value == default.get(key) or key == "task_type":
            continue
        if isinstance(value, set):
            value = sorted(value)
        table[long_to_short.get(key, key)] = value
    return table


def config(table: Mapping[str, Any], task: str, base: str | None) -> Any:
    """Return the `peft.LoraConfig` of a table of settings.

    Args:
        table: The settings.
        task: The task of the model, as peft names it.
        base: Folder of the base model, which the config names.

    Raises:
        InputError: If peft refuses a value.
    """
    fields: dict[str, Any] = {"task_type": task, "base_model_name_or_path": base}
    for key, value in table.items():
        if isinstance(value, tuple):
            value = list(value)
        fields[_SHORT.get(key, key)] = value
    try:
        return packages.load("peft").LoraConfig(**fields)
    except (TypeError, ValueError) as error:
        raise InputError("lora", dict(table), f"other settings; peft says: {error}") from None


def adapt(base: nn.Module, lora_config: Any) -> nn.Module:
    """Return a model with new adapters, which shares the parameters of its base.

    Args:
        base: The base model. Its parameters are frozen; it gets no adapters itself.
        lora_config: The `peft.LoraConfig`.

    Raises:
        InputError: If peft finds nothing to adapt.
    """
    shared: dict[int, Any] = {}
    for p in base.parameters():
        shared[id(p)] = nn.Parameter(p.detach(), requires_grad=False)
    skeleton = copy.deepcopy(base, shared)
    try:
        with warnings.catch_warnings():  # about its own dependencies, and about what it mends
            warnings.simplefilter("ignore")
            adapted: nn.Module = packages.load("peft").get_peft_model(
                skeleton, copy.deepcopy(lora_config)
            )
    except (ValueError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        accepted = f"target_modules that name layers of the model; peft says: {reason}"
        raise InputError("lora", lora_config.target_modules, accepted) from None
    return adapted


def save(models: Mapping[str, Tensor], lora_config: Any, folder: Path) -> None:
    """Write one adapter as a folder that `peft.PeftModel.from_pretrained` reads.

    Args:
        models: The trained parameters of one device, by their names in a run.
        lora_config: The `peft.LoraConfig`.
        folder: Where to write. It is created.
    """
    from safetensors.torch import save as to_bytes

    tensors = {}
    for name, x in models.items():
        tensors[_name_in_file(name)] = x.detach().cpu().contiguous()
    table = lora_config.to_dict() | {"inference_mode": True}
    for key, value in table.items():
        if isinstance(value, set):
            table[key] = sorted(value)
    with os_errors("make the folder", folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "adapter_model.safetensors", to_bytes(tensors, {"format": "pt"}))
    text = json.dumps(table, indent=2, sort_keys=True, default=str)
    write_atomically(folder / "adapter_config.json", text.encode())


def _name_in_file(name: str) -> str:
    """Return a parameter's name in peft's files, which leave out the name of the adapter."""
    name = name.removeprefix("model.")
    return name.replace(f".modules_to_save.{_ADAPTER}", "").replace(f".{_ADAPTER}", "")

"""A model of transformers as a module of token ids."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gossamer._core import checks
from gossamer._core.arguments import checked
from gossamer.errors import InputError
from gossamer.tasks.hf import attention


@checked
class TokenModel(nn.Module):
    """A model of transformers, with or without adapters, as a module from tokens to logits.

    It takes token ids [batch, length] and returns the model's logits: [batch, classes], or
    [batch, length, vocabulary] of a language model. Logits i of a language model are about token
    i + 1, so that targets are the tokens moved by one: `from_hf(..., target=None)` makes them so.

    The model itself is not copied. Its attention becomes one that runs for all devices at once,
    and its cache of keys and values is switched off.

    Args:
        model: A model of transformers, or of peft.
        pad: Token id of padding, which is not attended to; default: that of the model's config.

    Raises:
        InputError: If the model has no config, or pad is not a token.

    Example:
        >>> import transformers                                      # doctest: +SKIP
        >>> model = transformers.AutoModelForCausalLM.from_pretrained("model")   # doctest: +SKIP
        >>> study = gs.Study(model=gs.Module(gs.TokenModel(model)))  # doctest: +SKIP
    """

    def __init__(self, model: Any, pad: int | None = None) -> None:
        super().__init__()
        config = getattr(model, "config", None)
        if not isinstance(model, nn.Module) or config is None:
            raise InputError("model", type(model).__name__, "a model of transformers or peft")
        if pad is not None:
            checks.whole("pad", pad, 0)
            config.pad_token_id = pad
        config.use_cache = False
        attention.use(_inner(model))
        self.pad = config.pad_token_id
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of a batch of token ids [batch, length]."""
        tokens = tokens.long()
        seen = torch.ones_like(tokens)
        if self.pad is not None:
            seen = (tokens != self.pad).long()
        logits: Tensor = self.model(input_ids=tokens, attention_mask=seen).logits
        return logits


def _inner(model: Any) -> Any:
    """Return the model of transformers within one of peft, or the model itself."""
    get_base_model = getattr(model, "get_base_model", None)
    if get_base_model is None:
        return model
    return get_base_model()

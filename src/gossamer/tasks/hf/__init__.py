"""Hugging Face: data sets of `datasets`, models of `transformers`, LoRA adapters of `peft`.

These packages are loaded when they are first used; the extra gossamer[hf] contains them.
"""

from gossamer.tasks.hf.data import from_hf
from gossamer.tasks.hf.models import Transformers
from gossamer.tasks.hf.source import HuggingFace
from gossamer.tasks.hf.tokens import TokenModel

__all__ = ["HuggingFace", "TokenModel", "Transformers", "from_hf"]

"""Small models, tokenisers and data sets of Hugging Face, made on the spot: no downloads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import tokenizers
import transformers

import gossamer as gs

WORDS = ("alpha", "beta", "gamma", "delta")
FILLERS = ("v", "w", "x", "y", "z")
VOCABULARY = ("[PAD]", "[UNK]", *WORDS, *FILLERS)

_SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 32,
}
_COMMON = {"vocab_size": len(VOCABULARY), "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1}
_BERT: dict[str, Any] = {"model_type": "bert", **_COMMON, **_SIZES}
_GPT2: dict[str, Any] = {
    "model_type": "gpt2",
    **_COMMON,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 32,
}
_LLAMA: dict[str, Any] = {
    "model_type": "llama",
    **_COMMON,
    **_SIZES,
    "num_key_value_heads": 2,
}
_MISTRAL = _LLAMA | {"model_type": "mistral", "sliding_window": 3}
_MODERNBERT = _BERT | {
    "model_type": "modernbert",
    "local_attention": 4,
    "cls_token_id": 1,
    "sep_token_id": 1,
}
CONFIGS = {
    "bert": _BERT,
    "gpt2": _GPT2,
    "llama": _LLAMA,
    "mistral": _MISTRAL,
    "modernbert": _MODERNBERT,
}
CAUSAL = ("gpt2", "llama", "mistral")


def tokenizer() -> Any:
    """Return a tokeniser that knows the words of `VOCABULARY`."""
    ids = {word: number for number, word in enumerate(VOCABULARY)}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, unk_token="[UNK]"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]"
    )


def topics(samples: int, seed: int = 0) -> Any:
    """Return texts of random words, each with two words of its topic."""
    rng = np.random.default_rng(seed)
    labels = np.arange(samples) % len(WORDS)
    texts = []
    for label in labels:
        words = rng.choice(FILLERS, size=rng.integers(1, 6)).tolist()
        for place in rng.integers(len(words) + 1, size=2).tolist():
            words.insert(place, WORDS[label])
        texts.append(" ".join(words))
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=list(WORDS))}
    )
    return datasets.Dataset.from_dict({"text": texts, "label": labels}, features=features)


def adapter_study(base: Path, adapters: bool = True, **fields: Any) -> gs.Study:
    """Return a short study of two devices with a topic each, of which all engines agree.

    Args:
        base: Folder for the base model. It is written.
        adapters: Train LoRA adapters with dropout; False: the whole model, by its config.
        fields: Fields of the study.
    """
    config = _LLAMA | {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1}
    model = gs.Transformers(config=config)
    if adapters:
        transformers.set_seed(0)
        table = {name: value for name, value in config.items() if name != "model_type"}
        head = transformers.LlamaForSequenceClassification(transformers.LlamaConfig(**table))
        head.save_pretrained(base)
        model = gs.Transformers(folder=str(base), lora={"r": 2, "dropout": 0.2})
    text = gs.from_hf(topics(40), topics(20, seed=1), tokenizer=tokenizer(), max_length=8)
    given: dict[str, Any] = {
        "algorithm": gs.DPSGD(0.1, optimizer=gs.Adam()),
        "network": gs.Full(2),
        "data": text,
        "split": gs.Labels(2),
        "model": model,
        "batch": 4,
        "rounds": 6,
        "dtype": "float64",
    }
    return gs.Study(**(given | fields))

"""Models of transformers and LoRA adapters of peft in a study."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from safetensors import safe_open
from support.hugging_face import CAUSAL, CONFIGS, VOCABULARY, tokenizer, topics
from torch import Tensor, nn
from torch.nn import functional as F

import gossamer as gs
from gossamer.errors import InputError, MissingExtra
from gossamer.study import spec
from gossamer.tasks.modules import ModuleLearner

LENGTH = 10
NO_DROPOUT = {
    "bert": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    "gpt2": {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
}


def data(**fields) -> gs.Data:
    return gs.from_hf(
        topics(160), topics(60, seed=1), tokenizer=tokenizer(), max_length=LENGTH, **fields
    )


def without_dropout(kind: str) -> dict[str, Any]:
    return CONFIGS[kind] | NO_DROPOUT.get(kind, {})


def start(learner: Any, devices: int) -> Tensor:
    """Return different models of some devices: the starts of as many seeds."""
    return torch.stack([learner.init(seed) for seed in range(devices)])


def gradient(learner: Any, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    out = torch.empty_like(w)
    keys = torch.arange(len(w))
    learner.gradient(w, x, y, {}, keys, out)
    return out


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_stack_of_classifiers_equals_transformers_itself(kind: str) -> None:
    source = data()
    table = without_dropout(kind)
    learner = gs.Transformers(config=table).learner(source)
    assert isinstance(learner, ModuleLearner)
    assert learner.at_once > 1  # all devices at once
    w = start(learner, 3)
    x = source.x[:12].view(3, 4, LENGTH)
    y = source.y[:12].view(3, 4)
    found = gradient(learner, w, x, y)
    config = transformers.AutoConfig.for_model(**table, num_labels=4)
    plain = transformers.AutoModelForSequenceClassification.from_config(
        config, attn_implementation="eager"
    )
    for device in range(3):
        load(plain, learner.unstack(w[device]))
        logits = plain(input_ids=x[device], attention_mask=(x[device] != 0).long()).logits
        expected = torch.autograd.grad(
            F.cross_entropy(logits, y[device]), trained(plain), allow_unused=True
        )
        torch.testing.assert_close(found[device], flat(expected, plain), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", CAUSAL)
def test_the_loss_of_a_language_model_is_the_models_own(kind: str) -> None:
    source = data(target=None)
    table = without_dropout(kind)
    learner = gs.Transformers(config=table, head="causal-lm").learner(source)
    w = start(learner, 2)
    x = source.x[:8].view(2, 4, LENGTH)
    y = source.y[:8].view(2, 4, LENGTH)
    losses = learner.loss(w, x, y, {}, torch.zeros(2, dtype=torch.int64))
    found = gradient(learner, w, x, y)
    config = transformers.AutoConfig.for_model(**table)
    plain = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    for device in range(2):
        load(plain, learner.unstack(w[device]))
        seen = (x[device] != 0).long()
        # transformers moves the labels itself: they are the tokens.
        labels = x[device].where(seen.bool(), -100)
        own = plain(input_ids=x[device], attention_mask=seen, labels=labels).loss
        torch.testing.assert_close(losses[device], own.detach(), rtol=1e-5, atol=1e-6)
        expected = torch.autograd.grad(own, trained(plain), allow_unused=True)
        torch.testing.assert_close(found[device], flat(expected, plain), rtol=1e-4, atol=1e-6)


def load(module: nn.Module, values: dict[str, Tensor]) -> None:
    named = dict(module.named_parameters())
    assert {f"model.{name}" for name in named} == set(values)
    with torch.no_grad():
        for name, p in named.items():
            p.copy_(values[f"model.{name}"])


def trained(module: nn.Module) -> list[nn.Parameter]:
    return list(module.parameters())


def flat(gradients: tuple[Tensor | None, ...], module: nn.Module) -> Tensor:
    parts = []
    for g, p in zip(gradients, module.parameters(), strict=True):
        parts.append(torch.zeros_like(p).reshape(-1) if g is None else g.reshape(-1))
    return torch.cat(parts)


def test_dropout_of_attention_is_drawn_by_name() -> None:
    source = data()
    learner = gs.Transformers(config=CONFIGS["bert"]).learner(source)
    w = start(learner, 2)
    x = source.x[:8].view(2, 4, LENGTH)
    y = source.y[:8].view(2, 4)
    first = gradient(learner, w, x, y)
    torch.rand(7)
    assert torch.equal(first, gradient(learner, w, x, y))


def test_a_transformer_learns() -> None:
    model = gs.Transformers(config=without_dropout("llama"))
    study = gs.Study(gs.DPSGD(eta=0.5), gs.Ring(4), data(), model=model, rounds=80, threads=1)
    assert gs.run(study).summary["accuracy"] > 0.95


# -- folders ---------------------------------------------------------------------------------------


def of_eight(source: gs.Data) -> gs.Data:
    """Return the data with labels 4 to 7 of eight."""
    return replace(source, y=source.y + 4, y_test=source.y_test + 4, classes=8)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a model that knows the topics, under other labels."""
    source = of_eight(data())
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(**CONFIGS["llama"], num_labels=8)
    model = transformers.AutoModelForSequenceClassification.from_config(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(60):
        logits = model(input_ids=source.x, attention_mask=(source.x != 0).long()).logits
        loss = F.cross_entropy(logits, source.y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1
    folder = tmp_path_factory.mktemp("base")
    model.save_pretrained(folder)
    return folder


def test_a_folder_is_the_start_of_every_seed(base: Path) -> None:
    other = of_eight(data())
    learner = gs.Transformers(folder=str(base)).learner(other)
    assert torch.equal(learner.init(0), learner.init(5))
    scores = learner.scores(learner.init(0)[None], other.x_test, other.y_test, {})
    assert float(scores.loss) < 0.3


def test_a_head_for_other_classes_is_new(base: Path) -> None:
    source = data()
    learner = gs.Transformers(folder=str(base)).learner(source)
    plain = transformers.AutoModelForSequenceClassification.from_pretrained(base)
    parts = learner.unstack(learner.init(0))
    assert parts["model.score.weight"].shape == (4, 32)
    same = parts["model.model.embed_tokens.weight"]
    assert torch.equal(same, plain.model.embed_tokens.weight)


# -- LoRA ------------------------------------------------------------------------------------------

LORA = {"r": 4, "alpha": 16, "dropout": 0.1}


def lora_study(base: Path, **fields) -> gs.Study:
    model = gs.Transformers(folder=str(base), lora=LORA)
    return gs.Study(
        gs.DPSGD(eta=0.1),
        gs.RandomRing(16),
        data(),
        gs.OneLabel(),
        model,
        **({"rounds": 30, "batch": 16, "threads": 1} | fields),
    )


def test_adapters_learn_on_16_devices_with_one_label_each(base: Path) -> None:
    run = gs.run(lora_study(base))
    assert run.summary["accuracy"] > 0.9
    for name in run.models:
        assert "lora_" in name or "modules_to_save" in name
    # Bytes of one model, on the two links of each of 16 devices, in every round.
    elements = sum(x[0].numel() for x in run.models.values())
    assert run.summary["bytes"] == 30 * 16 * 2 * 4 * elements


@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama"])
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")  # of peft itself
def test_a_stack_of_adapters_equals_peft_itself(kind: str) -> None:
    source = data()
    model = gs.Transformers(config=without_dropout(kind), lora={"r": 2, "alpha": 6})
    learner = model.learner(source)
    w = start(learner, 3) + 0.1  # else B is 0, and so is the gradient of A
    x = source.x[:12].view(3, 4, LENGTH)
    y = source.y[:12].view(3, 4)
    found = gradient(learner, w, x, y)
    base = learner.module.state_dict()
    config = transformers.AutoConfig.for_model(**without_dropout(kind), num_labels=4)
    plain = transformers.AutoModelForSequenceClassification.from_config(
        config, attn_implementation="eager"
    )
    adapters = peft.LoraConfig(task_type="SEQ_CLS", r=2, lora_alpha=6)
    adapted = peft.get_peft_model(plain, adapters).train()
    adapted.load_state_dict({name.removeprefix("model."): x for name, x in base.items()})
    for device in range(3):
        own = {}
        for name, part in learner.unstack(w[device]).items():
            own[name.removeprefix("model.")] = part
        adapted.load_state_dict(own, strict=False)
        logits = adapted(input_ids=x[device], attention_mask=(x[device] != 0).long()).logits
        named = {name: p for name, p in adapted.named_parameters() if p.requires_grad}
        assert list(named) == list(own)
        parts = torch.autograd.grad(F.cross_entropy(logits, y[device]), list(named.values()))
        expected = torch.cat([g.reshape(-1) for g in parts])
        torch.testing.assert_close(found[device], expected, rtol=1e-4, atol=1e-6)


def test_the_base_is_in_memory_once(base: Path) -> None:
    model = gs.Transformers(folder=str(base), lora=LORA)
    learner = model.learner(data())
    assert isinstance(learner, ModuleLearner)
    addresses: set[int] = set()

    def note(module: Any, args: Any) -> None:
        addresses.add(module.weight.data_ptr())

    name = "model.base_model.model.model.layers.0.mlp.up_proj"
    frozen: Any = learner.module.get_submodule(name)
    frozen.register_forward_pre_hook(note)  # the copies of further threads have it too
    original = frozen.weight.data_ptr()
    first = learner.init(0)
    assert not torch.equal(first, learner.init(1))  # new adapters, on the same base
    x = data().x[:8].view(2, 4, LENGTH)
    y = data().y[:8].view(2, 4)
    w = torch.stack([first, first])
    for _ in range(2):
        thread = threading.Thread(target=gradient, args=(learner, w, x, y))
        thread.start()
        thread.join()
    assert addresses == {original}


def test_a_checkpoint_has_no_base(base: Path, tmp_path: Path) -> None:
    study = lora_study(base, rounds=4)
    run = gs.run(study, tmp_path / "run")
    with safe_open(tmp_path / "run" / "models.safetensors", "pt") as file:
        assert set(file.keys()) == set(run.models)
    snapshot = study.plan()
    simulator = gs.Simulator(snapshot)
    simulator.advance(1)
    elements = sum(x[0].numel() for x in run.models.values())
    for x in simulator.snapshot().tensors.values():
        assert x.shape == (16, elements)


@pytest.mark.parametrize("device", [3, None], ids=["one device", "merged"])
def test_peft_reads_the_adapters(base: Path, tmp_path: Path, device: int | None) -> None:
    study = lora_study(base, rounds=5)
    run = gs.run(study)
    source = data()
    study.model.save_adapter(run.models, tmp_path / "adapter", device)
    plain = transformers.AutoModelForSequenceClassification.from_pretrained(
        base, num_labels=4, ignore_mismatched_sizes=True, attn_implementation="eager"
    )
    with pytest.warns(FutureWarning):  # of peft, about a name in transformers
        read = peft.PeftModel.from_pretrained(plain, tmp_path / "adapter").eval()
    tokens = source.x_test
    with torch.no_grad():
        expected = read(input_ids=tokens, attention_mask=(tokens != 0).long()).logits
    learner = study.model.learner(source)
    w = []
    for name in learner.shapes:
        x = run.models[name]
        w.append((x.mean(0) if device is None else x[device]).reshape(-1))
    loss = learner.scores(torch.cat(w)[None], tokens, source.y_test, {}).loss
    torch.testing.assert_close(loss[0], F.cross_entropy(expected, source.y_test))
    assert not list((tmp_path / "adapter").glob("*.bin"))
    assert json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())["r"] == 4


def test_a_config_of_peft_and_a_table_are_equal(base: Path) -> None:
    config = peft.LoraConfig(r=4, lora_alpha=16, target_modules=["o_proj", "q_proj"])
    model = gs.Transformers(folder=str(base), lora=config)
    table = {"r": 4, "alpha": 16, "target_modules": ["o_proj", "q_proj"]}
    assert model == gs.Transformers(folder=str(base), lora=table)
    names = model.learner(data()).shapes
    assert any("o_proj.lora_A" in name for name in names)


# -- specs -----------------------------------------------------------------------------------------


def test_a_spec_gives_the_model_back(base: Path) -> None:
    for model in (
        gs.Transformers(folder=str(base), lora=LORA, head="causal-lm"),
        gs.Transformers(config=CONFIGS["bert"], pad=0),
        gs.Transformers(config=transformers.AutoConfig.for_model(**CONFIGS["llama"])),
    ):
        text = spec.dumps(gs.Study(model=model))
        assert spec.studies(spec.parse(text))[0].model == model


# -- bad input -------------------------------------------------------------------------------------

BERT = CONFIGS["bert"]
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, "folder = None is not accepted: give either"),
    "both": ({"folder": "x", "config": BERT}, "folder = 'x' is not accepted: give either"),
    "no model type": ({"config": {"vocab_size": 7}}, "config.model_type = None"),
    "unknown type": ({"config": {"model_type": "bertt"}}, "such as 'bert'"),
    "not a config": ({"config": 7}, "config = 7"),
    "unknown head": ({"config": BERT, "head": "poetry"}, "'causal-lm'"),
    "not LoRA": ({"config": BERT, "lora": 3}, "lora = 3"),
    "unknown key": ({"config": BERT, "lora": {"rank": 3}}, "lora = 'rank'"),
    "negative pad": ({"config": BERT, "pad": -1}, "pad = -1"),
    "no rank": ({"config": BERT, "lora": {"r": 0}}, "peft says"),
    "no such layers": (
        {"config": BERT, "lora": {"r": 2, "target_modules": ["missing"]}},
        "target_modules that name layers",
    ),
    "no folder": ({"folder": "/nowhere"}, "folder = '/nowhere'"),
    "no such head": ({"config": BERT | {"model_type": "vit"}, "head": "causal-lm"}, "causal-lm"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    fields, sentence = REFUSED[case]
    with pytest.raises(InputError) as refusal:
        gs.Transformers(**fields).learner(data())
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_folder_without_safetensors_is_refused(base: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((base / "config.json").read_text())
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80")
    with pytest.raises(InputError, match=r"\.safetensors files"):
        gs.Transformers(folder=str(tmp_path)).learner(data())


def test_a_damaged_folder_is_refused(base: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((base / "config.json").read_text())
    (tmp_path / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(InputError, match="folder") as refusal:
        gs.Transformers(folder=str(tmp_path)).learner(data())
    assert "\n" not in str(refusal.value)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InputError, match="folder"):
        gs.Transformers(folder=str(tmp_path)).learner(data())


def test_a_base_larger_than_memory_is_refused() -> None:
    huge = CONFIGS["llama"] | {"num_hidden_layers": 3, "intermediate_size": 1 << 36}
    with pytest.raises(InputError, match=r"GiB are available") as refusal:
        gs.Transformers(config=huge, lora={"r": 2}).learner(data())
    assert refusal.value.value == "llama"


def test_data_that_do_not_fit_are_refused() -> None:
    source = data()
    small = BERT | {"vocab_size": 4}
    with pytest.raises(InputError, match="from 0 to 3, the model's vocabulary"):
        gs.Transformers(config=small).learner(source)
    short = BERT | {"max_position_embeddings": LENGTH - 1}
    with pytest.raises(InputError, match="at most 9 tokens"):
        gs.Transformers(config=short).learner(source)
    with pytest.raises(InputError, match="token ids, one row per sample"):
        gs.Transformers(config=BERT).learner(gs.Digits().load())


def test_a_model_without_adapters_has_none_to_save(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="trained whole"):
        gs.Transformers(config=BERT).save_adapter({}, tmp_path)


def test_only_models_are_wrapped() -> None:
    with pytest.raises(InputError, match="a model of transformers or peft"):
        gs.TokenModel(nn.Linear(2, 2))


def test_without_the_extra_a_sentence_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtra, match=r"pip install 'gossamer\[hf\]'"):
        gs.Transformers(config=BERT)


def test_import_gossamer_does_not_import_hugging_face() -> None:
    script = (
        "import gossamer, sys; gossamer.Transformers; gossamer.from_hf; "
        "print(*{'transformers', 'peft', 'datasets', 'tokenizers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout.split() == []


def test_the_vocabulary_of_the_tests() -> None:
    assert CONFIGS["bert"]["vocab_size"] == len(VOCABULARY)

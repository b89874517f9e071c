"""Tiny random Hugging Face checkpoints of eight families, made in-process, with real tokenizers.

Weights are drawn wide, so that logits differ from token to token and a lost layer shows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import torch
import transformers

from export.graph import quiet
from tests.tiny_models import CORPUS, SPECIALS, Family, make_tokenizer

Architecture = Literal[
    "bert", "distilbert", "roberta", "albert", "electra", "mpnet", "deberta-v3", "xlm-roberta"
]
TOKENIZERS: dict[Architecture, Family] = {
    "bert": "wordpiece",
    "distilbert": "wordpiece",
    "roberta": "bpe",
    "albert": "unigram",
    "electra": "wordpiece",
    "mpnet": "wordpiece",
    "deberta-v3": "unigram",
    "xlm-roberta": "unigram",
}
ARCHITECTURES: tuple[Architecture, ...] = tuple(TOKENIZERS)
VOCABULARY = 1100  # larger than the tiny tokenizers', so that the table is worth quantising
POSITIONS = 200
HIDDEN, LAYERS, HEADS, INTERMEDIATE = 32, 2, 4, 64


def make_checkpoint(path: Path, architecture: Architecture = "bert", *, seed: int = 0) -> Path:
    """Save a random question-answering model with its tokenizer in the folder `path`."""
    model = make_model(architecture, seed=seed)
    model.save_pretrained(path)
    save_hf_tokenizer(path, TOKENIZERS[architecture])
    return path


def make_model(architecture: Architecture, *, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    config = _config(architecture)
    with quiet():  # DeBERTa's module warns of its own decorators
        model = transformers.AutoModelForQuestionAnswering.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.2)
        model.qa_outputs.weight.normal_(0.0, 0.5)
    return model.eval()


def spoil_for_int8(path: Path) -> None:
    """Give a saved BERT one huge, unread value in each feed-forward layer.

    The float model is unchanged by it; every INT8 scheme spends its steps on that value and loses
    all others.
    """
    _add_unread_value(path, 3000.0)


def spoil_for_fp16(path: Path) -> None:
    """The same with a value that FP16 cannot hold."""
    _add_unread_value(path, 70_000.0)


def _add_unread_value(path: Path, value: float) -> None:
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(path)
    with torch.no_grad():
        for layer in model.bert.encoder.layer:
            layer.output.dense.weight.normal_(0.0, 1.0)
            layer.intermediate.dense.weight[0] = 0.0
            layer.intermediate.dense.bias[0] = value
            layer.output.dense.weight[:, 0] = 0.0
    model.save_pretrained(path)


def save_hf_tokenizer(path: Path, family: Family) -> None:
    """Write a tiny tokenizer as transformers finds it."""
    tokenizer = make_tokenizer(family, CORPUS)
    tokenizer.save(str(path / "tokenizer.json"))
    special = SPECIALS[family]
    facts = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": POSITIONS - 20,
        "cls_token": special["cls"],
        "sep_token": special["sep"],
        "pad_token": special["pad"],
        "unk_token": special["unk"],
    }
    (path / "tokenizer_config.json").write_text(json.dumps(facts), "utf-8")


def gate_file(path: Path, questions: int = 300) -> Path:
    """JSON lines of so many questions over the tiny corpus, each answered by a word of it."""
    lines = []
    for number in range(questions):
        text = CORPUS[number % 6]
        words = text.split()
        answer = words[(7 * number) % len(words)].strip(".,;?")
        record = {"question": f"What is {number}?", "context": text, "answer": answer}
        lines.append(json.dumps(record, ensure_ascii=False))
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def _config(architecture: Architecture) -> Any:
    common = {
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": INTERMEDIATE,
        "max_position_embeddings": POSITIONS,
    }
    small = {**common, "embedding_size": 16}
    pad = {"pad_token_id": 1}  # as the tiny byte-level and Unigram tokenizers have it
    makers = {
        "bert": lambda: transformers.BertConfig(**common),
        "distilbert": lambda: transformers.DistilBertConfig(
            vocab_size=VOCABULARY,
            dim=HIDDEN,
            n_layers=LAYERS,
            n_heads=HEADS,
            hidden_dim=INTERMEDIATE,
            max_position_embeddings=POSITIONS,
        ),
        "roberta": lambda: transformers.RobertaConfig(**common, **pad),
        "albert": lambda: transformers.AlbertConfig(**small, **pad),
        "electra": lambda: transformers.ElectraConfig(**small),
        "mpnet": lambda: transformers.MPNetConfig(**common, **pad),
        "deberta-v3": lambda: transformers.DebertaV2Config(
            **common,
            **pad,
            relative_attention=True,
            position_buckets=32,
            norm_rel_ebd="layer_norm",
            share_att_key=True,
            pos_att_type="p2c|c2p",
            position_biased_input=False,
            type_vocab_size=0,
        ),
        "xlm-roberta": lambda: transformers.XLMRobertaConfig(**common, **pad),
    }
    return makers[architecture]()

"""A corpus of a few sentences -> kilobyte QA bundles on three tokenizer families, made in-process.

The tokenizers are real `tokenizers` pipelines with the families' own normalisers and pair
templates; the graphs are real ONNX with batch and sequence left free:

- "overlap": a context token that also occurs in the question lifts the scores of its neighbours,
  rare words more than common ones, so that the best span is a plausible answer beside the
  question's words. The null score is a share of what a full match would reach.
- "random": a seeded embedding and mixing layer only; answers are arbitrary, but deterministic.

Either way the logits of a row do not depend on padding or on the other rows of the batch.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from models.bundle import (
    Bundle,
    FileFact,
    Manifest,
    Precision,
    Role,
    describe_file,
    open_bundle,
    write_manifest,
)

Family = Literal["wordpiece", "bpe", "unigram"]
Kind = Literal["overlap", "random"]

FAMILIES: tuple[Family, ...] = ("wordpiece", "bpe", "unigram")
WIDTH = 8  # of the random part's embedding
REACH = 6  # tokens to either side that a matching token lifts
NULL_SHARE = 0.4  # of the question's summed rarity, added to start and to end of "no answer"
LONGEST_WORD = 8  # characters; longer words are cut into pieces

CORPUS: tuple[str, ...] = (
    "The pumping station at Éze has three pumps. Pump 1 and pump 2 run in turn; pump 3 is spare.",
    "The relief valve opens at 6.5 bar and must be tested every 12 months by the shift engineer.",
    "Fault code E-17 means that the motor is too hot. Switch the pump off and wait for 20 minutes.",
    "The café beside the reservoir closes at 5. The reservoir holds 4,200 cubic metres of water.",
    "Bearings are greased every 500 hours with 30 g of lithium grease. Filters change monthly.",
    "Who tests the relief valve? When does the valve open? What does a code mean? How much water?",
    "水泵站有三台水泵。阀门在六点五巴时打开。 Насос номер один работает днём.",
)

SPECIALS: Mapping[Family, dict[str, str]] = {
    "wordpiece": {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]"},
    "bpe": {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>"},
    "unigram": {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>"},
}


def make_bundle(
    path: Path,
    *,
    role: Role = "drafter",
    family: Family = "wordpiece",
    kind: Kind = "overlap",
    seed: int = 0,
    vocabulary: Sequence[str] = CORPUS,
    max_length: int = 512,
) -> Bundle:
    """Write a bundle into the folder `path` (made if absent) and open it, checksums and all.

    A drafter has an "int8" graph; a verifier an "fp16" and an "fp32" graph over one FP16 file.

    Args:
        vocabulary: texts whose words the tokenizer shall know; anything else still tokenises
            (into characters, bytes or unknown tokens, as the family does).
    """
    path.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer(family, vocabulary)
    tokenizer.save(str(path / "tokenizer.json"))
    precision: Precision = "int8" if role == "drafter" else "fp16"
    wanted = ("int8",) if role == "drafter" else ("fp16", "fp32")
    tables = _make_tables(tokenizer, family, vocabulary, seed)
    graphs = {name: f"model.{name}.onnx" for name in wanted}
    for name, file in graphs.items():
        _save(path / file, _make_model(tokenizer, family, kind, tables, name))
    files = {
        file.name: describe_file(file)
        for file in sorted(path.iterdir())
        if file.name != "manifest.json"
    }
    write_manifest(
        path,
        _manifest(tokenizer, role, family, seed, max_length, precision, graphs, files),
    )
    return open_bundle(path, role=role)


def _manifest(
    tokenizer: Tokenizer,
    role: Role,
    family: Family,
    seed: int,
    max_length: int,
    precision: Precision,
    graphs: dict[str, str],
    files: dict[str, FileFact],
) -> Manifest:
    return Manifest(
        name=f"tiny-{role}-{family}-{seed}",
        role=role,
        task="extractive-question-answering",
        target="x86" if role == "drafter" else "cuda",
        precision=precision,
        graphs=graphs,
        tokenizer="tokenizer.json",
        max_length=max_length,
        inputs=_input_names(family),
        outputs=("start_logits", "end_logits"),
        null_index=0,
        files=files,
        gate={},
        details={
            "base_model": "none: made by tests/tiny_models.py",
            "special_tokens": {
                name: tokenizer.token_to_id(token) for name, token in SPECIALS[family].items()
            },
        },
    )


# Tokenizers


def make_tokenizer(family: Family, texts: Sequence[str] = CORPUS) -> Tokenizer:
    """The same tokenizer for the same texts, always (the trainers for two of the families are not
    deterministic, so their vocabularies are counted out here)."""
    return {"wordpiece": _wordpiece, "bpe": _bpe, "unigram": _unigram}[family](texts)


def _wordpiece(texts: Sequence[str]) -> Tokenizer:
    normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=True, lowercase=True
    )
    words = _count(normalizer.normalize_str(text) for text in texts)
    characters = sorted({c for word in words for c in word} | set("abcdefghijklmnopqrstuvwxyz"))
    tails = Counter(word[-3:] for word in words if len(word) > 5)
    pieces = [
        *SPECIALS["wordpiece"].values(),
        *(word for word in sorted(words) if 1 < len(word) <= LONGEST_WORD),
        *characters,
        *(f"##{c}" for c in characters),
        *(f"##{tail}" for tail, count in sorted(tails.items()) if count > 1),
    ]
    tokenizer = Tokenizer(
        models.WordPiece(
            {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}, unk_token="[UNK]"
        )
    )
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(list(SPECIALS["wordpiece"].values()))
    tokenizer.post_processor = processors.BertProcessing(
        sep=_special(tokenizer, "[SEP]"), cls=_special(tokenizer, "[CLS]")
    )
    return tokenizer


def _bpe(texts: Sequence[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1024,
        min_frequency=1,
        special_tokens=list(SPECIALS["bpe"].values()),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(
        sep=_special(tokenizer, "</s>"),
        cls=_special(tokenizer, "<s>"),
        trim_offsets=True,
        add_prefix_space=False,
    )
    return tokenizer


def _unigram(texts: Sequence[str]) -> Tokenizer:
    normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    )
    words = _count(normalizer.normalize_str(text) for text in texts)
    characters = Counter(c for word, count in words.items() for c in word for _ in range(count))
    total = sum(words.values()) + sum(characters.values())
    pieces: dict[str, float] = dict.fromkeys(SPECIALS["unigram"].values(), 0.0)
    for word, count in sorted(words.items()):
        if len(word) <= LONGEST_WORD:
            pieces.setdefault(f"▁{word}", math.log(count / total))
    for character, count in sorted(characters.items()):
        pieces.setdefault(character, math.log(count / total) - 4.0)
    pieces.setdefault("▁", math.log(1 / total))
    unknown = list(pieces).index("<unk>")
    tokenizer = Tokenizer(models.Unigram(list(pieces.items()), unk_id=unknown))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=False) for token in SPECIALS["unigram"].values()]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[_special(tokenizer, "<s>"), _special(tokenizer, "</s>")],
    )
    return tokenizer


def _count(texts: Any) -> Counter[str]:
    """How often each run of word characters, and each other visible character, occurs."""
    return Counter(word for text in texts for word in re.findall(r"\w+|[^\w\s]", text))


def _special(tokenizer: Tokenizer, token: str) -> tuple[str, int]:
    return token, tokenizer.token_to_id(token)


# Graphs


def _input_names(family: Family) -> tuple[str, ...]:
    names = ("input_ids", "attention_mask")
    return (*names, "token_type_ids") if family == "wordpiece" else names


def _make_tables(
    tokenizer: Tokenizer, family: Family, texts: Sequence[str], seed: int
) -> dict[str, NDArray[np.float32]]:
    """The weights: rarity (vocabulary,), embedding (vocabulary, WIDTH), mixing, head."""
    size = tokenizer.get_vocab_size()
    specials = {tokenizer.token_to_id(token) for token in SPECIALS[family].values()}
    seen = Counter(
        i for text in texts for i in tokenizer.encode(text, add_special_tokens=False).ids
    )
    rarity = np.zeros(size, np.float32)
    for token, piece in sorted((i, p) for p, i in tokenizer.get_vocab().items()):
        letters = sum(unicodedata.category(c)[0] in "LN" for c in piece.strip("#Ġ▁"))
        if token not in specials and letters:
            meaning = 1.0 if any(c.isdigit() for c in piece) else min(letters, 5) / 5
            rarity[token] = meaning / (1 + math.log1p(seen[token]))
    random = np.random.default_rng(seed)
    return {
        "rarity": rarity,
        "embedding": random.normal(0, 1, (size, WIDTH)).astype(np.float32),
        "mixing": random.normal(0, 0.3, (WIDTH, WIDTH, 3)).astype(np.float32),
        "head": random.normal(0, 1, (WIDTH, 2)).astype(np.float32),
    }


def _make_model(
    tokenizer: Tokenizer,
    family: Family,
    kind: Kind,
    tables: dict[str, NDArray[np.float32]],
    precision: str,
) -> onnx.ModelProto:
    graph = _Graph(precision)
    for name, table in tables.items():
        graph.weight(name, table)
    mask = graph.op("Cast", "attention_mask", to=graph.float_type)
    mask_b1s = graph.op("Unsqueeze", mask, graph.ints(1))
    separators = graph.op(
        "Equal", "input_ids", graph.ints(tokenizer.token_to_id(SPECIALS[family]["sep"]))
    )
    behind = graph.op(
        "CumSum", graph.op("Cast", separators, to=TensorProto.INT64), graph.scalar(1), exclusive=1
    )
    in_question = graph.op("Equal", behind, graph.ints(0))
    if family == "wordpiece":  # the type ids must agree, or nothing counts as question
        typed = graph.op("Equal", "token_type_ids", graph.ints(0))
        in_question = graph.op("And", in_question, typed)
    question = graph.op("Mul", graph.op("Cast", in_question, to=graph.float_type), mask)
    context = graph.op("Mul", graph.op("Sub", graph.number(1.0), question), mask)

    # (batch, sequence, WIDTH) -> (batch, WIDTH, sequence), padding silenced before it can mix in
    embedded = graph.op("Transpose", graph.op("Gather", "embedding", "input_ids"), perm=[0, 2, 1])
    silenced = graph.op("Mul", embedded, mask_b1s)
    mixed = graph.op("Tanh", graph.op("Conv", silenced, "mixing", pads=[1, 1]))
    noise = graph.op("MatMul", graph.op("Transpose", mixed, perm=[0, 2, 1]), "head")  # (B, S, 2)
    scores = noise
    if kind == "overlap":
        scores = graph.op(
            "Add", graph.op("Mul", noise, graph.number(0.05)), _overlap(graph, question, context)
        )
    for index, name in enumerate(("start_logits", "end_logits")):
        one = graph.op("Gather", scores, graph.scalar(index), axis=2)
        graph.op("Cast", one, to=TensorProto.FLOAT, output=name)
    return graph.model(_input_names(family))


def _overlap(graph: _Graph, question: str, context: str) -> str:
    """Scores (batch, sequence, 2): the pull of matching neighbours, null at position 0."""
    rarity = graph.op("Gather", "rarity", "input_ids")  # (B, S)
    column = graph.op("Unsqueeze", "input_ids", graph.ints(2))
    row = graph.op("Unsqueeze", "input_ids", graph.ints(1))
    same = graph.op("Cast", graph.op("Equal", column, row), to=graph.float_type)  # (B, S, S)
    asked = graph.op("Unsqueeze", question, graph.ints(2))
    hits = graph.op("Squeeze", graph.op("MatMul", same, asked), graph.ints(2))
    hit = graph.op("Mul", graph.op("Clip", hits, graph.number(0.0), graph.number(1.0)), context)
    weight = graph.op("Mul", hit, rarity)
    graph.weight("pull", _pull_kernels())
    pull = graph.op(
        "Conv", graph.op("Unsqueeze", weight, graph.ints(1)), "pull", pads=[REACH, REACH]
    )  # (B, 2, S)
    # A rare token makes an answer; one that the question itself contains hardly does.
    told = graph.op("Mul", hit, graph.number(2.0))
    merit = graph.op("Unsqueeze", graph.op("Sub", rarity, told), graph.ints(1))
    inside = graph.op("Unsqueeze", context, graph.ints(1))
    pull = graph.op("Mul", graph.op("Add", pull, merit), inside)
    full = graph.op("ReduceSum", graph.op("Mul", question, rarity), graph.ints(1), keepdims=1)
    null = graph.op("Mul", full, graph.number(NULL_SHARE))  # (B, 1)
    first = graph.op("Mul", question, graph.op("Cast", _is_first(graph), to=graph.float_type))
    null_row = graph.op("Unsqueeze", graph.op("Mul", first, null), graph.ints(1))  # (B, 1, S)
    return graph.op("Transpose", graph.op("Add", pull, null_row), perm=[0, 2, 1])


def _is_first(graph: _Graph) -> str:
    """True at position 0 of each row, (batch, sequence)."""
    ones = graph.op("Equal", "input_ids", "input_ids")
    counted = graph.op("CumSum", graph.op("Cast", ones, to=TensorProto.INT64), graph.scalar(1))
    return graph.op("Equal", counted, graph.ints(1))


def _pull_kernels() -> NDArray[np.float32]:
    """(2, 1, 2 * REACH + 1): how much a match at each distance lifts a start, then an end."""
    distance = np.arange(-REACH, REACH + 1)
    near = 2.0 / (1 + np.abs(distance))
    start = np.where(distance < 0, 1.0, 0.6) * near
    end = np.where(distance < 0, 0.6, near)
    return np.stack([start, end])[:, None, :].astype(np.float32)


class _Graph:
    """Nodes and weights as they are added; every `op` returns the name of its one output."""

    def __init__(self, precision: str) -> None:
        self.half = precision == "fp16"
        self.precision = precision
        self.float_type = TensorProto.FLOAT16 if self.half else TensorProto.FLOAT
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def op(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        name = output or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def weight(self, name: str, values: NDArray[np.float32]) -> None:
        """Stored as the precision wants it, available under `name` in the graph's float type."""
        if self.precision == "int8":
            scale = float(np.abs(values).max()) / 127
            self._constant(f"{name}_int8", np.round(values / scale).astype(np.int8))
            self._constant(f"{name}_scale", np.float32(scale))
            self.op("DequantizeLinear", f"{name}_int8", f"{name}_scale", output=name)
        elif self.half:
            self._constant(name, values.astype(np.float16))
        else:  # "fp32": a graph over the verifier's FP16 file
            self._constant(f"{name}_fp16", values.astype(np.float16))
            self.op("Cast", f"{name}_fp16", to=TensorProto.FLOAT, output=name)

    def ints(self, *values: int) -> str:
        return self._constant(f"int_{len(self.initializers)}", np.array(values, np.int64))

    def scalar(self, value: int) -> str:
        return self._constant(f"int_{len(self.initializers)}", np.array(value, np.int64))

    def number(self, value: float) -> str:
        kind = np.float16 if self.half else np.float32
        return self._constant(f"float_{len(self.initializers)}", np.array(value, kind))

    def _constant(self, name: str, values: Any) -> str:
        self.initializers.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def model(self, inputs: Sequence[str]) -> onnx.ModelProto:
        shape = ("batch", "sequence")
        graph = helper.make_graph(
            self.nodes,
            "tiny",
            [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name in inputs],
            [
                helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
                for name in ("start_logits", "end_logits")
            ],
            self.initializers,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        onnx.checker.check_model(model)
        return model


def _save(file: Path, model: onnx.ModelProto) -> None:
    """Write the graph; FP16 weights go to `weights.bin`, the same for both verifier graphs."""
    halves = [
        tensor
        for tensor in model.graph.initializer
        if tensor.data_type == TensorProto.FLOAT16 and tensor.dims
    ]
    weights = bytearray()
    for tensor in sorted(halves, key=lambda t: t.name):
        raw = tensor.raw_data
        onnx.external_data_helper.set_external_data(
            tensor, "weights.bin", offset=len(weights), length=len(raw)
        )
        tensor.data_location = TensorProto.EXTERNAL
        tensor.ClearField("raw_data")
        weights += raw
    if halves:
        (file.parent / "weights.bin").write_bytes(weights)
    file.write_bytes(model.SerializeToString(deterministic=True))

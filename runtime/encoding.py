"""A question and context tokens -> the padded int64 tensors that a model is fed.

The places of special tokens are read off the tokenizer itself, by encoding a pair with it, so the
same code serves "[CLS] q [SEP] c [SEP]", "<s> q </s></s> c </s>" and whatever else a bundle's
tokenizer defines. Windows come tokenised from the knowledge base, which cuts them for each
question; questions and rationales are tokenised here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from runtime.errors import BundleIncompatible

MAX_HEADER = 32  # tokens


@dataclass(frozen=True, slots=True, eq=False)
class TokenizedText:
    """Token ids int32 (n,) and offsets int32 (n, 2) in code points, without special tokens."""

    ids: NDArray[np.int32]
    offsets: NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class PairBatch:
    """One padded batch.

    Attributes:
        feeds: `input_ids`, `attention_mask`, `token_type_ids`, each int64 (batch, longest).
        context_starts: the position of each row's first context token, behind its header.
        context_lengths: tokens of context that each row really holds.
        tokens: tokens the model reads, padding not counted.
    """

    feeds: dict[str, NDArray[np.int64]]
    context_starts: tuple[int, ...]
    context_lengths: tuple[int, ...]
    tokens: int

    def context(self, row: int) -> slice:
        start = self.context_starts[row]
        return slice(start, start + self.context_lengths[row])


@dataclass(frozen=True, slots=True)
class _Template:
    """Special tokens before the question, between, and after the context; and the type ids."""

    prefix: tuple[int, ...]
    middle: tuple[int, ...]
    suffix: tuple[int, ...]
    question_type: int
    context_type: int
    middle_types: tuple[int, ...]
    suffix_types: tuple[int, ...]


class PairEncoder:
    """A bundle's tokenizer, set up for (question, context) pairs. Safe to share between threads.

    Attributes:
        max_length: the model's longest sequence in tokens, special tokens included.
        max_question: longer questions are cut to this many tokens.
        padding: the id that fills a batch's shorter rows.
    """

    def __init__(self, tokenizer_path: Path, max_length: int, *, max_question: int = 128) -> None:
        """
        Raises:
            BundleIncompatible: the tokenizer cannot encode pairs.
        """
        self.tokenizer = Tokenizer.from_file(str(tokenizer_path))
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.tokenizer.encode_special_tokens = True
        self.max_length = max_length
        self._template = _read_template(self.tokenizer, tokenizer_path)
        self._special = sum(
            len(part)
            for part in (self._template.prefix, self._template.middle, self._template.suffix)
        )
        self.max_question = min(max_question, max(8, (max_length - self._special) // 2))
        self.padding = _id_of(self.tokenizer, "[PAD]", "<pad>") or 0
        self._unknown = _id_of(self.tokenizer, "[UNK]", "<unk>")
        self._forbidden = _special_ids(self.tokenizer, self._unknown)

    def tokenize(self, text: str) -> TokenizedText:
        """Tokens of `text` alone, without special tokens, padding or truncation."""
        encoding = self.tokenizer.encode(text, add_special_tokens=False)
        return TokenizedText(
            np.asarray(encoding.ids, dtype=np.int32),
            np.asarray(encoding.offsets, dtype=np.int32).reshape(-1, 2),
        )

    def question(self, question: str) -> NDArray[np.int32]:
        """Token ids int32 (n,) of the question, at most `max_question`."""
        return self._without_specials(self.tokenize(question).ids[: self.max_question])

    def header(self, text: str) -> NDArray[np.int32]:
        """Token ids int32 (n,) of a header: the last of them, should there be too many."""
        return self.tokenize(text).ids[-min(MAX_HEADER, self.max_length // 8) :]

    def room(self, question_ids: NDArray[np.int32]) -> int:
        """How many context tokens fit beside this question."""
        return self.max_length - self._special - len(question_ids)

    def batch(
        self,
        question_ids: NDArray[np.int32],
        contexts: Sequence[NDArray[np.int32]],
        headers: Sequence[NDArray[np.int32]] | None = None,
    ) -> PairBatch:
        """Pad the pairs to the longest of them. Contexts that do not fit lose their end.

        Args:
            headers: what is read before each context, and is not part of it.
        """
        template = self._template
        room = self.room(question_ids)
        headers = [context[:0] for context in contexts] if headers is None else headers
        kept = [
            self._without_specials(np.concatenate([header, context])[:room])
            for header, context in zip(headers, contexts, strict=True)
        ]
        head = (*template.prefix, *question_ids.tolist(), *template.middle)
        head_types = (
            *([template.question_type] * (len(template.prefix) + len(question_ids))),
            *template.middle_types,
        )
        longest = len(head) + max(map(len, kept)) + len(template.suffix)
        shape = (len(kept), longest)
        input_ids = np.full(shape, self.padding, dtype=np.int64)
        attention_mask = np.zeros(shape, dtype=np.int64)
        token_type_ids = np.zeros(shape, dtype=np.int64)
        input_ids[:, : len(head)] = head
        token_type_ids[:, : len(head)] = head_types
        for row, context in enumerate(kept):
            end = len(head) + len(context)
            input_ids[row, len(head) : end] = context
            input_ids[row, end : end + len(template.suffix)] = template.suffix
            token_type_ids[row, len(head) : end] = template.context_type
            token_type_ids[row, end : end + len(template.suffix)] = template.suffix_types
            attention_mask[row, : end + len(template.suffix)] = 1
        return PairBatch(
            feeds={
                "input_ids": input_ids,
                "attention_mask": attention_mask,
                "token_type_ids": token_type_ids,
            },
            context_starts=tuple(len(head) + len(header) for header in headers),
            context_lengths=tuple(
                len(read) - len(header) for read, header in zip(kept, headers, strict=True)
            ),
            tokens=int(attention_mask.sum()),
        )

    def _without_specials(self, ids: NDArray[np.int32]) -> NDArray[np.int32]:
        """`ids` with special tokens turned into unknown ones.

        A document that spells "</s>" must not be able to end its context. `encode_special_tokens`
        sees to that for most tokenizers; Unigram still finds the piece in its vocabulary.
        """
        if self._unknown is None:
            return ids
        return np.where(np.isin(ids, self._forbidden), np.int32(self._unknown), ids)


def _read_template(tokenizer: Tokenizer, path: Path) -> _Template:
    encoding = tokenizer.encode("a", "b", add_special_tokens=True)
    sequence = encoding.sequence_ids
    first = [i for i, owner in enumerate(sequence) if owner == 0]
    second = [i for i, owner in enumerate(sequence) if owner == 1]
    if not first or not second or second[0] < first[-1]:
        raise BundleIncompatible(
            "The bundle's tokenizer does not encode a question before its context",
            where=str(path),
            fix="Export the bundle again; the tokenizer needs a post-processor for pairs",
        )
    ids, types = encoding.ids, encoding.type_ids
    middle = slice(first[-1] + 1, second[0])
    suffix = slice(second[-1] + 1, len(ids))
    return _Template(
        prefix=tuple(ids[: first[0]]),
        middle=tuple(ids[middle]),
        suffix=tuple(ids[suffix]),
        question_type=types[first[0]],
        context_type=types[second[0]],
        middle_types=tuple(types[middle]),
        suffix_types=tuple(types[suffix]),
    )


def _id_of(tokenizer: Tokenizer, *names: str) -> int | None:
    """The id of the first of these tokens that the tokenizer knows."""
    for name in names:
        found = tokenizer.token_to_id(name)
        if found is not None:
            return int(found)
    return None


def _special_ids(tokenizer: Tokenizer, unknown: int | None) -> NDArray[np.int32]:
    """Ids that text must not be able to produce: all special tokens but the unknown one."""
    added = tokenizer.get_added_tokens_decoder()
    special = [number for number, token in added.items() if token.special and number != unknown]
    return np.asarray(special, dtype=np.int32)

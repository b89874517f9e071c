"""Text -> tokens, with each distinct word tokenised only once.

Only for tokenizers that treat words on either side of a blank independently of each other, which
BERT's normaliser, pre-tokenizer and WordPiece do. For those it is several times faster than the
tokenizer, and gives exactly the same; for the others there is no cache.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import chain

import numpy as np
from tokenizers import Tokenizer

from runtime.encoding import TokenizedText

_WORD = re.compile(r"[^ \n\r\t]+")
_LONGEST_CACHED = 40  # characters
_CACHE_LIMIT = 100_000  # distinct words, about 40 MB

# Ids, starts and ends of a word's tokens; starts and ends count from the word's first character.
_Word = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def is_word_by_word(tokenizer: Tokenizer) -> bool:
    """Whether the tokenizer is one of those for which this is exact."""
    facts = json.loads(tokenizer.to_str())
    kinds = [
        (facts.get(part) or {}).get("type") for part in ("normalizer", "pre_tokenizer", "model")
    ]
    ordinary = all(token["special"] for token in facts.get("added_tokens", ()))
    return kinds == ["BertNormalizer", "BertPreTokenizer", "WordPiece"] and ordinary


class WordCache:
    """Tokenises like `tokenizer.encode(text, add_special_tokens=False)`. One thread at a time."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._words: dict[str, _Word] = {}

    def encode_batch(self, texts: Sequence[str]) -> list[TokenizedText]:
        found = [[(m.group(), m.start()) for m in _WORD.finditer(text)] for text in texts]
        words = self._look_up({word for places in found for word, _ in places})
        return [self._joined([words[w] for w, _ in places], places) for places in found]

    def _look_up(self, wanted: set[str]) -> dict[str, _Word]:
        """The tokens of these words, from the cache where they are in it."""
        missing = sorted(word for word in wanted if word not in self._words)
        encodings = self._tokenizer.encode_batch(missing, add_special_tokens=False)
        fresh: dict[str, _Word] = {}
        for word, encoding in zip(missing, encodings, strict=True):
            offsets = encoding.offsets
            starts, ends = tuple(s for s, _ in offsets), tuple(e for _, e in offsets)
            fresh[word] = (tuple(encoding.ids), starts, ends)
        found = {word: fresh.get(word) or self._words[word] for word in wanted}
        if len(self._words) + len(fresh) > _CACHE_LIMIT:
            self._words.clear()
        self._words |= {w: tokens for w, tokens in fresh.items() if len(w) <= _LONGEST_CACHED}
        return found

    @staticmethod
    def _joined(words: list[_Word], places: list[tuple[str, int]]) -> TokenizedText:
        if not words:
            return TokenizedText(np.empty(0, np.int32), np.empty((0, 2), np.int32))
        ids, starts, ends = (list(chain.from_iterable(part)) for part in zip(*words, strict=True))
        counts = [len(word[0]) for word in words]
        offsets = np.array([starts, ends], np.int32).T
        offsets = offsets + np.repeat(np.array([at for _, at in places], np.int32), counts)[:, None]
        return TokenizedText(np.array(ids, np.int32), offsets)

"""Training pairs and contexts -> pairs the student has not seen, for the teacher to label.

Distillation needs a teacher's word more than people's, so views may be made up that nobody has
labelled. Two kinds are:

- Word substitution: words of a pair become their neighbours among the model's input embeddings,
  the same word the same neighbour in question and context, one token for one token, so that all
  positions stay (after the augmentation of TinyBERT, Jiao et al. 2020, arXiv 1909.10351, which
  has a masked language model or GloVe vectors propose the words).
- Cloze questions: a sentence of a context with a name, number or word replaced by a wh-word (Lewis
  et al. 2019, arXiv 1906.04980, who train on them with labels; here only the teacher answers).
  They are English, and so are the capitals and digits that they look for.

Measured on the default drafter: without them it had learnt its 25,000 questions by heart; a further
run with both took it from 66.2 to 69.1 F1 on 500 held-out questions (docs/training.md).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import regex
from numpy.typing import NDArray

NEIGHBOURS = 12  # of a word, among which its substitute is drawn
SEEN = 3  # times a word must stand in the training contexts to be one
COMMON = 60  # most frequent words of contexts, and of questions, that stay: mostly function words
TOGETHER = (0.1, 0.2, 0.3, 0.4)  # odds that a word of the pair is replaced, drawn for each view
QUESTION_ONLY = (0.15, 0.3)  # the same for words of the question alone
ROWS = 512  # of the similarities that are held at a time

SHORTEST_SENTENCE = 25  # characters
FEWEST_WORDS = 4  # of a cloze question

_WHOLE = regex.compile(
    r"(?<![\p{L}\p{M}\p{N}])(?:[\p{L}\p{M}\p{N}]{3,}|[0-9]+)(?![\p{L}\p{M}\p{N}])"
)
# What a cloze question asks for: a name of one or more words, a number, one or two plain words.
_GAP = regex.compile(
    r"""\p{Lu}[\w'-]*(?:\s+(?:(?:of|the|de|and)\s+)?\p{Lu}[\w'-]*)*
      | \$?\d[\d,.]*\d | \d
      | \b\p{Ll}{4,}(?:\s+\p{Ll}{4,})?""",
    regex.VERBOSE,
)
_YEAR = regex.compile(r"(?:1\d|20)\d\d")


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """A tokenised text.

    Attributes:
        ids: int32 (n,).
        offsets: int32 (n, 2), each token's `[start, end)` in `text`.
        whole: bool (n,), which of the tokens are whole words.
    """

    text: str
    ids: NDArray[np.int32]
    offsets: NDArray[np.int32]
    whole: NDArray[np.bool_]

    def part(self, first: int, end: int) -> Words:
        """Tokens `[first, end)` and the text they stand for."""
        offsets = self.offsets[first:end]
        start, stop = (int(offsets[0, 0]), int(offsets[-1, 1])) if len(offsets) else (0, 0)
        text = self.text[start:stop]
        return Words(text, self.ids[first:end], offsets - start, self.whole[first:end])


def whole_words(text: str, offsets: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Which tokens are a whole word: three or more letters, or a number, and nothing beside them.

    Told from the text alone, so it holds for every tokenizer. Scripts written without spaces have
    next to none.

    Args:
        offsets: int32 (n, 2), each token's `[start, end)` in `text`; white space in front, which
            some tokenizers count in, does not matter.
    """
    words = {match.span() for match in _WHOLE.finditer(text)}
    found = trimmed(text, offsets).tolist()
    return np.array([(start, end) in words for start, end in found], dtype=np.bool_)


def trimmed(text: str, offsets: NDArray[np.int32]) -> NDArray[np.int32]:
    """Offsets int32 (n, 2) without white space in front, which some tokenizers count in."""
    spans = offsets.reshape(-1, 2).copy()
    spans[:, 0] = [end - len(text[start:end].lstrip()) for start, end in spans.tolist()]
    return spans


class Substitution:
    """Puts words in the place of others that the embeddings hold to be like them."""

    def __init__(
        self,
        embeddings: NDArray[np.float32],
        contexts: Sequence[Words],
        questions: Sequence[Words],
        share: float,
        spell: Callable[[int], str],
    ) -> None:
        """
        Args:
            embeddings: float32 (vocabulary, width), a row for each token id.
            contexts, questions: those trained on: what is frequent there stays as it is, and what
                is rare is neither replaced nor put in another's place.
            share: of pairs in which words of both sides are replaced; in half as many, words of
                the question alone are.
            spell: a token id -> the word that it stands for.
        """
        self._share = share
        self._spell = cache(spell)
        seen = _counts(contexts, len(embeddings))
        common = [_most_frequent(seen), _most_frequent(_counts(questions, len(embeddings)))]
        usable = np.setdiff1d(np.flatnonzero(seen >= SEEN), np.concatenate(common))
        if len(usable) <= NEIGHBOURS:  # too few to have any that are near
            usable = usable[:0]
        self._row = dict(zip(usable.tolist(), range(len(usable)), strict=True))
        self._near = usable[_nearest(embeddings[usable])]

    def pair(self, question: Words, context: Words, rng: random.Random) -> tuple[Words, Words]:
        """Both, of as many tokens as before, with words replaced or as they were."""
        if rng.random() < self._share:
            swaps = self._draw([question, context], rng.choice(TOGETHER), rng)
            question, context = self._swapped(question, swaps), self._swapped(context, swaps)
        if rng.random() < self._share / 2:
            swaps = self._draw([question], rng.choice(QUESTION_ONLY), rng)
            question = self._swapped(question, swaps)
        return question, context

    def _draw(self, words: Sequence[Words], odds: float, rng: random.Random) -> dict[int, int]:
        """Token -> the one that replaces it, for some of the tokens that are whole words."""
        tokens = np.unique(np.concatenate([part.ids[part.whole] for part in words])).tolist()
        return {
            token: int(rng.choice(self._near[self._row[token]]))
            for token in tokens
            if token in self._row and rng.random() < odds
        }

    def _swapped(self, words: Words, swaps: dict[int, int]) -> Words:
        ids, offsets = words.ids.copy(), words.offsets.copy()
        spans, parts, read = trimmed(words.text, offsets), [], 0
        for place, (token, whole) in enumerate(zip(words.ids.tolist(), words.whole, strict=True)):
            if not whole or token not in swaps:
                continue
            start, end = spans[place].tolist()
            spelled = self._spell(swaps[token])
            parts += [words.text[read:start], spelled]
            read = end
            ids[place] = swaps[token]
            offsets[place, 1] += len(spelled) - (end - start)
            offsets[place + 1 :] += len(spelled) - (end - start)
        return Words("".join(parts) + words.text[read:], ids, offsets, words.whole)


def _counts(words: Sequence[Words], size: int) -> NDArray[np.int64]:
    """How often each token is a whole word."""
    ids = np.concatenate([part.ids[part.whole] for part in words])
    return np.bincount(ids, minlength=size)


def _most_frequent(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.argsort(-counts, kind="stable")[:COMMON]


def _nearest(vectors: NDArray[np.float32]) -> NDArray[np.int64]:
    """Rows of the nearest others by cosine, the mean of all taken away, in order of row."""
    near = np.empty((len(vectors), NEIGHBOURS), dtype=np.int64)
    unit = vectors - vectors.sum(axis=0) / max(1, len(vectors))
    unit /= np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), 1e-12)
    for first in range(0, len(unit), ROWS):
        alike = unit[first : first + ROWS] @ unit.T
        rows = np.arange(len(alike))
        alike[rows, first + rows] = -np.inf  # no word replaces itself
        near[first : first + ROWS] = np.argpartition(-alike, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
    return np.sort(near, axis=1)


def cloze_question(sentence: str, rng: random.Random) -> str | None:
    """A question of the sentence's own words, some left out, with a wh-word for one of its parts.

    Returns:
        None where the sentence, or what was drawn of it, is too short to ask about.
    """
    gap = _gap(sentence, rng)
    if gap is None:
        return None
    asked = _wh_word(gap[0], rng)
    left, right = sentence[: gap.start()].split(), sentence[gap.end() :].split()
    dropped = rng.choice((0.0, 0.1, 0.2, 0.3))
    words = [
        word
        for word in _arranged(left, asked, right, rng)
        if word == asked or rng.random() >= dropped
    ]
    if len(words) < FEWEST_WORDS:
        return None
    if rng.random() < 0.2:
        place = rng.randrange(len(words) - 1)
        words[place], words[place + 1] = words[place + 1], words[place]
    return " ".join(words).strip(" ,.;:?!") + "?"


def _gap(sentence: str, rng: random.Random) -> regex.Match[str] | None:
    """What is asked for: in seven of ten cases a name or a number, where there is one."""
    if len(sentence) < SHORTEST_SENTENCE:
        return None
    gaps = [gap for gap in _GAP.finditer(sentence) if gap.start() > 0 or not gap[0].islower()]
    telling = [gap for gap in gaps if not gap[0][0].islower()]
    if telling and rng.random() < 0.7:
        gaps = telling
    return rng.choice(gaps) if gaps else None


def _wh_word(gap: str, rng: random.Random) -> str:
    if _YEAR.fullmatch(gap):
        return rng.choice(("when", "what year", "in what year"))
    if gap[0].isdecimal() or gap[0] == "$":
        return rng.choice(("how many", "how much", "what number", "when"))
    if gap[0].isupper():
        return rng.choice(("who", "who", "what", "what", "where", "which"))
    return rng.choice(("what", "what", "which", "how", "what kind of", "why"))


def _arranged(left: list[str], asked: str, right: list[str], rng: random.Random) -> list[str]:
    """The wh-word first, last, or where the gap was, among 4 to 12 words of one side."""
    count = rng.randint(4, 12)
    before, after = left[-count:], right[:count]
    order = rng.random()
    if order < 0.35:
        return [asked, *after]
    if order < 0.6:
        return [asked, *before, *right[: rng.randint(0, 5)]]
    if order < 0.8 or not after:
        return [*before, asked, *right[: rng.randint(0, 8)]]
    return [*after, "is", asked]

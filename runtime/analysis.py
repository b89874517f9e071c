"""Text -> the terms that are searched. Questions and passages go through the same analysis.

Case, accents, full-width forms and invisible characters are folded away. Where words are spaced, a
term is a word, stemmed if the knowledge base asks for it; codes are kept as typed beside their
parts ("E-17": `e`, `17`, `e17`; "24VDC": `24vdc`, `24`, `vdc`). Where words are not spaced, terms
are overlapping n-grams. Nothing here changes the stored text or its offsets: terms only count.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import regex
import Stemmer

from runtime.errors import UsageError

# Raised whenever the same text would yield other terms: indexes are then rebuilt from the store.
VERSION = 1
LONGEST_TERM = 64  # characters; what is longer is cut

# Marks that only decorate: Latin, Greek and Cyrillic accents, Hebrew points, Arabic vowel signs.
# Those of Indic scripts, Thai and Japanese are part of the word and stay.
_DECORATION = regex.compile(
    r"[\u0300-\u036F\u0483-\u0487\u0591-\u05C7\u0610-\u061A\u0640\u064B-\u065F\u0670\u06D6-\u06ED]"
    r"|\p{Cf}"
)
_EQUIVALENT = str.maketrans(
    {
        "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i",
        "ة": "ه", "ى": "ي", "ک": "ك", "ی": "ي", "’": "'", "ʼ": "'", "‐": "-", "‑": "-", "−": "-",
        "⁄": "/",
    }
)  # fmt: skip

_SPLIT = regex.compile(
    r"""(?P<ideographic>[\p{Han}\p{Hiragana}\p{Katakana}ー]+)
      | (?P<unspaced>[\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}]+)
      | (?P<hangul>\p{Hangul}+)
      | (?P<number>\d+(?:[.,]\d+)+)(?![\p{L}\p{M}\p{N}])
      | (?P<compound>W+(?:[-_./:+]W+)+)
      | (?P<signed>\p{L}[+\#]+(?![\p{L}\p{M}\p{N}]))
      | (?P<word>W+)""".replace(
        "W",
        r"[\p{L}\p{M}\p{N}--[\p{Han}\p{Hiragana}\p{Katakana}ー\p{Thai}\p{Lao}\p{Khmer}"
        r"\p{Myanmar}\p{Tibetan}\p{Hangul}]]",
    ),
    regex.VERBOSE | regex.VERSION1,
)
_JOINT = regex.compile(r"[-_./:+]")
_THOUSANDS = regex.compile(r"\d{1,3}(?:[.,]\d{3})+")
_QUANTITY = regex.compile(r"(\d+)(\p{L}+)")
_CLITIC = regex.compile(r"(?<=\p{L})'(?:s|t|d|m|ll|re|ve)(?!\p{L})")
_CLUSTER = regex.compile(r"\X")
_PUNCTUATION = ".,;:!?()[]{}\"'`*"
_LONGEST_CACHED = 40  # characters
_CACHE_LIMIT = 200_000  # distinct chunks, about 50 MB


class Analyzer:
    """The analysis of one knowledge base. Not to be shared between threads without a lock.

    Args:
        stemmer: a Snowball algorithm ("english", "german", ...), or None for words as they are.

    Raises:
        UsageError: there is no such algorithm.
    """

    def __init__(self, stemmer: str | None = None) -> None:
        self.stemmer = stemmer
        self._stem: Callable[[str], str] = _load_stemmer(stemmer) if stemmer else str
        self._cache: dict[str, tuple[str, ...]] = {}

    @property
    def fingerprint(self) -> str:
        """Equal for analyses that yield the same terms."""
        return f"{VERSION}:{self.stemmer or 'none'}:{unicodedata.unidata_version}"

    def terms(self, text: str) -> list[str]:
        """The terms of `text` in order, repetitions kept. None of them holds white space."""
        cached = self._cache.get
        return list(chain.from_iterable(cached(c) or self._chunk(c) for c in text.split()))

    def occurrences(self, texts: Sequence[str], wanted: frozenset[str]) -> list[Counter[str]]:
        """How often each of the `wanted` terms occurs in each text.

        Equal to counting `terms`, but every distinct stretch of the texts is looked at only once.
        """
        chunks = [text.split() for text in texts]
        relevant: dict[str, list[str]] = {}
        for chunk in set(chain.from_iterable(chunks)):
            terms = self._cache.get(chunk) or self._chunk(chunk)
            if not wanted.isdisjoint(terms):
                relevant[chunk] = [term for term in terms if term in wanted]
        return [
            Counter([term for chunk in found if chunk in relevant for term in relevant[chunk]])
            for found in chunks
        ]

    def _chunk(self, chunk: str) -> tuple[str, ...]:
        """The terms of a stretch without white space. Most stretches recur, so they are kept."""
        word = chunk.strip(_PUNCTUATION)
        if word.isascii() and word.isalpha():
            found: Iterable[str] = (self._stem(word.casefold()),)  # most are plain words
        else:
            found = self._analyse(fold(chunk))
        terms = tuple(term[:LONGEST_TERM] for term in found)
        if len(chunk) <= _LONGEST_CACHED:
            if len(self._cache) >= _CACHE_LIMIT:
                self._cache.clear()
            self._cache[chunk] = terms
        return terms

    def _analyse(self, folded: str) -> Iterator[str]:
        for match in _SPLIT.finditer(folded):
            kind, found = match.lastgroup, match.group()
            if kind == "word":
                yield from self._word(found)
            elif kind == "compound":
                yield from self._compound(found)
            elif kind == "number":
                yield found.replace(",", ".")
                if _THOUSANDS.fullmatch(found):
                    yield found.replace(",", "").replace(".", "")
            elif kind == "signed":
                yield found[0]
                yield found
            elif kind == "ideographic":
                yield from _grams(list(found), 1, 2)
            elif kind == "unspaced":
                yield from _grams(_CLUSTER.findall(found), 2, 3)
            else:  # hangul: spaced, but with endings grown onto the words
                yield found
                if len(found) > 2:
                    yield from _grams(list(found), 2, 2)

    def _word(self, word: str) -> Iterator[str]:
        if word.isalpha():
            yield self._stem(word)
            return
        yield word
        quantity = _QUANTITY.fullmatch(word)
        if quantity:
            yield from quantity.groups()

    def _compound(self, compound: str) -> Iterator[str]:
        """The parts; and the whole without its joints, unless it only lists numbers or words."""
        parts = _JOINT.split(compound)
        for part in parts:
            yield from self._word(part)
        has_letter = any(c.isalpha() for c in compound)
        has_digit = any(c.isdigit() for c in compound)
        if has_letter and (has_digit or "-" in compound or "_" in compound):
            yield "".join(parts)


def fold(text: str) -> str:
    """`text` in the form that is compared: case, accents, widths and invisible marks gone."""
    if text.isascii():
        folded = text.casefold()
    else:
        decomposed = unicodedata.normalize("NFKD", text.casefold())
        bare = _DECORATION.sub("", decomposed)
        folded = unicodedata.normalize("NFC", bare.casefold()).translate(_EQUIVALENT)
    return _CLITIC.sub("", folded) if "'" in folded else folded


def _grams(units: list[str], shortest: int, longest: int) -> Iterator[str]:
    """Overlapping n-grams of `units`, `shortest` to `longest` long; fewer units are one term."""
    if len(units) <= shortest:
        yield "".join(units)
        return
    for size in range(shortest, longest + 1):
        for start in range(len(units) - size + 1):
            yield "".join(units[start : start + size])


def _load_stemmer(name: str) -> Callable[[str], str]:
    try:
        stem: Callable[[str], str] = Stemmer.Stemmer(name).stemWord
    except KeyError:
        raise UsageError(
            f"There is no stemmer for {name!r}",
            fix=f"Choose one of: {', '.join(sorted(Stemmer.algorithms()))}",
        ) from None
    return stem

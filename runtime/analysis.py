"""Text -> the terms that are searched. Questions and passages go through the same analysis.

Case, accents, full-width forms and invisible characters are folded away. Where words are spaced, a
term is a word, stemmed if the knowledge base asks for it: by the stemmer that it names, and in
another script by that script's own. Languages that write compounds as one word (German, Dutch, ...)
add the n-grams of long words. Codes are kept as typed beside their parts ("E-17": `e`, `17`, `e17`;
"M8x40": `m8x40`, `m`, `8`, `x`, `40`; "0,5mm": `0.5`, `mm`, `05mm`). Where words are not spaced,
terms are overlapping n-grams.
Nothing here changes the stored text or its offsets: terms only count.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import regex
import Stemmer

from runtime.characters import unusual_in
from runtime.errors import UsageError

# Raised whenever the same text would yield other terms: indexes are then rebuilt from the store.
VERSION = 3
LONGEST_TERM = 64  # characters; what is longer is cut

# Marks that only decorate: Latin, Greek and Cyrillic accents, Hebrew points, Arabic vowel signs,
# and Devanagari's nukta, which is typed as often as not. Other marks of Indic scripts, and those of
# Thai and Japanese, are part of the word and stay.
_DECORATION = regex.compile(
    r"[\u0300-\u036F\u0483-\u0487\u0591-\u05C7\u0610-\u061A\u0640\u064B-\u065F\u0670\u06D6-\u06ED"
    r"\u093C]"
)
_INVISIBLE = regex.compile(r"\p{Cf}")
# The zeros of Arabic, Persian, Devanagari, Bengali, Tamil, Thai, Lao, Burmese and Khmer.
_ZEROS = "٠۰०০௦๐໐၀០"
_SIGNS = str.maketrans(
    {
        "’": "'", "ʼ": "'", "‐": "-", "‑": "-", "−": "-", "־": "-", "⁄": "/", "×": "x",
        "٫": ".", "٬": ",",
    }
    | {chr(ord(zero) + digit): str(digit) for zero in _ZEROS for digit in range(10)}
)  # fmt: skip
_EQUIVALENT = str.maketrans(
    {
        "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i",
        "ة": "ه", "ى": "ي", "ک": "ك", "ی": "ي", "ँ": "ं",
        "ך": "כ", "ם": "מ", "ן": "נ", "ף": "פ", "ץ": "צ",
    }
)  # fmt: skip

# W: letters and digits of spaced scripts, L: their letters. Others follow a number without a space.
_NUMBER = r"\d+(?:[.,]\d+)+"
_SPACED = r"""(?P<number>{N})(?!{W})
      | (?P<measure>{N}{L}{{1,4}}[23]?(?!{W}))
      | (?P<compound>{W}+(?:(?:[-_./:+]|(?<=\d),(?=\d)){W}+)+)
      | (?P<signed>{L}[+\#]+(?!{W}))
      | (?P<word>{W}+)"""
_UNSPACED = r"\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}"
_UNSPACED_FROM = "\u0e00"  # all letters before it are of spaced scripts
_IDEOGRAPHIC = r"\p{Han}\p{Hiragana}\p{Katakana}ー"
_OTHERS = rf"[{_IDEOGRAPHIC}{_UNSPACED}\p{{Hangul}}]"
_SPLIT = regex.compile(
    rf"""(?P<ideographic>[{_IDEOGRAPHIC}]+)
      | (?P<unspaced>[{_UNSPACED}]+)
      | (?P<hangul>\p{{Hangul}}+)
      | """
    + _SPACED.format(
        N=_NUMBER,
        L=rf"[\p{{L}}--{_OTHERS}]",
        W=rf"[\p{{L}}\p{{M}}\p{{N}}--{_OTHERS}]",
    ),
    regex.VERBOSE | regex.VERSION1,
)
# The same for lower-case ASCII, several times faster.
_SPLIT_ASCII = re.compile(_SPACED.format(N=_NUMBER, L="[a-z]", W="[a-z0-9]"), re.VERBOSE)
_LETTERS = re.compile("[a-z]+(?:[-_./:][a-z]+)*")
_OTHER_THAN_LETTERS = re.compile(r"[0-9+#]")
_JOINT = re.compile(r"[-_./:+,]")
_THOUSANDS = regex.compile(r"\d{1,3}(?:[.,]\d{3})+")
_DECIMAL = regex.compile(_NUMBER)
_RUN = regex.compile(r"\p{N}+|[\p{L}\p{M}]+")
_RUN_ASCII = re.compile(r"[0-9]+|[a-z]+")
_MOST_RUNS = 3  # of letters and digits, in codes that people type apart: "24VDC", "S235JR"
_FOUR_RUNS = regex.compile(r"(?:\p{L}\d+){2}|(?:\d+\p{L}){2}")  # "M8x40"; not names and hashes
_CLITIC = regex.compile(r"(?<=\p{L})'(?:s|t|d|m|ll|re|ve)(?!\p{L})")
_CLUSTER = regex.compile(r"\X")
_PUNCTUATION = "".join(set(string.punctuation) - set("+#")) + "“”‘’–—…•"  # not C++ and C#
# What separates terms wherever it stands; <, = and > compose with one mark that may follow.
_SEPARATORS = "\t\n\v\f\r\x1c\x1d\x1e\x1f" + '!"$%&()*;<=>?@[\\]^`{|}~'
_COMPOSES_WITH_SIGNS = "\u0338"
_BLANKS = bytes.maketrans(_SEPARATORS.encode(), b" " * len(_SEPARATORS))
_LOWER_BLANKS = _BLANKS.translate(bytes(range(256)).lower())
_WORDS_AND_OTHER = re.compile(r"([a-z ]*+)([^ ]*+)")
_PAUSES = frozenset(("", ".", ",", ":"))
# A word that is longer than a term is looked for in the text with an x for each letter.
_LETTERS_ALIKE = bytes(
    ord("x" if chr(byte) in string.ascii_lowercase else " ") for byte in range(256)
)
_LONG_WORD = b"x" * (LONGEST_TERM + 1)
_LONGEST_CACHED = 40  # characters
_CACHE_LIMIT = 200_000  # distinct chunks, about 50 MB

# Scripts with stemmers of their own; the first is taken unless the knowledge base names another.
_SCRIPTS: dict[str, tuple[str, ...]] = {
    "Arabic": ("arabic", "persian"),
    "Cyrillic": ("russian", "serbian"),
    "Devanagari": ("hindi", "nepali"),
    "Greek": ("greek",),
    "Hebrew": ("hebrew", "yiddish"),
}
_SCRIPT = regex.compile("|".join(rf"(?P<{name}>\p{{{name}}})" for name in _SCRIPTS))
# Languages that write "Drehmoment" and "Schlüssel" as one word.
_COMPOUNDING = frozenset(
    ("danish", "dutch", "dutch_porter", "finnish", "german", "hungarian", "norwegian", "swedish")
)
_GRAM = 4  # letters; see docs/retrieval.md for 5 and 6
_MOST_PREFIXES = 2  # of a Hebrew word
_SHORTEST_ROOT = 3  # letters of it
_TURKISH = str.maketrans({"I": "ı", "İ": "i"})


class _Chunks(dict[str, str]):
    """Stretches without white space -> their terms, spaced. Most stretches recur: they are kept."""

    def __init__(self, analyse: Callable[[str], str]) -> None:
        super().__init__()
        self._analyse = analyse

    def __missing__(self, chunk: str) -> str:
        terms = self._analyse(chunk)
        if len(chunk) <= _LONGEST_CACHED:
            if len(self) >= _CACHE_LIMIT:
                self.clear()
            self[chunk] = terms
        return terms


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
        self._of_script = _stems_by_script(stemmer) if stemmer else {}
        self._has_compounds = stemmer in _COMPOUNDING
        self._is_plain = not self._has_compounds and stemmer != "turkish"
        self._chunks = _Chunks(self._chunk)
        self._of_kind: dict[str | None, Callable[[str], Iterable[str]]] = {
            "word": self._word,
            "compound": self._compound,
            "number": _number,
            "measure": self._measure,
            "signed": lambda found: (bare(found[0]), bare(found)),
            "ideographic": lambda found: _grams(list(found), 1, 2),
            "unspaced": lambda found: _grams(_CLUSTER.findall(found), 2, 3),
            "hangul": _hangul,
        }

    @property
    def fingerprint(self) -> str:
        """Equal for analyses that yield the same terms."""
        return (
            f"{VERSION}:{self.stemmer or 'none'}:{unicodedata.unidata_version}:{Stemmer.version()}"
        )

    def agrees_with(self, fingerprint: str) -> bool:
        """Whether an index with this fingerprint can be searched with this analysis.

        Another release of Unicode or of the stemmers differs in rare words only, and boxes differ
        in these; another `VERSION` looks for terms that are not there.
        """
        return fingerprint.partition(":")[0] == str(VERSION)

    def terms(self, text: str) -> list[str]:
        """The terms of `text` in order, repetitions kept. None of them holds white space."""
        return self.spaced_terms(text).split()

    def spaced_terms(self, text: str) -> str:
        """The terms of `text` as one string, white space between them."""
        data = self._separated(text)
        spaced = data.decode("utf-8", "surrogatepass")
        if self.stemmer or _LONG_WORD in data.translate(_LETTERS_ALIKE):
            return " ".join(map(self._chunks.__getitem__, spaced.split()))
        # Most words are terms as they stand: only other stretches are looked up.
        pieces: list[str] = []
        for words, rest in _WORDS_AND_OTHER.findall(spaced):
            if rest in _PAUSES:
                pieces.append(words)
            else:
                start = words.rfind(" ") + 1
                pieces += (words[:start], self._chunks[words[start:] + rest])
        return "".join(pieces)

    def _separated(self, text: str) -> bytes:
        """`text` with one blank or more for all that separates terms, ASCII in lower case."""
        # In bytes: strings are translated one character after the other.
        data = text.encode("utf-8", "surrogatepass")
        if not text.isascii():
            for space in filter(str.isspace, unusual_in(data)):
                data = data.replace(space.encode(), b" ")
        if _COMPOSES_WITH_SIGNS in text:
            return data.replace(b"\n", b" ")
        return data.translate(_BLANKS if self.stemmer == "turkish" else _LOWER_BLANKS)

    def occurrences(self, texts: Sequence[str], wanted: frozenset[str]) -> list[Counter[str]]:
        """How often each of the `wanted` terms occurs in each text.

        Equal to counting `terms`, but every distinct stretch of the texts is looked at only once.
        """
        chunks = [self._separated(text).decode("utf-8", "surrogatepass").split() for text in texts]
        relevant: dict[str, list[str]] = {}
        for chunk in set(chain.from_iterable(chunks)):
            terms = self._chunks[chunk].split()
            if not wanted.isdisjoint(terms):
                relevant[chunk] = [term for term in terms if term in wanted]
        return [
            Counter([term for chunk in found if chunk in relevant for term in relevant[chunk]])
            for found in chunks
        ]

    def _chunk(self, chunk: str) -> str:
        """The terms of a stretch without white space."""
        word = chunk.strip(_PUNCTUATION)
        if word.isascii() and self._is_plain:  # most are plain words
            if word.isalpha():
                return self._stem(word.lower())[:LONGEST_TERM]
            if word.isdecimal():
                return word[:LONGEST_TERM]
            terms = self._analyse_letters(spell(word))
        else:
            terms = self._analyse(self._spell(chunk))
        return " ".join([term[:LONGEST_TERM] for term in terms])

    def _spell(self, chunk: str) -> str:
        return spell(chunk.translate(_TURKISH) if self.stemmer == "turkish" else chunk)

    def _analyse_letters(self, spelt: str) -> list[str]:
        """The same as `_analyse`, faster for lower-case ASCII without digits."""
        if _OTHER_THAN_LETTERS.search(spelt):
            return self._analyse(spelt)
        terms: list[str] = []
        for found in _LETTERS.findall(spelt):
            if found.isalpha():
                terms.append(self._stem(found))
                continue
            parts = _JOINT.split(found)
            terms += map(self._stem, parts)
            if "-" in found or "_" in found:
                terms.append("".join(parts))
        return terms

    def _analyse(self, spelt: str) -> list[str]:
        if spelt.isalpha() and max(spelt) < _UNSPACED_FROM:
            return list(self._word(spelt))
        terms: list[str] = []
        of_kind = self._of_kind
        for match in (_SPLIT_ASCII if spelt.isascii() else _SPLIT).finditer(spelt):
            terms += of_kind[match.lastgroup](match[0])
        return terms

    def _word(self, word: str) -> Iterable[str]:
        """A word or a number is one thing; a code of both is kept whole beside its parts."""
        if word.isalpha():
            is_simple = self._is_plain and word.isascii()  # most are
            return (self._stem(word),) if is_simple else self._letters(word)
        if word.isdecimal():
            return (word,)
        runs = (_RUN_ASCII if word.isascii() else _RUN).findall(word)
        terms = [bare(word)] if len(runs) > 1 else []
        if len(runs) <= _MOST_RUNS or _FOUR_RUNS.fullmatch(word):
            for run in runs:
                terms += self._letters(run)
        return terms

    def _letters(self, word: str) -> Iterable[str]:
        if word.isascii():
            return self._latin(word)
        script = _SCRIPT.match(word)
        stem = self._of_script.get(script.lastgroup or "") if script else None
        return stem(word) if stem else self._latin(word)

    def _latin(self, word: str) -> Iterable[str]:
        """The stem, as the accents tell and as it is without; n-grams where compounds are written.

        Stemmers know their language's accents; who types none must find the word all the same.
        """
        if word.isascii() and not self._has_compounds:
            return (self._stem(word),)
        unaccented = bare(word)
        terms = [bare(self._stem(word)), self._stem(unaccented)]
        if self._has_compounds and len(unaccented) >= _GRAM:
            terms += _grams(list(unaccented), _GRAM, _GRAM)
        return dict.fromkeys(terms)

    def _measure(self, measure: str) -> list[str]:
        """ "0,5mm" as its number and its unit, as if they stood apart; and the whole as a code."""
        number = _DECIMAL.match(measure)[0]
        unit = measure[len(number) :]
        return [*_number(number), *self._word(unit), bare(_JOINT.sub("", measure))]

    def _compound(self, compound: str) -> list[str]:
        """The parts; and the whole without its joints, unless it only lists numbers or words."""
        parts = _JOINT.split(compound)
        terms = [term for part in parts for term in self._word(part)]
        is_code = "-" in compound or "_" in compound or any(map(str.isdigit, compound))
        if is_code and any(map(str.isalpha, compound)):
            terms.append(bare("".join(parts)))
        return terms


def fold(text: str) -> str:
    """`text` in the form that is compared: case, accents, widths and invisible marks gone."""
    return bare(spell(text))


def spell(text: str) -> str:
    """`text` in the form that stemmers know: lower case, one way to write each letter, accents."""
    if text.isascii():
        spelt = text.casefold()
    else:
        composed = unicodedata.normalize("NFKC", _INVISIBLE.sub("", text.casefold()))
        spelt = unicodedata.normalize("NFC", composed.casefold()).translate(_SIGNS)
    return _CLITIC.sub("", spelt) if "'" in spelt else spelt


def bare(spelt: str) -> str:
    """A spelt word without accents and other marks that only decorate."""
    if spelt.isascii():
        return spelt
    undecorated = _DECORATION.sub("", unicodedata.normalize("NFKD", spelt))
    return unicodedata.normalize("NFC", undecorated).translate(_EQUIVALENT)


def _number(number: str) -> Iterator[str]:
    """ "6,5" as "6.5", "4,200" also as "4200", "4711.08.15" also in parts."""
    yield number.replace(",", ".")
    parts = number.replace(",", ".").split(".")
    if _THOUSANDS.fullmatch(number):
        yield "".join(parts)
    elif len(parts) > 2:
        yield from parts


def _hangul(found: str) -> Iterator[str]:
    """Spaced, but with endings grown onto the words."""
    yield found
    if len(found) > 2:
        yield from _grams(list(found), 2, 2)


def _grams(units: list[str], shortest: int, longest: int) -> Iterator[str]:
    """Overlapping n-grams of `units`, `shortest` to `longest` long; fewer units are one term."""
    if len(units) <= shortest:
        yield "".join(units)
        return
    for size in range(shortest, longest + 1):
        for start in range(len(units) - size + 1):
            yield "".join(units[start : start + size])


def _stems_by_script(named: str) -> dict[str, Callable[[str], Iterable[str]]]:
    """For each script with stemmers of its own: a spelt word -> its terms."""
    chosen = {name: named if named in own else own[0] for name, own in _SCRIPTS.items()}
    return {
        name: _hebrew if stemmer == "hebrew" else _stem_of(stemmer)
        for name, stemmer in chosen.items()
    }


def _stem_of(stemmer: str) -> Callable[[str], Iterable[str]]:
    stem = _load_stemmer(stemmer)
    return lambda word: (bare(stem(word)),)


def _hebrew(word: str) -> Iterable[str]:
    """Without its ending; and without one and two letters that may be prefixes, or may not."""
    rest = bare(word)
    for _ in range(_MOST_PREFIXES + 1):
        yield _without_ending(rest)
        if len(rest) <= _SHORTEST_ROOT or rest[0] not in "והבכלמש":
            return
        rest = rest[1:]


def _without_ending(word: str) -> str:
    for ending in ("ימ", "ות", "ה", "ת", "י"):
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_ROOT:
            return word.removesuffix(ending)
    return word


def _load_stemmer(name: str) -> Callable[[str], str]:
    try:
        stem: Callable[[str], str] = Stemmer.Stemmer(name).stemWord
    except KeyError:
        raise UsageError(
            f"There is no stemmer for {name!r}",
            fix=f"Choose one of: {', '.join(sorted(Stemmer.algorithms()))}",
        ) from None
    return stem

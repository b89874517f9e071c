"""What is noise goes: raw text of a reader -> the text that is stored, searched and cited.

Characters (`clean_characters`), leftovers of markup (`strip_markup`), line ends inside a paragraph
(`join_lines`), and the furniture of pages (`running_lines`, `contents_lines`). Each rule is narrow:
it removes what it is sure of and keeps what only looks like noise. Nothing here does NFKC: people
see the stored text, so 10² stays 10² and ½ stays ½.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

from ahocorasick_rs import BytesAhoCorasick, Implementation

from runtime.characters import lower_case, unusual_characters, unusual_in

# --- characters -----------------------------------------------------------------------------------

_LINE_ENDS = "\r\x0b\x0c\x85\u2028\u2029"
_JOINERS = "\u200c\u200d"
# Invisible characters that carry meaning in some places: joiners, variation selectors, tags.
_IN_CONTEXT = (
    (0x180B, 0x180E),
    (0x200C, 0x200D),
    (0xFE00, 0xFE0F),
    (0xE0020, 0xE007F),
    (0xE0100, 0xE01EF),
)
_LETTER_FORMS = ((0xFB00, 0xFB06), (0xFB1D, 0xFBB1), (0xFBD3, 0xFBFF), (0xFE70, 0xFEFC))
_OTHER_INVISIBLE = frozenset((0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0))
_MANY_LINE_ENDS = re.compile(r"\n{3,}")

# Scripts in which a joiner changes what is read: Arabic, Syriac, N'Ko, Indic, Tibetan, Myanmar,
# Khmer, Mongolian.
_JOINING_RANGES = (
    (0x0600, 0x08FF),
    (0x0900, 0x0DFF),
    (0x0F00, 0x109F),
    (0x1780, 0x18AF),
    (0xA8E0, 0xA8FF),
    (0x11000, 0x11FFF),
)


def clean_characters(text: str) -> str:
    """Repair or remove single characters; words and line structure stay.

    Line ends become `\\n`, every kind of space becomes one space character, control and zero-width
    characters go, lone surrogates become U+FFFD, ligatures and Arabic presentation forms become the
    letters they stand for, and the rest is composed (NFC). Joiners stay inside emoji and in scripts
    where they change what is read.
    """
    characters = unusual_characters(text)  # few: each rule costs one pass in C where it applies
    if not characters:
        return text
    repaired = _repaired(text, characters)
    if repaired is not text:
        text, characters = repaired, unusual_characters(repaired)
    for character in characters:
        replacement = _replacement(character)
        if replacement is not None and character in text:
            text = _replaced(text, character, replacement)
    return unicodedata.normalize("NFC", text) if any(map(_composes, characters)) else text


@lru_cache(maxsize=8192)
def _composes(character: str) -> bool:
    """Whether text may need composing (NFC) for this character, or for what replaces it."""
    return any(
        unicodedata.category(one).startswith("M")
        or "\u1160" <= one <= "\u11ff"  # vowels and last consonants of Korean syllables
        or not unicodedata.is_normalized("NFC", one)
        for one in _replacement(character) or character
    )


@lru_cache(maxsize=8192)
def _replacement(character: str) -> str | None:
    """What a character becomes; None where it stays or where its place decides."""
    code = ord(character)
    category = unicodedata.category(character)
    if _within(code, _IN_CONTEXT):
        return character
    if character in _LINE_ENDS:
        return "\n"
    if character == "\t" or category == "Zs":
        return " "
    if _within(code, _LETTER_FORMS):
        return unicodedata.normalize("NFKC", character)
    if category == "Cs":
        return "\ufffd"
    invisible = category in ("Cc", "Cf") or code in _OTHER_INVISIBLE or 0xE0000 <= code <= 0xE0FFF
    return "" if invisible and not _spoken_format(code) else None


def _spoken_format(code: int) -> bool:
    """Format characters that are seen: Arabic number signs, Egyptian and Kaithi marks."""
    return (
        0x0600 <= code <= 0x0605
        or code in (0x06DD, 0x070F, 0x08E2, 0x110BD, 0x110CD)
        or (0x13430 <= code <= 0x13455)
    )


def _replaced(text: str, character: str, replacement: str) -> str:
    if character == "\r":
        text = text.replace("\r\n", "\n")
    elif replacement == "\ufffd":
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    elif replacement == character:
        return re.sub(character, lambda match: _kept(text, match.start()), text)
    return text.replace(character, replacement)


def _within(code: int, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(first <= code <= last for first, last in ranges)


def is_clean(text: str) -> bool:
    """Whether `clean_characters` has nothing to do: printable ASCII."""
    return not unusual_characters(text)


def clean_block(text: str) -> str:
    """A paragraph, item, row or heading as it is stored: clean, stripped, single spaces."""
    return tidy(clean_characters(text))


def tidy(text: str) -> str:
    """A block of clean characters: stripped, single spaces."""
    while "  " in text:
        text = text.replace("  ", " ")
    if "\n" in text:
        text = text.replace(" \n", "\n").replace("\n ", "\n")
        text = _MANY_LINE_ENDS.sub("\n\n", text)
    return text.strip()


def clean_code(text: str) -> str:
    """Preformatted text as it is stored: indentation and runs of spaces stay."""
    text = clean_characters(text.replace("\t", "    "))
    lines = [line.rstrip() for line in text.split("\n")]
    while lines and not lines[0]:
        lines.pop(0)
    while lines and not lines[-1]:
        lines.pop()
    return _MANY_LINE_ENDS.sub("\n\n", "\n".join(lines))


def _kept(text: str, index: int) -> str:
    """The invisible character at `index` where it carries meaning, otherwise nothing."""
    character = text[index]
    before = text[index - 1] if index else ""
    after = text[index + 1] if index + 1 < len(text) else ""
    if character in _JOINERS:
        keep = _needs_joiner(before, character, after)
    elif "\ufe00" <= character <= "\ufe0f":
        keep = _takes_selector(before)
    elif "\U000e0100" <= character <= "\U000e01ef":
        keep = bool(before) and _ideograph(before)
    elif "\U000e0020" <= character <= "\U000e007f":
        keep = _in_flag(text, index)
    else:
        keep = (
            "\u180b" <= character <= "\u180e" and bool(before) and 0x1800 <= ord(before) <= 0x18AF
        )
    return character if keep else ""


def _needs_joiner(before: str, joiner: str, after: str) -> bool:
    if _joins(before):
        return joiner == "\u200c" or _joins(after) or not after.isalpha()
    return joiner == "\u200d" and _pictographic(before) and _pictographic(after)


def _joins(character: str) -> bool:
    return bool(character) and _within(ord(character), _JOINING_RANGES)


def _pictographic(character: str) -> bool:
    if not character:
        return False
    code = ord(character)
    return 0x2190 <= code <= 0x2BFF or 0x1F000 <= code <= 0x1FAFF or character == "\ufe0f"


def _takes_selector(character: str) -> bool:
    if not character:
        return False
    return _pictographic(character) or character in "#*0123456789©®‼⁉™ℹ" or _ideograph(character)


def _ideograph(character: str) -> bool:
    code = ord(character)
    return 0x3400 <= code <= 0x9FFF or 0xF900 <= code <= 0xFAFF or 0x20000 <= code <= 0x3FFFF


def _in_flag(text: str, index: int) -> bool:
    """Whether a tag character belongs to a flag: black flag, two to six tags, the end tag."""
    start = index
    while start and "\U000e0020" <= text[start - 1] <= "\U000e007f":
        start -= 1
        if index - start > 7:
            return False
    return start > 0 and text[start - 1] == "\U0001f3f4"


def smuggling_characters(text: str) -> str:
    """Those of Unicode's invisible tag characters and variation selectors that stand for ASCII."""
    if text.isascii() or all(one < "\U000e0001" for one in unusual_characters(text)):
        return ""
    return "".join(
        character
        for index, character in enumerate(text)
        if ("\U000e0020" <= character <= "\U000e007e" and not _in_flag(text, index))
        or (
            "\U000e0100" <= character <= "\U000e01ef"
            and not _ideograph(text[index - 1] if index else " ")
        )
    )


def smuggled_text(text: str) -> str:
    """ASCII written in invisible characters, decoded."""
    return "".join(
        chr(code - 0xE0000 if code < 0xE0100 else code - 0xE0100 + 16)
        for code in map(ord, smuggling_characters(text))
    )


# --- mojibake -------------------------------------------------------------------------------------

# UTF-8 that was read as Windows-1252: a lead byte's letter followed by continuation bytes' letters.
_CONTINUATION = "\u0080-\u00bf\u0152\u0153\u0160\u0161\u0178\u017d\u017e\u0192\u02c6\u02dc\u2013"
_CONTINUATION += "\u2014\u2018-\u201a\u201c-\u201e\u2020-\u2022\u2026\u2030\u2039\u203a\u20ac\u2122"
_MOJIBAKE = re.compile(
    f"(?:[\u00c2-\u00df][{_CONTINUATION}]|[\u00e0-\u00ef][{_CONTINUATION}]{{2}}"
    f"|[\u00f0-\u00f4][{_CONTINUATION}]{{3}})+"
)
_MOJIBAKE_LEADS = frozenset(map(chr, range(0xC2, 0xF5)))
# Pairs that are also ordinary text: a capital letter with a closing quote, degree or ordinal mark.
_CERTAIN_ALONE = re.compile(f"[\u00c2\u00c3\u00e2][{_CONTINUATION}]")


def repair_mojibake(text: str) -> str:
    """Undo UTF-8 read as Windows-1252 where every non-ASCII character of the line proves it."""
    return _repaired(text, unusual_characters(text))


def _repaired(text: str, characters: set[str]) -> str:
    """`text` without its mojibake, itself if it has none; `characters` are its unusual ones."""
    if not _holds_mojibake(text, _MOJIBAKE_LEADS & characters):
        return text
    return "\n".join(_repair_line(line) for line in text.split("\n"))


def _holds_mojibake(text: str, leads: Iterable[str]) -> bool:
    """Whether the pattern occurs. Its first characters are rare: they are looked for one by one."""
    for lead in leads:
        at = text.find(lead)
        while at >= 0:
            if _MOJIBAKE.match(text, at):
                return True
            at = text.find(lead, at + 1)
    return False


def _repair_line(line: str) -> str:
    damaged = _MOJIBAKE.findall(line)
    if not damaged or not _MOJIBAKE.sub("", line).isascii():
        return line
    if not any(_CERTAIN_ALONE.search(part) for part in damaged):
        return line
    return _MOJIBAKE.sub(lambda match: _redecode(match.group()), line)


def _redecode(part: str) -> str:
    data = bytearray()
    for character in part:
        try:
            data += character.encode("cp1252")
        except UnicodeEncodeError:
            if ord(character) > 0xFF:
                return part
            data.append(ord(character))
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return part


# --- markup ---------------------------------------------------------------------------------------

_ENTITY = re.compile(r"&(?:[a-zA-Z][a-zA-Z0-9]{1,30}|#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6});")
_TAG = re.compile(
    r"</?(?:p|br|hr|b|i|u|em|strong|span|font|div|sup|sub|small|big|center|nobr|a|tt|code)"
    r"(?:\s+[a-zA-Z-]+\s*=\s*(?:\"[^\"<>]*\"|'[^'<>]*'|[^\s<>\"']+))*\s*/?>",
    re.IGNORECASE,
)
_BREAKING_TAG = re.compile(r"<(?:br|hr|/p|/div)\b[^<>]*>", re.IGNORECASE)


def strip_markup(text: str) -> str:
    """Remove tags and entities that a converter left in running text.

    Only well-known HTML tags with well-formed attributes and entities with a semicolon:
    `a < b`, `<pump>`, `R&D` and `AT&T;` without a known name stay.
    """
    if "<" in text:
        text = _TAG.sub("", _BREAKING_TAG.sub("\n", text))
    if "&" in text:
        text = _ENTITY.sub(lambda match: html.unescape(match.group()), text)
    return text


# --- lines of a paragraph -------------------------------------------------------------------------

_WORD = re.compile(r"[^\W\d_]++(?:[-\u2010][^\W\d_]++)*+")
_NOT_OF_WORDS = re.compile(r"[^-\u2010\w]|[\d_]")
_LOOSE_HYPHEN = re.compile(r"[-\u2010](?:(?<![^\W\d_][-\u2010])|(?![^\W\d_]))")
# The same where the only hyphen is ASCII and all other characters are letters, faster.
_LOOSE_HYPHEN_IN_BYTES = re.compile(rb"-(?:(?<![a-z\x80-\xff]-)|(?![a-z\x80-\xff]))")
_WORDS_APART = bytes(
    byte if byte >= 0x80 or chr(byte) in "-abcdefghijklmnopqrstuvwxyz" else ord(" ")
    for byte in bytes(range(256)).lower()
)
_HYPHENS = "-\u2010\u00ad"
_LINE_HYPHENS = tuple(_HYPHENS)
_MOST_SEARCHES = 200
_SPACED_ENDS = frozenset(map(chr, range(ord("!"), 127))) - {"-"}
_HYPHEN_AT_END = re.compile(r"([^\W\d_]+)[-\u2010\u00ad]$")
_FIRST_WORD = re.compile(r"[^\W\d_]+")
# "Haupt- und Nebenpumpe", "two- or three-way": the hyphen stands for a missing part.
_SUSPENDED = frozenset(
    "and or to und oder bis sowie et ou y o e en of à nor then und/oder and/or".split()
)


class Vocabulary:
    """The words of one document: evidence for joining hyphenated words.

    Most documents ask for a few words, which are looked for in the text; who asks for many gets a
    set of all words, which costs about as much as so many searches.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = lines
        self._asked: dict[str, bool] = {}

    def __contains__(self, word: str) -> bool:
        if word not in self._asked:
            few = len(self._asked) < _MOST_SEARCHES
            spaced = _words_apart(word)
            self._asked[word] = _holds(self._text, spaced) if few else spaced.strip() in self._words
        return self._asked[word]

    @cached_property
    def _text(self) -> bytes:
        """The words in lower case, blanks around each, without those that line ends cut."""
        lines = list(self._lines)
        cut = {i for i, line in enumerate(lines) if line.rstrip().endswith(_LINE_HYPHENS)}
        for i in cut | {i + 1 for i in cut if i + 1 < len(lines)}:
            words = list(_WORD.finditer(lines[i].lower()))[i - 1 in cut :]
            words = words[:-1] if i in cut else words
            lines[i] = lines[i].lower()[words[0].start() : words[-1].end()] if words else ""
        return _words_apart("\n".join(lines))

    @cached_property
    def _words(self) -> set[bytes]:
        return set(self._text.split())


def _words_apart(text: str) -> bytes:
    """The words of `text` in lower case, blanks around each."""
    data = lower_case(text)
    characters = unusual_in(data)
    if "\u2010" in characters:
        data = _LOOSE_HYPHEN.sub(" ", data.decode("utf-8", "surrogatepass")).encode(
            "utf-8", "surrogatepass"
        )
    for character in filter(_NOT_OF_WORDS.match, characters):
        data = data.replace(character.encode("utf-8", "surrogatepass"), b" ")
    return b" %b " % _LOOSE_HYPHEN_IN_BYTES.sub(b" ", data.translate(_WORDS_APART))


def _holds(text: bytes, part: bytes) -> bool:
    """Whether the part is in the text; several times as fast as `in`."""
    pattern = BytesAhoCorasick([part], implementation=Implementation.NoncontiguousNFA)
    return bool(pattern.find_matches_as_indexes(text))


def join_lines(lines: Sequence[str], vocabulary: Vocabulary) -> str:
    """One paragraph from its lines: words hyphenated at a line end are joined, others spaced."""
    parts = [lines[0].rstrip()] if lines else []
    for line in lines[1:]:
        append_line(parts, line.strip(), vocabulary)
    return "".join(parts)


def append_line(parts: list[str], line: str, vocabulary: Vocabulary) -> str:
    """Continue a paragraph, given as parts to be joined, by a line. Returns what was put between.

    `main-` + `tenance` is one word; `E-` + `17` keeps its hyphen; `low-` + `voltage` keeps it when
    the document writes low-voltage elsewhere, or both halves as words and the joined form never.
    """
    left = parts[-1]
    if left and line and left[-1] in _SPACED_ENDS:  # most lines
        parts += (" ", line)
        return " "
    left = left.rstrip()
    glue, cut = _seam(left, line, vocabulary) if left and line else ("", False)
    parts[-1] = left[:-1] if cut else left
    parts += (glue, line) if glue else (line,)
    return glue


def _seam(left: str, right: str, vocabulary: Vocabulary) -> tuple[str, bool]:
    """What stands between two lines, and whether the left one's last character goes."""
    if left[-1] == "\u00ad":
        return "", True
    if left[-1] not in _HYPHENS:
        return ("" if _unspaced(left[-1]) and _unspaced(right[0]) else " "), False
    match = _HYPHEN_AT_END.search(left, max(0, len(left) - 60))
    if match is None:
        return ("" if len(left) > 1 and not left[-2].isspace() else " "), False
    first = _FIRST_WORD.match(right)
    if first is None:
        return "", False
    if first.group().lower() in _SUSPENDED:
        return " ", False
    return "", not _hyphen_belongs(match.group(1), first.group(), vocabulary)


def _hyphen_belongs(left: str, right: str, vocabulary: Vocabulary) -> bool:
    if not right[0].islower() or len(left) < 2:
        return True
    if f"{left}-{right}" in vocabulary:
        return True
    if left + right in vocabulary:
        return False
    return left in vocabulary and right in vocabulary


def _unspaced(character: str) -> bool:
    """Whether the character's script puts no spaces between words (CJK, Thai, Lao, Khmer)."""
    code = ord(character)
    return code >= 0x0E00 and (
        code <= 0x0EFF
        or 0x2E80 <= code <= 0x9FFF
        or 0xF900 <= code <= 0xFAFF
        or 0xFF00 <= code <= 0xFFEF
        or 0x20000 <= code <= 0x3FFFF
    )


# --- page furniture -------------------------------------------------------------------------------

_NUMBER = re.compile(r"\d+")
_ROMAN = re.compile(r"(?i)^[ivxlc]{1,7}$")
_ROMAN_VALUES = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}
_WARNING = re.compile(
    r"(?i)\b(?:warning|danger|caution|attention|notice|important|do not|never|must|achtung|gefahr|"
    r"warnung|vorsicht|hinweis|avertissement|danger|prudence|advertencia|peligro|precaución|"
    r"attenzione|pericolo|avvertenza|perigo|aviso|waarschuwing|gevaar|осторожно|внимание|опасно)\b"
    r"|警告|注意|危険|危险|تحذير|خطر"
)
_PAGE_LABEL = re.compile(
    r"(?i)(?=[\Wpsс])"  # most lines begin with another letter
    r"(?:\W*+(?:page|seite|p\.|pág(?:ina)?\.?|pagina|страница|стр\.)\s*\d{1,5}"
    r"(?:\s*(?:of|von|de|di|sur|van|из|/)\s*\d{1,5})?\W*$"
    r"|\s*[-\u2013\u2014]\s*\d{1,4}\s*[-\u2013\u2014]\s*$)"
)
# Read backwards from the end of the line: forwards, each dot of a long row would be a beginning.
_LEADER = re.compile(
    r"(\d{1,4}+) *+(?:(?:\. ){2,}+(?!\.)|\.(?: ?\.){3,}+|(?:\. ){2,}+|\u2026{2,}+|·(?: ?·){3,}+)"
)
_PAGE_NUMBER = re.compile(  # within other words
    r"(?i)(?<![^\W\d_])(?:page|pg|seite|blatt|p\.|s\.|pág(?:ina)?|pagina|página|folio|strona|sida|side"
    r"|страница|стр)\.?\s*\d|第\s*\d+\s*[页頁]|\d\s*ページ"
)
_SET_APART = re.compile(  # a number at the end, parted from words; or hardly any words
    r"\d\W+\d+\W*$|(?:[|/•·\u2013\u2014]\s*|\s-\s*|\s\s)\W?\d+\W*$|\d (?:of|von) \d"
    r"|^\W*[^\W\d_]{1,2}\W?\d+\W*$"
)
_SENTENCE_END = re.compile(r"[.!。！．][\"'”’»)\]]*$")
_IMPRINT = re.compile(
    r"(?i)©|\(c\)|copyright|rights reserved|rechte vorbehalten|droits réservés|derechos reservados"
    r"|diritti riservati|direitos reservados|www\.|://|@"
    r"|(?<![^\W\d_])(?:inc|ltd|corp|co|llc|plc|gmbh|kg|ag|no|nr|rev|vol|ed)\.$"
)
_LARGER = 1.12  # than the text: titles
_AS_TEXT = 0.95  # headers and footers are often smaller
_LEADS = ("..", ". .", "\u2026\u2026", "··", "· ·")  # one of them is in whatever the pattern finds
_CONTENTS_TITLE = re.compile(
    r"(?i)^\W*(?:table of contents|contents|inhalt(?:sverzeichnis)?|sommaire|table des matières|"
    r"índice|indice|sommario|inhoud(?:sopgave)?|содержание|оглавление|目次|目录)\W*$"
)


@dataclass(frozen=True, slots=True)
class EdgeLine:
    """A line near the top or bottom of a page.

    Attributes:
        page: index of the page.
        line: index of the line, for the caller.
        text: the line.
        top: near the top edge; otherwise near the bottom.
        depth: lines between it and that edge.
        place: where it stands, rounded by the caller; only lines of one place can repeat.
        size: of its letters, in those of the text.
        stands_out: it is set as headings of the document are.
    """

    page: int
    line: int
    text: str
    top: bool
    depth: int
    place: int
    size: float = 1.0
    stands_out: bool = False


def running_lines(edges: Sequence[EdgeLine], pages: int) -> set[tuple[int, int]]:
    """The `(page, line)` of running headers, footers and page numbers.

    A line runs when the same words stand at the same place on at least two pages and two fifths of
    all (three, and two fifths of those of a chapter), each number in it is either the same
    everywhere or counts the pages, and only running lines stand between it and the edge; and when
    it carries the page's number at the place where most pages do. So rows of numbers that happen
    to end several pages stay, and so do titles that count with the pages ("Well 3").

    The first occurrence of a sentence, a warning and a large title stays as well; and of two pages
    in all, on which two like lines are thin evidence, the first of these.
    """
    groups: dict[tuple[str, bool, int], list[EdgeLine]] = defaultdict(list)
    for edge in edges:
        groups[_shape(edge.text), edge.top, edge.place].append(edge)
    titles = _titles(edges, groups.values())
    numbered = _numbered_places([edge for edge in edges if edge not in titles], pages)
    running: list[list[EdgeLine]] = []
    for group in groups.values():
        here = [edge for edge in group if (edge.page, edge.top, edge.place) in numbered]
        found = [edge for edge in (group if _runs(group, pages) else here) if edge not in titles]
        running += [found] if found else []
    sentences = _sentences([found[0] for found in running if found[0].text == found[-1].text])
    repeated: dict[EdgeLine, bool] = {}  # each with whether it is dropped
    for found in running:
        is_thin = pages == 2 and len(found) > len({edge.text for edge in found})
        keep_first = is_thin or found[0] in sentences or _says_something(found[0])
        for number, edge in enumerate(found):
            repeated[edge] = number > 0 or not keep_first
    # How far inwards the unbroken run of repeated lines reaches, for each page and edge.
    body: dict[tuple[int, bool], int] = {}
    for edge in edges:
        if edge not in repeated:
            key = edge.page, edge.top
            body[key] = min(edge.depth, body.get(key, edge.depth))
    return {
        (edge.page, edge.line)
        for edge, dropped in repeated.items()
        if dropped and edge.depth < body.get((edge.page, edge.top), edge.depth + 1)
    }


def _says_something(edge: EdgeLine) -> bool:
    """Whether a line that repeats is a warning, or a title in large letters."""
    return _WARNING.search(edge.text) is not None or (edge.top and edge.size >= _LARGER)


def _sentences(lines: Iterable[EdgeLine]) -> set[EdgeLine]:
    """Those of the lines that are sentences, alone or with the lines that follow them."""
    found: set[EdgeLine] = set()
    part: list[EdgeLine] = []
    order = sorted(lines, key=lambda e: (e.page, not e.top, e.depth if e.top else -e.depth, e.line))
    for line in order:
        if part and not _goes_on(part[-1], line):
            part = []
        part.append(line)
        if _is_sentence(" ".join(each.text for each in part)):
            found.update(part)
    return found


def _goes_on(above: EdgeLine, line: EdgeLine) -> bool:
    """Whether a line continues the one above it: in lower case, or both in a script without."""
    if (above.page, above.top, 1) != (line.page, line.top, abs(line.depth - above.depth)):
        return False
    last, first = above.text[-1:], line.text[:1]
    return first.islower() or (_caseless(first) and _caseless(last))


def _caseless(letter: str) -> bool:
    return letter.isalpha() and letter.lower() == letter.upper()


def _is_sentence(text: str) -> bool:
    """Whether a line says something, as names, titles, dates and imprints do not.

    It ends as sentences do, and has four words, some in lower case, where its script has cases.
    """
    end = _SENTENCE_END.search(text)
    if end is None or _IMPRINT.search(text):
        return False
    words = [word for word in _WORD.findall(text) if len(word) > 1]
    if end.group()[0] in "!！":
        return len(words) > 1 or len(text) > 8
    if any(map(_unspaced, text)):
        return len(text) > 8
    return len(words) >= 4 and sum(not word[0].isupper() for word in words) >= 0.25 * len(words)


def _titles(edges: Sequence[EdgeLine], groups: Iterable[Sequence[EdgeLine]]) -> set[EdgeLine]:
    """Lines whose number counts with the pages and that yet say what these are about.

    At the bottom these are sentences. At the top, "Well 3" and "Pump manual 3" read alike. Nothing
    but a page's number, or a number that says it is one, is no title; a line in large letters is;
    and one as large as the text, with the number after the words, where they are not found as a
    header or title of their own.
    """
    titles: set[EdgeLine] = set()
    names: set[str] | None = None
    for group in groups:
        if not group[0].top:
            titles.update(e for e in group if _numbers(e.text) and _is_sentence(e.text))
            continue
        if group[-1].page == group[0].page:
            titles.update(
                e for e in group if e.size >= _LARGER or (e.stands_out and _numbers(e.text))
            )
            continue
        if len({edge.text for edge in group}) == 1:
            continue
        if names is None:
            names = {_plain(edge.text) for edge in edges if not _NUMBER.search(edge.text)}
        titles.update(edge for edge in group if _is_title(edge, names))
    return titles - {edge for edge in titles if _is_page_number(edge.text)}


def _is_title(edge: EdgeLine, names: set[str]) -> bool:
    """Whether a line of words and a number that counts the pages is a title; names: of others."""
    if edge.size >= _LARGER:
        return True
    words = _plain(_NUMBER.sub(" ", edge.text))
    return (
        edge.size >= _AS_TEXT
        and not edge.text[:1].isdigit()
        and words not in names
        and not _SET_APART.search(edge.text)
    )


def _is_page_number(text: str) -> bool:
    """Whether a line is a page's number, or has one that says so."""
    return not any(map(str.isalpha, _ROMAN.sub("", text))) or bool(_PAGE_NUMBER.search(text))


def _runs(group: Sequence[EdgeLine], pages: int) -> bool:
    """Whether lines of one shape and place run: through the document, or through a chapter."""
    on_pages = sorted({edge.page for edge in group})
    span = on_pages[-1] - on_pages[0] + 1
    through_all = len(on_pages) >= max(2, 0.4 * pages)
    through_chapter = len(on_pages) >= max(3, 0.4 * span)
    return (through_all or through_chapter) and _numbers_run(group)


def _numbered_places(edges: Sequence[EdgeLine], pages: int) -> set[tuple[int, bool, int]]:
    """The `(page, top, place)` of lines that carry the page's number, with whatever else.

    On half of the pages and at least three, the outermost line of one place must hold a number
    that counts the pages.
    """
    steps: dict[tuple[bool, int], dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for edge in edges:
        for number in _numbers(edge.text) if edge.depth == 0 else ():
            steps[edge.top, edge.place][number - edge.page].add(edge.page)
    found: set[tuple[int, bool, int]] = set()
    for (top, place), by_step in steps.items():
        on_pages = max(by_step.values(), key=len)
        if len(on_pages) >= max(3, 0.5 * pages):
            found.update((page, top, place) for page in on_pages)
    return found


def is_page_label(text: str) -> bool:
    """Whether a line standing alone is nothing but a page number that says so itself."""
    return len(text) <= 40 and _PAGE_LABEL.match(text) is not None


def contents_lines(lines: Sequence[str]) -> set[int]:
    """Indices of tables of contents with dot leaders, their titles included.

    At least three leader lines close together whose numbers never fall and of which half repeat as
    lines elsewhere: a parts list with dotted quantities stays.
    """
    leaders = [
        _Leader(index, line[: -match.end()], int(match.group(1)[::-1]))
        for index, line in enumerate(lines)
        if line[-1:].isdigit() and any(map(line.__contains__, _LEADS))
        if (match := _LEADER.match(line[::-1])) and match.end() < len(line)
    ]
    if len(leaders) < 3:
        return set()
    listed = {leader.index for leader in leaders}
    others = {_plain(line) for index, line in enumerate(lines) if index not in listed}
    dropped: set[int] = set()
    for cluster in _clusters(leaders):
        rising = sum(a.number <= b.number for a, b in pairwise(cluster))
        repeated = sum(_plain(leader.title) in others for leader in cluster)
        if len(cluster) < 3 or rising < 0.9 * (len(cluster) - 1) or repeated < 0.5 * len(cluster):
            continue
        first = cluster[0].index
        dropped.update(leader.index for leader in cluster)
        title = next(
            (i for i in range(first - 1, max(-1, first - 4), -1) if lines[i].strip()), None
        )
        if title is not None and _CONTENTS_TITLE.match(lines[title]):
            dropped.add(title)
    return dropped


@dataclass(frozen=True, slots=True)
class _Leader:
    """A line such as "Valves ....... 12"."""

    index: int
    title: str
    number: int


def _clusters(leaders: Sequence[_Leader]) -> list[list[_Leader]]:
    """Leaders with at most six other lines between them."""
    clusters = [[leaders[0]]]
    for before, leader in pairwise(leaders):
        if leader.index - before.index > 7:
            clusters.append([])
        clusters[-1].append(leader)
    return clusters


def _plain(text: str) -> str:
    return re.sub(r"[\W_]+", " ", text).strip().lower()


def _shape(text: str) -> str:
    text = " ".join(text.split()).lower()
    return "#" if _ROMAN.match(text) else _NUMBER.sub("#", text)


def _numbers_run(group: Sequence[EdgeLine]) -> bool:
    columns = list(zip(*(_numbers(edge.text) for edge in group), strict=False))
    return all(_constant_or_counting(column, group) for column in columns)


def _constant_or_counting(column: Sequence[int], group: Sequence[EdgeLine]) -> bool:
    if len(set(column)) == 1:
        return True
    steps = Counter(n - edge.page for n, edge in zip(column, group, strict=True))
    return steps.most_common(1)[0][1] >= 0.7 * len(column)


def _numbers(text: str) -> list[int]:
    text = text.strip()
    if _ROMAN.match(text):
        return [_roman(text)]
    return [int(number[:9]) for number in _NUMBER.findall(text)]


def _roman(text: str) -> int:
    values = [_ROMAN_VALUES[letter] for letter in text.lower()]
    pairs = zip(values, [*values[1:], 0], strict=True)
    return sum(-a if a < b else a for a, b in pairs)

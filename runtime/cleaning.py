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
from itertools import pairwise

# --- characters -----------------------------------------------------------------------------------

_CONTROL = "\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f"
_LINE_ENDS = "\r\x0b\x0c\x85\u2028\u2029"
_ZERO_WIDTH = "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e"
_INVISIBLE = "\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff"
_SPACES = "\t\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
_PRESENTATION = "\ufb00-\ufb06\ufb1d-\ufbb1\ufbd3-\ufbff\ufe70-\ufefc"
# One search decides whether a text needs any of the slower rules; plain ASCII never does.
_NEEDS_WORK = re.compile(
    f"[{_CONTROL}{_LINE_ENDS}{_ZERO_WIDTH}{_INVISIBLE}{_SPACES}{_PRESENTATION}"
    "\ud800-\udfff\u0300-\u036f\ufe00-\ufe0f]"
)
_DROPPED = re.compile(f"[{_CONTROL}{_ZERO_WIDTH}{_INVISIBLE}\ufe00-\ufe0f]")
_JOINERS = "\u200c\u200d"
_RUN_OF_SPACES = re.compile(r" {2,}")
_SPACE_AT_LINE_EDGE = re.compile(r" *\n *")
_MANY_LINE_ENDS = re.compile(r"\n{3,}")

_SPACE_TABLE = {ord(c): " " for c in "\t\u00a0\u1680\u202f\u205f\u3000"}
_SPACE_TABLE.update(dict.fromkeys(range(8192, 8203), " "))
_LINE_END_TABLE = {ord(c): "\n" for c in _LINE_ENDS}

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
    if text.isascii() and not _NEEDS_WORK.search(text):
        return text
    text = repair_mojibake(text)
    if _NEEDS_WORK.search(text):
        text = _repair_surrogates(text).replace("\r\n", "\n")
        text = text.translate(_LINE_END_TABLE).translate(_SPACE_TABLE)
        text = _DROPPED.sub(lambda match: _kept(text, match.start()), text)
        text = re.sub(
            f"[{_PRESENTATION}]", lambda m: unicodedata.normalize("NFKC", m.group()), text
        )
    return text if unicodedata.is_normalized("NFC", text) else unicodedata.normalize("NFC", text)


def clean_block(text: str) -> str:
    """A paragraph, item, row or heading as it is stored: clean, stripped, single spaces."""
    text = clean_characters(text)
    if "  " in text:
        text = _RUN_OF_SPACES.sub(" ", text)
    if "\n" in text:
        text = _MANY_LINE_ENDS.sub("\n\n", _SPACE_AT_LINE_EDGE.sub("\n", text))
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


def _repair_surrogates(text: str) -> str:
    if not re.search("[\ud800-\udfff]", text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


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
    return bool(character) and any(lo <= ord(character) <= hi for lo, hi in _JOINING_RANGES)


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


def smuggled_text(text: str) -> str:
    """ASCII written in Unicode's invisible tag characters or variation selectors, decoded."""
    if not re.search("[\U000e0001-\U000e01ef]", text):
        return ""
    letters = []
    for index, character in enumerate(text):
        code = ord(character)
        if 0xE0020 <= code <= 0xE007E and not _in_flag(text, index):
            letters.append(chr(code - 0xE0000))
        elif 0xE0100 <= code <= 0xE01EF and not _ideograph(text[index - 1] if index else " "):
            letters.append(chr(code - 0xE0100 + 16))
    return "".join(letters)


# --- mojibake -------------------------------------------------------------------------------------

# UTF-8 that was read as Windows-1252: a lead byte's letter followed by continuation bytes' letters.
_CONTINUATION = "\u0080-\u00bf\u0152\u0153\u0160\u0161\u0178\u017d\u017e\u0192\u02c6\u02dc\u2013"
_CONTINUATION += "\u2014\u2018-\u201a\u201c-\u201e\u2020-\u2022\u2026\u2030\u2039\u203a\u20ac\u2122"
_MOJIBAKE = re.compile(
    f"(?:[\u00c2-\u00df][{_CONTINUATION}]|[\u00e0-\u00ef][{_CONTINUATION}]{{2}}"
    f"|[\u00f0-\u00f4][{_CONTINUATION}]{{3}})+"
)
# Pairs that are also ordinary text: a capital letter with a closing quote, degree or ordinal mark.
_CERTAIN_ALONE = re.compile(f"[\u00c2\u00c3\u00e2][{_CONTINUATION}]")


def repair_mojibake(text: str) -> str:
    """Undo UTF-8 read as Windows-1252 where every non-ASCII character of the line proves it."""
    if text.isascii() or not _MOJIBAKE.search(text):
        return text
    return "\n".join(_repair_line(line) for line in text.split("\n"))


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

_WORD = re.compile(r"[^\W\d_]+(?:[-\u2010][^\W\d_]+)*")
_HYPHEN_AT_END = re.compile(r"([^\W\d_]+)[-\u2010\u00ad]$")
_FIRST_WORD = re.compile(r"[^\W\d_]+")
# "Haupt- und Nebenpumpe", "two- or three-way": the hyphen stands for a missing part.
_SUSPENDED = frozenset(
    [
        "and",
        "or",
        "to",
        "und",
        "oder",
        "bis",
        "sowie",
        "et",
        "ou",
        "y",
        "o",
        "e",
        "en",
        "of",
        "à",
        "nor",
        "then",
        "und/oder",
        "and/or",
    ]
)


class Vocabulary:
    """The words of one document, counted on first need: evidence for joining hyphenated words."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = lines
        self._words: set[str] | None = None

    def __contains__(self, word: str) -> bool:
        if self._words is None:
            self._words = self._whole_words()
        return word.lower() in self._words

    def _whole_words(self) -> set[str]:
        """Words that no line end cuts."""
        words: set[str] = set()
        cut = False
        for line in self._lines:
            found = _WORD.findall(line.lower())
            first = 1 if cut else 0
            cut = line.rstrip().endswith(("-", "\u2010", "\u00ad"))
            words.update(found[first : len(found) - 1 if cut else len(found)])
        return words


def join_lines(lines: Sequence[str], vocabulary: Vocabulary) -> str:
    """One paragraph from its lines: words hyphenated at a line end are joined, others spaced."""
    joined = lines[0].rstrip() if lines else ""
    for line in lines[1:]:
        joined = join_pair(joined, line.strip(), vocabulary)
    return joined


def join_pair(left: str, right: str, vocabulary: Vocabulary) -> str:
    """`left` continued by `right`.

    `main-` + `tenance` is one word; `E-` + `17` keeps its hyphen; `low-` + `voltage` keeps it when
    the document writes low-voltage elsewhere, or both halves as words and the joined form never.
    """
    left = left.rstrip()
    if not left or not right:
        return left or right
    match = _HYPHEN_AT_END.search(left)
    first = _FIRST_WORD.match(right)
    if left.endswith("\u00ad"):
        joined = left[:-1] + right
    elif match is None:
        joined = left + right if _touches(left, right) else f"{left} {right}"
    elif first is not None and first.group().lower() in _SUSPENDED:
        joined = f"{left} {right}"
    elif first is None or _hyphen_belongs(match.group(1), first.group(), vocabulary):
        joined = left + right
    else:
        joined = left[:-1] + right
    return joined


def _touches(left: str, right: str) -> bool:
    """Whether no space belongs between two lines that no word crosses."""
    if left.endswith(("-", "\u2010")):
        return len(left) > 1 and not left[-2].isspace()
    return _unspaced(left[-1]) and _unspaced(right[0])


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
    return (
        0x2E80 <= code <= 0x9FFF
        or 0xF900 <= code <= 0xFAFF
        or 0xFF00 <= code <= 0xFFEF
        or 0x0E00 <= code <= 0x0EFF
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
    r"(?i)^\W*(?:page|seite|p\.|pág(?:ina)?\.?|pagina|страница|стр\.)\s*\d{1,5}"
    r"(?:\s*(?:of|von|de|di|sur|van|из|/)\s*\d{1,5})?\W*$"
)
_DASHED_NUMBER = re.compile(r"^\s*[-\u2013\u2014]\s*\d{1,4}\s*[-\u2013\u2014]\s*$")
_LEADER = re.compile(r"^\s*(.*\w.*?)\s*(?:(?:\.\s?){4,}|\u2026{2,}|(?:·\s?){4,})\s*(\d{1,4})\s*$")
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
    """

    page: int
    line: int
    text: str
    top: bool
    depth: int
    place: int


def running_lines(edges: Sequence[EdgeLine], pages: int) -> set[tuple[int, int]]:
    """The `(page, line)` of running headers, footers and page numbers.

    A line runs when the same words stand at the same place on at least two pages and two fifths of
    all, each number in it is either the same everywhere or counts the pages, and only running lines
    stand between it and the edge. So rows of numbers that happen to end several pages stay. The
    first occurrence of a warning stays as well.
    """
    groups: dict[tuple[str, bool, int], list[EdgeLine]] = defaultdict(list)
    for edge in edges:
        groups[_shape(edge.text), edge.top, edge.place].append(edge)
    repeated: dict[EdgeLine, bool] = {}  # each with whether it is dropped
    for group in groups.values():
        on_pages = {edge.page for edge in group}
        if len(on_pages) >= max(2, 0.4 * pages) and _numbers_run(group):
            keep_first = bool(_WARNING.search(group[0].text))
            for number, edge in enumerate(group):
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


def is_page_label(text: str) -> bool:
    """Whether a line standing alone is nothing but a page number that says so itself."""
    return bool(_PAGE_LABEL.match(text) or _DASHED_NUMBER.match(text))


def contents_lines(lines: Sequence[str]) -> set[int]:
    """Indices of a table of contents with dot leaders, its title included.

    At least three leader lines whose numbers never fall and of which half repeat as lines
    elsewhere: a parts list with dotted quantities stays.
    """
    leaders = [(index, match) for index, line in enumerate(lines) if (match := _LEADER.match(line))]
    if len(leaders) < 3:
        return set()
    numbers = [int(match.group(2)) for _, match in leaders]
    rising = sum(a <= b for a, b in pairwise(numbers))
    listed = {index for index, _ in leaders}
    others = {_plain(line) for index, line in enumerate(lines) if index not in listed}
    repeated = sum(_plain(match.group(1)) in others for _, match in leaders)
    if rising < 0.9 * (len(numbers) - 1) or repeated < 0.5 * len(leaders):
        return set()
    first = leaders[0][0]
    title = next((i for i in range(first - 1, max(-1, first - 4), -1) if lines[i].strip()), None)
    if title is not None and _CONTENTS_TITLE.match(lines[title]):
        listed.add(title)
    return listed


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

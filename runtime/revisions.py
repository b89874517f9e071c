"""The door of a document -> which revision of which document it is.

The door is where people look: the title, the file's name, and short lines at the top of the text
("Document HF-114 | Revision C", "Issue 3, 2 May 2023"). Two documents can be compared only if they
are one document by number or title, in one language and of one part, and are counted by one
kind of mark; where anything at the door leaves a doubt, there is no revision. Years and editions
are no revisions: the standard of 2015 is another document than that of 2023.

Not covered: revisions told only in running headers of a PDF or in a sentence, Roman numbers,
door words in other languages than English and German, and dates of coming into force that are still
to come.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import PurePath

from runtime.documents import Revision

_DOOR = 1200  # characters of the text, of which
_LINE = 100  # are lines of at most this many the door
_KINDS = {
    "rev": "Revision",
    "iss": "Issue",
    "aus": "Issue",
    "ver": "Version",
    "fas": "Version",
    "v": "Version",
}
_MONTHS = (
    *("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
    *("jän", "feb", "mär", "apr", "mai", "jun", "jul", "aug", "sep", "okt", "nov", "dez"),
)
_DATE = (
    r"(?:(?P<iso>(?:19|20)\d\d-\d\d-\d\d)|(?P<dotted>\d{1,2}\.\d{1,2}\.(?:19|20)\d\d)"
    r"|(?P<day>\d{1,2})\.?[ -](?P<month>[^\W\d_]{3,9})\.?,?[ -](?P<year>(?:19|20)\d\d)"
    r"|(?P<month2>[^\W\d_]{3,9})\.? (?P<day2>\d{1,2}), (?P<year2>(?:19|20)\d\d))"
)
_ANY_DATE = re.sub(r"\?P<\w+>", "?:", _DATE)
# A letter (I and O look like numbers), a letter with a number as in P03, or a number below 1000.
_MARK = (
    r"(?:(?P<word>revision|rev|issue|iss|version|ver|ausgabe|fassung)\.?"
    r"(?:[\s_]*(?:no|nr|number)\.?)?[\s_:=-]*|(?P<v>v)\.?\s?)"
    r"(?P<value>\d{1,3}(?:\.\d{1,3}){0,3}|(?-i:[A-HJ-NP-Z])(?:\d{1,3})?)"
)
_DATED = rf"(?:[\s,;/(-]*(?:of|dated|from|vom|date)?[\s:(]*(?:{_ANY_DATE}|(?:19|20)\d\d))?"
_FIELD_ENDS = re.compile(
    r"[|;·•\t]|,\s|(?<!rev)(?<!iss)(?<!ver)(?<!doc)(?<!no)(?<!nr)\.\s|\s[–—-]\s|\s{2,}",
    re.IGNORECASE,
)
_FIELD = re.compile(rf"(?:document\s+|doc\.?\s+)?{_MARK}{_DATED}[\s).]*", re.IGNORECASE)
_AT_END = re.compile(rf"(?P<gap>[\s,;:|/(\[–—_-]+){_MARK}[\s)\]]*{_DATED}[\s.)\]]*$", re.IGNORECASE)
_IN_NAME = re.compile(
    rf"(?:^|[\s_.()-]){_MARK.replace('(?-i:[A-HJ-NP-Z])', '[A-HJ-NP-Z]')}(?=$|[\s_.()-])",
    re.IGNORECASE,
)
_DATE_FIELD = re.compile(
    r"(?:(?:revision|rev\.?|issue) date|date of (?:issue|revision)|issued(?: on)?|revised(?: on)?"
    r"|last (?:revised|updated?|revision)(?: on)?|effective(?: date| from)?|in force (?:from|since)"
    rf"|valid from|stand|ausgabedatum|gültig ab|in kraft (?:seit|ab))[\s:]*{_DATE}[\s).]*",
    re.IGNORECASE,
)
_DATE_AT_END = re.compile(rf"[\s,;:|/(\[–—_-]+{_DATE}[\s)\]]*$", re.IGNORECASE)
_NUMBER = re.compile(
    r"(?:document|doc|drawing|dwg|publication|procedure|dokument|zeichnung)"
    r"(?:s?[\s-]?(?:no|nr|number|nummer|id))?\.?[\s:#]*(?P<code>(?-i:[A-Z0-9][A-Z0-9/._-]{2,30}))",
    re.IGNORECASE,
)
_OWN_REVISION = re.compile(r"[-_./ ](?:R|REV|V|ISS)[-_.]?(?:\d{1,3}|[A-Z])$")
_PART = re.compile(
    r"(?<![^\W_])(?P<what>volume|vol|part|book|sheet|section|chapter|annex|appendix|module"
    r"|supplement|band|teil|blatt|heft|anhang|kapitel)\.?[\s_-]*(?P<which>\d{1,3}|[ivx]{1,4}|[a-z])"
    r"(?![^\W_])",
    re.IGNORECASE,
)
_UNDECIDED = re.compile(
    r"(?<![^\W_])(?:draft|preliminary|proposed|proposal|entwurf|vorläufig|beta|for (?:review"
    r"|comments?|approval)|not for (?:construction|use))(?![^\W_])",
    re.IGNORECASE,
)
_TRANSLATED = re.compile(r"\btranslat(?:ion|ed)\b|übersetzung", re.IGNORECASE)
_STANDARD = re.compile(
    r"\b(?:ISO|IEC|EN|DIN|VDE|VDI|BS|ASTM|ASME|ANSI|API|IEEE|NFPA|AWWA|UL|NIST|RFC|ÖNORM|SAE)"
    r"[ /-]+(?:[A-Z/]+[ -])?[A-Z]?\d"
)
# Kinds of document that are issued anew as a whole; those that may be made for one day, too; and
# those of which each stays valid for its own day.
_REVISED = (
    r"manual|handbook|instructions?|procedure|specification|drawing|data ?sheet|guide|policy"
    r"|rules|regulations?|handbuch|anleitung|anweisung|zeichnung|datenblatt|vorschrift|leitfaden"
)
_PLANNED = r"schedule|plan"
_RECORDED = (
    r"report|record|log|minutes|protocol|certificate|invoice|order|letter|notice|statement|survey"
    r"|results?|newsletter|bulletin|circular|agenda|diary|notes|changelog|journal|magazine"
    r"|bericht|protokoll|zeugnis|rechnung|brief|rundschreiben|rota|roster"
)
_KIND = re.compile(
    rf"(?:(?P<revised>{_REVISED})|(?P<planned>{_PLANNED})|(?P<recorded>{_RECORDED}))s?(?![^\W_])",
    re.IGNORECASE,
)
_CODE = re.compile(r"\W*(?=[^\d]*\d)(?=.*[A-Z])[A-Z0-9/._ -]+\W*")
_GENERAL_WORDS = (
    "a an and the of for in to on with und der die das für mit user users operating operation "
    "operator operators maintenance service installation technical quick start safety general "
    "product manual handbook instruction instructions procedure specification drawing datasheet "
    "data sheet guide policy rules regulations schedule plan document untitled scan readme index "
    "contents title page book1 sheet1 overview introduction information handbuch anleitung "
    "betriebsanleitung bedienungsanleitung wartungsanleitung montageanleitung anweisung zeichnung "
    "datenblatt wartung betrieb sicherheit"
)
_GENERAL = frozenset(_GENERAL_WORDS.split())
_SHELF = re.compile(  # folders that say how old, not what
    r"(?:[\W_]*(?:(?:19|20)\d\d(?:-?\d\d){0,2}|old|alt|archived?|archiv|superseded|obsolete"
    r"|previous|former|history|backup|new|neu|current|latest|aktuell"
    r"|(?:rev|revision|version|issue|v)s?[\W_]*(?:[a-z]|\d[\d.]*)?))+[\W_]*",
    re.IGNORECASE,
)
_LANGUAGE_IN_NAME = re.compile(
    r"(?:^|[\s_.()-])(en|de|fr|es|it|nl|pt|pl|cs|sv|da|no|fi|ru|zh|ja|ko|ar|tr"
    r"|eng|deu|ger|fra|esp|ita)(?=$|[\s_.()-])",
    re.IGNORECASE,
)
_COMMON_WORDS = {
    "en": "the and of is to in with for are by",
    "de": "der die das und ist den mit für von nicht",
    "fr": "le la les et est des du pour avec dans",
    "es": "el los las y es del para con una por",
    "it": "il gli e è della per con di una che",
    "nl": "de het een en is van met voor niet op",
    "pt": "o os as e é do da para com uma",
    "pl": "i w z na do jest nie się oraz przez",
}
_COMMON = {language: frozenset(words.split()) for language, words in _COMMON_WORDS.items()}

# What each mark at the door begins or ends with; most lines have nothing of it.
_HINT = re.compile(r"\b(?:[Rr]ev|REV|[Ii]ss|ISS|[Vv](?:ER|er|\.? ?\d)|[Aa]us|[Ff]as)|(?:19|20)\d\d")


@dataclass(frozen=True, slots=True)
class _Mark:
    """Something that counts revisions: what kind of thing, a rank that sorts as text, its words."""

    kind: str
    rank: str
    label: str

    def contradicts(self, other: _Mark) -> bool:
        return self.kind == other.kind and self.rank != other.rank


def revision_of(
    title: str, source: str, media_type: str, text: str, status: str = ""
) -> Revision | None:
    """Which revision of which document this is; None where the door does not say so clearly.

    Args:
        source: of the file; its folder and name count.
        text: the stored text; only its beginning is looked at.
        status: what its metadata say of it, such as front matter's `status: draft`.
    """
    if media_type == "message/rfc822" or _STANDARD.search(title):
        return None
    name = PurePath(source).stem
    lines = [line for line in text[:_DOOR].splitlines() if 0 < len(line) <= _LINE]
    base, by_title = _title_mark(title)
    places = (by_title, _one(_name_marks(name, base)), _one(_door_marks(lines, base)))
    mark = next(filter(None, places), None)
    if mark is None or any(one and one.contradicts(mark) for one in places):
        return None
    if any(map(_UNDECIDED.search, (title, name, status, *lines))):
        return None
    series = _series(base, source, lines, text)
    return Revision(f"{mark.kind}\n{series}", mark.rank, mark.label)


def revisions_named(words: str) -> frozenset[str]:
    """The labels of all revisions named in a title or question: "Revision 3"."""
    found = re.finditer(rf"\b{_MARK}(?!\w)", words, re.IGNORECASE)
    return frozenset(_mark(match).label for match in found)


# Marks


def _title_mark(title: str) -> tuple[str, _Mark | None]:
    """The title without its revision, and that revision.

    "Pump Controller Rev C" may be the manual of a controller; after a comma or a word such as
    "manual" the revision is of the document.
    """
    if match := _AT_END.search(title):
        base = title[: match.start()]
        if base and (match["gap"].strip(" _") or _is_of_a_document(base)):
            return base, _counted(_mark(match), base)
    if (match := _DATE_AT_END.search(title)) and _kind(title[: match.start()]) == "revised":
        return title[: match.start()], _dated(match)
    return title, None


def _is_of_a_document(base: str) -> bool:
    """Whether a revision right after these words is of a document: they end in "manual", or are
    nothing but the number of a drawing."""
    last = re.split(r"[\W_]", base)[-1]
    return _kind(last) in ("revised", "planned") or _CODE.fullmatch(base) is not None


def _kind(words: str) -> str | None:
    """Which kind of document the last word that names one stands for."""
    return next((match.lastgroup for match in reversed([*_KIND.finditer(words)])), None)


def _name_marks(name: str, base: str) -> Iterator[_Mark]:
    for match in _IN_NAME.finditer(name):
        # "valve-v2" is a valve more often than a version.
        is_tag = match["v"] and "." not in match["value"] and not _kind(name[: match.start()])
        if not is_tag and (mark := _counted(_mark(match), base)) is not None:
            yield mark
    match_date = _DATE_AT_END.search(name)
    if match_date and _kind(base) == "revised" and (mark := _dated(match_date)) is not None:
        yield mark


def _door_marks(lines: Iterable[str], base: str) -> Iterator[_Mark]:
    """Revisions first; labelled dates only where there is none."""
    fields = [field for line in lines if _HINT.search(line) for field in _fields(line)]
    marks = [
        mark
        for field in fields
        if (match := _FIELD.fullmatch(field)) and (mark := _counted(_mark(match), base))
    ]
    if fields and not marks and _kind(base) != "recorded":
        dates = (_dated(match) for field in fields if (match := _DATE_FIELD.fullmatch(field)))
        marks = [mark for mark in dates if mark is not None]
    yield from marks


def _fields(line: str) -> list[str]:
    return [field.strip() for field in _FIELD_ENDS.split(line)]


def _mark(match: re.Match[str]) -> _Mark:
    word, value = (match["word"] or "v").lower(), match["value"].upper()
    name = _KINDS[word[:3]]
    letter = value[0] if value[0].isalpha() else ""
    number = value[len(letter) :]
    label = f"{name} {value}"
    if letter and not number:
        return _Mark(f"{name} letter", letter, label)
    parts = [int(part) for part in number.split(".")]
    while len(parts) > 1 and parts[-1] == 0:
        parts.pop()
    return _Mark(f"{name} {letter}number", ".".join(f"{part:03}" for part in parts), label)


def _counted(mark: _Mark, base: str) -> _Mark | None:
    """The mark, if it counts revisions of a document, not issues of a paper or of a product."""
    if mark.kind.startswith("Revision"):
        return mark
    return mark if _kind(base) in ("revised", "planned") else None


def _dated(match: re.Match[str]) -> _Mark | None:
    if match["iso"]:
        year, month, day = map(int, match["iso"].split("-"))
    elif match["dotted"]:
        day, month, year = map(int, match["dotted"].split("."))
    else:
        word = (match["month"] or match["month2"]).lower()[:3]
        if word not in _MONTHS:
            return None
        month = _MONTHS.index(word) % 12 + 1
        day, year = int(match["day"] or match["day2"]), int(match["year"] or match["year2"])
    try:
        found = date(year, month, day).isoformat()
    except ValueError:
        return None
    return _Mark("date", found, f"of {found}")


def _one(marks: Iterable[_Mark]) -> _Mark | None:
    """The mark, if there is exactly one: a history of revisions says nothing."""
    found = list(dict.fromkeys(marks))
    return found[0] if len({(mark.kind, mark.rank) for mark in found}) == 1 else None


# Of which document


def _series(base: str, source: str, lines: Sequence[str], text: str) -> str:
    """What two revisions of one document have in common, and nothing else has.

    A document number that is one names it alone. A title that names a model (letters with digits)
    does so wherever the files lie; other titles in one folder only, since every pumping station has
    a "Maintenance Manual"; and a title of general words only if the files' names agree, too.
    """
    path = PurePath(source)
    fields = [field for line in lines for field in _fields(line)]
    number = _number(fields)
    shared = [*_parts(base, path.stem, fields), _language(path.stem, text)]
    if any(map(_TRANSLATED.search, lines)):
        shared.append("translation")
    if number and len(number) >= 4 and re.search(r"\d", number):
        return "\n".join(("number", number, *shared))
    words = re.findall(r"\w+", base.casefold())
    key = ["title", " ".join(words), number, *shared]
    if not re.search(r"[^\W\d_]-?\d", base):
        key += [part for part in path.parent.parts if not _SHELF.fullmatch(part)]
    if _GENERAL.issuperset(words):
        key.append(_DATE_AT_END.sub("", _IN_NAME.sub("", path.stem)).casefold())
    return "\n".join(key)


def _number(fields: Iterable[str]) -> str:
    """The document's number without the revision that may end it; empty if there is none."""
    found = (_NUMBER.fullmatch(field) for field in fields)
    codes = (match["code"] for match in found if match and re.search(r"\d", match["code"]))
    return _OWN_REVISION.sub("", next(codes, ""))


def _parts(base: str, name: str, fields: Iterable[str]) -> list[str]:
    """ "volume 2" and the like, in the title, the file's name, or as a field of the door."""
    found = [*_PART.finditer(base), *_PART.finditer(name)]
    found += [match for field in fields if (match := _PART.match(field))]
    return sorted({f"{match['what'][:3]} {match['which']}".lower() for match in found})


def _language(name: str, text: str) -> str:
    """By script and the words that a language cannot do without; marks in the name count as well.

    Text of none of the languages known here counts as English where its script is Latin.
    """
    words = Counter(re.findall(r"[^\W\d_]+", text[:_DOOR].casefold()))
    known = {language: sum(words[word] for word in common) for language, common in _COMMON.items()}
    scripts: Counter[str] = Counter()
    for word, count in words.items():
        scripts[unicodedata.name(word[0], "").partition(" ")[0]] += count
    script = max(scripts, key=lambda one: scripts[one], default="")
    named = sorted({code.lower() for code in _LANGUAGE_IN_NAME.findall(name)})
    return " ".join((script, max(known, key=lambda one: known[one]), *named))

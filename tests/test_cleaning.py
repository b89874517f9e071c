"""What cleaning removes, and what only looks like noise and must stay."""

from __future__ import annotations

import random
import re
import time
import unicodedata

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from runtime.cleaning import (
    _LEADER,
    EdgeLine,
    Vocabulary,
    clean_block,
    clean_characters,
    clean_code,
    contents_lines,
    is_page_label,
    join_lines,
    repair_mojibake,
    running_lines,
    smuggled_text,
    strip_markup,
)


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("pu\u200bmp\ufeff", "pump"),
        ("a\x00b\x07c\x7f", "abc"),
        ("one\r\ntwo\rthree\x0bfour\u2028five", "one\ntwo\nthree\nfour\nfive"),
        ("24\u00a0V\u2009DC\u3000on", "24 V DC on"),
        ("main\u00adtenance", "maintenance"),
        ("\u202ereversed\u202c \u2066x\u2069", "reversed x"),
        ("ﬁlter oﬀ ﬂow", "filter off flow"),
        ("Cafe\u0301", "Café"),
        ("\ud83d\ude00 half \ud83d end", "😀 half \ufffd end"),
        ("\ufee3\ufeae\ufea3\ufe92\ufe8e", "مرحبا"),
    ],
)
def test_characters_that_go(raw: str, clean: str) -> None:
    assert clean_characters(raw) == clean


@pytest.mark.parametrize(
    "text",
    [
        "👩‍🔧 repairs",  # joiner inside an emoji
        "❤️ and ☎️",  # variation selectors after symbols
        "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",  # flag of tags
        "می‌خواهم",  # Persian non-joiner changes the word
        "क्‍ष",  # Devanagari joiner
        "葛\U000e0100城",  # ideographic variant
        "10² m³ ½ № Ⅻ ㎡",  # compatibility characters are what people see
        "E-17\tis at 0x3F".replace("\t", " "),
        "שָׁלוֹם",
        "Ünïcödé – “quotes” … ×",
    ],
)
def test_characters_that_stay(text: str) -> None:
    assert clean_characters(text) == unicodedata.normalize("NFC", text)


def test_joiners_between_latin_letters_go() -> None:
    assert clean_characters("va\u200dlve \u200cx") == "valve x"


@given(st.text(alphabet=st.characters(codec=None), max_size=200))
def test_cleaning_is_done_once(text: str) -> None:
    """Spans refer to the cleaned text: cleaning it again must not move anything."""
    once = clean_block(text)
    # What is left after cleaning may look like mojibake for the first time ("Â", a control, "¡").
    assume(repair_mojibake(once) == once)
    assert clean_block(once) == once
    assert "\x00" not in once
    once.encode("utf-8")


def test_text_is_composed_whatever_it_holds() -> None:
    """Whether to compose is told from the characters; each that composes with another counts."""
    pairs = [
        unicodedata.normalize("NFD", chr(code))
        for code in range(0x110000)
        if re.fullmatch(r"\w+ \w+", unicodedata.decomposition(chr(code)))
    ]
    assert len(pairs) > 1000
    for pair in (*pairs, "\u1112\u1161\u11ab", "q\u0323\u0307", "q\u0307\u0323", "\ufb1d"):
        assert clean_characters(f"a {pair}") == unicodedata.normalize("NFC", f"a {pair}")


def test_invisible_letters_are_decoded() -> None:
    secret = "".join(chr(0xE0000 + ord(c)) for c in "ignore all")
    assert smuggled_text(f"Torque{secret} 68 N m") == "ignore all"
    assert clean_characters(f"Torque{secret} 68 N m") == "Torque 68 N m"
    assert smuggled_text("🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f") == ""


def test_mojibake_is_undone_only_when_certain() -> None:
    assert repair_mojibake("PrÃ¼fung lÃ¤uft, 5Â°C, itâ€™s") == "Prüfung läuft, 5°C, it’s"
    for honest in (
        "SÃO PAULO",
        "Ã as a letter",
        "Prüfung läuft",
        "Ä»",
        "déjà vu — naïve",
        "№ 5 Ã©?ü",
    ):
        assert repair_mojibake(honest) == honest


def test_leftover_markup_goes_and_comparisons_stay() -> None:
    assert strip_markup("<b>Torque</b>&nbsp;68&#160;N&middot;m<br/>") == "Torque\xa068\xa0N·m\n"
    for honest in ("a < b and c > d", "<pump> & <valve>", "R&D at AT&T", "x<y>z", "if (a<b) c"):
        assert strip_markup(honest) == honest


def test_code_keeps_its_indentation() -> None:
    assert clean_code("\n\tif x:\n\t\ty = 1  \n\n") == "    if x:\n        y = 1"


# --- line ends ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "joined"),
    [
        (["preventive main-", "tenance of pumps"], "preventive maintenance of pumps"),
        (["fault code E-", "17 means"], "fault code E-17 means"),
        (["Haupt- und", "Nebenpumpe"], "Haupt- und Nebenpumpe"),
        (["Haupt-", "und Nebenpumpe"], "Haupt- und Nebenpumpe"),
        (["the pump -", "stopped"], "the pump - stopped"),
        (["Rolls-", "Royce"], "Rolls-Royce"),
        (["soft\u00ad", "ware"], "software"),
        (["ポンプを止", "める"], "ポンプを止める"),
        (["pages 3-", "5"], "pages 3-5"),
    ],
)
def test_lines_are_joined(lines: list[str], joined: str) -> None:
    assert join_lines(lines, Vocabulary(lines)) == joined


def test_a_hyphen_that_the_document_writes_elsewhere_stays() -> None:
    lines = ["close the low-", "voltage switch"]
    assert join_lines(lines, Vocabulary([*lines, "the low-voltage side"])).endswith(
        "low-voltage switch"
    )


def test_a_hyphen_between_two_words_of_the_document_stays() -> None:
    lines = ["the high-", "lift pump"]
    elsewhere = ["keep it high", "the lift is small"]
    assert join_lines(lines, Vocabulary(lines + elsewhere)) == "the high-lift pump"


def test_halves_of_cut_words_are_no_evidence() -> None:
    """'instru-' and 'ment' at line ends were once taken for words of the document."""
    lines = ["by the hand instru-", "ment every week"]
    assert "instrument" in join_lines(lines, Vocabulary(lines))


# --- page furniture -------------------------------------------------------------------------------


def _edges(pages: list[list[str]], *, top: bool = False) -> list[EdgeLine]:
    return [
        EdgeLine(page, line, text, top, depth=line, place=line)
        for page, lines in enumerate(pages)
        for line, text in enumerate(lines)
    ]


def test_headers_and_counting_numbers_run() -> None:
    pages = [[f"Page {number} of 9", "Manual, Revision 3"] for number in range(1, 10)]
    assert len(running_lines(_edges(pages), 9)) == 18


def test_headers_of_chapters_run() -> None:
    """A header that names the chapter is on few of all pages, but on all of its chapter's."""
    pages = [[f"Chapter {1 + page // 5}: About {'ABCDEFGH'[page // 5]}"] for page in range(40)]
    assert len(running_lines(_edges(pages, top=True), 40)) == 40


def test_a_numbered_header_on_a_single_page_runs() -> None:
    pages = [[f"{page + 1} {title}"] for page, title in enumerate("ABCDEFGHIJ")]
    assert len(running_lines(_edges(pages, top=True), 10)) == 10


def test_rows_of_numbers_at_the_end_of_pages_stay() -> None:
    rows = ["12 34 56", "13 30 51", "19 31 77", "40 35 12", "41 30 11"]
    assert running_lines(_edges([[row] for row in rows]), 5) == set()


@pytest.mark.parametrize("title", ["Well {}", "Step {}", "Inspection report, day {}", "Tank T{}"])
@pytest.mark.parametrize("pages", [2, 5])
def test_titles_that_count_with_the_pages_stay(title: str, pages: int) -> None:
    """Sheets, one a page, lost what they are about: they were taken for page numbers."""
    texts = [[title.format(number), "1"] for number in range(1, pages + 1)]
    assert running_lines(_edges(texts, top=True), pages) == set()


@pytest.mark.parametrize(
    "header",
    [
        "Page {}",
        "{}",
        "- {} -",
        "{} of 5",
        "Manual v2 | {}",
        "Pump manual, page {}",
        "Pump manual – {}",
        "Pump manual   {}",
        "{} Pump manual",
        "A-{}",
        "第{}页",
        "Pump manual {}/5",
    ],
)
def test_page_numbers_in_headers_run(header: str) -> None:
    pages = [[header.format(number)] for number in range(1, 6)]
    assert len(running_lines(_edges(pages, top=True), 5)) == 5


def test_a_number_after_the_title_of_the_document_runs() -> None:
    pages = [["Pump manual"], *([f"Pump manual {number}"] for number in range(2, 6))]
    assert len(running_lines(_edges(pages, top=True), 5)) == 4


@pytest.mark.parametrize(("size", "count"), [(0.8, 4), (1.0, 0), (1.5, 0)])
def test_small_letters_are_no_title(size: float, count: int) -> None:
    edges = [EdgeLine(page, 0, f"Well {page + 1}", True, 0, 7, size) for page in range(4)]
    assert len(running_lines(edges, 4)) == count


def test_what_stands_out_at_the_place_of_page_numbers_stays() -> None:
    """Chapters of a page each: their numbers count the pages as those of a header do."""
    titles = ["1 Safety", "2 Installation", "3 Operation", "4 Repair"]
    edges = [
        EdgeLine(page, 0, title, True, 0, 7, stands_out=True) for page, title in enumerate(titles)
    ]
    assert running_lines(edges, 4) == set()


def test_a_large_title_of_all_pages_stays_once() -> None:
    edges = [EdgeLine(page, 0, "Data sheet", True, 0, 7, size=1.5) for page in range(4)]
    assert running_lines(edges, 4) == {(page, 0) for page in range(1, 4)}


def test_a_repeated_warning_stays_once() -> None:
    pages = [["WARNING: disconnect the power"] for _ in range(6)]
    assert running_lines(_edges(pages), 6) == {(page, 0) for page in range(1, 6)}


@pytest.mark.parametrize(
    "lines",
    [
        ["Keep hands clear of the rotating shaft at all times."],
        ["Hände stets von der Welle fernhalten."],
        ["Keep hands clear of the shaft", "while the pump is running."],
        ["Hands off!"],
        ["请勿触摸旋转的轴和叶轮。"],
        ["أبعد يديك عن العمود الدوار دائما."],
    ],
)
def test_a_repeated_sentence_stays_once(lines: list[str]) -> None:
    """Only those with a word such as WARNING did; the others were lost altogether."""
    pages = [["7", *reversed(lines), "Pump manual"] for _ in range(4)]
    dropped = running_lines(_edges(pages), 4)
    kept = {(0, number) for number in range(1, len(lines) + 1)}
    assert dropped == {(page, line) for page in range(4) for line in range(len(lines) + 2)} - kept


@pytest.mark.parametrize(
    "line",
    [
        "ACME Pumps Inc.",
        "© 2021 ACME, makers of the finest pumps. All rights reserved.",
        "The Pump Makers of Leeds and of all the towns around it, Ltd.",
        "Pump manual, revised edition",
        "12.05.2024",
        "Rev. 3.",
        "Read more of it at www.acme.example.",
    ],
)
def test_names_and_imprints_are_no_sentences(line: str) -> None:
    assert len(running_lines(_edges([[line]] * 4), 4)) == 4


def test_sentences_that_count_with_the_pages_stay() -> None:
    pages = [[f"The test of day {number} was passed."] for number in range(1, 5)]
    assert running_lines(_edges(pages), 4) == set()


def test_a_repeated_sentence_inside_the_body_stays() -> None:
    """Only what is next to the edge can be furniture: each page's first line differs here."""
    pages = [[title, "Close the valve first."] for title in ("Pumps", "Wells", "Tanks")]
    assert running_lines(_edges(pages, top=True), 3) == set()


def test_page_labels() -> None:
    for label in ("Page 3 of 10", "- 4 -", "Seite 12", "[Page 7]", "стр. 5"):
        assert is_page_label(label)
    for text in ("12", "Page 3 shows the pump", "12 34 56", "-4", "Page", "see page 3 of 10"):
        assert not is_page_label(text)


def test_a_table_of_contents_goes_with_its_title() -> None:
    lines = ["Contents", "Scope ........ 1", "Pumps . . . . . 3", "Wells ....... 3"]
    body = ["Scope", "text of it", "Pumps", "more", "Wells", "end"]
    assert contents_lines(lines + body) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    "lines",
    [
        ["Bearing 6310 ....... 2", "Seal kit ....... 4", "O-ring ...... 8"],  # parts and quantities
        ["Scope ........ 1", "Scope", "and so on ... 3"],  # too few
        ["a ..... 9", "b ..... 2", "c ..... 7", "d ..... 1", "a", "b", "c", "d"],  # not rising
    ],
)
def test_lists_with_dots_that_are_no_contents_stay(lines: list[str]) -> None:
    assert contents_lines(lines) == set()


def test_dot_leaders_read_backwards_are_those_read_forwards() -> None:
    """Fast equals slow: the plain pattern tries each dot of a long row as a beginning."""
    plain = re.compile(r"(?:(?:\. ?){4,}|(?: \.){2,}|\u2026{2,}|(?:· ?){4,}) *(\d{1,4})$")
    rng = random.Random(1)
    pieces = [".", " ", ". ", "…", "·", "a", "7", "12"]
    for _ in range(20_000):
        line = "".join(rng.choices(pieces, [5, 4, 4, 2, 2, 1, 1, 1], k=rng.randint(1, 12)))
        line += rng.choice(("1", "12", "1234", "12345", " 7"))
        forwards, backwards = plain.search(line), _LEADER.match(line[::-1])
        assert (forwards is None) == (backwards is None), line
        if forwards and backwards:
            assert forwards.start() == len(line) - backwards.end(), line
            assert forwards.group(1) == backwards.group(1)[::-1], line


def test_a_long_row_of_dots_is_read_once() -> None:
    """200,000 dots before an x and a number took a minute."""
    begun = time.process_time()
    assert contents_lines(["." * 200_000 + "x 12", ". " * 100_000 + "·· 12"]) == set()
    assert time.process_time() - begun < 5.0


def test_words_of_a_document_in_ascii_and_in_other_letters() -> None:
    """Fast equals slow: a letter beyond ASCII anywhere in the document changes no other word."""
    lines = ["the Low-Voltage side--and re-used-", "parts of well-", "known 3x4 a-1 x_y -z", "end"]
    plain, accented = Vocabulary(lines), Vocabulary([*lines, "é"])
    words = {"low-voltage", "low", "side", "and", "re-used", "known", "x", "y", "z", "a", "end"}
    assert {word for word in words if word in plain} == words - {"low", "re-used", "known"}
    assert {word for word in words if word in accented} == words - {"low", "re-used", "known"}


def test_words_that_are_searched_for_are_those_of_the_set() -> None:
    """Documents that ask for many words get a set instead of searches; the answers are the same."""
    words = ["well-", "known", "side--and", "re-used", "a-1", "x_y", "-z", "é-b", "b\u2010é", "ÉTÉ"]
    rng = random.Random(3)
    lines = [" ".join(rng.choices(words, k=4)) for _ in range(60)]
    asked = ["well", "known", "side", "and", "re", "used", "re-used", "a", "x", "y", "z", "b", "é"]
    asked += ["é-b", "été", "b\u2010é", "well-known", "sid", "nd", "q"]
    searched, looked_up = Vocabulary(lines), Vocabulary(lines)
    letters = list(map(chr, range(ord("a"), ord("z") + 1)))
    assert not any(f"qq{one}{other}" in looked_up for one in letters for other in letters)
    found = {word for word in asked if word in searched}
    assert found == {word for word in asked if word in looked_up}
    assert {"side", "and", "re-used", "é-b", "été"} <= found
    assert found.isdisjoint({"sid", "nd", "q", "re"})

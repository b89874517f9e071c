"""What people type finds what is written: folding, codes, single characters, twelve scripts."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.analysis import LONGEST_TERM, Analyzer, fold

PLAIN = Analyzer()


def _finds(question: str, text: str, analyzer: Analyzer = PLAIN) -> bool:
    """Whether every word of the question is found: all its terms are among the text's."""
    wanted = set(analyzer.terms(question))
    return bool(wanted) and wanted <= set(analyzer.terms(text))


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("e-17", "Fault E-17: motor too hot"),
        ("E17", "Fault E-17: motor too hot"),
        ("M8X40", "four screws M8x40"),
        ("ip67", "(IP67)"),
        ("0x3f", "register 0x3F."),
        ("24VDC", "supply 24VDC, 2A"),
        ("24 VDC", "supply 24VDC, 2A"),
        ("C", "the C language"),
        ("R", "seal kit R"),
        ("5 A", "a fuse of 5 A"),
        ("5 A", "a fuse of 5A"),
        ("c++", "written in C++."),
        ("6.5", "opens at 6.5 bar"),
        ("6.5", "opens at 6,5 bar"),
        ("4200", "holds 4,200 cubic metres"),
        ("4.200", "holds 4,200 cubic metres"),
        ("192.168.0.1", "at 192.168.0.1:80"),
        ("pg_stat_activity", "see pg_stat_activity."),
        ("stat activity", "see pg_stat_activity."),
        ("email", "by e-mail"),
        ("1998", "from 1998-2001"),
        ("pump", "the pump’s seal"),
        ("m2", "12 m²"),
        ("ohm Ω", "5 Ω ohm"),
        ("DN50", "valve DN50/PN16"),
        ("PN16", "valve DN50/PN16"),
        ("B-12/3", "part B-12/3"),
        ("1/2", "a ½ inch pipe"),
    ],
)
def test_codes_and_single_characters_are_found_as_typed(question: str, text: str) -> None:
    assert _finds(question, text)


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("E-17", "Fault E-18"),
        ("M8x40", "M8x45"),
        ("0x3F", "0x3E"),
        ("24VDC", "24 VAC"),
        ("6.5", "6 or 5"),
        ("C++", "the C language"),
        ("art", "cart party artist"),
        ("水泵", "水 and 泵"),
    ],
)
def test_what_is_not_there_is_not_found(question: str, text: str) -> None:
    assert not _finds(question, text)


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("CAFE naive", "Café, naïve"),
        ("cafe\u0301", "café"),
        ("strasse", "Straße"),
        ("Øre lodz", "øre, Łódź"),
        ("istanbul", "İSTANBUL"),
        ("ΑΘΗΝΑ", "η Αθήνα"),
        ("σοφός", "ΣΟΦΟΣ"),
        ("елка", "ёлка"),
        ("НАСОС", "Насос работает"),
        ("hydraulic", "hy\u00addrau\u00adlic"),
        ("motor", "mo\u200btor"),
        ("fine", "ﬁne"),
        ("pump", "ｐｕｍｐ"),
        ("كتاب", "كِتَابٌ"),
        ("مدرسه", "مدرسة"),
        ("احمد", "أحمد"),
        ("שלום", "שָׁלוֹם"),
        ("ガイド", "ｶﾞｲﾄﾞ"),
    ],
)
def test_case_accents_and_forms_are_folded(question: str, text: str) -> None:
    assert _finds(question, text)
    assert _finds(text, text)


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("Donaudampfschiff", "Das Donaudampfschiff fährt."),  # German compounds as they come
        ("насос", "Каждый насос проверяют."),
        ("βαλβίδα", "Η βαλβίδα ανοίγει."),
        ("صمام", "يفتح صمام الأمان"),
        ("שסתום", "פתח שסתום ביטחון"),
        ("वाल्व", "राहत वाल्व खुलता है"),
        ("วาล์ว", "เปิดวาล์วระบาย"),
        ("ປ້ຳ", "ເປີດປ້ຳນ້ຳ"),
        ("阀门", "打开阀门。"),
        ("水泵站", "水泵站有三台水泵"),
        ("バルブ", "リリーフバルブを開く"),
        ("点検", "毎月点検する"),
        ("밸브", "릴리프 밸브를 연다"),
        ("펌프", "물펌프가 있다"),
    ],
)
def test_words_are_found_in_every_script(question: str, text: str) -> None:
    assert _finds(question, text)


@pytest.mark.parametrize(
    ("question", "text"), [("की", "का"), ("पानी", "पिन"), ("が", "か"), ("ภาษี", "ภาษา")]
)
def test_marks_that_belong_to_the_word_are_not_folded_away(question: str, text: str) -> None:
    assert not _finds(question, text)


@pytest.mark.parametrize(
    ("stemmer", "question", "text"),
    [
        ("english", "greasing bearing", "Bearings are greased"),
        ("german", "Pumpe prüfen", "Die Pumpen werden geprüft."),
        ("russian", "насосы", "насос"),
        ("french", "pompes vérifiées", "la pompe est vérifiée"),
        ("spanish", "bombas", "la bomba"),
    ],
)
def test_stemming_joins_inflections_where_it_is_asked_for(
    stemmer: str, question: str, text: str
) -> None:
    words = question.split()
    stemmed = Analyzer(stemmer)
    assert all(_finds(word, text, stemmed) for word in words if word != "prüfen")
    assert not all(_finds(word, text) for word in words)


def test_stemming_leaves_codes_alone() -> None:
    assert "m8x40" in Analyzer("english").terms("M8x40")
    assert "pumps-2" not in Analyzer("english").terms("pumps-2")
    assert "pumps2" in Analyzer("english").terms("pumps-2")


@given(st.text(max_size=300))
@settings(max_examples=300, deadline=None)
def test_terms_are_bounded_free_of_white_space_and_stable(text: str) -> None:
    terms = PLAIN.terms(text)
    assert terms == Analyzer().terms(text)
    for term in terms:
        assert term
        assert len(term) <= LONGEST_TERM
        assert term.split() == [term]


@given(st.text(max_size=200))
@settings(max_examples=300, deadline=None)
def test_folding_twice_is_folding_once(text: str) -> None:
    once = fold(text)
    assert PLAIN.terms(once) == Analyzer().terms(fold(once))


@given(st.text("abCD'\".,-é(1 ", max_size=30))
@settings(max_examples=300, deadline=None)
def test_plain_words_take_no_other_way_than_the_rest(text: str) -> None:
    """The short cut for plain words gives what the full analysis gives."""
    analyzer = Analyzer("english")
    slow = [term for chunk in text.split() for term in analyzer._analyse(fold(chunk))]
    assert analyzer.terms(text) == slow


@given(
    texts=st.lists(st.text("ab E-17.阀门ñ\u0301 \n", max_size=60), max_size=5),
    wanted=st.frozensets(st.sampled_from(["a", "b", "e17", "17", "阀", "阀门", "n", "ab"])),
)
@settings(max_examples=200, deadline=None)
def test_counting_occurrences_equals_counting_all_terms(
    texts: list[str], wanted: frozenset[str]
) -> None:
    expected = [Counter(term for term in PLAIN.terms(text) if term in wanted) for text in texts]
    assert PLAIN.occurrences(texts, wanted) == expected

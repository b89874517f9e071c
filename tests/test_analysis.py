"""What people type finds what is written: folding, stems, compounds, codes, twelve scripts."""

from __future__ import annotations

import functools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.analysis import _SPLIT, _SPLIT_ASCII, LONGEST_TERM, Analyzer, fold

PLAIN = Analyzer()


def _finds(question: str, text: str, analyzer: Analyzer = PLAIN) -> bool:
    """Whether every word of the question is found: all its terms are among the text's."""
    wanted = set(analyzer.terms(question))
    return bool(wanted) and wanted <= set(analyzer.terms(text))


def _meets(question: str, text: str, analyzer: Analyzer) -> bool:
    """Whether the question and the text have a term in common."""
    return not set(analyzer.terms(question)).isdisjoint(analyzer.terms(text))


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
        ("x 40", "four screws M8x40"),
        ("m8×40", "four screws M8x40"),
        ("M8x40", "four screws M8×40"),
        ("ip 67", "(IP67)"),
        ("IP-67", "(IP67)"),
        ("24 V DC", "supply 24V DC"),
        ("DN 50", "valve DN50/PN16"),
        ("p 0305", "set P0305=3.2"),
        ("4711-08-15", "part 4711.08.15"),
        ("4711 08 15", "part 4711.08.15"),
        ("6204 2RS", "bearing 6204-2RS"),
        ("24 volts", "at 24volts"),
        ("6.5", "عند ضغط ٦٫٥ بار"),
        ("500", "५०० घंटे"),
        ("500", "๕๐๐ ชั่วโมง"),
        ("年", "更换周期0.5年一次。"),  # units grown on were taken for one word with what follows
        ("0.5 年", "更换周期0.5年一次。"),
        ("2.5 ミリ", "2.5ミリの板"),
        ("1.5 미터", "길이 1.5미터"),
        ("0.5 mm", "厚0.5mm的板"),
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
        ("फिल्टर", "फ़िल्टर"),
        ("पांच", "पाँच"),
        ("פומפ", "פומף"),
        ("6.5 בר", "6.5־בר"),
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
        ("german", "Pumpe", "Die Pumpen"),
        ("russian", "насосы", "насос"),
        ("french", "pompes vérifiées", "la pompe est vérifiée"),
        ("spanish", "bombas", "la bomba"),
        ("polish", "łożysko", "łożyska"),
        ("turkish", "KIRMIZI", "kırmızı"),
        ("turkish", "pompaları", "POMPASININ"),
    ],
)
def test_stemming_joins_inflections_where_it_is_asked_for(
    stemmer: str, question: str, text: str
) -> None:
    stemmed = Analyzer(stemmer)
    assert all(_meets(word, text, stemmed) for word in question.split())


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("клапаны", "клапан"),
        ("аварийная", "аварийной"),  # й is a letter to the stemmer, not an accented и
        ("βαλβίδες", "η ΒΑΛΒΙΔΑ"),
        ("للمضخة", "المضخة"),
        ("वाल्वों", "वाल्व"),
        ("משאבות", "המשאבה"),
        ("מסנני", "והמסננים"),
        ("מסנן", "במסנן"),
    ],
)
def test_other_scripts_are_stemmed_beside_the_stemmer_that_is_named(
    question: str, text: str
) -> None:
    """So that a folder of many languages needs no choice; without a stemmer words stay."""
    assert _meets(question, text, Analyzer("english"))
    assert _meets(question, text, Analyzer("german"))
    assert not _meets(question, text, PLAIN)


def test_a_named_stemmer_goes_before_its_script_s_own() -> None:
    word = "насосима"  # Serbian; the Russian stemmer knows no such ending
    assert Analyzer("serbian").terms(word) != Analyzer("english").terms(word)


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("Drehmoment", "Das Anzugsdrehmoment beträgt 90 Nm."),
        ("Anzugsdrehmoment", "Das Drehmoment beträgt 90 Nm."),
        ("Lager", "Ausbau des Kugellagers"),  # "Lager" alone is stemmed to "lag"
        ("Düse", "die Einspritzdüsen"),
        ("Naht", "eine Schweißnahtprüfung"),
    ],
)
def test_compounds_and_their_parts_share_terms(question: str, text: str) -> None:
    assert _meets(question, text, Analyzer("german"))
    assert not _meets(question, text, Analyzer("english"))


def test_names_of_many_runs_stay_whole() -> None:
    """Guards against hashes and names like "utf8mb4" filling the index with their letters."""
    assert PLAIN.terms("doc3v7 utf8mb4 a3f9e2b1") == ["doc3v7", "utf8mb4", "a3f9e2b1"]


def test_stemming_leaves_codes_alone() -> None:
    assert "m8x40" in Analyzer("english").terms("M8x40")
    assert "pumps-2" not in Analyzer("english").terms("pumps-2")
    assert "pumps2" in Analyzer("english").terms("pumps-2")


_LETTERS = "aZßéñłİıĐςΆйЁ\u0301\u200b\u093cक़कि्ँאםשֿ־אׂأةىٓلّ٦๕5½²Ⅳ×-./+' 水が밸กำ"


@given(
    text=st.text(max_size=200) | st.text(_LETTERS, max_size=60),
    stemmer=st.sampled_from([None, "english", "german", "turkish", "arabic", "serbian"]),
)
@settings(max_examples=600, deadline=None)
def test_terms_are_bounded_free_of_white_space_and_stable(text: str, stemmer: str | None) -> None:
    analyzer = _analyzer(stemmer)
    terms = analyzer.terms(text)
    assert terms == Analyzer(stemmer).terms(text)
    for term in terms:
        assert term
        assert len(term) <= LONGEST_TERM
        assert term.split() == [term]


@functools.cache
def _analyzer(stemmer: str | None) -> Analyzer:
    return Analyzer(stemmer)


@given(
    word=st.text("aeéèêiîoöuüñçłśzßrstn", min_size=1, max_size=14),
    stemmer=st.sampled_from(["english", "french", "german", "polish", "spanish", "turkish"]),
)
@settings(max_examples=500, deadline=None)
def test_words_typed_without_accents_are_found(word: str, stemmer: str) -> None:
    """Whatever the stemmer makes of accents that are there, and of the same word without."""
    assert _finds(fold(word), word, _analyzer(stemmer))


@given(st.text(max_size=200))
@settings(max_examples=300, deadline=None)
def test_folding_twice_is_folding_once(text: str) -> None:
    once = fold(text)
    assert PLAIN.terms(once) == Analyzer().terms(fold(once))


@pytest.mark.parametrize("stemmer", [None, "english", "turkish"])
@given(
    parts=st.lists(
        st.text("abCDIst'\".,-_/:+#é“”’…—()[]<=|~\u03381 \n\x1c\u2003", max_size=30)
        | st.sampled_from(["x" * LONGEST_TERM, "Y" * (LONGEST_TERM + 1), " " * 70])
    )
)
@settings(max_examples=300, deadline=None)
def test_short_cuts_give_what_the_full_analysis_gives(
    parts: list[str], stemmer: str | None
) -> None:
    """Fast equals slow: for plain words, letters joined by signs, and what only separates."""
    text = "".join(parts)
    analyzer = _analyzer(stemmer)
    spelt = [analyzer._spell(chunk) for chunk in text.split()]
    slow = [term[:LONGEST_TERM] for chunk in spelt for term in analyzer._analyse(chunk) if term]
    assert analyzer.terms(text) == slow


@given(st.text(st.characters(categories=["L"], max_codepoint=0xDFF), min_size=1, max_size=12))
@settings(max_examples=300, deadline=None)
def test_letters_of_spaced_scripts_are_one_word(letters: str) -> None:
    """Analysis takes them for one without looking."""
    assert [(match.lastgroup, match[0]) for match in _SPLIT.finditer(letters)] == [
        ("word", letters)
    ]


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


@given(st.text(st.sampled_from("ab19-_./:+#,' %"), max_size=30))
def test_the_ascii_pattern_splits_as_the_general_one(text: str) -> None:
    """Fast equals slow: number, measure, compound, signed and word, told apart the same."""
    fast, slow = (
        [(match.lastgroup, match.group()) for match in pattern.finditer(text)]
        for pattern in (_SPLIT_ASCII, _SPLIT)
    )
    assert fast == slow

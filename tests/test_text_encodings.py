"""Encodings that name themselves nowhere: what can be told is read right, what cannot is left."""

from __future__ import annotations

import random

import pytest

from runtime.errors import UnsupportedDocument
from runtime.readers.context import Context
from runtime.readers.options import ReadOptions
from runtime.readers.text import decode

CZECH = (
    "Čerpadlo se zastaví při teplotě 80 stupňů. Kontrolujte hladinu oleje každý den. Pojistný "
    "ventil se otevře při 6 barech. Příliš žluťoučký kůň. "
)
POLISH = "Sprawdzaj poziom oleju codziennie. Zawór bezpieczeństwa: żółte światło świeci ciągle. "
GERMAN = "Die Förderpumpe läuft mit 24 V. Prüfen Sie die Ölmenge täglich, größere Mengen melden. "
FRENCH = "Élève zélé : l’événement a coûté 20 £. Le « forçat » n’est pas là… Mot¹ et ¾ d’heure. "
RUSSIAN = "Насос отключается при температуре 80 градусов. Проверяйте уровень масла ежедневно. "
JAPANESE = "ポンプは温度が80度で停止します。オイルの量を毎日点検してください。安全弁は6バールです。"
CHINESE = "水泵在温度达到80度时停止。每天检查油位。安全阀在6巴时打开。请不要在运行时打开盖板。"


def _decode(data: bytes) -> str:
    return decode(data, Context("a.txt", ReadOptions(), begin_ocr=lambda: None))


@pytest.mark.parametrize("text", [RUSSIAN, JAPANESE, CHINESE])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_unicode_without_a_mark_in_any_script(text: str, encoding: str) -> None:
    """Guards: it was refused as binary data, but for Western scripts."""
    assert _decode(text.encode(encoding)) == text


@pytest.mark.parametrize(
    ("text", "encoding"), [(JAPANESE, "iso2022_jp"), (GERMAN, "utf-7"), (CZECH, "utf-7")]
)
def test_encodings_of_seven_bits(text: str, encoding: str) -> None:
    """Guards: their escape sequences were kept as text, as if it were ASCII."""
    assert _decode(text.encode(encoding)) == text


@pytest.mark.parametrize(
    "text",
    [
        "a+b+c; x += 1; C++ +49 30 12345 +APP-B +abc/def= and 1+1=2",
        "data:aGVsbG8+d29ybGQ/IQ+xyz/123+A-",
        "\x1b[31mred\x1b[0m and \x1b(B plain",
    ],
)
def test_ascii_with_signs_like_theirs_is_left(text: str) -> None:
    assert _decode(text.encode()) == text


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        *((CZECH, encoding) for encoding in ("cp1250", "iso8859_2", "cp852")),
        *((POLISH, encoding) for encoding in ("cp1250", "iso8859_2", "cp852")),
        *((GERMAN, encoding) for encoding in ("cp1252", "iso8859_15", "cp850", "cp437")),
        (FRENCH, "cp1252"),
    ],
)
def test_central_european_and_western_bytes(text: str, encoding: str) -> None:
    """Guards: Czech in ISO 8859-2 and in CP852 was read as Windows-1250, "každý" as "kaľdý"."""
    assert _decode((text * 4).encode(encoding)) == text * 4


def test_binary_data_is_still_refused() -> None:
    choose = random.Random(7)
    for _ in range(200):
        with pytest.raises(UnsupportedDocument):
            _decode(choose.randbytes(512))

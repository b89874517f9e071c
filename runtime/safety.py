"""Text of a document -> flags: what people should know before they trust it.

Documents are untrusted. A flag never removes anything by itself; it is listed with the document,
and questions may leave flagged documents out. The wording rules are a net for known phrasings in
several languages, not proof: a document without flags is not thereby safe.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ahocorasick_rs import BytesAhoCorasick, Implementation

from runtime.characters import lower_case
from runtime.documents import Flag
from runtime.flags import ADDRESSES_MODEL, DUPLICATION

_EXCERPT = 120  # characters quoted in a flag
_AROUND = 200  # characters around a telling word that a phrasing may span
_STRETCH = 1_000  # characters with many telling words that are first searched as one
_MOST_FLAGS = 5  # of one kind
_SHORTEST, _LONG = 20, 60  # characters of a passage that may be repeated; `_LONG` those of ASCII
_FEW = 5  # times that such a passage comes at least
_SPACED_ENDS = (". ", "! ", "? ")  # of sentences
_OTHER_ENDS = ("。", "！", "？")
_ENDS_TO_LINES = bytes.maketrans(b".!?", b"\n\n\n")

_RULES = r"(?:instruction|prompt|direction|command|rule|guideline|context|message|polic(?:y|ie))s?"


@dataclass(frozen=True, slots=True)
class _Phrasing:
    """A way to address a model.

    Attributes:
        words: one of them is in every match, in lower case; they are looked for first.
        also: one of these, too. Empty for rare `words`, whose places may all be tried.
    """

    words: tuple[str, ...]
    also: tuple[str, ...]
    pattern: re.Pattern[str]


def _phrasing(words: str, *patterns: str, also: str = "") -> _Phrasing:
    joined = "|".join(f"(?:{pattern})" for pattern in patterns)
    return _Phrasing(
        tuple(words.split("|")),
        tuple(also.split("|")) if also else (),
        re.compile(joined, re.IGNORECASE | re.MULTILINE),
    )


_PHRASINGS = (
    # English
    _phrasing(
        "ignor|disregard|forget|overrid|bypass|discard|not follow|n't follow",
        r"\b(?:ignore|disregard|forget|override|bypass|discard|do not follow|don't follow)\b"
        r"(?:\W+\w+){0,5}?\W+(?:previous|prior|preceding|above|earlier|foregoing|former|system|all"
        r"|your|other|existing|original)\b(?:\W+\w+){0,3}?\W+" + _RULES + r"\b",
        r"\b(?:ignore|disregard|forget)\s+(?:all|everything|anything|what(?:ever)?)\b[^.\n]{0,40}"
        r"\b(?:above|before|previously|so far|told)\b",
        also="instruction|prompt|direction|command|rule|guideline|context|message|polic"
        "|above|before|previously|so far|told",
    ),
    _phrasing(
        "you are |you're ",
        r"\byou(?: are|'re) (?:now )?(?:an? |the |my )(?:[\w-]+ ){0,3}(?:a\.?i\.?|language model"
        r"|llm|chat ?bot|gpt|(?:helpful|virtual|obedient|personal) assistant)\b",
        r"\byou(?: are|'re) now (?:an? |my )(?:[\w-]+ ){0,3}(?:assistant|model|bot|agent)\b",
    ),
    _phrasing(
        "language model|llm|chatbot|chat bot| ai |note to |dear ai",
        r"\b(?:as|if you are|attention|note to|dear|hey|to (?:any|the|all)) "
        r"(?:an? |the |any |this )?"
        r"(?:ai|large language model|language model|llm|ai assistant|chat ?bot|ai model)s?\b",
    ),
    _phrasing(
        "prompt|instruction|system message|hidden message",
        r"\b(?:reveal|print|repeat|output|show|leak|disclose)\b(?:\W+\w+){0,4}?\W+"
        r"(?:system|initial|hidden|original) (?:prompt|instructions?|message)\b",
        r"\b(?:new|updated|real|actual) (?:system )?instructions?\s*:",
        r"\b(?:do not|don't|never) (?:mention|reveal|tell|disclose)\b[^.\n]{0,60}"
        r"\b(?:this|these|your) (?:instructions?|prompt)\b",
        also="reveal|print|repeat|output|show|leak|disclose|new|updated|real|actual|mention|tell",
    ),
    _phrasing(
        "from now on|henceforth",
        r"\b(?:from now on|henceforth)\W+(?:you|always|only|answer|respond|reply)\b",
    ),
    _phrasing(
        "answer|respond|reply",
        r"\b(?:always|only|instead)\W+(?:answer|respond|reply)(?:\W+\w+){0,3}?\W+with\b",
        r"\b(?:answer|respond|reply)(?:\W+\w+){0,3}?\W+(?:only|exactly|always)\W+with\b",
        also="only|always|instead|exactly",
    ),
    _phrasing(
        "pretend|act as|jailbreak|dan mode|developer mode",
        r"\b(?:pretend to be|pretend that you|act as if you|act as an? (?:unrestricted|different"
        r"|evil))\b",
        r"\b(?:jailbreak|DAN mode|developer mode enabled)\b",
    ),
    _phrasing(
        "im_start|im_end|endoftext|inst]|<<sys|system:|assistant:|system prompt|system message",
        r"<\|(?:im_start|im_end|endoftext)\|>|\[/?INST\]|<<SYS>>",
        r"(?:^|###)\s*(?:system|assistant)\s*(?:prompt|message)?\s*:\s*you\b",
    ),
    # German
    _phrasing(
        "ignorier|vergiss|vergess|missacht|übergeh",
        r"\b(?:ignorier|vergiss|vergesst|missacht|übergeh)\w*\b[^.\n]{0,50}\b(?:\w*anweisung|"
        r"instruktion|befehl|vorgabe|regel|prompt)\w*",
    ),
    _phrasing(
        "du bist ",
        r"\bdu bist (?:jetzt|nun|ab sofort|ein|eine) (?:\w+ ){0,3}(?:ki|assistent|"
        r"sprachmodell|chatbot)\w*\b",
    ),
    # French
    _phrasing(
        "ignor|oubli|néglig",
        r"\b(?:ignor|oubli|néglig)\w*\b[^.\n]{0,30}\b(?:instructions?|consignes?|directives?)\b"
        r"[^.\n]{0,30}\b(?:précédent|antérieur|ci-dessus|reçu|système)\w*",
        r"\b(?:ignor|oubli)(?:e|ez|er|ons) (?:toutes? )?(?:les|vos|tes) "
        r"(?:instructions|consignes)\b",
        also="instruction|consigne|directive",
    ),
    # Spanish, Portuguese, Italian
    _phrasing(
        "ignor|olvid|desatiend",
        r"\b(?:ignor|olvid|desatiend)\w*\b[^.\n]{0,50}\b(?:instruccion|órden|orden|indicacion)\w*\b",
        also="instruccion|órden|orden|indicacion",
    ),
    _phrasing(
        "ignor|esque",
        r"\b(?:ignor|esque[cç])\w*\b[^.\n]{0,50}\b(?:instruções|instrucoes|ordens)\b",
        also="instruções|instrucoes|ordens",
    ),
    _phrasing(
        "ignor|dimentic|trascur",
        r"\b(?:ignor|dimentic|trascur)\w*\b[^.\n]{0,50}\b(?:istruzion|ordin|comand)\w*\b"
        r"[^.\n]{0,30}\b(?:precedent|sopra|ricevut|sistema)\w*",
        also="istruzion|ordin|comand",
    ),
    # Dutch, Polish, Turkish
    _phrasing(
        "negeer|vergeet",
        r"\b(?:negeer|vergeet)\b[^.\n]{0,50}\b(?:instructies|opdrachten|aanwijzingen)\b",
    ),
    _phrasing(
        "zignoruj|ignoruj|zapomnij",
        r"\b(?:zignoruj|ignoruj|zapomnij)\b[^.\n]{0,50}\b(?:instrukcj|polece|zasad)\w*",
    ),
    _phrasing(
        "talimat|komut|yönerge",
        r"\b(?:önceki|yukarıdaki|tüm)\b[^.\n]{0,30}\b(?:talimat|komut|yönerge)\w*[^.\n]{0,30}"
        r"\b(?:yok say|unut|görmezden)\w*",
    ),
    # Russian, Ukrainian
    _phrasing(
        "игнориру|забуд|не обращай|ігнору",
        r"(?:игнориру|забуд|не обращай|ігнору)\w{0,20}+[^.\n]{0,50}(?:инструкц|указани|команд|"
        r"інструкц|вказівк)\w*",
    ),
    # Chinese, Japanese, Korean
    _phrasing(
        "忽略|无视|無視|忘记|忘記|不要理会",
        r"(?:忽略|无视|無視|忘记|忘記|不要理会)[^。\n]{0,20}(?:指令|指示|提示|命令|要求)",
    ),
    _phrasing("無視|忘れ", r"(?:指示|命令|プロンプト|ルール)[^。\n]{0,15}(?:無視|忘れ)"),
    _phrasing("무시|잊", r"(?:지시|명령|프롬프트|규칙)[^.\n]{0,15}(?:무시|잊)"),
    # Arabic, Hebrew, Persian, Hindi
    _phrasing(
        "تجاهل|انس|تجاوز",
        r"(?:تجاهل|انس|تجاوز)[^.\n]{0,40}(?:التعليمات|الأوامر|تعليمات|الإرشادات)",
    ),
    _phrasing("התעל|שכח", r"(?:התעלם|התעלמי|התעלמו|שכח)[^.\n]{0,40}(?:הוראות|הנחיות)"),
    _phrasing("نادیده|فراموش", r"(?:دستورات|دستورالعمل)[^.\n]{0,40}(?:نادیده|فراموش)"),
    _phrasing(
        "अनदेखा|नज़रअंदाज़|भूल|उपेक्षा",
        r"(?:निर्देश|आदेश|नियम)[^।\n]{0,40}(?:अनदेखा|नज़रअंदाज़|भूल|उपेक्षा)",
    ),
)
# Looked for all at once: one after the other they would cost a quarter of reading a text.
_WORDS = sorted({word for phrasing in _PHRASINGS for word in phrasing.words})
_TELLING = BytesAhoCorasick([word.encode() for word in _WORDS], implementation=Implementation.DFA)


def text_flags(text: str, hidden: Iterable[str] = ()) -> list[Flag]:
    """Flags for a document's stored text and for the hidden text that was left out of it.

    Args:
        text: the stored text.
        hidden: texts removed because people do not see them.
    """
    flags = [
        Flag(ADDRESSES_MODEL, f"“{quote}” at character {start}")
        for start, quote in _addresses(text)
    ]
    for removed in hidden:
        flags += [
            Flag(ADDRESSES_MODEL, f"“{quote}” in hidden text") for _, quote in _addresses(removed)
        ]
    return flags[:_MOST_FLAGS] + _duplication(text)


def addresses_model(text: str) -> bool:
    """Whether a text tells a model what to do."""
    return bool(_addresses(text))


def _addresses(text: str) -> list[tuple[int, str]]:
    """Offset and quote of each place that addresses a model, the first few of them."""
    places = _telling_places(text)
    found: dict[int, str] = {}
    for phrasing in _PHRASINGS:
        for word in phrasing.words:
            seen = -1  # up to here the text is part of what was found
            for place in _promising(text, phrasing, places.get(word, [])):
                if place <= seen or len(found) == _MOST_FLAGS:
                    continue
                start = max(text.rfind("\n\n", max(0, place - _AROUND), place), place - _AROUND, 0)
                if not _is_near(phrasing.also, text[start : place + _AROUND]):
                    continue
                if match := phrasing.pattern.search(text, start, place + _AROUND):
                    quote = text[match.start() : match.start() + _EXCERPT].partition("\n\n")[0]
                    found.setdefault(match.start(), " ".join(quote.split()))
                    seen = match.end()
    return sorted(found.items())


def _promising(text: str, phrasing: _Phrasing, places: list[int]) -> Iterator[int]:
    """The places, less those of stretches in which the phrasing does not occur.

    Around places that crowd together the same text would be searched again for each of them.
    """
    first = 0
    while first < len(places):
        after = bisect_right(places, places[first] + _STRETCH, first)
        start, end = max(0, places[first] - _AROUND), places[after - 1] + _AROUND
        if after - first == 1 or (
            _is_near(phrasing.also, text[start:end]) and phrasing.pattern.search(text, start, end)
        ):
            yield from places[first:after]
        first = after


def _is_near(words: tuple[str, ...], text: str) -> bool:
    """Whether one of the words is in the text; true where none is asked for."""
    if not words:
        return True
    lowered = text.lower()
    return any(word in lowered for word in words)


def _telling_places(text: str) -> dict[str, list[int]]:
    """Where each of the telling words that occur begins, in order."""
    # In bytes: the search in a string keeps an offset for every byte of it.
    data = _lower(text)
    found = _TELLING.find_matches_as_indexes(data, overlapping=True)
    places: dict[str, list[int]] = defaultdict(list)
    place, reached = 0, 0  # in characters and in bytes
    for start, word in sorted((start, word) for word, start, _ in found):
        place += len(data[reached:start].decode("utf-8", "surrogatepass"))
        reached = start
        places[_WORDS[word]].append(place)
    return places


def _lower(text: str) -> bytes:
    """Lower case in UTF-8, as many characters as the text has."""
    if "İ" in text:  # the only one whose lower case is two
        text = "".join(c if c == "İ" else c.lower() for c in text)
        return text.encode("utf-8", "surrogatepass")
    return lower_case(text)


def _duplication(text: str) -> list[Flag]:
    """A passage repeated until it crowds out the rest.

    Repeated warnings and table rows are normal: the same 60 characters or more must come at least
    five times and make up three tenths of the text, or 25 times and a twentieth.
    """
    if len(text) < 300 or not _may_repeat(text):
        return []
    for end in (*_SPACED_ENDS, *_OTHER_ENDS):
        text = text.replace(end, f"{end}\n")
    passages = Counter(piece.rstrip() for piece in text.split("\n") if len(piece) >= _SHORTEST)
    flags = []
    for passage, count in passages.most_common(_MOST_FLAGS):
        long_enough = len(passage) >= _LONG or not passage.isascii()
        share = count * len(passage) / len(text)
        if long_enough and ((count >= _FEW and share >= 0.3) or (count >= 25 and share >= 0.05)):
            flags.append(
                Flag(
                    DUPLICATION,
                    f"“{passage[:_EXCERPT]}” {count} times, {share:.0%} of the text",
                )
            )
    return flags


def _may_repeat(text: str) -> bool:
    """Whether passages may come a few times and make up a twentieth: cheap, and sure of its no.

    A repeated passage is made of repeated stretches between any of the characters that end
    sentences, and these are quickly found in bytes.
    """
    data = text.encode("utf-8", "surrogatepass").translate(_ENDS_TO_LINES)
    for end in _OTHER_ENDS:
        if end in text:
            data = data.replace(end.encode(), b"\n")
    stretches = Counter(map(bytes.strip, data.split(b"\n")))
    ends = stretches.pop(b"", 0)  # that follow each other
    # Every other stretch with its end and a space.
    often = [(len(stretch) + 2) * n for stretch, n in stretches.items() if n >= _FEW]
    return ends + sum(often) >= 0.05 * len(text)

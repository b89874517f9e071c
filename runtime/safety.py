"""Text of a document -> flags: what people should know before they trust it.

Documents are untrusted. A flag never removes anything by itself; it is listed with the document,
and questions may leave flagged documents out. The wording rules are a net for known phrasings in
several languages, not proof: a document without flags is not thereby safe.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from runtime.documents import Flag

ADDRESSES_MODEL = "addresses-model"
HIDDEN = "hidden-text"
DUPLICATION = "duplication"
NOT_INDEXED = "not-indexed"

_EXCERPT = 120  # characters quoted in a flag
_MOST_FLAGS = 5  # of one kind

_EN_MODEL = r"(?:a\.?i\.?|assistant|language model|llm|chat ?bot|gpt|model)"
_EN_RULES = (
    r"(?:instruction|prompt|direction|command|rule|guideline|context|message|polic(?:y|ie))s?"
)
_PHRASES = (
    # English
    r"\b(?:ignore|disregard|forget|override|bypass|discard|do not follow|don't follow)\b"
    r"(?:\W+\w+){0,5}?\W+(?:previous|prior|preceding|above|earlier|foregoing|former|system|all|your"
    r"|other|existing|original)\b(?:\W+\w+){0,3}?\W+" + _EN_RULES + r"\b",
    r"\b(?:ignore|disregard|forget)\s+(?:all|everything|anything|what(?:ever)?)\b[^.\n]{0,40}"
    r"\b(?:above|before|previously|so far|you were told|you have been told|were told)\b",
    r"\byou are (?:now )?(?:an? |the |my )?(?:[\w-]+ ){0,3}" + _EN_MODEL + r"\b",
    r"\b(?:as|if you are|attention|note to|dear|hey|to (?:any|the|all)) (?:an? |the |any |this )?"
    r"(?:ai|large language model|language model|llm|ai assistant|chat ?bot|ai model)s?\b",
    r"\b(?:reveal|print|repeat|output|show|leak|disclose)\b(?:\W+\w+){0,4}?\W+"
    r"(?:system|initial|hidden|original) (?:prompt|instructions?|message)\b",
    r"\b(?:new|updated|real|actual) (?:system )?instructions?\s*:",
    r"\b(?:from now on|henceforth)\W+(?:you|always|only|answer|respond|reply)\b",
    r"\b(?:always|only|instead)\W+(?:answer|respond|reply)(?:\W+\w+){0,3}?\W+with\b",
    r"\b(?:answer|respond|reply)(?:\W+\w+){0,3}?\W+(?:only|exactly|always)\W+with\b",
    r"\b(?:do not|don't|never) (?:mention|reveal|tell|disclose)\b[^.\n]{0,60}"
    r"\b(?:user|this (?:instruction|prompt|message|text)|these instructions)\b",
    r"\b(?:pretend|act) (?:to be|as if you|as an? (?:unrestricted|different|evil))\b",
    r"\b(?:jailbreak|DAN mode|developer mode enabled)\b",
    r"(?:<\|(?:im_start|im_end|system|user|assistant|endoftext)\|>|\[/?INST\]|<<SYS>>"
    r"|^\s*(?:###\s*)?(?:system|assistant)\s*(?:prompt|message)?\s*:\s*you\b)",
    # German
    r"\b(?:ignorier|vergiss|vergesst|missacht|übergeh)\w*\b[^.\n]{0,50}\b(?:anweisung|instruktion|"
    r"befehl|vorgabe|regel|prompt)\w*",
    r"\bdu bist (?:jetzt|nun|ab sofort) \w+|\bals (?:ki|sprachmodell|assistent)\b[^.\n]{0,40}"
    r"\b(?:sollst|musst|antworte)",
    # French
    r"\b(?:ignor|oubli|néglig)\w*\b[^.\n]{0,50}\b(?:instructions?|consignes?|directives?|ordres?|"
    r"règles?)\b[^.\n]{0,30}\b(?:précédent|antérieur|ci-dessus|reçu|système)\w*",
    r"\b(?:ignor|oubli)\w* (?:toutes? )?(?:les|vos|tes) (?:instructions|consignes)\b",
    # Spanish, Portuguese, Italian
    r"\b(?:ignor|olvid|desatiend)\w*\b[^.\n]{0,50}\b(?:instruccion|orden|indicacion|regla)\w*\b",
    r"\b(?:ignor|esque[cç])\w*\b[^.\n]{0,50}\b(?:instru[cç][oõ]es|instruç|ordens|regras)\w*\b",
    r"\b(?:ignor|dimentic|trascur)\w*\b[^.\n]{0,50}\b(?:istruzion|ordin|regol|comand)\w*\b"
    r"[^.\n]{0,30}\b(?:precedent|sopra|ricevut|sistema)\w*",
    # Dutch, Polish, Turkish
    r"\b(?:negeer|vergeet)\b[^.\n]{0,50}\b(?:instructies|opdrachten|aanwijzingen|regels)\b",
    r"\b(?:zignoruj|ignoruj|zapomnij)\b[^.\n]{0,50}\b(?:instrukcj|polece|zasad)\w*",
    r"\b(?:önceki|yukarıdaki|tüm)\b[^.\n]{0,30}\b(?:talimat|komut|yönerge)\w*[^.\n]{0,30}"
    r"\b(?:yok say|unut|görmezden)\w*",
    # Russian, Ukrainian
    r"(?:игнориру|проигнориру|забуд|забуть|не обращай|ігнору)\w*[^.\n]{0,50}"
    r"(?:инструкц|указани|команд|правил|інструкц|вказівк)\w*",
    # Chinese, Japanese, Korean
    r"(?:忽略|无视|無視|忘记|忘記|不要理会)[^。\n]{0,20}(?:指令|指示|提示|命令|规则|規則|要求|内容)",
    r"(?:指示|命令|プロンプト|ルール)[^。\n]{0,15}(?:無視|忘れ)",
    r"(?:지시|명령|프롬프트|규칙)[^.\n]{0,15}(?:무시|잊)",
    # Arabic, Hebrew, Persian, Hindi
    r"(?:تجاهل|انس|تجاوز)[^.\n]{0,40}(?:التعليمات|الأوامر|تعليمات|الإرشادات|القواعد)",
    r"(?:התעלם|התעלמי|התעלמו|שכח)[^.\n]{0,40}(?:הוראות|ההוראות|הנחיות|ההנחיות)",
    r"(?:دستورات|دستورالعمل)[^.\n]{0,40}(?:نادیده|فراموش)",
    r"(?:निर्देश|आदेश|नियम)[^।\n]{0,40}(?:अनदेखा|नज़रअंदाज़|भूल|उपेक्षा|ध्यान न)",
)
_ADDRESS = re.compile("|".join(f"(?:{phrase})" for phrase in _PHRASES), re.IGNORECASE | re.M)
# One of these stems is in every phrase above: most paragraphs are passed over by one search.
_STEMS = re.compile(
    r"ignor|disregard|forget|overrid|bypass|discard|do not|don't|never|follow|you are|ai\b|model"
    r"|llm|chat ?bot|reveal|print|repeat|output|show|leak|disclose|instruct|from now on|hencefor"
    r"|always|only|instead|exactly|pretend|act as|jailbreak|dan mode|developer mode|<\||inst\]"
    r"|<<sys|system|assistant|vergi|vergess|missacht|übergeh|du bist|als ki|sprachmodell|oubli"
    r"|néglig|olvid|desatiend|esque|dimentic|trascur|negeer|vergeet|zapomnij|talimat|komut|yönerge"
    r"|игнор|забу|не обращай|ігнор|忽略|无视|無視|忘|不要理会|무시|잊"
    r"|تجاهل|انس|تجاوز|התעל|שכח|نادیده|فراموش|निर्देश|आदेश|नियम",
    re.IGNORECASE,
)


def text_flags(text: str, breaks: Sequence[int], hidden: Iterable[str] = ()) -> list[Flag]:
    """Flags for a document's stored text and for the hidden text that was left out of it.

    Args:
        text: the stored text.
        breaks: where its paragraphs, items and rows begin.
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
    return flags[:_MOST_FLAGS] + _duplication(text, breaks)


def addresses_model(text: str) -> bool:
    """Whether a text tells a model what to do."""
    return bool(_addresses(text))


def _addresses(text: str) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    if not _STEMS.search(text):
        return found
    for start, line in _lines(text):
        if not _STEMS.search(line):
            continue
        match = _ADDRESS.search(line)
        if match:
            quote = line[max(0, match.start() - 10) : match.start() + _EXCERPT].strip()
            found.append((start + match.start(), quote))
        if len(found) == _MOST_FLAGS:
            break
    return found


def _lines(text: str) -> Iterable[tuple[int, str]]:
    start = 0
    while start <= len(text):
        end = text.find("\n\n", start)
        end = len(text) if end < 0 else end
        yield start, text[start:end]
        start = end + 2


def _duplication(text: str, breaks: Sequence[int]) -> list[Flag]:
    """A passage repeated until it crowds out the rest.

    Repeated warnings and table rows are normal: the same 60 characters or more must come at least
    five times and make up three tenths of the text, or 25 times and a twentieth.
    """
    if len(text) < 300:
        return []
    passages = Counter(
        normal
        for start, end in zip(breaks, [*breaks[1:], len(text)], strict=True)
        for piece in re.split(r"(?<=[.!?。！？])\s*", text[start:end])
        if len(normal := re.sub(r"[\W_]+", " ", piece).strip().lower()) >= 60
        or (len(normal) >= 20 and not normal.isascii())
    )
    flags = []
    for passage, count in passages.most_common(3):
        share = count * len(passage) / len(text)
        if (count >= 5 and share >= 0.3) or (count >= 25 and share >= 0.05):
            flags.append(
                Flag(
                    DUPLICATION,
                    f"“{passage[:_EXCERPT]}” {count} times, {share:.0%} of the text",
                )
            )
    return flags

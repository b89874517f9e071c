"""An answer and a gold answer -> how alike they are, the way SQuAD counts it.

Rajpurkar et al. 2016 (arXiv 1606.05250) and, for empty answers, 2018 (arXiv 1806.03822). The gate,
training, calibration and the evaluation all compare answers with these.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(text: str) -> str:
    """Lower case, without ASCII punctuation and articles, single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def token_f1(answer: str, gold: str) -> float:
    """F1 over the words of the normalised answers, in [0, 1]."""
    return overlap_f1(normalise(answer).split(), normalise(gold).split())


def overlap_f1(given: Sequence[str], wanted: Sequence[str]) -> float:
    """Harmonic mean of token precision and recall; two empty lists agree."""
    if not given or not wanted:
        return float(list(given) == list(wanted))
    shared = sum((Counter(given) & Counter(wanted)).values())
    return 2 * shared / (len(given) + len(wanted))

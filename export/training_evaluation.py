"""A model and held-out questions -> how well it reads what BM25 retrieves for them."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from export.training_data import Asked, Batch, Corpus, Window, collate, pair_view
from export.training_options import Score
from runtime.alignment import anywhere
from runtime.answer_metrics import normalise, token_f1
from runtime.spans import best_spans

ANSWER_TOKENS = 30
EVALUATED_WINDOWS = 10

# Start and end logits of a batch of views, (batch, tokens) each.
Reader = Callable[[Batch], tuple[torch.Tensor, torch.Tensor]]


def evaluate(reader: Reader, corpus: Corpus, asked: list[Asked]) -> Score:
    """Held-out questions, read in the ten retrieved windows, and in the answer's own."""
    f1 = em = given = recall = 0.0
    questions = [question for question in asked if question.answers]
    for question in questions:
        windows = corpus.retrieve(question, EVALUATED_WINDOWS)
        recall += any(window.context == question.context for window in windows)
        answer = _read(reader, corpus, question, windows)
        f1 += max(token_f1(answer, gold) for gold in question.golds)
        em += any(normalise(answer) == normalise(gold) for gold in question.golds)
        own = _read(reader, corpus, question, [_own_window(corpus, question)])
        given += max(token_f1(own, gold) for gold in question.golds)
    share = 100 / max(1, len(questions))
    rounded = (round(share * total, 2) for total in (f1, em, given, recall))
    return Score(len(questions), *rounded)


def _own_window(corpus: Corpus, question: Asked) -> Window:
    """A window of full length with the first annotator's answer in its middle."""
    room, answer = corpus.room(question.words), question.answers[0]
    tokens = len(corpus.contexts[question.context].words.ids)
    middle = (answer.first + answer.last + 1 - room) // 2
    first = max(0, min(middle, tokens - room))
    return Window(question.context, first, min(tokens, first + room))


def _read(reader: Reader, corpus: Corpus, question: Asked, windows: list[Window]) -> str:
    """The best span of all windows, by start + end logits minus the window's null score."""
    if not windows:
        return ""
    encoder = corpus.encoder
    views = [pair_view(question.words, corpus.words(w), "", (), encoder) for w in windows]
    with torch.inference_mode():
        starts, ends = (side.float().numpy() for side in reader(collate(views, encoder.padding)))
    best, found = -math.inf, ""
    for start, end, view, window in zip(starts, ends, views, windows, strict=True):
        first, count = view.pair.first, len(view.pair.offsets)
        place, null = slice(first, first + count), float(start[0] + end[0])
        spans = best_spans(
            start[place], end[place], null, anywhere(count), max_tokens=ANSWER_TOKENS
        )
        if spans and spans[0].margin > best:
            best, tokens = spans[0].margin, spans[0].tokens
            answer = Window(
                window.context, window.first + tokens.first, window.first + tokens.last + 1
            )
            found = corpus.text(answer)
    return found

"""A model and held-out questions -> how well it reads what BM25 retrieves for them."""

from __future__ import annotations

import math
from typing import Any

import torch

from export.training_data import Asked, Corpus, Window
from export.training_model import as_tensors, forward
from export.training_options import Score
from runtime.alignment import anywhere
from runtime.answer_metrics import normalise, token_f1
from runtime.spans import best_spans

ANSWER_TOKENS = 30
EVALUATED_WINDOWS = 10


def evaluate(model: Any, corpus: Corpus, asked: list[Asked]) -> Score:
    """Ask `model` held-out questions: from the ten retrieved windows, and from the answer's own."""
    f1 = em = given = recall = 0.0
    questions = [question for question in asked if question.answers]
    for question in questions:
        windows = corpus.retrieve(question, EVALUATED_WINDOWS)
        recall += any(window.context == question.context for window in windows)
        answer = _read(model, corpus, question, windows)
        f1 += max(token_f1(answer, gold) for gold in question.golds)
        em += any(normalise(answer) == normalise(gold) for gold in question.golds)
        own = _read(model, corpus, question, [_own_window(corpus, question)])
        given += max(token_f1(own, gold) for gold in question.golds)
    share = 100 / max(1, len(questions))
    rounded = (round(share * total, 2) for total in (f1, em, given, recall))
    return Score(len(questions), *rounded)


def _own_window(corpus: Corpus, question: Asked) -> Window:
    """A window of full length with the first annotator's answer in its middle."""
    room, answer = corpus.room(question.ids), question.answers[0]
    tokens = len(corpus.contexts[question.context].ids)
    middle = (answer.first + answer.last + 1 - room) // 2
    first = max(0, min(middle, tokens - room))
    return Window(question.context, first, min(tokens, first + room))


def _read(model: Any, corpus: Corpus, question: Asked, windows: list[Window]) -> str:
    """The best span of all windows, by start + end logits minus the window's null score."""
    if not windows:
        return ""
    contexts = [corpus.contexts[w.context].ids[w.first : w.end] for w in windows]
    batch = corpus.encoder.batch(question.ids, contexts)
    with torch.inference_mode():
        output = forward(model, as_tensors(batch.feeds), hidden=False)
    start, end = output.start_logits.float().numpy(), output.end_logits.float().numpy()
    best, found = -math.inf, ""
    for row, window in enumerate(windows):
        place, null = batch.context(row), float(start[row, 0] + end[row, 0])
        free = anywhere(batch.context_lengths[row])
        spans = best_spans(start[row, place], end[row, place], null, free, max_tokens=ANSWER_TOKENS)
        if spans and spans[0].margin > best:
            best, tokens = spans[0].margin, spans[0].tokens
            answer = Window(
                window.context, window.first + tokens.first, window.first + tokens.last + 1
            )
            found = corpus.text(answer)
    return found

"""Teachers -> what they say of a batch of views, token by token of the student.

A teacher may have another tokenizer than its student: RoBERTa can teach a BERT. It reads the same
texts, cut into its own tokens, and what it says of each of them goes to the student's token that
holds the same character: the first one for starts, the last one for ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from export.augmentation import trimmed
from export.training_data import Batch, Pair, View, asked_words, collate, pair_view, plain_words
from export.training_model import Said, as_tensors, forward, log_softmax
from runtime.encoding import PairEncoder

FLOOR = 1e-6  # probability of a place that no token of the teacher leads to


@dataclass(frozen=True, slots=True, eq=False)
class Teacher:
    """A frozen model.

    Attributes:
        encoder: of its own tokenizer, if it is not the student's.
    """

    model: Any
    encoder: PairEncoder | None

    def say(self, batch: Batch, temperature: float, *, hidden: bool) -> Said:
        """What this one says. Hidden states are given only at the student's own tokens."""
        if self.encoder is not None:
            return _translated(self.model, self.encoder, batch, temperature)
        feeds = as_tensors(batch.feeds)
        output = forward(self.model, feeds, hidden=hidden)
        start, end = (
            log_softmax(output[side], feeds["attention_mask"], temperature)
            for side in ("start_logits", "end_logits")
        )
        return Said(start, end, tuple(output.hidden_states or ()))


class Teachers:
    """One teacher or several, which speak with one voice: the mean of their log-probabilities.

    For teachers with one tokenizer that is the softmax of the mean of their logits (Hinton et al.
    2015, arXiv 1503.02531, section 3). The hidden states are those of the first.
    """

    def __init__(self, members: Sequence[Teacher]) -> None:
        self._members = tuple(members)

    def __call__(self, batch: Batch, temperature: float = 1.0, *, hidden: bool = False) -> Said:
        with torch.no_grad():
            said = [
                one.say(batch, temperature, hidden=hidden and not number)
                for number, one in enumerate(self._members)
            ]
            mask = torch.from_numpy(batch.feeds["attention_mask"])
            start, end = (
                log_softmax(torch.stack(sides).mean(0), mask)
                for sides in ([one.start for one in said], [one.end for one in said])
            )
        return Said(start, end, said[0].hidden_states)

    def read(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Starts and ends as the evaluation wants them."""
        said = self(batch)
        return said.start, said.end


def _translated(model: Any, encoder: PairEncoder, batch: Batch, temperature: float) -> Said:
    """Only what the teacher says of the context and of "no answer" goes over, of sum 1."""
    views = [_own_view(pair, encoder) for pair in batch.pairs]
    own = collate(views, encoder.padding)
    output = forward(model, as_tensors(own.feeds), hidden=False)
    shape = batch.feeds["input_ids"].shape
    sides = []
    for logits, places in zip(
        (output.start_logits, output.end_logits), _places(views, batch, own), strict=True
    ):
        leads = torch.from_numpy(places)
        heard = log_softmax(logits, (leads >= 0).long(), temperature).exp()
        moved = torch.zeros(shape).scatter_add(1, leads.clamp(min=0), heard * (leads >= 0))
        sides.append(moved.clamp(min=FLOOR).log())
    return Said(sides[0], sides[1])


def _own_view(pair: Pair, encoder: PairEncoder) -> View:
    question, context = asked_words(pair.question, encoder), plain_words(pair.context, encoder)
    return pair_view(question, context, pair.header, (), encoder)


def _places(views: Sequence[View], batch: Batch, own: Batch) -> NDArray[np.int64]:
    """Of each of the teacher's tokens the student's position for starts, and for ends; or -1.

    Returns:
        int64 (2, batch, teacher's tokens).
    """
    places = np.full((2, *own.feeds["input_ids"].shape), -1, dtype=np.int64)
    places[:, :, 0] = 0  # no answer
    for row, (view, student) in enumerate(zip(views, batch.pairs, strict=True)):
        teacher = view.pair
        cells = slice(teacher.first, teacher.first + len(teacher.offsets))
        spans = trimmed(teacher.context, teacher.offsets)
        for side, characters in enumerate((spans[:, 0], spans[:, 1] - 1)):
            token = np.searchsorted(student.offsets[:, 0], characters, side="right") - 1
            held = (token >= 0) & (characters < student.offsets[token, 1])
            held &= spans[:, 1] > spans[:, 0]
            places[side, row, cells] = np.where(held, student.first + token, -1)
    return places

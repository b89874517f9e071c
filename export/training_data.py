"""Questions with answers in their contexts -> what training and evaluation read.

Records become a corpus, tokenised once; a corpus becomes endless views of its questions: windows
cropped at random around an answer, the sentences alone that hold it, and windows without it that
BM25 would retrieve all the same ("hard negatives", labelled as no answer). Sibling views, which
ask for one of several like things, are made up besides (`export.siblings`). Where a teacher will
label them, words of the questions' own views are replaced, and cloze questions are asked as well.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from export.augmentation import Substitution, Words, cloze_question, whole_words
from export.sibling_sections import any_header
from export.siblings import Siblings
from export.training_records import Record
from runtime.alignment import TokenRange, token_range
from runtime.analysis import Analyzer
from runtime.encoding import PairEncoder
from runtime.index import PassageIndex
from runtime.sentences import sentence_spans

HARD_NEGATIVES = 10  # kept for each question
RETRIEVED = 20  # windows looked at to find them
POOL = 1200  # questions whose views are sorted by length together
CLOZE_ELSEWHERE = 0.2  # share of cloze questions asked of a hard negative
HEADED = 0.15  # share of views with a header that says nothing, where sibling views have headers


@dataclass(frozen=True, slots=True)
class Window:
    """Tokens `[first, end)` of a context, named by its number in the corpus."""

    context: int
    first: int
    end: int


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """A view's texts, for teachers with another tokenizer.

    Attributes:
        first: the position of the first context token in the view.
        offsets: int32 (n, 2), `[start, end)` in `context` of each context token in the view.
    """

    question: str
    header: str
    context: str
    first: int
    offsets: NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """One training example: what the model reads, and the positions it should name.

    Attributes:
        pair: what it reads as text.
        ids, types: of the whole pair, special tokens included.
        starts, ends: position -> share of the annotators; position 0 means "no answer". Empty where
            nobody labelled the view: only a teacher's distributions teach there.
        believed: the teacher's word counts. Not in sibling views: only their label teaches.
    """

    pair: Pair
    ids: list[int]
    types: list[int]
    starts: dict[int, float]
    ends: dict[int, float]
    believed: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Views padded to one length.

    Attributes:
        feeds: `input_ids`, `attention_mask`, `token_type_ids`, int64 (batch, tokens).
        targets: float32 (2, batch, tokens), distributions over starts and ends; all zero in the
            rows of views without a label.
        believed: float32 (batch,), 1 in the rows in which the teacher's word counts, else 0.
        pairs: the rows as texts.
    """

    pairs: tuple[Pair, ...]
    feeds: dict[str, NDArray[np.int64]]
    targets: NDArray[np.float32]
    believed: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Position:
    """Where in the endless stream a batch lies: what a checkpoint keeps of it."""

    epoch: int = 0
    pool: int = 0
    batch: int = 0


@dataclass(frozen=True, slots=True)
class ViewOptions:
    """How views are cut.

    Attributes:
        window_tokens: longest view, in tokens of question and context together, without a header.
        short_share: share of views that hold only the sentences around the answer.
        negative_share: views without an answer for each view with one.
        batch_tokens: tokens of a batch, padding included.
        sibling_share: views that ask for one of several siblings, for each question.
        cloze_share: cloze questions, views without a label, for each question.
    """

    window_tokens: int
    short_share: float
    negative_share: float
    batch_tokens: int
    sibling_share: float = 0.0
    cloze_share: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class _Context:
    """A tokenised context, and its sentences as token ranges."""

    words: Words
    sentences: tuple[TokenRange, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A tokenised question.

    Attributes:
        words: the question, cut to as many tokens as a model reads of it.
        context: number of its context in the corpus.
        answers: one token range of the context for each annotator.
        rationale: token range, where the data names it.
        golds: the answers as text.
        held_out: never trained on.
    """

    words: Words
    context: int
    answers: tuple[TokenRange, ...]
    rationale: TokenRange | None
    golds: tuple[str, ...]
    held_out: bool


class Corpus:
    """Records, tokenised once, with a BM25 index over the windows of all their contexts."""

    def __init__(
        self,
        train: Sequence[Record],
        held: Sequence[Record],
        encoder: PairEncoder,
        window_tokens: int,
    ) -> None:
        self.encoder = encoder
        self.window_tokens = window_tokens
        self.contexts: list[_Context] = []
        self._numbers: dict[str, int] = {}
        self.records = tuple(train)
        self.train = [self.ask(record, held_out=False) for record in train]
        self._trained_contexts = len(self.contexts)
        self.held = [self.ask(record, held_out=True) for record in held]
        self.windows = [
            window for number in range(len(self.contexts)) for window in self._cut(number)
        ]
        self._analyzer = Analyzer()
        self._folder = tempfile.TemporaryDirectory(prefix="specrag-train-")
        self._index = PassageIndex.create(Path(self._folder.name) / "index")
        texts = (self._analyzer.spaced_terms(self.text(window)) for window in self.windows)
        self._index.apply((), enumerate(texts, start=1), sequence=1)

    def close(self) -> None:
        """Remove the temporary index."""
        self._index.close()
        self._folder.cleanup()

    def words(self, window: Window) -> Words:
        return self.contexts[window.context].words.part(window.first, window.end)

    def text(self, window: Window) -> str:
        return self.words(window).text

    def room(self, question: Words, tokens: int | None = None) -> int:
        """Context tokens that fit beside the question's in a pair of so many tokens."""
        longest = self.window_tokens if tokens is None else tokens
        return max(1, self.encoder.room(question.ids) - self.encoder.max_length + longest)

    def retrieve(self, question: Asked, count: int) -> list[Window]:
        """The best windows for the question by BM25, of all contexts, held out or not."""
        hits = self._index.search(self._analyzer.terms(question.words.text), count)
        return [self.windows[hit.passage_id - 1] for hit in hits]

    def hard_negatives(self, question: Asked) -> list[int]:
        """Training contexts that BM25 retrieves for the question and that hold no answer to it."""
        golds = [gold.lower() for gold in question.golds]
        found: dict[int, None] = {}
        for window in self.retrieve(question, RETRIEVED):
            text = self.contexts[window.context].words.text
            if window.context == question.context or window.context >= self._trained_contexts:
                continue
            if not any(gold in text.lower() for gold in golds):
                found[window.context] = None
        return list(found)[:HARD_NEGATIVES]

    def ask(self, record: Record, *, held_out: bool) -> Asked:
        """The record's question, tokenised; its context joins the others if it is a new one."""
        number = self._numbers.setdefault(record.context, len(self.contexts))
        if number == len(self.contexts):
            self.contexts.append(self._tokenize(record.context))
        offsets = self.contexts[number].words.offsets
        answers = (token_range(answer, offsets) for answer in record.answers)
        return Asked(
            words=asked_words(record.question, self.encoder),
            context=number,
            answers=tuple(answer for answer in answers if answer),
            rationale=token_range(record.rationale, offsets) if record.rationale else None,
            golds=tuple(answer.of(record.context) for answer in record.answers),
            held_out=held_out,
        )

    def substitution(self, embeddings: NDArray[np.float32], share: float) -> Substitution:
        """Word substitution among the words of the training contexts."""
        contexts = [context.words for context in self.contexts[: self._trained_contexts]]
        questions = [question.words for question in self.train]
        tokenizer = self.encoder.tokenizer
        return Substitution(
            embeddings, contexts, questions, share, lambda token: tokenizer.decode([token]).strip()
        )

    def _tokenize(self, text: str) -> _Context:
        words = plain_words(text, self.encoder)
        sentences = (token_range(span, words.offsets) for span in sentence_spans(text))
        return _Context(words, tuple(s for s in sentences if s))

    def _cut(self, number: int) -> list[Window]:
        """Windows that overlap by half, with room for a question of usual length beside them."""
        tokens = len(self.contexts[number].words.ids)
        size = max(8, self.window_tokens * 7 // 8)
        starts = range(0, max(1, tokens - size // 2), max(1, size // 2))
        return [Window(number, start, min(start + size, tokens)) for start in starts]


class Views:
    """The endless, seeded stream of batches: the same seed gives the same batches, always."""

    def __init__(
        self,
        corpus: Corpus,
        options: ViewOptions,
        seed: int,
        substitution: Substitution | None = None,
    ) -> None:
        self._corpus = corpus
        self._substitution = substitution
        self._options = options
        self._seed = seed
        self._negatives = [
            corpus.hard_negatives(question) if options.negative_share or options.cloze_share else []
            for question in corpus.train
        ]
        self._siblings = Siblings(corpus.records) if options.sibling_share else None

    def batches(self, begin: Position) -> Iterator[tuple[Batch, Position, float]]:
        """Batches from `begin` on, each with the position after it and the epochs done by then."""
        questions = len(self._corpus.train)
        pools = -(-questions // POOL)
        epoch, pool, skip = begin.epoch, begin.pool, begin.batch
        while True:
            rng = _seeded(f"{self._seed}/{epoch}")
            order = list(range(questions))
            rng.shuffle(order)
            while pool < pools:
                chosen = order[pool * POOL : (pool + 1) * POOL]
                made = self._pool(chosen, _seeded(f"{self._seed}/{epoch}/{pool}"))
                for number, views in enumerate(made[skip:], start=skip + 1):
                    done = epoch + (pool * POOL + len(chosen) * number / len(made)) / questions
                    after = Position(epoch, pool, number)
                    yield collate(views, self._corpus.encoder.padding), after, done
                pool, skip = pool + 1, 0
            epoch, pool = epoch + 1, 0

    def _pool(self, questions: Sequence[int], rng: random.Random) -> list[list[View]]:
        """Batches of views of about one length each, in random order."""
        views = [view for number in questions for view in self._views(number, rng)]
        views.sort(key=lambda view: len(view.ids))
        made: list[list[View]] = [[]]
        for view in views:
            padded = _padded(len(view.ids)) * (len(made[-1]) + 1)
            if made[-1] and padded > self._options.batch_tokens:
                made.append([])
            made[-1].append(view)
        rng.shuffle(made)
        return made

    def _views(self, number: int, rng: random.Random) -> Iterator[View]:
        question = self._corpus.train[number]
        scale = rng.choice((1.0, 1.0, 1.0, 1.0, 0.875, 0.75))
        room = self._corpus.room(question.words, int(scale * self._options.window_tokens))
        yield self._view(question, self._positive(question, room, rng), rng)
        if rng.random() < self._options.negative_share:
            yield self._view(question, self._negative(question, number, room, rng), rng)
        if self._options.cloze_share and rng.random() < self._options.cloze_share:
            yield from self._cloze(number, scale, rng)
        if self._siblings is not None and rng.random() < self._options.sibling_share:
            yield from self._sibling(self._siblings, number, rng)

    def _positive(self, question: Asked, room: int, rng: random.Random) -> Window:
        if not question.answers:
            return self._anywhere(question.context, room, rng)
        answer = rng.choice(question.answers)
        if rng.random() < self._options.short_share:
            window = self._sentences(question, answer, rng)
            if window.end - window.first <= room:
                return window
        return self._around(question.context, answer, room, rng)

    def _sentences(self, question: Asked, answer: TokenRange, rng: random.Random) -> Window:
        """The rationale: as the data names it, or the answer's sentences, now and then one more."""
        if question.rationale is not None:
            return Window(question.context, question.rationale.first, question.rationale.last + 1)
        sentences = self._corpus.contexts[question.context].sentences
        held = [
            i for i, s in enumerate(sentences) if s.first <= answer.last and s.last >= answer.first
        ]
        first, last = (held[0], held[-1]) if held else (0, len(sentences) - 1)
        more = rng.random()
        if more < 0.2 and first > 0:
            first -= 1
        elif 0.2 <= more < 0.4 and last + 1 < len(sentences):
            last += 1
        return Window(question.context, sentences[first].first, sentences[last].last + 1)

    def _negative(self, question: Asked, number: int, room: int, rng: random.Random) -> Window:
        """Mostly from a hard negative, else another place of the question's own context."""
        hard = self._negatives[number]
        context = rng.choice(hard) if hard and rng.random() < 0.85 else question.context
        sentences = self._corpus.contexts[context].sentences
        if sentences and (context == question.context or rng.random() < self._options.short_share):
            first = rng.randrange(len(sentences))
            last = min(len(sentences) - 1, first + rng.randint(0, 1))
            begin = sentences[first].first
            return Window(context, begin, min(sentences[last].last + 1, begin + room))
        return self._anywhere(context, room, rng)

    def _cloze(self, number: int, scale: float, rng: random.Random) -> Iterator[View]:
        """A question about a sentence of the question's context, if one can be made of it."""
        own = self._corpus.train[number].context
        context = self._corpus.contexts[own]
        if not context.sentences:
            return
        sentence = rng.choice(context.sentences)
        whole = Window(own, sentence.first, sentence.last + 1)
        text = cloze_question(self._corpus.text(whole), rng)
        if text is None:
            return
        question = self._corpus.ask(Record(text, context.words.text, ()), held_out=False)
        room = self._corpus.room(question.words, int(scale * self._options.window_tokens))
        hard = self._negatives[number]
        if hard and rng.random() < CLOZE_ELSEWHERE:
            window = self._anywhere(rng.choice(hard), room, rng)
        elif rng.random() < self._options.short_share:
            window = Window(own, sentence.first, min(sentence.last + 1, sentence.first + room))
        else:
            window = self._around(own, sentence, room, rng)
        view = self._view(question, window, rng)
        yield replace(view, starts={}, ends={})

    def _sibling(self, siblings: Siblings, number: int, rng: random.Random) -> Iterator[View]:
        """A question for one of several siblings, unless the window ends before its answer."""
        made = siblings.view(self._corpus.records[number], rng)
        encoder = self._corpus.encoder
        question, context = asked_words(made.question, encoder), plain_words(made.context, encoder)
        answers = []
        if made.answer is not None:
            answer = token_range(made.answer, context.offsets)
            if answer is None:
                return
            answers.append(answer)
        read = context.part(0, self._corpus.room(question, self._options.window_tokens))
        view = pair_view(question, read, made.header, answers, encoder)
        if answers and 0 in view.starts:
            return
        yield replace(view, believed=False)

    def _around(self, context: int, held: TokenRange, room: int, rng: random.Random) -> Window:
        """A window of full length that holds these tokens, anywhere in it."""
        tokens = len(self._corpus.contexts[context].words.ids)
        lowest = max(0, held.last + 1 - room)
        highest = max(lowest, min(held.first, tokens - room))
        first = rng.randint(lowest, highest)
        return Window(context, first, min(tokens, first + room))

    def _anywhere(self, context: int, room: int, rng: random.Random) -> Window:
        tokens = len(self._corpus.contexts[context].words.ids)
        first = rng.randint(0, max(0, tokens - room))
        return Window(context, first, min(tokens, first + room))

    def _view(self, question: Asked, window: Window, rng: random.Random) -> View:
        """The pair as the runtime would encode it; answers outside the window do not count."""
        asked, words = question.words, self._corpus.words(window)
        if self._substitution is not None:
            asked, words = self._substitution.pair(asked, words, rng)
        headed = self._options.sibling_share > 0 and rng.random() < HEADED
        inside = [
            TokenRange(answer.first - window.first, answer.last - window.first)
            for answer in question.answers
            if window.context == question.context
            and window.first <= answer.first
            and answer.last < window.end
        ]
        header = any_header(rng) if headed else ""
        return pair_view(asked, words, header, inside, self._corpus.encoder)


def asked_words(question: str, encoder: PairEncoder) -> Words:
    """The question, cut to as many tokens as a model reads of it."""
    ids = encoder.question(question)
    return replace(plain_words(question, encoder).part(0, len(ids)), ids=ids)


def plain_words(text: str, encoder: PairEncoder) -> Words:
    tokens = encoder.tokenize(text)
    return Words(text, tokens.ids, tokens.offsets, whole_words(text, tokens.offsets))


def pair_view(
    question: Words,
    context: Words,
    header: str,
    answers: Sequence[TokenRange],
    encoder: PairEncoder,
) -> View:
    """The pair as the runtime would encode it, labelled with those answers that are read whole."""
    batch = encoder.batch(question.ids, [context.ids], [encoder.header(header)])
    place = batch.context(0)
    read = [answer for answer in answers if answer.last < place.stop - place.start]
    return View(
        pair=Pair(
            question.text,
            header,
            context.text,
            place.start,
            context.offsets[: place.stop - place.start],
        ),
        ids=batch.feeds["input_ids"][0].tolist(),
        types=batch.feeds["token_type_ids"][0].tolist(),
        starts=_shares([answer.first + place.start for answer in read]),
        ends=_shares([answer.last + place.start for answer in read]),
    )


def _seeded(seed: str) -> random.Random:
    return random.Random(seed)  # noqa: S311  no secret is made here


def _shares(positions: Sequence[int]) -> dict[int, float]:
    """Each position's share; all of it on position 0 if there is none."""
    counts = Counter(positions) or Counter([0])
    return {position: count / counts.total() for position, count in counts.items()}


def _padded(tokens: int) -> int:
    return -(-tokens // 8) * 8


def collate(views: Sequence[View], padding: int) -> Batch:
    shape = (len(views), _padded(max(len(view.ids) for view in views)))
    names = ("input_ids", "attention_mask", "token_type_ids")
    feeds = {name: np.zeros(shape, dtype=np.int64) for name in names}
    feeds["input_ids"][:] = padding
    targets = np.zeros((2, *shape), dtype=np.float32)
    for row, view in enumerate(views):
        length = len(view.ids)
        feeds["input_ids"][row, :length] = view.ids
        feeds["token_type_ids"][row, :length] = view.types
        feeds["attention_mask"][row, :length] = 1
        for side, shares in enumerate((view.starts, view.ends)):
            for position, share in shares.items():
                targets[side, row, position] = share
    believed = np.array([view.believed for view in views], dtype=np.float32)
    return Batch(tuple(view.pair for view in views), feeds, targets, believed)

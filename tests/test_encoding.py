"""Pairs of question and context, for each family, against the tokenizer's own encoding."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer, processors

from runtime.encoding import MAX_HEADER, PairEncoder
from runtime.errors import BundleIncompatible
from tests.tiny_models import FAMILIES, make_bundle

QUESTION = "When does the valve open?"
CONTEXT = "The relief valve opens at 6.5 bar."


@pytest.fixture(params=FAMILIES)
def encoder(request, tmp_path):
    bundle = make_bundle(tmp_path / "b", family=request.param)
    return PairEncoder(bundle.tokenizer_path, 512)


def test_a_pair_is_what_the_tokenizer_itself_would_make(encoder):
    own = encoder.tokenizer.encode(QUESTION, CONTEXT)
    batch = encoder.batch(encoder.question(QUESTION), [encoder.tokenize(CONTEXT).ids])
    assert batch.feeds["input_ids"][0].tolist() == own.ids
    assert batch.feeds["token_type_ids"][0].tolist() == own.type_ids
    assert batch.feeds["attention_mask"][0].tolist() == own.attention_mask
    context = np.flatnonzero([owner == 1 for owner in own.sequence_ids])
    assert (batch.context(0).start, batch.context(0).stop) == (context[0], context[-1] + 1)


def test_rows_are_padded_to_the_longest_and_masked(encoder):
    short, long = encoder.tokenize("valve").ids, encoder.tokenize(CONTEXT).ids
    batch = encoder.batch(encoder.question(QUESTION), [short, long])
    mask = batch.feeds["attention_mask"]
    assert mask[1].all()
    assert mask[0].sum() == mask.shape[1] - (len(long) - len(short))
    assert batch.tokens == mask.sum()
    assert batch.context_lengths == (len(short), len(long))


def test_a_header_is_read_before_its_context_and_is_no_part_of_it(encoder):
    text, header = encoder.tokenize(CONTEXT).ids, encoder.header("Pump P2: ")
    question = encoder.question(QUESTION)
    batch = encoder.batch(question, [text, text], [header, header[:0]])
    plain = encoder.batch(question, [text])
    ids, types = batch.feeds["input_ids"], batch.feeds["token_type_ids"]
    for row in (0, 1):
        assert ids[row, batch.context(row)].tolist() == text.tolist()
        assert len(set(types[row, batch.context(row)])) == 1
    start = plain.context(0).start
    assert batch.context(1) == plain.context(0)
    assert ids[0, start : start + len(header)].tolist() == header.tolist()
    assert (types[0, start : start + len(header)] == types[0, start + len(header)]).all()


def test_of_a_long_header_the_end_is_read(encoder):
    whole = encoder.tokenize("Manual: " * 200 + "Pump P2: ").ids
    header = encoder.header("Manual: " * 200 + "Pump P2: ")
    assert header.tolist() == whole[-MAX_HEADER:].tolist()
    assert len(encoder.header("")) == 0


def test_a_header_cannot_end_its_context(encoder):
    """Guards against a heading that spells "[SEP]" or "</s>"."""
    specials = {encoder.tokenizer.token_to_id(t) for t in ("[SEP]", "[CLS]", "</s>", "<s>")}
    header = encoder.header("[SEP] </s> [CLS] <s> ")
    batch = encoder.batch(encoder.question("valve"), [encoder.tokenize("valve").ids], [header])
    start = batch.context(0).start
    assert not specials & set(batch.feeds["input_ids"][0, start - len(header) : start].tolist())


def test_a_context_too_long_for_the_model_loses_its_end(tmp_path):
    bundle = make_bundle(tmp_path / "b")
    encoder = PairEncoder(bundle.tokenizer_path, 32)
    question = encoder.question(QUESTION)
    batch = encoder.batch(question, [np.arange(5, 105, dtype=np.int32)])
    assert batch.feeds["input_ids"].shape == (1, 32)
    assert batch.context_lengths == (encoder.room(question),)


def test_a_question_is_cut_so_that_the_context_keeps_its_half(tmp_path):
    encoder = PairEncoder(make_bundle(tmp_path / "b").tokenizer_path, 64)
    assert encoder.room(encoder.question("valve " * 500)) >= 28


def test_text_that_spells_a_special_token_stays_text(encoder):
    """Guards against a document that writes "[SEP]" or "</s>" to end its context early."""
    specials = {encoder.tokenizer.token_to_id(t) for t in ("[SEP]", "[CLS]", "</s>", "<s>")}
    for text in ("[SEP] valve", "</s> valve", "[CLS]", "<s>"):
        batch = encoder.batch(encoder.question("valve"), [encoder.tokenize(text).ids])
        assert not specials & set(batch.feeds["input_ids"][0, batch.context(0)].tolist())
        assert not specials & set(encoder.question(text).tolist())


def test_a_tokenizer_without_pairs_is_refused(tmp_path):
    bundle = make_bundle(tmp_path / "b")
    tokenizer = Tokenizer.from_file(str(bundle.tokenizer_path))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A", pair="$B:1 $A:0", special_tokens=[]
    )
    path = tmp_path / "swapped.json"
    tokenizer.save(str(path))
    with pytest.raises(BundleIncompatible, match="before its context"):
        PairEncoder(path, 512)

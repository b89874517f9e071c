"""Training a tiny random BERT made in-process: real steps, resume, distillation, made-up views."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from click.testing import CliRunner  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from export.augmentation import Substitution, Words, cloze_question, whole_words  # noqa: E402
from export.commands import train  # noqa: E402
from export.narrowing import feed_forward_width, narrow  # noqa: E402
from export.reporting import Progress  # noqa: E402
from export.teaching import Teacher, Teachers  # noqa: E402
from export.training import (  # noqa: E402
    TrainingOptions,
    TrainingReport,
    distil,
    finetune,
)
from export.training_data import Corpus, Position, ViewOptions, Views, plain_words  # noqa: E402
from export.training_model import (  # noqa: E402
    Said,
    as_tensors,
    choose_layers,
    distillation_loss,
    forward,
    label_losses,
    log_softmax,
)
from export.training_records import hold_out, read_records  # noqa: E402
from runtime.encoding import PairEncoder  # noqa: E402
from runtime.errors import ExportError, UsageError  # noqa: E402
from tests.tiny_models import FAMILIES, make_tokenizer  # noqa: E402

PARTS = ("pump", "valve", "filter", "motor", "sensor", "bearing", "gauge", "belt")
TOWNS = ("oslo", "rome", "lima", "cairo", "perth", "kyoto", "quito", "delhi", "bonn", "turin")
REST = "where is the kept it in . ? checked every week by crew green"
WORDS = (*PARTS, *TOWNS, *REST.split())


def examples() -> list[dict[str, Any]]:
    """Every part in every town: the answer stands behind "kept in"."""
    made = []
    for part in PARTS:
        for town in TOWNS:
            context = (
                f"The crew is green . The {part} is kept in {town} . It is checked every week ."
            )
            made.append(
                {
                    "question": f"Where is the {part} kept ?",
                    "context": context,
                    "answer": town,
                    "rationale": f"The {part} is kept in {town} .",
                }
            )
    return made


def write_lines(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("\n".join(json.dumps(record) for record in records) + "\n", "utf-8")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a four-layer random BERT ("model"), without dropout, and "data.jsonl"."""
    root = tmp_path_factory.mktemp("training")
    vocabulary = root / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]) + "\n")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(WORDS) + 5,
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    transformers.BertForQuestionAnswering(config).save_pretrained(root / "model")
    tokenizer = transformers.BertTokenizerFast(str(vocabulary), model_max_length=64)
    tokenizer.save_pretrained(root / "model")
    write_lines(root / "data.jsonl", examples())
    return root


def options(folder: Path, output: Path, **changed: Any) -> TrainingOptions:
    usual = TrainingOptions(
        model=str(folder / "model"),
        data=(folder / "data.jsonl",),
        output=output,
        epochs=6,
        learning_rate=3e-3,
        warmup_steps=5,
        batch_tokens=512,
        window_tokens=48,
        negative_share=0.1,  # more would contradict: every part is kept in ten towns
        sibling_share=0.0,  # most of their words are unknown to this vocabulary
        train_word_embeddings=True,
        precision="fp32",
        threads=1,
        offline=True,
    )
    return replace(usual, **changed)


@pytest.fixture(scope="module")
def tuned(folder: Path) -> TrainingReport:
    return finetune(options(folder, folder / "tuned"))


def test_loss_falls_and_held_out_questions_are_answered(tuned: TrainingReport) -> None:
    assert tuned.curve[-1].loss < 0.6 * tuned.curve[0].loss
    assert tuned.after.given_f1 > tuned.before.given_f1 + 30
    assert 0 < tuned.held_out_questions < tuned.training_questions


def test_result_is_a_checkpoint_with_report_and_curve(tuned: TrainingReport) -> None:
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(tuned.output)
    assert model.config.num_hidden_layers == 4
    assert transformers.AutoTokenizer.from_pretrained(tuned.output).is_fast
    assert (tuned.output / "loss.png").read_bytes().startswith(b"\x89PNG")
    report = json.loads((tuned.output / "training.json").read_text("utf-8"))
    assert report["steps"] == tuned.steps
    assert report["after"]["f1"] == tuned.after.f1
    assert not (tuned.output / "checkpoints").exists()
    assert not list(tuned.output.glob("*.bin"))


def test_config_keeps_its_attention_dropout(tuned: TrainingReport) -> None:
    """Guards: training without attention dropout must not be written into the model's config."""
    config = json.loads((tuned.output / "config.json").read_text("utf-8"))
    assert config["attention_probs_dropout_prob"] == 0.1


def interrupting(error: type[BaseException], after: float = 0.4) -> Progress:
    """Ends a run in its steps, once so much of it is done."""

    def interrupt(stage: str, share: float) -> None:
        if stage.startswith("step") and share > after:
            raise error

    return interrupt


def same_weights(resumed: Path, expected: Path) -> None:
    """Tolerance 1e-5."""
    given = load_file(resumed / "model.safetensors")
    for name, tensor in load_file(expected / "model.safetensors").items():
        torch.testing.assert_close(given[name], tensor, atol=1e-5, rtol=0)


def test_resumed_run_equals_the_uninterrupted_one(folder: Path, tuned: TrainingReport) -> None:
    """Tolerance 1e-5: the same batches, dropout and moments; seed 0; FP32, one thread."""

    class Interrupted(Exception):
        pass

    output = folder / "resumed"
    begun = options(folder, output, checkpoint_steps=10)

    with pytest.raises(Interrupted):
        finetune(begun, interrupting(Interrupted))
    left = list((output / "checkpoints").iterdir())
    assert [place.name for place in left] == [max(place.name for place in left)]
    assert not (output / "training.json").exists()
    report = finetune(replace(begun, resume=True))
    assert report.steps == tuned.steps
    same_weights(output, tuned.output)
    assert [p.loss for p in report.curve] == pytest.approx([p.loss for p in tuned.curve], abs=1e-4)


def test_resume_refuses_other_options_and_a_damaged_checkpoint(folder: Path) -> None:
    output = folder / "refusals"
    begun = options(folder, output, checkpoint_steps=5)

    with pytest.raises(KeyboardInterrupt):
        finetune(begun, interrupting(KeyboardInterrupt, after=0.0))
    with pytest.raises(UsageError, match="other options: learning_rate, seed"):
        finetune(replace(begun, resume=True, seed=1, learning_rate=1e-4))
    with pytest.raises(UsageError, match="output folder exists"):
        finetune(begun)
    state = next((output / "checkpoints").glob("step-*")) / "state.safetensors"
    state.write_bytes(state.read_bytes()[:1000])
    with pytest.raises(ExportError, match="checkpoint cannot be read"):
        finetune(replace(begun, resume=True))


def test_loss_that_is_not_a_number_ends_the_run_and_leaves_no_folder(
    folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder / "model", tmp_path / "model")
    weights = load_file(tmp_path / "model" / "model.safetensors")
    weights["qa_outputs.bias"] = torch.full((2,), float("nan"))
    save_file(weights, tmp_path / "model" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ExportError, match="loss became nan at step 1"):
        finetune(options(folder, tmp_path / "out", model=str(tmp_path / "model")))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("layers", "expected"), [(2, 2), ((0, 1, 3), 3), (None, 2)])
def test_student_has_fewer_layers_taken_from_the_teacher(
    tuned: TrainingReport, layers: Any, expected: int
) -> None:
    teacher = transformers.AutoModelForQuestionAnswering.from_pretrained(tuned.output)
    student = choose_layers(teacher, layers)
    assert student.config.num_hidden_layers == len(student.bert.encoder.layer) == expected
    last = student.bert.encoder.layer[-1].output.dense.weight
    assert torch.equal(last, teacher.bert.encoder.layer[3].output.dense.weight)
    assert teacher.config.num_hidden_layers == 4


def test_distilled_student_learns_from_the_teacher(folder: Path, tuned: TrainingReport) -> None:
    report = distil(
        options(folder, folder / "student", model=str(tuned.output), layers=2, half=True)
    )
    assert report.layers == 2
    assert report.teacher is not None
    assert report.after.given_f1 > 90
    assert report.curve[-1].loss < report.curve[0].loss
    weights = load_file(report.output / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.float16}
    assert not any("layer.2." in name for name in weights)


def test_student_deeper_than_its_teacher_is_refused(folder: Path) -> None:
    """Guards that its last layers would be taught by the wrong ones."""
    with pytest.raises(UsageError, match="5 layers, the teacher 4"):
        distil(options(folder, folder / "none", layers=(0, 1, 2, 3, 3)))
    with pytest.raises(UsageError, match="layers 0 to 3"):
        distil(options(folder, folder / "none", layers=(0, 7)))
    assert not (folder / "none").exists()


def test_student_is_born_again_by_an_ensemble(folder: Path, tuned: TrainingReport) -> None:
    """As deep as its teachers, of which one knows nothing; guards that only the first was heard."""
    run = options(
        *(folder, folder / "again"),
        model=str(tuned.output),
        layers=4,
        ensemble=(str(folder / "model"),),
        hard_share=0.0,
        hidden_weight=0.0,
        epochs=12,
    )
    report = distil(run)
    assert report.layers == 4
    assert report.options["ensemble"] == [str(folder / "model")]
    alone = distil(replace(run, output=folder / "again-alone", ensemble=()))
    assert alone.curve[0].loss < 0.2 * report.curve[0].loss  # it begins as its only teacher
    assert report.curve[-1].loss < 0.5 * report.curve[0].loss


def test_ensemble_says_the_mean_of_its_logits_and_the_first_one_s_states(wide: Corpus) -> None:
    size = wide.encoder.tokenizer.get_vocab_size()
    first = narrowable(vocabulary=size, positions=64)
    second = narrowable(width=32, vocabulary=size, positions=64)
    batch, _, _ = next(Views(wide, ViewOptions(56, 0.3, 0.5, 512), 0).batches(Position()))
    said = Teachers([Teacher(first, None), Teacher(second, None)])(batch, 2.0, hidden=True)
    feeds = as_tensors(batch.feeds)
    one, two = (forward(model, feeds, hidden=True) for model in (first, second))
    for side, found in (("start_logits", said.start), ("end_logits", said.end)):
        assert not torch.allclose(one[side], two[side])
        mean = (one[side] + two[side]) / 2
        expected = log_softmax(mean, feeds["attention_mask"], 2.0)
        assert torch.allclose(found.exp(), expected.exp(), atol=1e-6)
    for state, expected in zip(said.hidden_states, one.hidden_states, strict=True):
        assert torch.equal(state, expected)


class _Pointing(torch.nn.Module):  # type: ignore[misc]
    """Says that an answer starts and ends at some token of each row, and knows nothing else."""

    def __init__(self, tokens: set[int]) -> None:
        super().__init__()
        self.config, self._tokens = SimpleNamespace(), tokens

    def forward(self, input_ids: Any, attention_mask: Any, output_hidden_states: bool) -> Any:
        found = torch.zeros(input_ids.shape)
        for token in self._tokens:
            found += 9.0 * (input_ids == token)
        return SimpleNamespace(start_logits=found, end_logits=found, hidden_states=None)


@pytest.mark.parametrize("family", FAMILIES)
def test_teacher_with_another_tokenizer_points_at_the_same_characters(
    family: Any, wide: Corpus, tmp_path: Path
) -> None:
    """A town is one token of the student's, and one or several, with or without a space, of the
    teacher's; substituted words are read by it as well."""
    other = make_tokenizer(family, [story(i, TOWNS[i % 10])["context"] for i in range(200)])
    other.save(str(tmp_path / "tokenizer.json"))
    encoder = PairEncoder(tmp_path / "tokenizer.json", 128)
    towns = {wide.encoder.tokenizer.token_to_id(town) for town in TOWNS}
    theirs = {int(encoder.tokenize(f"in {town.title()} .").ids[1]) for town in TOWNS}
    teachers = Teachers([Teacher(_Pointing(theirs), encoder)])
    views = Views(wide, ViewOptions(56, 0.3, 0.0, 512), 0, substitution(wide, 0.6))
    rows = 0
    for batch, _, done in views.batches(Position()):
        said = teachers(batch)
        assert torch.allclose(said.start.exp().sum(-1), torch.ones(len(said.start)))
        for ids, targets, start in zip(
            batch.feeds["input_ids"], batch.targets[0], said.start, strict=True
        ):
            place = int(targets.argmax())
            assert place > 0
            assert ids[place] in towns
            assert start[place] == start.max() > start[0] + 4
            rows += 1
        if done >= 1:
            break
    assert rows >= len(wide.train)


def test_student_learns_from_a_teacher_with_another_tokenizer(
    folder: Path, tuned: TrainingReport, tmp_path: Path
) -> None:
    """The teacher numbers its tokens otherwise, so nothing but the texts can be shared."""
    shutil.copytree(tuned.output, tmp_path / "other")
    shift = 7
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    turned = words[:5] + words[5 + shift :] + words[5 : 5 + shift]
    (tmp_path / "other" / "vocab.txt").write_text("\n".join(turned) + "\n")
    (tmp_path / "other" / "tokenizer.json").unlink()
    tokenizer = transformers.BertTokenizerFast(
        str(tmp_path / "other" / "vocab.txt"), model_max_length=64
    )
    tokenizer.save_pretrained(tmp_path / "other")
    weights = load_file(tmp_path / "other" / "model.safetensors")
    table = weights["bert.embeddings.word_embeddings.weight"]
    weights["bert.embeddings.word_embeddings.weight"] = table[[words.index(w) for w in turned]]
    save_file(weights, tmp_path / "other" / "model.safetensors", {"format": "pt"})
    run = options(
        *(folder, folder / "otherwise"),
        model=str(tmp_path / "other"),
        student=str(folder / "model"),
        hard_share=0.0,
        epochs=24,
    )
    with pytest.raises(UsageError, match="another tokenizer") as refused:
        distil(run)
    assert "--hidden-weight 0" in str(refused.value.fix)
    assert not (folder / "otherwise").exists()
    report = distil(replace(run, hidden_weight=0.0))
    assert report.teacher is not None
    assert report.teacher.given_f1 == tuned.after.given_f1
    assert report.before.given_f1 < 50 < 90 < report.after.given_f1
    student = transformers.AutoTokenizer.from_pretrained(report.output)
    assert student.get_vocab() == {word: number for number, word in enumerate(words)}


def test_hidden_states_of_another_width_are_not_compared(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "model", tmp_path / "other")
    narrowable(vocabulary=len(WORDS) + 5, positions=64).save_pretrained(tmp_path / "other")
    with pytest.raises(UsageError, match="another width"):
        distil(options(folder, folder / "none", student=str(tmp_path / "other")))
    assert not (folder / "none").exists()


def test_distilbert_layers_can_be_chosen_too() -> None:
    """Guards: DistilBERT calls its stack and its depth differently."""
    config = transformers.DistilBertConfig(
        vocab_size=40, dim=16, n_layers=4, n_heads=2, hidden_dim=32, max_position_embeddings=32
    )
    student = choose_layers(transformers.DistilBertForQuestionAnswering(config), 2)
    assert student.config.n_layers == len(student.distilbert.transformer.layer) == 2
    ids = torch.ones((1, 8), dtype=torch.long)
    assert student(input_ids=ids).start_logits.shape == (1, 8)


def narrowable(layers: int = 2, width: int = 64, vocabulary: int = 50, positions: int = 32) -> Any:
    torch.manual_seed(1)
    config = transformers.BertConfig(
        vocab_size=vocabulary,
        hidden_size=16,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=width,
        max_position_embeddings=positions,
        initializer_range=0.4,  # large enough for GELU to bend
    )
    return transformers.BertForQuestionAnswering(config).eval()


def random_feeds(rows: int = 64) -> dict[str, Any]:
    draw = torch.Generator().manual_seed(2)
    ids = torch.randint(5, 50, (rows, 16), generator=draw)
    return {
        "input_ids": ids,
        "attention_mask": (torch.arange(16) < torch.arange(rows)[:, None] % 12 + 5).long(),
        "token_type_ids": torch.zeros_like(ids),
    }


def test_copies_of_neurons_go_without_changing_the_output() -> None:
    """Half of the neurons are copies of the others: the fit must find weights that miss none.

    Tolerance 1e-3 of logits of about 1: the ridge, and FP32; seeds 1 and 2.
    """
    model, feeds = narrowable(), random_feeds()
    for layer in model.bert.encoder.layer:
        with torch.no_grad():
            layer.intermediate.dense.weight[32:] = layer.intermediate.dense.weight[:32]
            layer.intermediate.dense.bias[32:] = layer.intermediate.dense.bias[:32]
    expected = forward(model, feeds, hidden=False).start_logits
    errors = narrow(model, 32, [feeds])
    assert model.config.intermediate_size == feed_forward_width(model) == 32
    assert model.bert.encoder.layer[1].output.dense.weight.shape == (16, 32)
    assert max(errors) < 1e-4
    real = feeds["attention_mask"].bool()
    found = forward(model, feeds, hidden=False).start_logits
    torch.testing.assert_close(found[real], expected[real], atol=1e-3, rtol=0)


def test_silent_neurons_go_first() -> None:
    """Guards: GELU of large negative sums is exactly 0, and with a row of zeros G had no
    inverse."""
    model, feeds = narrowable(), random_feeds()
    for layer in model.bert.encoder.layer:
        with torch.no_grad():
            layer.intermediate.dense.weight[::2] = 0.0
            layer.intermediate.dense.bias[::2] = -100.0
    expected = [layer.intermediate.dense.weight[1::2].clone() for layer in model.bert.encoder.layer]
    assert max(narrow(model, 32, [feeds])) < 1e-4
    found = [layer.intermediate.dense.weight for layer in model.bert.encoder.layer]
    torch.testing.assert_close(found, expected, atol=0, rtol=0)


def test_the_fit_loses_less_than_dropping_the_smallest_neurons() -> None:
    """Where nothing is a copy; the error is checked against one computed from the outputs."""
    feeds, whole, fitted, plain = random_feeds(), *(narrowable(layers=1) for _ in range(3))
    [error] = narrow(fitted, 24, [feeds])
    layer = plain.bert.encoder.layer[0]
    size = layer.intermediate.dense.weight.norm(dim=1) * layer.output.dense.weight.norm(dim=0)
    with torch.no_grad():
        layer.output.dense.weight[:, size.argsort()[:40]] = 0.0
    summed: dict[str, Any] = {}
    for name, model in (("whole", whole), ("fitted", fitted), ("plain", plain)):
        dense = model.bert.encoder.layer[0].output.dense
        dense.register_forward_hook(
            lambda _m, _i, out, name=name: summed.update({name: out.detach()})
        )
        forward(model, feeds, hidden=False)
    real = feeds["attention_mask"].bool()
    power = (summed["whole"][real] ** 2).sum()
    lost = {n: float(((summed[n] - summed["whole"])[real] ** 2).sum() / power) for n in summed}
    assert lost["fitted"] == pytest.approx(error, rel=0.01)
    assert 0 < lost["fitted"] < 0.5 * lost["plain"]


def test_distilbert_can_be_narrowed_and_unknown_layers_are_refused() -> None:
    config = transformers.DistilBertConfig(
        vocab_size=50, dim=16, n_layers=2, n_heads=2, hidden_dim=32, max_position_embeddings=32
    )
    model = transformers.DistilBertForQuestionAnswering(config).eval()
    narrow(model, 8, [random_feeds()])
    assert model.config.hidden_dim == 8
    assert model.distilbert.transformer.layer[1].ffn.lin2.weight.shape == (16, 8)
    square = narrowable(width=16)  # by their shapes, attention's matrices could be meant as well
    with pytest.raises(UsageError, match="feed-forward layers of the architecture bert"):
        narrow(square, 8, [random_feeds()])
    without_bias = narrowable()
    without_bias.bert.encoder.layer[1].intermediate.dense.bias = None
    with pytest.raises(UsageError, match="feed-forward layers of the architecture bert"):
        narrow(without_bias, 8, [random_feeds()])
    with pytest.raises(UsageError, match="have 64 neurons"):
        narrow(narrowable(), 64, [random_feeds()])


def test_narrow_student_as_deep_as_its_teacher_learns_and_resumes(
    folder: Path, tuned: TrainingReport
) -> None:
    """Guards: a resumed run must be narrow before it takes the checkpoint up."""
    narrower = options(
        *(folder, folder / "narrow"),
        model=str(tuned.output),
        layers=4,
        intermediate_size=16,
        checkpoint_steps=10,
    )

    with pytest.raises(KeyboardInterrupt):
        distil(narrower, interrupting(KeyboardInterrupt))
    report = distil(replace(narrower, resume=True))
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(report.output)
    assert (model.config.num_hidden_layers, model.config.intermediate_size) == (4, 16)
    assert len(report.narrowing) == 4
    assert all(0 < error < 1 for error in report.narrowing)
    assert report.after.given_f1 > 90


def test_views_are_the_same_for_the_same_seed_and_from_any_position(folder: Path) -> None:
    train, held = hold_out(read_records([folder / "data.jsonl"]), 0.1, seed=0)
    encoder = PairEncoder(folder / "model" / "tokenizer.json", 64)
    corpus = Corpus(train, held, encoder, 48)
    try:
        options = ViewOptions(48, 0.3, 0.5, 512)
        assert_resumable(Views(corpus, options, seed=3), Views(corpus, options, seed=3), 40, 60)
    finally:
        corpus.close()


def assert_resumable(views: Views, others: Views, interrupted: int, end: int) -> None:
    """The batches of `views`, and those of `others` from where `views` was interrupted."""
    stream = views.batches(Position())
    first = [next(stream) for _ in range(end)]
    assert first[-1][2] > 2  # more than two epochs: the resumed stream begins in a later one
    again = others.batches(first[interrupted - 1][1])
    for batch, position, done in first[interrupted:]:
        other = next(again)
        assert other[1:] == (position, done)
        assert (other[0].feeds["input_ids"] == batch.feeds["input_ids"]).all()
        assert (other[0].targets == batch.targets).all()
        assert (other[0].believed == batch.believed).all()


def test_targets_mark_the_answer_or_the_null_position(folder: Path) -> None:
    train, held = hold_out(read_records([folder / "data.jsonl"]), 0.1, seed=0)
    encoder = PairEncoder(folder / "model" / "tokenizer.json", 64)
    corpus = Corpus(train, held, encoder, 48)
    try:
        views = Views(corpus, ViewOptions(48, 0.3, 0.5, 512), seed=0)
        towns = {encoder.tokenizer.token_to_id(town) for town in TOWNS}
        answered = empty = 0
        for batch, _, done in views.batches(Position()):
            for row, ids in enumerate(batch.feeds["input_ids"]):
                place = int(batch.targets[0, row].argmax())
                assert batch.targets[0, row].sum() == pytest.approx(1.0)
                assert place == 0 or int(ids[place]) in towns
                assert int(batch.feeds["attention_mask"][row, place]) == 1
                answered, empty = answered + (place > 0), empty + (place == 0)
            if done >= 1:
                break
        assert answered >= len(train)
        assert empty > 0.2 * len(train)
    finally:
        corpus.close()


NOUNS = [a + b + c for a in "bdfghjklmp" for b in "aeiou" for c in "lnrt"]
ASKING = "who what where which when why how in year many much number kind of is"
STORY = "the stands beside in . many s came with from hill where does stand ?"


def story(number: int, town: str) -> dict[str, Any]:
    """A context of four rare nouns, one of them also in the plural, and where the first stands."""
    a, b, c, d = (NOUNS[(number + step) % len(NOUNS)] for step in (0, 1, 7, 30))
    context = (
        f"The {a} stands beside the {b} in {town.title()} . "
        f"Many {a}s came with the {c} from the hill with the {d} ."
    )
    return {
        "question": f"Where does the {a} beside the {b} stand ?",
        "context": context,
        "answer": town.title(),
    }


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corpus]:
    """400 contexts with 200 nouns: more than the 60 most frequent words, which stay."""
    root = tmp_path_factory.mktemp("wide")
    words = dict.fromkeys([*STORY.split(), *TOWNS, *NOUNS, "##s"])
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    (root / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    tokenizer = transformers.BertTokenizerFast(str(root / "vocab.txt"), model_max_length=64)
    tokenizer.backend_tokenizer.save(str(root / "tokenizer.json"))
    stories = [story(i, TOWNS[(i + k) % 10]) for k in (0, 3) for i in range(len(NOUNS))]
    records = read_records([write_lines(root / "data.jsonl", stories)])
    train, held = hold_out(records, 0.1, seed=0)
    corpus = Corpus(train, held, PairEncoder(root / "tokenizer.json", 64), 56)
    yield corpus
    corpus.close()


def substitution(corpus: Corpus, share: float) -> Substitution:
    size = corpus.encoder.tokenizer.get_vocab_size()
    embeddings = np.random.default_rng(0).normal(size=(size, 16)).astype(np.float32)
    return corpus.substitution(embeddings, share)


def epoch_of(views: Views) -> Iterator[tuple[list[int], Any]]:
    """Ids without padding, and targets (2, tokens), of the views of one epoch."""
    for batch, _, done in views.batches(Position()):
        lengths = batch.feeds["attention_mask"].sum(axis=1)
        for row, length in enumerate(lengths):
            ids = batch.feeds["input_ids"][row, :length].tolist()
            yield ids, batch.targets[:, row, :length]
        if done >= 1:
            return


@pytest.mark.parametrize("family", FAMILIES)
def test_whole_words_are_told_whatever_the_tokenizer(family: Any) -> None:
    text = "The valves open at 65 bar, by hand."
    encoding = make_tokenizer(family, ["The valve open at 65 bar , by hand"]).encode(
        text, add_special_tokens=False
    )
    whole = whole_words(text, np.array(encoding.offsets, dtype=np.int32))
    pieces = [text[a:b].strip() for a, b in encoding.offsets]
    found = [piece for piece, is_whole in zip(pieces, whole, strict=True) if is_whole]
    assert {"open", "65", "bar", "hand"} <= set(found)
    assert not {"valve", "s", ",", "at", "by"} & set(found)


def test_words_are_replaced_one_for_one_and_alike_in_question_and_context(wide: Corpus) -> None:
    swap, rng = substitution(wide, 1.0), random.Random(0)
    nouns = {wide.encoder.tokenizer.token_to_id(noun) for noun in NOUNS}
    plural = wide.encoder.tokenizer.token_to_id("##s")
    alike = shared = replaced = 0
    for asked in wide.train:
        context = wide.contexts[asked.context].words
        new_question, new_context = swap.pair(asked.words, context, rng)
        question_ids, context_ids = new_question.ids, new_context.ids
        assert (len(question_ids), len(context_ids)) == (len(asked.words.ids), len(context.ids))
        for words in (new_question, new_context):
            again = plain_words(words.text, wide.encoder)
            assert again.ids.tolist() == words.ids.tolist()
            assert again.offsets.tolist() == words.offsets.tolist()
        inside: dict[int, int] = {}
        for place, (old, new) in enumerate(zip(context.ids, context_ids, strict=True)):
            if place + 1 < len(context.ids) and context.ids[place + 1] == plural:
                assert new == old  # a part of a word
            elif context.whole[place]:
                assert inside.setdefault(int(old), int(new)) == new
            assert new == old or {int(old), int(new)} <= nouns
        replaced += sum(old != new for old, new in inside.items())
        for old, new in zip(asked.words.ids, question_ids, strict=True):
            if inside.get(int(old), old) != old:
                shared, alike = shared + 1, alike + (inside[int(old)] == new)
    assert replaced > len(wide.train) / 4
    assert shared > 20
    assert alike > 0.7 * shared  # words of the question alone may be replaced once more


def spelled(ids: Any) -> Words:
    """Whole words, each token's number its name."""
    names = [str(token) for token in ids.tolist()]
    ends = np.cumsum([len(name) + 1 for name in names]) - 1
    offsets = np.stack([ends - [len(name) for name in names], ends], axis=1).astype(np.int32)
    return Words(" ".join(names), ids, offsets, np.ones(len(ids), dtype=np.bool_))


def test_substitutes_are_the_nearest_by_cosine_without_the_mean() -> None:
    """60 frequent words stay; the other 30 are two groups of 15 that keep to themselves.

    The groups differ along the mean only: by plain cosine, long vectors would be next to all.
    """
    rare, frequent = np.arange(60, 90), np.arange(60)
    rng = np.random.default_rng(1)
    embeddings = rng.normal(size=(90, 8)).astype(np.float32) * 0.3
    embeddings[60:75] += 8
    embeddings[75:90] += 2
    ids = np.concatenate([np.repeat(frequent, 9), np.repeat(rare, 3)]).astype(np.int32)
    words, asked = spelled(ids), spelled(frequent.astype(np.int32))
    swap, draw, changed = Substitution(embeddings, [words], [asked], 1.0, str), random.Random(0), 0
    for _ in range(20):
        new = swap.pair(asked, words, draw)[1].ids
        assert ((new >= 75) == (ids >= 75)).all()
        assert (new[ids < 60] == ids[ids < 60]).all()
        changed += int((new != ids).sum())
    assert changed > 50


def test_too_few_words_to_have_neighbours_are_left_alone() -> None:
    words = spelled(np.array([5, 6, 5, 6, 5, 6], dtype=np.int32))
    swap = Substitution(np.eye(8, dtype=np.float32), [words], [words], 1.0, str)
    question, context = swap.pair(words, words, random.Random(0))
    assert (question.ids == words.ids).all()
    assert (context.ids == words.ids).all()


def test_substitution_leaves_labels_where_they_were(wide: Corpus) -> None:
    views = Views(wide, ViewOptions(56, 0.3, 0.5, 512), 0, substitution(wide, 0.6))
    encoder = wide.encoder
    towns = {encoder.tokenizer.token_to_id(town) for town in TOWNS}  # frequent: they stay
    asked = {tuple(question.words.ids.tolist()) for question in wide.train}
    answered = empty = new = 0
    for ids, targets in epoch_of(views):
        start, end = targets.argmax(axis=1).tolist()
        assert targets.sum(axis=1).tolist() == [1.0, 1.0]
        assert start == end
        assert start == 0 or ids[start] in towns
        answered, empty = answered + (start > 0), empty + (start == 0)
        new += tuple(ids[1 : ids.index(3)]) not in asked  # 3: [SEP]
    assert answered >= len(wide.train)
    assert empty > 0.3 * len(wide.train)
    assert new > 0.05 * (answered + empty)


def test_cloze_views_have_no_label_and_ask_about_what_they_hold(wide: Corpus) -> None:
    options = ViewOptions(64, 0.0, 0.5, 512, cloze_share=0.8)  # contexts fit whole
    unlabelled = elsewhere = 0
    for ids, targets in epoch_of(Views(wide, options, 0)):
        if targets.any():
            assert targets.sum(axis=1).tolist() == [1.0, 1.0]
            continue
        unlabelled += 1
        question, context = ids[1 : ids.index(3)], ids[ids.index(3) + 1 : -1]
        nouns = {token for token in question if wide.encoder.tokenizer.id_to_token(token) in NOUNS}
        elsewhere += not nouns <= set(context)
    assert 0.5 * len(wide.train) < unlabelled <= len(wide.train)
    assert 0.1 < elsewhere / unlabelled < 0.25  # one in five is asked of a hard negative


def test_without_a_share_nothing_is_made_up(wide: Corpus) -> None:
    asked = {tuple(question.words.ids.tolist()) for question in wide.train}
    for ids, targets in epoch_of(Views(wide, ViewOptions(56, 0.3, 0.5, 512), 0)):
        assert targets.sum(axis=1).tolist() == [1.0, 1.0]
        assert tuple(ids[1 : ids.index(3)]) in asked


def test_made_up_views_can_be_resumed_too(wide: Corpus) -> None:
    options = ViewOptions(56, 0.3, 0.5, 4096, sibling_share=0.4, cloze_share=0.7)
    views, others = (Views(wide, options, 5, substitution(wide, 0.5)) for _ in range(2))
    assert_resumable(views, others, 17, 40)


def sibling_rows(corpus: Corpus, window_tokens: int) -> list[tuple[list[int], int, int]]:
    """Ids, start and end of one epoch's sibling views, one for each question; the others count."""
    made, believed = [], 0
    views = Views(corpus, ViewOptions(window_tokens, 0.3, 0.0, 512, sibling_share=1.0), 0)
    for batch, _, done in views.batches(Position()):
        assert batch.believed.shape == (len(batch.feeds["input_ids"]),)
        believed += int(batch.believed.sum())
        for row in np.flatnonzero(batch.believed == 0):
            assert batch.targets[:, row].sum(axis=1).tolist() == [1.0, 1.0]
            start, end = batch.targets[:, row].argmax(axis=1).tolist()
            length = int(batch.feeds["attention_mask"][row].sum())
            made.append((batch.feeds["input_ids"][row, :length].tolist(), start, end))
        if done >= 1:
            break
    assert believed == len(corpus.train)
    return made


def test_sibling_views_are_labelled_and_do_not_believe_the_teacher(wide: Corpus) -> None:
    """Stories change towns with each other: such a view's label is a town, behind its "in"."""
    made = sibling_rows(wide, 64)
    tokenizer = wide.encoder.tokenizer
    towns, absent = 0, 0
    for ids, start, end in made:
        words = [str(tokenizer.id_to_token(token)) for token in ids]
        assert len(ids) <= 64
        if start == 0:
            assert end == 0
            absent += 1
            continue
        assert words.index("[SEP]") < start <= end < len(ids) - 1
        if words[start] in TOWNS:
            towns += 1
            assert (start, words[start - 1]) == (end, "in")
    assert len(made) > 0.95 * len(wide.train)
    assert 0.1 < absent / len(made) < 0.3
    assert towns > 0.3 * len(made)


def test_a_sibling_view_whose_answer_does_not_fit_is_left_out(wide: Corpus) -> None:
    """Guards: cut off, its label would say "no answer" or name a token that is not there."""
    whole, cut = sibling_rows(wide, 64), sibling_rows(wide, 32)
    missing = len(whole) - len(cut)
    empty = [sum(start == 0 for _, start, _ in made) for made in (whole, cut)]
    assert missing > 0.1 * len(whole)
    assert empty[1] < empty[0] + missing / 2
    longest = 32 + 64 // 8  # and a header of at most an eighth of what the model reads
    assert all(len(ids) <= longest and end < len(ids) - 1 for ids, _, end in cut)


def test_unlabelled_rows_add_nothing_to_the_label_loss() -> None:
    logits = torch.randn((2, 6), generator=torch.Generator().manual_seed(0))
    output = SimpleNamespace(start_logits=logits, end_logits=logits)
    targets = torch.zeros((2, 2, 6))
    mask = torch.ones((2, 6))
    assert label_losses(output, mask, targets).tolist() == [0.0, 0.0]
    targets[:, 0, 2] = 1.0
    alone = SimpleNamespace(start_logits=logits[:1], end_logits=logits[:1])
    both = label_losses(output, mask, targets)
    assert both[1] == 0.0
    assert both[0] == pytest.approx(float(label_losses(alone, mask[:1], targets[:, :1])[0]))


def distilled(teacher: Any, believed: list[float]) -> tuple[float, list[Any]]:
    """Loss of the same student and labels with another teacher, and its gradients."""
    student, feeds = narrowable(), random_feeds(rows=len(believed))
    targets = torch.zeros((2, *feeds["input_ids"].shape))
    targets[:, range(len(believed)), [row % 4 for row in range(len(believed))]] = 1.0
    output = forward(teacher, feeds, hidden=True)
    start, end = (
        log_softmax(output[side], feeds["attention_mask"], 2.0)
        for side in ("start_logits", "end_logits")
    )
    said = Said(start, end, output.hidden_states)
    loss = distillation_loss(
        forward(student, feeds, hidden=True),
        said,
        feeds["attention_mask"],
        targets,
        torch.tensor(believed),
        TrainingOptions("", (), Path(), hidden_weight=0.7),
    )
    loss.backward()
    gradients = [parameter.grad for parameter in student.parameters()]
    return float(loss.detach()), [gradient for gradient in gradients if gradient is not None]


def test_a_teacher_that_is_not_believed_changes_nothing() -> None:
    """Its logits and hidden states: the same loss and gradients with any other, exactly."""
    teacher, other = narrowable(), narrowable()
    torch.manual_seed(7)
    for parameter in other.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    teacher.requires_grad_(False)
    other.requires_grad_(False)
    loss, gradients = distilled(teacher, [0.0] * 4)
    assert loss > 0
    again, changed = distilled(other, [0.0] * 4)
    assert again == loss
    torch.testing.assert_close(changed, gradients, atol=0, rtol=0)
    mixed, _ = distilled(teacher, [1.0, 1.0, 0.0, 0.0])
    assert distilled(other, [1.0, 1.0, 0.0, 0.0])[0] > mixed + 0.1


def test_student_of_sibling_views_resumes_to_the_same_weights(
    folder: Path, tuned: TrainingReport
) -> None:
    """Tolerance 1e-5: the same views, dropout and moments; seed 0; FP32, one thread."""
    begun = options(
        *(folder, folder / "whole"),
        model=str(tuned.output),
        layers=2,
        epochs=1,
        evaluated=8,
        sibling_share=0.8,
        checkpoint_steps=2,
    )

    whole = distil(begun)
    with pytest.raises(KeyboardInterrupt):
        distil(replace(begun, output=folder / "parts"), interrupting(KeyboardInterrupt))
    parts = distil(replace(begun, output=folder / "parts", resume=True))
    assert parts.steps == whole.steps
    assert parts.options["sibling_share"] == 0.8
    same_weights(parts.output, whole.output)


def test_cloze_question_is_made_of_the_sentence() -> None:
    sentence = "In 1998 the Great Bridge of Oslo was built by Ada Berg for 25,000 crowns ."
    given = {word.strip(" ,.") for word in sentence.split()}
    asking = set(ASKING.split())
    rng = random.Random(0)
    made = {cloze_question(sentence, rng) for _ in range(300)} - {None}
    assert len(made) > 100
    for question in made:
        words = {word.strip(" ,.") for word in str(question).removesuffix("?").split()}
        assert words <= given | asking
        assert words & asking
        assert str(question).endswith("?")
    assert any("year" in str(question) and "1998" not in str(question) for question in made)
    assert cloze_question("Yes, it is.", rng) is None


def test_only_distillation_makes_views_up() -> None:
    for option in ("--cloze-share", "--substitution-share"):
        result = CliRunner().invoke(train, ["finetune", "m", option, "0.5"])
        assert result.exit_code == 2
        assert "No such option" in result.output
    assert {"cloze_share", "substitution_share", "sibling_share"} <= set(
        TrainingOptions("", (), Path()).fingerprint()
    )


def test_contexts_are_never_on_both_sides(folder: Path) -> None:
    train, held = hold_out(read_records([folder / "data.jsonl"]), 0.3, seed=1)
    assert not {r.context for r in train} & {r.context for r in held}


def test_squad_json_and_lines_give_the_same_records(tmp_path: Path) -> None:
    context = "Pumps run in turn. The spare pump is red, the spare valve is red too."
    squad = {
        "data": [
            {
                "paragraphs": [
                    {
                        "context": context,
                        "qas": [
                            {
                                "id": "1",
                                "question": "Which pump?",
                                "answers": [{"text": "red", "answer_start": context.index("red")}],
                            },
                            {"id": "2", "question": "Why?", "is_impossible": True, "answers": []},
                        ],
                    }
                ]
            }
        ]
    }
    (tmp_path / "squad.json").write_text(json.dumps(squad), "utf-8")
    lines = [
        {"question": "Which pump?", "context": context, "answer": "red"},
        {"question": "Why?", "context": context, "answer": ""},
    ]
    write_lines(tmp_path / "lines.jsonl", lines)
    from_squad = read_records([tmp_path / "squad.json"])
    assert from_squad == read_records([tmp_path / "lines.jsonl"])
    assert from_squad[0].answers[0].of(context) == "red"
    assert from_squad[1].answers == ()


def test_answer_is_looked_for_inside_the_rationale(tmp_path: Path) -> None:
    """Guards: "red" stands in the context twice, and only the rationale says which one is meant."""
    context = "The pump is red. The valve is red."
    line = {"question": "?", "context": context, "answer": "red", "rationale": "The valve is red."}
    [record] = read_records([write_lines(tmp_path / "d.jsonl", [line])])
    assert record.answers[0].start == context.rindex("red")


GOOD = {"question": "Where?", "context": "It is in Rome.", "answer": "Rome"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "No questions"),
        ("not json", "This is not JSON.*line 1"),
        ('{"question": "Where?"}', r'"context" is missing.*line 1'),
        (json.dumps({"data": [{"paragraphs": 3}]}), '"paragraphs" is 3, not a list.*article 1'),
        (json.dumps({**GOOD, "answer": "Oslo"}), r"'Oslo' does not stand in its context.*line 1"),
        (json.dumps({**GOOD, "rationale": "In Oslo."}), "rationale 'In Oslo.' does not stand"),
        (json.dumps({**GOOD, "question": " "}), "An empty question"),
        (json.dumps({**GOOD, "context": ""}), "does not stand|An empty context"),
        (json.dumps({**GOOD, "answer": None}), "None of the 1 questions has an answer"),
        (json.dumps(GOOD) + "\n[1, 2]\n", "line 2"),
        (
            json.dumps(
                {
                    "data": [
                        {
                            "paragraphs": [
                                {
                                    "context": "It is in Rome.",
                                    "qas": [
                                        {
                                            "id": "q7",
                                            "question": "Where?",
                                            "answers": [{"text": "Rome", "answer_start": 3}],
                                        }
                                    ],
                                }
                            ]
                        }
                    ]
                }
            ),
            r"'Rome' does not stand at character 3.*question q7",
        ),
    ],
)
def test_bad_data_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text, "utf-8")
    with pytest.raises(UsageError) as caught:
        read_records([path])
    assert re.search(message, str(caught.value), re.DOTALL)
    assert str(path) in str(caught.value)


def test_data_that_is_not_utf8_or_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin.json").write_bytes("café".encode("latin-1"))
    for name in ("latin.json", "missing.json"):
        with pytest.raises(UsageError, match="cannot be read"):
            read_records([tmp_path / name])


def test_one_context_cannot_be_both_trained_and_evaluated_on(tmp_path: Path) -> None:
    records = read_records([write_lines(tmp_path / "one.jsonl", [GOOD])])
    with pytest.raises(UsageError, match="Too few contexts"):
        hold_out(records, 0.1, seed=0)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"epochs": 0.0}, "--epochs"),
        ({"held_out": 0.0}, "--held-out"),
        ({"window_tokens": 400}, "at most 64 tokens"),
        ({"data": ()}, "No training data"),
    ],
)
def test_bad_options_are_refused(folder: Path, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        finetune(options(folder, folder / "bad", **changed))
    assert not (folder / "bad").exists()


def test_pickled_weights_are_refused(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "model", tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").unlink()
    (tmp_path / "model" / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(ExportError):
        finetune(options(folder, tmp_path / "out", model=str(tmp_path / "model")))


def test_command_trains_and_prints_one_json_object(folder: Path) -> None:
    arguments = [
        *("distil", str(folder / "model"), "--data", str(folder / "data.jsonl")),
        *("-o", str(folder / "by-command"), "--layers", "0,3", "--epochs", "1"),
        *("--window-tokens", "48", "--batch-tokens", "512", "--precision", "fp32"),
        *("--ensemble", str(folder / "model"), "--ensemble", str(folder / "model")),
        *("--minutes", "5", "--threads", "1", "--offline", "--json", "--quiet"),
    ]
    result = CliRunner().invoke(train, arguments, catch_exceptions=False)
    report = json.loads(result.stdout)
    assert report["kind"] == "distil"
    assert report["layers"] == 2
    assert report["options"]["ensemble"] == [str(folder / "model")] * 2
    assert report["epochs"] == pytest.approx(1.0, abs=0.05)


def test_clock_ends_a_run_early(folder: Path) -> None:
    report = finetune(options(folder, folder / "short", epochs=10_000, minutes=0.02))
    assert report.epochs < 10_000
    assert report.seconds < 30

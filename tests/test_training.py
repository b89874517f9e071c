"""Training a tiny random BERT made in-process: real steps, resume, distillation, bad data."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from click.testing import CliRunner  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from export.training import (  # noqa: E402
    TrainingOptions,
    TrainingReport,
    command,
    distil,
    finetune,
)
from export.training_data import (  # noqa: E402
    Corpus,
    Position,
    ViewOptions,
    Views,
    hold_out,
    read_records,
)
from export.training_model import choose_layers  # noqa: E402
from runtime.encoding import PairEncoder  # noqa: E402
from runtime.errors import ExportError, UsageError  # noqa: E402

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


def test_resumed_run_equals_the_uninterrupted_one(folder: Path, tuned: TrainingReport) -> None:
    """Tolerance 1e-5: the same batches, dropout and moments; seed 0; FP32, one thread."""

    class Interrupted(Exception):
        pass

    output = folder / "resumed"
    begun = options(folder, output, checkpoint_steps=10)

    def interrupt(stage: str, share: float) -> None:
        if stage.startswith("step") and share > 0.4:
            raise Interrupted

    with pytest.raises(Interrupted):
        finetune(begun, interrupt)
    left = list((output / "checkpoints").iterdir())
    assert [place.name for place in left] == [max(place.name for place in left)]
    assert not (output / "training.json").exists()
    report = finetune(replace(begun, resume=True))
    assert report.steps == tuned.steps
    expected = load_file(tuned.output / "model.safetensors")
    resumed = load_file(output / "model.safetensors")
    for name, tensor in expected.items():
        torch.testing.assert_close(resumed[name], tensor, atol=1e-5, rtol=0)
    assert [p.loss for p in report.curve] == pytest.approx([p.loss for p in tuned.curve], abs=1e-4)


def test_resume_refuses_other_options_and_a_damaged_checkpoint(folder: Path) -> None:
    output = folder / "refusals"
    begun = options(folder, output, checkpoint_steps=5)

    def interrupt(stage: str, share: float) -> None:
        if stage.startswith("step"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        finetune(begun, interrupt)
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


def test_student_as_deep_as_its_teacher_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="4 layers, the teacher 4"):
        distil(options(folder, folder / "none", layers=4))
    with pytest.raises(UsageError, match="layers 0 to 3"):
        distil(options(folder, folder / "none", layers=(0, 7)))
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


def test_views_are_the_same_for_the_same_seed_and_from_any_position(folder: Path) -> None:
    train, held = hold_out(read_records([folder / "data.jsonl"]), 0.1, seed=0)
    encoder = PairEncoder(folder / "model" / "tokenizer.json", 64)
    corpus = Corpus(train, held, encoder, 48)
    try:
        views = Views(corpus, ViewOptions(48, 0.3, 0.5, 512), seed=3)
        stream = views.batches(Position())
        first = [next(stream) for _ in range(60)]
        assert first[-1][2] > 2  # more than two epochs: the resumed stream begins in a later one
        again = views.batches(first[39][1])
        for batch, position, done in first[40:]:
            other = next(again)
            assert other[1:] == (position, done)
            assert (other[0].feeds["input_ids"] == batch.feeds["input_ids"]).all()
            assert (other[0].targets == batch.targets).all()
    finally:
        corpus.close()


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
        ("not json", "Neither SQuAD JSON nor JSON lines"),
        ('{"question": "Where?"}', r"JSON lines: KeyError.*line 1"),
        (json.dumps({"data": [{"paragraphs": 3}]}), "Neither SQuAD"),
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
        *("--minutes", "5", "--threads", "1", "--offline", "--json", "--quiet"),
    ]
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    report = json.loads(result.stdout)
    assert report["kind"] == "distil"
    assert report["layers"] == 2
    assert report["epochs"] == pytest.approx(1.0, abs=0.05)


def test_clock_ends_a_run_early(folder: Path) -> None:
    report = finetune(options(folder, folder / "short", epochs=10_000, minutes=0.02))
    assert report.epochs < 10_000
    assert report.seconds < 30

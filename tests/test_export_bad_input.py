"""What cannot become a bundle is refused with a reason, and nothing is left behind."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("optimum", reason="needs the export extra")

import torch
import transformers

from edge.cli import run_command
from export.bundling import unfinished_folder
from export.checkpoint import load_model, open_checkpoint, save_tokenizer
from export.commands import run_export
from export.drafter import export_drafter
from export.options import ExportOptions
from export.verifier import export_verifier
from models.bundle import open_bundle
from runtime.errors import ExportError, UsageError
from tests.hf_models import gate_file, make_checkpoint, spoil_for_fp16, spoil_for_int8

ROOT = Path(__file__).resolve().parent.parent


def silent(*_):
    pass


@pytest.fixture(scope="module")
def gate(tmp_path_factory):
    return gate_file(tmp_path_factory.mktemp("gate") / "gate.jsonl")


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("models") / "bert")


@pytest.fixture
def options(gate):
    return ExportOptions(
        gate=gate, accept_loss=100.0, offline=True, batch=1, length=16, seconds=0.0, threads=1
    )


def refused(model, kind=ExportError, **chosen):
    with pytest.raises(kind) as caught:
        open_checkpoint(str(model), offline=True, **chosen)
    return str(caught.value)


def test_unknown_folder(tmp_path):
    assert "no model folder" in refused(tmp_path / "absent")


def test_unknown_id_offline():
    assert "--offline forbids the network" in refused("nobody/no-such-model")


def test_garbled_id():
    assert "No model of this name" in refused("not a valid id!")


def test_no_network(tmp_path, gate):
    """Guards a hang or a traceback where the hub does not answer: a closed loopback port."""
    found = subprocess.run(
        [
            *(sys.executable, "-m", "export.drafter", "nobody/no-such-model"),
            *("-o", tmp_path / "out", "--gate", gate),
        ],
        cwd=ROOT,
        env={**os.environ, "HF_HUB_OFFLINE": "0", "HF_ENDPOINT": "http://127.0.0.1:9"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert found.returncode == 1
    assert "cannot be downloaded" in found.stderr
    assert "Traceback" not in found.stderr
    assert list(tmp_path.iterdir()) == []


def test_folder_without_config(tmp_path):
    assert "no config.json" in refused(tmp_path)


def test_model_with_another_head_names_it(tmp_path):
    config = transformers.BertConfig(
        vocab_size=100, hidden_size=8, num_hidden_layers=1, num_attention_heads=2
    )
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path)
    message = refused(tmp_path)
    assert "no question-answering head" in message
    assert "BertForSequenceClassification" in message


def test_weights_without_the_head(tmp_path, bert):
    """A config may claim the head while the weights lack it; the head would then be random."""
    checkpoint = make_checkpoint(tmp_path / "bert")
    config = transformers.AutoConfig.from_pretrained(checkpoint)
    transformers.BertModel(config).save_pretrained(checkpoint)
    facts = json.loads((checkpoint / "config.json").read_text())
    facts["architectures"] = ["BertForQuestionAnswering"]
    (checkpoint / "config.json").write_text(json.dumps(facts))
    with pytest.raises(ExportError, match="hold no question-answering head"):
        load_model(open_checkpoint(str(checkpoint), offline=True))


def test_slow_only_tokenizer(tmp_path):
    checkpoint = make_checkpoint(tmp_path / "bert")
    (checkpoint / "tokenizer.json").unlink()
    (checkpoint / "vocab.txt").write_text("a 1\nb 1\n")
    (checkpoint / "bpe.codes").write_text("#version: 0.2\na b\n")
    (checkpoint / "tokenizer_config.json").write_text('{"tokenizer_class": "PhobertTokenizer"}')
    opened = open_checkpoint(str(checkpoint), offline=True)
    with pytest.raises(ExportError, match="only a slow tokenizer"):
        save_tokenizer(opened, tmp_path / "tokenizer.json")


@pytest.fixture
def pickled(tmp_path):
    checkpoint = make_checkpoint(tmp_path / "pickled")
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(checkpoint)
    torch.save(model.state_dict(), checkpoint / "pytorch_model.bin")
    (checkpoint / "model.safetensors").unlink()
    return checkpoint


def test_pickle_is_refused(pickled):
    assert "only as a pickle" in refused(pickled)


def test_pickle_is_loaded_when_allowed(pickled):
    opened = open_checkpoint(str(pickled), offline=True, allow_pickle=True)
    assert load_model(opened, allow_pickle=True).qa_outputs.weight.shape == (2, 32)


def test_checkpoint_without_weights(tmp_path):
    checkpoint = make_checkpoint(tmp_path / "bert")
    (checkpoint / "model.safetensors").unlink()
    assert "no weights" in refused(checkpoint)


def test_damaged_weights(tmp_path):
    checkpoint = make_checkpoint(tmp_path / "bert")
    weights = checkpoint / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ExportError, match="cannot be loaded"):
        load_model(open_checkpoint(str(checkpoint), offline=True))


@pytest.mark.parametrize(
    ("family", "reason"), [("no-such-family", "not supported"), ("fnet", "cannot be exported")]
)
def test_unsupported_architecture(tmp_path, bert, family, reason):
    facts = json.loads((bert / "config.json").read_text())
    facts |= {"model_type": family, "architectures": ["FNetForQuestionAnswering"]}
    (tmp_path / "config.json").write_text(json.dumps(facts))
    assert reason in refused(tmp_path)


def test_output_exists(tmp_path, bert, options):
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match="exists already"):
        export_drafter(str(bert), tmp_path / "out", "x86", options, silent)
    assert list((tmp_path / "out").iterdir()) == []


def test_not_enough_disk(tmp_path):
    with (
        pytest.raises(ExportError, match="Not enough disk"),
        unfinished_folder(tmp_path / "out", 10**18),
    ):
        pytest.fail("the block must not run")
    assert list(tmp_path.iterdir()) == []


def test_disk_full_while_writing(tmp_path):
    def write():
        with unfinished_folder(tmp_path / "out", 0) as folder:
            (folder / "weights.bin").write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(ExportError, match="disk is full"):
        write()
    assert list(tmp_path.iterdir()) == []


def test_output_where_a_file_is_in_the_way(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UsageError, match="cannot be written"),
        unfinished_folder(tmp_path / "file" / "out", 0),
    ):
        pytest.fail("the block must not run")


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        ("", ExportError, "holds 0"),
        ('{"data": []}', ExportError, "holds 0"),
        ('{"question": "", "context": "x", "answer": "x"}', ExportError, "holds 0"),
        ('{"question": "Who?", "context": "x", "answer": "x"}', ExportError, "holds 1"),
        ('{"question": "Who?"}', UsageError, '"context" is missing.*line 1'),
        ("Who? Me.", UsageError, "not JSON: expecting value.*line 1, column 1"),
        ("[1, 2]", UsageError, "A question is a list, not an object"),
    ],
)
def test_gate_file_without_usable_questions(tmp_path, bert, options, text, kind, reason):
    file = tmp_path / "gate.json"
    file.write_text(text)
    chosen = ExportOptions(gate=file, offline=True)
    with pytest.raises(kind, match=reason):
        export_drafter(str(bert), tmp_path / "out", "x86", chosen, silent)
    assert list(tmp_path.iterdir()) == [file]


def test_missing_gate_file(tmp_path, bert):
    chosen = ExportOptions(gate=tmp_path / "absent.json", offline=True)
    with pytest.raises(UsageError, match="cannot be read"):
        export_drafter(str(bert), tmp_path / "out", "x86", chosen, silent)


@pytest.mark.parametrize("longer", [{"gate_length": 1000}, {"length": 1000}])
def test_sequence_longer_than_the_positions(tmp_path, bert, gate, longer):
    chosen = ExportOptions(gate=gate, offline=True, **longer)
    with pytest.raises(UsageError, match="1000 tokens are more than the model's 180 positions"):
        export_drafter(str(bert), tmp_path / "out", "x86", chosen, silent)
    assert list(tmp_path.iterdir()) == []


def test_int8_that_answers_nonsense_is_not_shipped(tmp_path, gate, capsys):
    """The trap of the field: an INT8 graph that loads, runs, and has lost a layer."""
    checkpoint = make_checkpoint(tmp_path / "spoilt")
    spoil_for_int8(checkpoint)
    code = run_command(
        [
            *("export", "drafter", str(checkpoint), "-o", str(tmp_path / "out"), "--gate"),
            *(str(gate), "--accept-loss", "100", "--length", "16", "--offline", "--json"),
        ]
    )
    assert code == 1
    assert not (tmp_path / "out").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"spoilt"}
    [line] = capsys.readouterr().out.splitlines()
    raw = json.loads(line)
    assert raw["error"]["kind"] == "NothingPassed"
    schemes = [attempt["scheme"] for attempt in raw["error"]["attempts"]]
    assert schemes[0] == "s8-reduced"
    assert schemes[-1] == "u8-embeddings-fp32"
    assert not any(attempt["passed"] for attempt in raw["error"]["attempts"])
    assert all("of their spread" in attempt["note"] for attempt in raw["error"]["attempts"])


def run_script(module, *arguments):
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_schemes_tried_in_vain_are_shown(tmp_path, gate):
    """As a script, for people: a table of what was tried, then the error."""
    checkpoint = make_checkpoint(tmp_path / "spoilt")
    spoil_for_int8(checkpoint)
    found = run_script(
        *("export.drafter", checkpoint, "-o", tmp_path / "out", "--gate", gate),
        *("--accept-loss", "100", "--length", "16", "--offline", "--quiet"),
    )
    assert found.returncode == 1
    assert "Accuracy gate against FP32" in found.stdout
    assert found.stderr.splitlines()[-1].startswith("Error: ")


def test_fp16_overflow_is_kept_in_fp32(tmp_path, options):
    """A value beyond FP16's range stays in FP32 by the measured block list, and the gate passes."""
    checkpoint = make_checkpoint(tmp_path / "loud")
    spoil_for_fp16(checkpoint)
    report = export_verifier(str(checkpoint), tmp_path / "out", "cuda", options, silent)
    manifest = open_bundle(tmp_path / "out").manifest
    assert manifest.details["blocked_nodes"]
    assert manifest.gate["relative_logit_error"] < 0.05
    assert "stay in FP32" in report.notes[0]


def wait_for(found, seconds=90.0):
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        if found():
            return
        time.sleep(0.05)
    raise AssertionError("it did not happen in time")


def start_export(tmp_path, bert):
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "export.drafter", str(bert), "-o", str(tmp_path / "out")),
            "--offline",
        ],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def test_terminated_export_leaves_nothing(tmp_path, bert):
    process = start_export(tmp_path, bert)
    wait_for(lambda: list(tmp_path.glob(".out.unfinished-*/tokenizer.json")))
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) != 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_lost_in_a_library_is_raised_again_by_the_next_progress(number):
    """Guards that an export goes on as if nobody had asked it to stop (seen once in a test run)."""

    reached = []

    def export(_, progress):
        progress("before", 0.0)
        with contextlib.suppress(KeyboardInterrupt):  # as Python drops what a destructor raises
            signal.raise_signal(number)
        reached.append("after the signal")
        progress("after", 1.0)
        reached.append("after the progress")

    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt):
        run_export(export, {"offline": False}, as_json=False, quiet=True)
    assert reached == ["after the signal"]
    assert signal.getsignal(number) is before


def test_killed_export_is_cleared_by_the_next(tmp_path, bert):
    process = start_export(tmp_path, bert)
    wait_for(lambda: list(tmp_path.glob(".out.unfinished-*/tokenizer.json")))
    process.kill()
    process.wait(60)
    assert not (tmp_path / "out").exists()
    with unfinished_folder(tmp_path / "out", 0) as folder:
        assert list(tmp_path.iterdir()) == [folder]
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]


def test_errors_of_the_script_are_one_line(tmp_path):
    found = run_script("export.verifier", tmp_path / "absent", "-o", tmp_path / "out")
    assert found.returncode == 1
    [line] = [line for line in found.stderr.splitlines() if line.startswith("Error:")]
    assert "no model folder" in line
    assert "Traceback" not in found.stderr

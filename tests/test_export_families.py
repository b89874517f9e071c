"""Every supported family becomes a drafter and a verifier bundle that plain ONNX Runtime runs."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

pytest.importorskip("optimum", reason="needs the export extra")

from export.drafter import export_drafter
from export.options import ExportOptions
from export.verifier import export_verifier
from models.bundle import open_bundle
from runtime.encoding import PairEncoder
from runtime.knowledge_base import KnowledgeBase
from runtime.pipeline import AskOptions, Drafted, Pipeline
from runtime.windows import WindowTokenizer
from tests.hf_models import ARCHITECTURES, TOKENIZERS, gate_file, make_checkpoint
from tests.worlds import fill, make_drafter, make_verifier

FUSED_ATTENTION = ("bert", "distilbert", "roberta", "electra", "xlm-roberta")
# Random weights answer at random; the figure that counts here is the logits' error.
ANY_F1 = 100.0


def silent(*_):
    pass


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """architecture -> (checkpoint, drafter bundle, verifier bundle), each made once."""
    folder = tmp_path_factory.mktemp("families")
    options = ExportOptions(
        gate=gate_file(folder / "gate.jsonl"),
        accept_loss=ANY_F1,
        offline=True,
        batch=2,
        length=32,
        seconds=0.0,
        threads=1,
    )
    made = {}

    def get(architecture):
        if architecture not in made:
            checkpoint = make_checkpoint(folder / architecture, architecture)
            drafter, verifier = (folder / f"{architecture}-{role}" for role in ("d", "v"))
            export_drafter(str(checkpoint), drafter, "x86", options, silent)
            export_verifier(str(checkpoint), verifier, "cuda", options, silent)
            made[architecture] = (checkpoint, drafter, verifier)
        return made[architecture]

    return get


@pytest.fixture(params=ARCHITECTURES)
def family(request, exported):
    return request.param, *exported(request.param)


def run(path, bundle, graph):
    encoder = PairEncoder(bundle.tokenizer_path, bundle.manifest.max_length)
    contexts = [encoder.tokenize(text).ids for text in ("The relief valve opens at 6.5 bar.", "No")]
    batch = encoder.batch(encoder.question("When does the valve open?"), contexts)
    session = onnxruntime.InferenceSession(path / graph, providers=["CPUExecutionProvider"])
    feeds = {value.name: batch.feeds[value.name] for value in session.get_inputs()}
    return session, feeds, session.run(None, feeds)


def torch_logits(checkpoint, feeds):
    import torch
    from transformers import AutoModelForQuestionAnswering

    model = AutoModelForQuestionAnswering.from_pretrained(checkpoint).eval()
    with torch.inference_mode():
        outputs = model(**{name: torch.from_numpy(value) for name, value in feeds.items()})
    return outputs.start_logits.numpy(), outputs.end_logits.numpy()


def test_drafter_runs_and_agrees_with_pytorch(family):
    _, checkpoint, path, _ = family
    bundle = open_bundle(path, role="drafter")
    session, feeds, outputs = run(path, bundle, bundle.manifest.graphs["int8"])
    assert [value.name for value in session.get_outputs()] == ["start_logits", "end_logits"]
    assert tuple(feeds) == bundle.manifest.inputs
    real = feeds["attention_mask"] > 0
    for output, expected in zip(outputs, torch_logits(checkpoint, feeds), strict=True):
        assert output.dtype == np.float32
        assert output.shape == feeds["input_ids"].shape
        error = output[real] - expected[real]
        assert np.sqrt(np.mean(error**2)) < 0.35 * expected[real].std()


def test_drafter_is_quantised_and_fused(family):
    architecture, _, path, _ = family
    bundle = open_bundle(path)
    counts = [node.op_type for node in onnx.load(path / bundle.manifest.graphs["int8"]).graph.node]
    assert "MatMulInteger" in counts or "MatMulIntegerToFloat" in counts
    assert bundle.manifest.details["quantised_share"] > 0.7
    assert "LayerNormalization" in counts
    assert not {"SkipLayerNormalization", "BiasGelu"} & set(counts)  # slower than their parts
    if architecture in FUSED_ATTENTION:
        assert "QAttention" in counts or "Attention" in counts


def test_drafter_cannot_saturate_without_vnni(family):
    _, _, path, _ = family
    proof = open_bundle(path).manifest.details["saturation"]
    assert proof["weights"] > 0
    assert proof["unsafe"] == []
    assert -32768 <= proof["lowest_pair_sum"] < 0 < proof["highest_pair_sum"] <= 32767


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_verifier_runs_and_agrees_with_pytorch(family, precision):
    _, checkpoint, _, path = family
    bundle = open_bundle(path, role="verifier")
    _, feeds, outputs = run(path, bundle, bundle.manifest.graphs[precision])
    real = feeds["attention_mask"] > 0
    for output, expected in zip(outputs, torch_logits(checkpoint, feeds), strict=True):
        assert output.dtype == np.float32
        np.testing.assert_allclose(output[real], expected[real], atol=0.05)


def test_manifest_states_the_facts(family):
    architecture, _, path, _ = family
    manifest = open_bundle(path).manifest
    expected = "deberta-v2" if architecture == "deberta-v3" else architecture
    assert manifest.details["family"] == expected
    assert manifest.details["revision"].startswith("sha256:")
    assert manifest.max_length <= 180
    special = manifest.details["special_tokens"]
    names = {"wordpiece": ("[CLS]", "[SEP]"), "bpe": ("<s>", "</s>"), "unigram": ("<s>", "</s>")}
    assert (special["cls"]["token"], special["sep"]["token"]) == names[TOKENIZERS[architecture]]
    assert manifest.gate["questions"] == 300
    assert manifest.gate["accepted_loss"] == ANY_F1


PAIRS = [
    ("roberta", "bert"),
    ("bert", "deberta-v3"),
    ("xlm-roberta", "roberta"),
    ("albert", "mpnet"),
]


@pytest.mark.parametrize(("drafter", "verifier"), PAIRS)
def test_mixed_pairs_give_exact_slices(drafter, verifier, exported, tmp_path):
    """A drafter and a verifier of other families and tokenizers agree on characters."""
    drafter_bundle = open_bundle(exported(drafter)[1])
    verifier_bundle = open_bundle(exported(verifier)[2])
    fill(tmp_path / "kb", drafter_bundle)
    tokenizer = WindowTokenizer.from_file(drafter_bundle.tokenizer_path)
    with (
        KnowledgeBase.open(tmp_path / "kb", tokenizer=tokenizer) as knowledge_base,
        Pipeline(
            knowledge_base,
            make_drafter(drafter_bundle),
            make_verifier(verifier_bundle),
        ) as pipeline,
    ):
        question, options = "When does the relief valve open?", AskOptions(threshold=0.0)
        answer = pipeline.answer(question, options)
        assert answer.route == "speculative"
        text = knowledge_base.text(answer.citation.document_id)
        assert answer.citation.span.of(text) == answer.text == answer.text.strip()
        events = pipeline.ask(question, options)
        [drafted] = [event for event in events if isinstance(event, Drafted)]
        assert drafted.drafts
        for draft in drafted.drafts:
            document = knowledge_base.text(draft.window.document_id)
            assert draft.span.of(document) == draft.answer

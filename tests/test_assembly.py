"""Settings -> pipeline: what is shared, what is checked, what a missing part leaves working."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge.assembly import (
    ask_options,
    assemble,
    assemble_with,
    bundle_path,
    calibration_of,
)
from edge.settings import Settings, resolve
from models.bundle import Bundle, describe_file, open_bundle, write_manifest
from runtime.alignment import TokenRange
from runtime.calibration import SCORE, CalibrationMap
from runtime.errors import BundleDamaged, BundleNotFound, KnowledgeBaseNotFound, SpecragError
from runtime.spans import ScoredSpan
from tests.nodes import node_thread
from tests.shell import MOTOR, VALVE
from tests.tiny_models import make_bundle
from tests.worlds import parsed

QUESTION = "Who tests the relief valve?"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    make_bundle(tmp_path / "drafter", role="drafter")
    make_bundle(tmp_path / "verifier", role="verifier")
    given = {"kb": tmp_path / "kb", "drafter": tmp_path / "drafter",
             "verifier": tmp_path / "verifier", "threads": 1}  # fmt: skip
    return resolve(given, environment={})


def filled(settings: Settings, folder: Path) -> Settings:
    assemble_with(
        settings, [parsed(VALVE, "valve"), parsed(MOTOR, "motor")], folder
    ).pipeline.close()
    return replace(settings, kb=folder)


def test_one_tokenizer_is_loaded_once(settings: Settings, tmp_path: Path) -> None:
    ready = filled(settings, tmp_path / "kb")
    with assemble(ready).pipeline as pipeline:
        assert pipeline.verifier is not None
        assert pipeline.verifier.encoder is pipeline.drafter.encoder
        assert pipeline.verifier.reuses_windows
        windows = pipeline.knowledge_base.windows([1])
        ids = pipeline.drafter.encoder.tokenize(windows[0].text).ids
        assert windows[0].token_ids.tolist() == ids.tolist()


@pytest.mark.parametrize("family", ["bpe", "unigram"])
def test_models_of_other_families(settings: Settings, tmp_path: Path, family: Any) -> None:
    make_bundle(tmp_path / "other", role="verifier", family=family)
    mixed = filled(replace(settings, verifier=tmp_path / "other"), tmp_path / "kb")
    with assemble(mixed).pipeline as pipeline:
        assert pipeline.verifier is not None
        assert not pipeline.verifier.reuses_windows
        answer = pipeline.answer(QUESTION, ask_options(replace(mixed, route="speculative")))
        assert answer.citation is not None
        text = pipeline.knowledge_base.text(answer.citation.document_id)
        assert answer.citation.span.of(text) == answer.text


def test_a_missing_knowledge_base_is_told_before_a_missing_model(
    settings: Settings, tmp_path: Path
) -> None:
    with pytest.raises(KnowledgeBaseNotFound):
        assemble(replace(settings, drafter=tmp_path / "none"))


def test_nothing_is_left_open_when_a_part_fails(settings: Settings, tmp_path: Path) -> None:
    ready = filled(settings, tmp_path / "kb")
    before = threading.active_count()
    for _ in range(3):
        with pytest.raises(BundleNotFound):
            assemble(replace(ready, verifier=tmp_path / "none"), writable=True)
    with assemble(ready, writable=True).pipeline:
        pass  # the writer's lock was free
    assert threading.active_count() <= before + 1


def test_a_remote_verifier_needs_only_manifest_and_tokenizer_here(
    settings: Settings, tmp_path: Path
) -> None:
    ready = filled(settings, tmp_path / "kb")
    assert ready.verifier is not None
    served = open_bundle(ready.verifier)
    slim = tmp_path / "slim"
    slim.mkdir()
    for name in ("manifest.json", "tokenizer.json"):
        shutil.copy(ready.verifier / name, slim)
    options = ask_options(replace(ready, route="speculative"))
    with assemble(ready).pipeline as pipeline:
        local = pipeline.answer(QUESTION, options)
    with node_thread(served) as node:
        far = replace(ready, verifier=slim, verifier_url=node.url)
        with assemble(far).pipeline as pipeline:
            remote = pipeline.answer(QUESTION, options)
    assert remote.citation == local.citation
    assert remote.confidence.value == pytest.approx(local.confidence.value, abs=1e-5)
    (slim / "tokenizer.json").write_text("{}")
    with pytest.raises(BundleDamaged, match=r"tokenizer\.json"):
        assemble(far)


def test_a_remote_verifier_that_is_gone_is_a_warning(settings: Settings, tmp_path: Path) -> None:
    ready = filled(settings, tmp_path / "kb")
    assembled = assemble(replace(ready, verifier_url="http://127.0.0.1:9"))
    with assembled.pipeline as pipeline:
        assert pipeline.verifier is None
        assert assembled.warnings[0].startswith("answers are not verified")
        answer = pipeline.answer("What does fault code E-17 mean?")
        assert "the verifier cannot be used" in answer.reason, "not: there is none"


def test_default_bundles_lie_beside_the_package() -> None:
    import models

    beside = Path(models.__file__).parent
    assert bundle_path(Settings(), "drafter").parent == beside
    assert bundle_path(Settings(), "verifier").parent == beside


def test_ask_options_carry_every_setting_of_a_question() -> None:
    changed = resolve(
        {
            "route": "standard", "k": 3, "subsets": 2, "strategy": "random", "seed": 9,
            "threshold": 0.3, "deadline": "none", "verify": "window", "terms": "reflection",
            "refine": False, "rationale_tokens": 20, "answer_tokens": 7, "exclude_flagged": True,
        },
        environment={},
    )  # fmt: skip
    options = ask_options(changed)
    assert (options.route, options.windows, options.subsets) == ("standard", 3, 2)
    assert (options.strategy, options.seed, options.threshold) == ("random", 9, 0.3)
    assert options.drafter_deadline is None
    assert options.verification.context == "window"
    assert options.verification.terms == ("reflection",)
    assert options.verification.refine is False
    assert options.verification.max_answer_tokens == 7
    assert options.drafting.rationale_tokens == 20
    assert options.drafting.max_answer_tokens == 7
    assert options.retrieval.exclude_flagged is True


# Calibration


EVEN = ScoredSpan(TokenRange(0, 0), 0.0, 0.0, 0.0)


def calibrated(verifier: Bundle, drafter: str, score: str = SCORE) -> Bundle:
    """The bundle with a calibration for the named drafter in it."""
    line = CalibrationMap("platt", np.array([-5.0, 5.0]), np.array([0.25, 0.75]))
    maps: Mapping[str, Any] = {"speculative": line.to_json()}
    file = verifier.path / "calibration.json"
    file.write_text(json.dumps({"drafter": drafter, "score": score, "maps": maps}))
    files = {**verifier.manifest.files, file.name: describe_file(file)}
    write_manifest(verifier.path, replace(verifier.manifest, files=files))
    return open_bundle(verifier.path)


def pair(settings: Settings) -> tuple[Bundle, Bundle]:
    assert settings.drafter is not None
    assert settings.verifier is not None
    return open_bundle(settings.drafter), open_bundle(settings.verifier)


def test_calibration_is_used_for_the_pair_it_was_fitted_for(settings: Settings) -> None:
    drafter, verifier = pair(settings)
    graph = drafter.manifest.files[drafter.manifest.graphs["int8"]]
    verifier = calibrated(verifier, graph.sha256)
    calibration, doubts = calibration_of(drafter, verifier)
    assert doubts == ()
    confidence = calibration.confidence("speculative", EVEN)
    assert confidence.calibrated
    assert 0.25 <= confidence.value <= 0.75
    assert not calibration.confidence("standard", EVEN).calibrated


def test_calibration_of_another_drafter_is_not_used(settings: Settings) -> None:
    """It would promise a probability that nobody measured; the name alone is no proof, since a
    drafter that was trained on keeps its name."""
    drafter, verifier = pair(settings)
    calibration, doubts = calibration_of(drafter, calibrated(verifier, "0" * 64))
    assert not calibration.confidence("speculative", EVEN).calibrated
    assert "another drafter than tiny-drafter" in doubts[0]
    assert calibration_of(drafter, calibrated(verifier, drafter.manifest.name))[1] == doubts


def test_calibration_of_another_score_is_not_used(settings: Settings) -> None:
    """Maps of an earlier version read draft and verifier together; their numbers mean less."""
    drafter, verifier = pair(settings)
    graph = drafter.manifest.files[drafter.manifest.graphs["int8"]]
    calibration, doubts = calibration_of(drafter, calibrated(verifier, graph.sha256, "other"))
    assert not calibration.confidence("speculative", EVEN).calibrated
    assert "fit it again" in doubts[0]


def test_without_calibration_confidences_say_so(settings: Settings, tmp_path: Path) -> None:
    ready = filled(settings, tmp_path / "kb")
    with assemble(ready).pipeline as pipeline:
        answer = pipeline.answer(QUESTION, ask_options(replace(ready, route="speculative")))
    assert not answer.confidence.calibrated
    assert str(answer.confidence).endswith("(uncalibrated)")


def test_a_garbled_calibration_is_a_damaged_bundle(settings: Settings) -> None:
    drafter, verifier = pair(settings)
    file = verifier.path / "calibration.json"
    for content in ("[]", '{"drafter": 1}', "{", '{"drafter": "x", "maps": 3}'):
        file.write_text(content)
        files = {**verifier.manifest.files, file.name: describe_file(file)}
        write_manifest(verifier.path, replace(verifier.manifest, files=files))
        with pytest.raises(SpecragError):
            calibration_of(drafter, open_bundle(verifier.path))

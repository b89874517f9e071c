"""One pipeline across two boxes: the same answers near and far, and an answer when far is gone."""

from __future__ import annotations

import dataclasses

import pytest

from runtime.pipeline import AskOptions
from runtime.remote import open_remote_session
from tests.nodes import node_process
from tests.worlds import World, make_verifier

QUESTIONS = (
    "What does fault code E-17 mean?",
    "At what pressure does the relief valve open?",
    "How much water does the reservoir hold?",
)
ROUTES = ("auto", "speculative", "standard")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("boxes"), verifier="unigram")


def comparable(answer):
    """All of an answer but its times and where its sessions run."""
    stages = tuple(dataclasses.replace(s, milliseconds=0.0) for s in answer.trace.stages)
    trace = dataclasses.replace(answer.trace, stages=stages, total_milliseconds=0.0, placements=())
    return dataclasses.replace(answer, trace=trace)


def test_near_and_far_agree_and_far_may_vanish(world):
    """One node, one run: equal answers and scores to the last bit, then the node is killed."""
    with node_process("--model", str(world.verifier.path)) as (process, url):
        far = make_verifier(world.verifier, open_remote_session(url))
        with world.pipeline() as near_pipeline, world.pipeline(verifier=far) as far_pipeline:
            for question in QUESTIONS:
                for route in ROUTES:
                    options = AskOptions(threshold=0.0, route=route)
                    near, remote = (
                        pipeline.answer(question, options)
                        for pipeline in (near_pipeline, far_pipeline)
                    )
                    assert comparable(near) == comparable(remote)
            [placement] = [p for p in remote.trace.placements if p.role == "verifier"]
            assert placement.location.startswith(url)

            process.kill()
            process.wait()
            orphaned = far_pipeline.answer(QUESTIONS[0], AskOptions())
            assert (orphaned.route, orphaned.verified) == ("drafter", False)
            assert orphaned.reason.startswith("the verifier cannot be used")
            assert (
                orphaned.text
                == far_pipeline.knowledge_base.text(orphaned.citation.document_id)[
                    orphaned.citation.span.start : orphaned.citation.span.end
                ]
            )

"""The default pair, asked for one of several like things: the answer is the asked one's."""

from __future__ import annotations

from pathlib import Path

from tests.shell import DEFAULT_PAIR, ROOT, Shell, needs_default_pair

# 60 passages and 226 questions, written for this by someone who knew neither the models nor how
# sibling views are made. For measuring only: never trained or tuned on.
SIBLINGS = ROOT / "tests" / "data" / "siblings.json"


@needs_default_pair
def test_one_of_several_like_things(tmp_path: Path) -> None:
    """Guards: asked for well W1, the pair gave the depth of well W2 and was sure of it.

    Of 100 of these questions, F1 by standard RAG and with `auto`: 61.8 and 56.1 before the pair was
    taught with sibling views, 76.2 and 79.3 since.
    """
    shell = Shell(tmp_path / "home", {**DEFAULT_PAIR})
    arguments = ("eval", "--dataset", SIBLINGS, "--limit", 100, "-k", 3, "--json")
    routes = shell(*arguments).json["routes"]
    assert routes["standard"]["f1"] > 70
    assert routes["auto"]["f1"] > 65

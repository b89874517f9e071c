"""demo: the example manual -> real answers to real questions, each by the route it really took.

Nothing here is scripted: the questions are asked like any others, and what is printed is what came
back. The demo fails if one of the three kinds of answer (speculative, by the fall-back, none) does
not occur.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from edge.assembly import ask_options, assemble, open_knowledge_base
from edge.command import Run, command
from edge.screen import counted
from edge.settings import Settings, knowledge_base_path
from runtime.errors import DocumentError, UsageError

if TYPE_CHECKING:
    from runtime.pipeline import Answer, AskOptions, Pipeline, Route

# Asked in this order. Which route each takes is up to the models.
QUESTIONS = (
    "Which key do I need for the quarry road gate?",
    "After how many running hours are the high-lift pump bearings greased nowadays?",
    "To what stroke length are DP-1 and DP-2 set?",
    "Please tell me: What damage did somebody do in 2016 by opening the washout too fast?",
    "How loud is it inside the dosing room?",
    "What does fault code E-25 stand for?",
)
ROUTES: tuple[Route, ...] = ("speculative", "standard", "abstained")
EXAMPLE = "pumping-station"


@command(
    "demo",
    scopes=("store", "creation", "models", "question"),
    examples=("specrag demo", "specrag demo --kb /tmp/demo --explain"),
)
@click.option("--explain", is_flag=True, help="Show subsets, drafts, every score and timings.")
@click.option(
    "--documents",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The example manual.  [default: examples/pumping-station of the source tree]",
)
def demo(run: Run, explain: bool, documents: Path | None) -> int:
    """Ask the example manual several questions and print what comes back.

    The knowledge base is made in a temporary folder, unless `--kb` names one, which is then kept.
    Fails if not all three kinds of answer occur: speculative, by the fall-back to standard RAG, and
    none.
    """
    folder = documents or example_folder()
    with ExitStack() as stack:
        settings = run.settings
        if run.options.get("kb") is None:
            temporary = stack.enter_context(TemporaryDirectory(prefix="specrag-demo-"))
            settings = replace(settings, kb=Path(temporary) / "knowledge-base")
        _add(run, settings, folder)
        assembled = assemble(settings)
        stack.enter_context(assembled.pipeline)
        for warning in assembled.warnings:
            run.warn(warning)
        options = ask_options(settings)
        answers = [
            _ask(run, assembled.pipeline, question, options, explain) for question in QUESTIONS
        ]
        return _conclude(run, answers, assembled.warnings)


def example_folder() -> Path:
    """The example manual beside the source tree.

    Raises:
        UsageError: this is an installed copy without it.
    """
    folder = Path(__file__).resolve().parent.parent / "examples" / EXAMPLE
    if not folder.is_dir():
        raise UsageError(
            "The example manual is not part of an installed specrag",
            where=str(folder),
            fix="Run it in the source tree, or name a folder with --documents",
        )
    return folder


def _add(run: Run, settings: Settings, folder: Path) -> None:
    """Add the manual's files.

    Raises:
        DocumentError: they could not be read.
    """
    from edge.commands.documents import progress, show_outcomes
    from edge.ingestion import exit_code, find, ingest

    found = find([folder], leave_out=knowledge_base_path(settings))
    started = time.perf_counter()
    with (
        open_knowledge_base(settings, create=True) as kb,
        progress(run, len(found.files)) as advance,
    ):
        outcomes = [*found.problems, *ingest(kb, found.files, on_progress=advance)]
    if exit_code(outcomes):
        if not run.json:
            show_outcomes(run, outcomes)
        raise DocumentError(
            "The example manual could not be added",
            where=str(folder),
            fix="Name the folder examples/pumping-station of the source tree with --documents",
        )
    if not run.json:
        seconds = time.perf_counter() - started
        run.screen.line(
            ("added ", "dim"), f"{counted(len(found.files), 'file')} of {folder} in {seconds:.1f} s"
        )


def _ask(run: Run, pipeline: Pipeline, question: str, options: AskOptions, explain: bool) -> Answer:
    from edge.rendering import show_answer, show_explanation
    from runtime.pipeline import Answered

    events = list(pipeline.ask(question, options))
    last = events[-1]
    assert isinstance(last, Answered)  # the stream always ends with it
    if not run.json:
        run.screen.line()
        run.screen.line(("? ", "dim"), (question, "strong"))
        show_answer(run.screen, last.answer, pipeline.knowledge_base)
        if explain:
            show_explanation(run.screen, last.answer, events, pipeline.knowledge_base)
    return last.answer


def _conclude(run: Run, answers: Sequence[Answer], warnings: Sequence[str]) -> int:
    """Say which routes occurred; 1 if one of the three kinds is missing."""
    from edge.rendering import answer_json

    taken = Counter(answer.route for answer in answers)
    missing = [route for route in ROUTES if not taken[route]]
    if run.json:
        run.emit(
            {
                "answers": [answer_json(answer, warnings) for answer in answers],
                "routes": dict(taken),
                "missing_routes": missing,
            }
        )
    else:
        run.screen.line()
        shares = ", ".join(f"{count} {route}" for route, count in taken.most_common())
        run.screen.line(("routes: ", "dim"), shares)
        if missing:
            run.screen.line(("missing: ", "bad"), f"no question took {', '.join(missing)}")
    return 1 if missing else 0

"""Answers, their events and traces -> what people read, and the JSON that programs read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edge.screen import Column, Screen, Style, counted, one_line, path_end
from runtime.trace import PlacementTrace, Trace, as_json

if TYPE_CHECKING:
    from runtime.decision import Confidence
    from runtime.documents import Citation, RetrievedWindow
    from runtime.knowledge_base import KnowledgeBase
    from runtime.pipeline import Answer, ClosestPassage, Event, ReadWindows, Retrieved

_REACH = 200  # characters shown at least on either side of an answer
_LONGEST_QUOTE = 300  # characters of a closest passage
_SHOWN_READINGS = 5

_ROUTES: dict[str, tuple[str, Style]] = {
    "speculative": ("speculative", "good"),
    "standard": ("standard RAG", "good"),
    "drafter": ("drafter only, not verified", "warning"),
    "abstained": ("abstained", "warning"),
}


# JSON


def answer_json(answer: Answer, warnings: Sequence[str] = ()) -> dict[str, Any]:
    """One answer, see docs/json.md."""
    return {
        "question": answer.question,
        "answer": answer.text,
        "route": answer.route,
        "reason": answer.reason,
        "verified": answer.verified,
        "confidence": _confidence_json(answer.confidence),
        "citation": None if answer.citation is None else citation_json(answer.citation),
        "rationale": answer.rationale,
        "closest": [_closest_json(passage) for passage in answer.closest],
        "warnings": [*warnings, *_own_warnings(answer)],
        "trace": as_json(answer.trace),
    }


def _own_warnings(answer: Answer) -> list[str]:
    """What people should know about this answer, beside what holds for all of them."""
    citation = answer.citation
    if citation is None or citation.superseded is None:
        return []
    return [superseded_warning(citation.superseded.words())]


def citation_json(citation: Citation) -> dict[str, Any]:
    """One citation, see docs/json.md."""
    return {
        "reference": reference(citation),
        "document_id": citation.document_id,
        "source": citation.source,
        "title": citation.title,
        "start": citation.span.start,
        "end": citation.span.end,
        "quote": citation.quote,
        "page": citation.page,
        "heading_path": list(citation.heading_path),
        "superseded": None if citation.superseded is None else citation.superseded.words(),
    }


def explanation_json(events: Sequence[Event]) -> dict[str, Any]:
    """What `--explain` adds: the windows that were retrieved and what standard RAG read in them."""
    retrieved, read = _events(events)
    windows = retrieved.windows if retrieved else ()
    readings = read.readings if read else ()
    return {
        "windows": [
            {
                "rank": found.rank,
                "score": found.score,
                "document_id": found.window.document_id,
                "start": found.window.span.start,
                "end": found.window.span.end,
                "text": found.window.text,
            }
            for found in windows
        ],
        "readings": [
            {
                "document_id": reading.window.document_id,
                "start": reading.span.start,
                "end": reading.span.end,
                "answer": reading.answer,
                "score": reading.score,
            }
            for reading in readings
        ],
    }


def _confidence_json(confidence: Confidence) -> dict[str, Any]:
    return {"value": confidence.value, "calibrated": confidence.calibrated}


def _closest_json(passage: ClosestPassage) -> dict[str, Any]:
    return {"citation": citation_json(passage.citation), "score": passage.score}


def _events(events: Sequence[Event]) -> tuple[Retrieved | None, ReadWindows | None]:
    """The events that hold more than the trace does."""
    from runtime.pipeline import ReadWindows, Retrieved

    retrieved = next((event for event in events if isinstance(event, Retrieved)), None)
    read = next((event for event in events if isinstance(event, ReadWindows)), None)
    return retrieved, read


# Words


def reference(citation: Citation) -> str:
    """A citation as `specrag show` takes it."""
    return f"{citation.source}#{citation.span.start}-{citation.span.end}"


def file_cell(source: str) -> str:
    """A source for a table: as seen from here, its end if it is long."""
    return path_end(short_path(source))


def short_path(source: str) -> str:
    """A source as seen from the working folder, where that is shorter."""
    if not source.startswith(os.sep):
        return source
    try:
        relative = os.path.relpath(source)
    except OSError:  # the working folder has gone
        return source
    return relative if not relative.startswith("..") and len(relative) < len(source) else source


def place(citation: Citation) -> str:
    """Where a quote stands, in words: file, page or headings, characters."""
    parts = [short_path(citation.source)]
    if citation.page is not None:
        parts.append(f"page {citation.page}")
    if citation.heading_path:
        parts.append(" > ".join(one_line(title, 60) for title in citation.heading_path))
    parts.append(f"characters {citation.span.start}-{citation.span.end}")
    return ", ".join(parts)


def show_place(screen: Screen, citation: Citation, indent: int) -> None:
    """Where a quote stands, and a warning if its document says that it is no longer in force."""
    screen.line((place(citation), "dim"), indent=indent)
    if citation.superseded is not None:
        words = citation.superseded.words(short_path)
        screen.line(("warning: ", "warning"), superseded_warning(words), indent=indent)


def superseded_warning(why: str) -> str:
    """That a citation's document is no longer in force, and why."""
    return f"from a superseded document: {one_line(why)}"


def surroundings(
    knowledge_base: KnowledgeBase, citation: Citation, reach: int = _REACH
) -> tuple[str, str]:
    """The text before and after a quote, about `reach` characters each, cut between words."""
    from runtime.documents import Span

    document = knowledge_base.document(citation.document_id)
    start = max(0, citation.span.start - reach)
    end = min(document.characters, citation.span.end + reach)
    text = knowledge_base.citation(document.id, Span(start, end)).quote
    before = text[: citation.span.start - start]
    after = text[citation.span.end - start :]
    if start > 0:
        before = "…" + (before[before.find(" ") :] if " " in before else before)
    if end < document.characters:
        after = (after[: after.rfind(" ") + 1] if " " in after else after) + "…"
    return before, after


# For people


def show_answer(screen: Screen, answer: Answer, knowledge_base: KnowledgeBase) -> None:
    """The answer with its place, the words around it, how sure it is, and by which route."""
    if answer.text is None or answer.citation is None:
        screen.line(("Not in these documents.", "warning"))
        _show_closest(screen, answer.closest)
    else:
        screen.line((answer.text, "strong"))
        screen.line()
        before, after = surroundings(
            knowledge_base, answer.citation, max(_REACH, len(answer.rationale) // 2)
        )
        screen.quote(_flat(before), _flat(answer.text), _flat(after))
        screen.line()
        show_place(screen, answer.citation, indent=2)
    words, style = _ROUTES[answer.route]
    screen.line(
        ("route ", "dim"), (words, style), (" · confidence ", "dim"), str(answer.confidence),
        (f" · {answer.reason}", "dim"),
        indent=2,
    )  # fmt: skip
    screen.line((timing(answer.trace), "dim"), indent=2)


def _flat(text: str) -> str:
    """`text` with runs of white space as one space, a space at either end kept."""
    lead = " " if text[:1].isspace() else ""
    tail = " " if text[-1:].isspace() and text.strip() else ""
    return lead + " ".join(text.split()) + tail


def _show_closest(screen: Screen, closest: Sequence[ClosestPassage]) -> None:
    if not closest:
        return
    screen.line()
    screen.line("The closest passages:")
    for passage in closest:
        screen.line(("- ", "dim"), one_line(passage.citation.quote, _LONGEST_QUOTE), indent=2)
        show_place(screen, passage.citation, indent=4)
    screen.line()


def timing(trace: Trace) -> str:
    """The stages' milliseconds and the tokens read, in one line."""
    stages = ", ".join(f"{stage.name} {stage.milliseconds:.0f}" for stage in trace.stages)
    return (
        f"{trace.total_milliseconds:.0f} ms ({stages}) · tokens read: drafter "
        f"{trace.drafter_tokens:,}, verifier {trace.verifier_tokens:,}"
    )


def show_explanation(
    screen: Screen, answer: Answer, events: Sequence[Event], knowledge_base: KnowledgeBase
) -> None:
    """Subsets, drafts, rationales, every score, route, timings and placements, as tables."""
    retrieved, read = _events(events)
    screen.line()
    if retrieved is not None:
        _show_windows(screen, retrieved.windows, answer.trace, knowledge_base)
    _show_drafts(screen, answer.trace)
    if read is not None:
        _show_readings(screen, read, knowledge_base)
    _show_stages(screen, answer.trace)
    _show_placements(screen, answer.trace)


def _show_windows(
    screen: Screen,
    windows: Sequence[RetrievedWindow],
    trace: Trace,
    knowledge_base: KnowledgeBase,
) -> None:
    subset_of = {rank: subset.index for subset in trace.subsets for rank in subset.ranks}
    screen.table(
        "Windows retrieved, and their subsets",
        (
            Column("rank", right=True), Column("BM25", right=True), Column("subset", right=True),
            Column("file"), Column("text", wide=True),
        ),
        [
            (
                str(found.rank),
                f"{found.score:.2f}",
                str(subset_of.get(found.rank, "")),
                _name(knowledge_base, found.window.document_id),
                one_line(found.window.text, 90),
            )
            for found in windows
        ],
    )  # fmt: skip
    screen.line()


def _name(knowledge_base: KnowledgeBase, document_id: int) -> str:
    return os.path.basename(knowledge_base.document(document_id).source)


def _show_drafts(screen: Screen, trace: Trace) -> None:
    if not trace.drafts:
        return
    logits = [Column(f"{name} logit", right=True) for name in ("start", "end", "null")]
    screen.table(
        "Drafts",
        (Column("subset", right=True), *logits, Column("rho_draft", right=True),
         Column("answer", wide=True)),
        [
            (
                str(draft.subset),
                f"{draft.start_logit:.2f}",
                f"{draft.end_logit:.2f}",
                f"{draft.null_logit:.2f}",
                f"{draft.rho_draft:.3f}",
                draft.answer,
            )
            for draft in trace.drafts
        ],
    )  # fmt: skip
    screen.line()
    _show_verdicts(screen, trace)
    screen.line()
    screen.table(
        "Rationales",
        (
            Column("subset", right=True),
            Column("context", right=True),
            Column("rationale", wide=True),
        ),
        [
            (str(draft.subset), f"{draft.context_tokens} tokens", draft.rationale)
            for draft in trace.drafts
        ],
    )
    screen.line()


def _show_verdicts(screen: Screen, trace: Trace) -> None:
    judged = [draft for draft in trace.drafts if draft.score is not None]
    if not judged:
        return
    judged.sort(key=lambda draft: -(draft.score or 0.0))
    rhos = [Column(f"rho_{name}", right=True) for name in ("containment", "reflection")]
    screen.table(
        "Verdicts (* accepted)",
        (Column(""), Column("subset", right=True), *rhos, Column("ln score", right=True),
         Column("answer", wide=True)),
        [
            (
                "*" if draft.selected else "",
                str(draft.subset),
                f"{draft.rho_self_containment:.3f}",
                f"{draft.rho_self_reflection:.3f}",
                f"{draft.score:.3f}",
                draft.verified_answer or "",
            )
            for draft in judged
        ],
    )  # fmt: skip
    screen.line()


def _show_readings(screen: Screen, read: ReadWindows, knowledge_base: KnowledgeBase) -> None:
    screen.table(
        "Standard RAG: the best spans of the windows themselves",
        (Column("ln score", right=True), Column("file"), Column("answer", wide=True)),
        [
            (
                f"{reading.score:.3f}",
                _name(knowledge_base, reading.window.document_id),
                one_line(reading.answer, 60),
            )
            for reading in read.readings[:_SHOWN_READINGS]
        ],
    )
    screen.line()


def _show_stages(screen: Screen, trace: Trace) -> None:
    rows = [
        (stage.name, f"{stage.milliseconds:.1f}", f"{stage.tokens:,}" if stage.tokens else "")
        for stage in trace.stages
    ]
    tokens = trace.drafter_tokens + trace.verifier_tokens
    rows.append(("all", f"{trace.total_milliseconds:.1f}", f"{tokens:,}"))
    screen.table(
        "Stages", (Column("stage"), Column("ms", right=True), Column("tokens", right=True)), rows
    )
    screen.line()


def _show_placements(screen: Screen, trace: Trace) -> None:
    """What each session really got, and why; words, which a table had no room for."""
    screen.line(("Where the models ran", "strong"))
    screen.pairs([(placement.role, _placement(placement)) for placement in trace.placements])


def _placement(placement: PlacementTrace) -> str:
    threads = "" if placement.threads is None else f", {counted(placement.threads, 'thread')}"
    why = "; ".join((placement.reason, *placement.warnings))
    return (
        f"{placement.provider} on {placement.device}, {placement.precision}{threads}, "
        f"{placement.location}; asked for {placement.requested}: {why}"
    )

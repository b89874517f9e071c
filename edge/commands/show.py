"""show: a citation -> the passage it names, with the quote marked."""

from __future__ import annotations

import re

import click

from edge.command import Run, command
from runtime.errors import UsageError

_PLACE = re.compile(r"(?P<source>.+)#(?P<start>\d+)-(?P<end>\d+)", re.DOTALL)


@command(
    "show",
    scopes=("store",),
    examples=(
        "specrag show 'manual.pdf#123-160'",
        "specrag show '/data/manuals/manual.pdf#123-160' --context 1000",
    ),
)
@click.argument("citation", metavar="CITATION")
@click.option(
    "--context",
    type=click.IntRange(min=0),
    default=400,
    show_default=True,
    metavar="N",
    help="Characters shown on either side.",
)
def show(run: Run, citation: str, context: int) -> None:
    """Print the passage that a citation names, with the quote marked.

    A CITATION is a document's path (or its last part), `#`, and the characters from-to. Answers
    name all of these; with --json they have it in this form.
    """
    from edge.assembly import open_knowledge_base
    from edge.commands.documents import match_source
    from edge.rendering import citation_json, show_place, surroundings
    from runtime.documents import Span

    match = _PLACE.fullmatch(citation)
    if match is None:
        raise UsageError(
            "This is not a citation", where=citation, fix="Write it as manual.pdf#123-160"
        )
    with open_knowledge_base(run.settings) as kb:
        documents = {document.source: document for document in kb.documents()}
        document = documents.get(match_source(list(documents), match["source"]))
        if document is None:
            raise UsageError(
                "This is an archive; name a document in it",
                where=match["source"],
                fix="See `specrag list` for all documents",
            )
        found = kb.citation(document.id, Span(int(match["start"]), int(match["end"])))
        before, after = surroundings(kb, found, context)
    if run.json:
        run.emit({"citation": citation_json(found), "before": before, "after": after})
        return
    run.screen.quote(before, found.quote, after)
    run.screen.line()
    show_place(run.screen, found, indent=2)

"""The Python interface: open a knowledge base, add to it, ask it.

    from edge.api import open_rag

    with open_rag("station", create=True) as rag:
        rag.add_texts(["The relief valve is tested every 12 months."])
        answer = rag.ask("How often is the relief valve tested?")
        print(answer.text, answer.citation, answer.confidence)

The same assembly, settings and stream of events as the command line's; see docs/python.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from edge.assembly import Assembled, ask_options, assemble
from edge.ingestion import Outcome, find, ingest
from edge.settings import SETTINGS, Settings, resolve
from runtime.documents import Document
from runtime.errors import UsageError
from runtime.pipeline import Answer, Answered, Drafted, Event, ReadWindows, Retrieved, Verified
from runtime.readers import parse_text

__all__ = [
    "Answer",
    "Answered",
    "Document",
    "Drafted",
    "Event",
    "Outcome",
    "Rag",
    "ReadWindows",
    "Retrieved",
    "Text",
    "Verified",
    "open_rag",
]

_QUESTION_SETTINGS = {setting.name for setting in SETTINGS if setting.scope == "question"} - {"log"}


@dataclass(frozen=True, slots=True)
class Text:
    """A text to add.

    Attributes:
        source: its name in citations; adding another text of the same source replaces it.
        media_type: "text/plain", "text/markdown" or "text/html".
    """

    text: str
    source: str
    title: str = ""
    media_type: str = "text/plain"


def open_rag(
    kb: str | PathLike[str] | None = None,
    *,
    create: bool = False,
    read_only: bool = False,
    config: str | PathLike[str] | None = None,
    **settings: Any,
) -> Rag:
    """Open a knowledge base and both models.

    Args:
        kb: the folder; by default the settings say which.
        create: make the knowledge base if there is none.
        read_only: leave the writing to others; adding is then an error.
        settings: any of docs/settings.md by name, such as `drafter="my-drafter"`, `k=20`.

    Raises:
        KnowledgeBaseError, BundleError, SessionError, UsageError
    """
    options = {**settings, "kb": None if kb is None else Path(kb)}
    resolved = resolve(options, config=None if config is None else Path(config))
    return Rag(resolved, assemble(resolved, create=create, writable=not read_only))


class Rag:
    """An open knowledge base with its models. Safe to share between threads; close it after use."""

    def __init__(self, settings: Settings, assembled: Assembled) -> None:
        self.settings = settings
        self.warnings = assembled.warnings
        self.pipeline = assembled.pipeline
        self.knowledge_base = assembled.pipeline.knowledge_base

    def __enter__(self) -> Rag:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the knowledge base and the models."""
        self.pipeline.close()

    def add_texts(self, texts: Iterable[str | Text]) -> list[Document]:
        """Add texts, all published together.

        A plain string is named by its content ("text-" and eight digits of its sha256).

        Raises:
            DocumentError: a text is empty; then none is added.
            KnowledgeBaseError: the knowledge base cannot be written.
        """
        added = []
        with self.knowledge_base.batch():
            for given in texts:
                raw = (given if isinstance(given, str) else given.text).encode("utf-8", "replace")
                digest = hashlib.sha256(raw).hexdigest()
                text = Text(given, f"text-{digest[:8]}") if isinstance(given, str) else given
                parsed = parse_text(text.text, text.source, text.media_type, title=text.title)
                added.append(self.knowledge_base.add(parsed, content_sha256=digest, size=len(raw)))
        return added

    def add_paths(self, paths: Iterable[str | Path]) -> list[Outcome]:
        """Add files, folders and patterns; an outcome for each file, also those that failed.

        Raises:
            KnowledgeBaseError: the knowledge base cannot be written.
        """
        found = find(list(paths), leave_out=self.knowledge_base.path)
        outcomes = ingest(
            self.knowledge_base, found.files, problems=found.problems, folders=found.folders
        )
        return [*found.problems, *outcomes]

    def remove(self, source: str) -> int:
        """Remove the documents of a source, archive or folder; returns how many there were."""
        return self.knowledge_base.remove(source)

    def documents(self) -> list[Document]:
        """All documents, in the order they were added."""
        return self.knowledge_base.documents()

    def ask(self, question: str, **options: Any) -> Answer:
        """The answer to one question; see `stream`."""
        for event in self.stream(question, **options):
            if isinstance(event, Answered):
                return event.answer
        raise AssertionError("the stream always ends with Answered")

    def stream(self, question: str, **options: Any) -> Iterator[Event]:
        """The stages of one question as they happen: Retrieved, Drafted, Verified, ReadWindows
        (each where it takes place), and Answered at the end.

        Args:
            options: settings of scope "question" for this question only, such as
                `route="standard"`, `threshold="strict"`.

        Raises:
            QuestionError, KnowledgeBaseEmpty, UsageError
        """
        unknown = sorted(set(options) - _QUESTION_SETTINGS)
        if unknown:
            raise UsageError(
                f"{', '.join(unknown)} cannot be set for one question",
                fix=f"These can: {', '.join(sorted(_QUESTION_SETTINGS))}",
            )
        return self.pipeline.ask(question, ask_options(self.settings.replaced(options)))

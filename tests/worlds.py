"""Small worlds for tests of the pipeline: tiny bundles, a real knowledge base, real sessions."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from models.bundle import Bundle
from runtime.documents import ParsedDocument
from runtime.drafting import Drafter
from runtime.encoding import PairEncoder
from runtime.knowledge_base import KnowledgeBase
from runtime.pipeline import Pipeline
from runtime.sessions import Session, SessionOptions, open_session
from runtime.verification import Verifier
from runtime.windows import WindowTokenizer
from tests.tiny_models import CORPUS, Family, make_bundle


def parsed(text: str, source: str = "text") -> ParsedDocument:
    return ParsedDocument(source=source, title="", media_type="text/plain", text=text, breaks=(0,))


def fill(path: Path, drafter: Bundle, texts: Sequence[str] = CORPUS) -> None:
    """A knowledge base at `path` with one document for each text."""
    tokenizer = WindowTokenizer.from_file(drafter.tokenizer_path)
    with KnowledgeBase.open(path, tokenizer=tokenizer, create=True) as knowledge_base:
        knowledge_base.add_many(
            (
                parsed(text, f"text-{number}"),
                hashlib.sha256(text.encode()).hexdigest(),
                len(text.encode()),
            )
            for number, text in enumerate(texts)
        )


def open_local(bundle: Bundle) -> Session:
    return open_session(bundle, SessionOptions(provider="cpu", threads=1))


def make_drafter(bundle: Bundle, session: Session | None = None) -> Drafter:
    encoder = PairEncoder(bundle.tokenizer_path, bundle.manifest.max_length)
    return Drafter(session or open_local(bundle), encoder, bundle.manifest.null_index)


def make_verifier(
    bundle: Bundle, session: Session | None = None, *, reuses_windows: bool = False
) -> Verifier:
    encoder = PairEncoder(bundle.tokenizer_path, bundle.manifest.max_length)
    return Verifier(
        session or open_local(bundle),
        encoder,
        bundle.manifest.null_index,
        reuses_windows=reuses_windows,
    )


class World:
    """A filled knowledge base with a drafter and a verifier of chosen tokenizer families."""

    def __init__(
        self,
        folder: Path,
        *,
        drafter: Family = "wordpiece",
        verifier: Family = "wordpiece",
        texts: Sequence[str] = CORPUS,
    ) -> None:
        self.folder = folder
        self.drafter = make_bundle(folder / "drafter", role="drafter", family=drafter)
        self.verifier = make_bundle(folder / "verifier", role="verifier", family=verifier)
        self.kb = folder / "kb"
        fill(self.kb, self.drafter, texts)

    def knowledge_base(self) -> KnowledgeBase:
        tokenizer = WindowTokenizer.from_file(self.drafter.tokenizer_path)
        return KnowledgeBase.open(self.kb, tokenizer=tokenizer)

    def pipeline(self, **replaced: object) -> Pipeline:
        """A pipeline over this world; keyword arguments replace its parts."""
        parts: dict[str, object] = {
            "drafter": make_drafter(self.drafter),
            "verifier": make_verifier(self.verifier),
            **replaced,
        }
        return Pipeline(self.knowledge_base(), **parts)  # type: ignore[arg-type]

"""Settings -> a ready pipeline, or the knowledge base alone.

What takes time at a cold start is done side by side: each model's checksums, tokenizer and session
in a thread of its own, while the knowledge base opens. A verifier elsewhere that does not answer is
no reason to answer nothing: the pipeline then works without, and says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from edge.settings import Settings, knowledge_base_path
from models.bundle import Bundle, Manifest, Role, check_files, read_manifest
from runtime.errors import BundleDamaged, BundleIncompatible, BundleNotFound, RemoteUnavailable

if TYPE_CHECKING:  # a question waits for these imports; only what is needed is loaded, in threads
    from runtime.decision import Calibration
    from runtime.documents import ParsedDocument
    from runtime.knowledge_base import KnowledgeBase
    from runtime.pipeline import AskOptions, Pipeline
    from runtime.sessions import Session

CALIBRATION = "calibration.json"  # runtime.calibration.FILE, without importing numpy for it
DEFAULT_BUNDLES: dict[Role, str] = {
    "drafter": "drafter-minilm-l4",
    "verifier": "verifier-minilm-l6",
}


@dataclass(frozen=True, slots=True)
class Assembled:
    """A ready pipeline and what people should know about how it came to be."""

    pipeline: Pipeline
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Model:
    """A bundle, opened; `absent` is why there is no session."""

    bundle: Bundle
    session: Session | None
    warnings: tuple[str, ...] = ()
    absent: str = ""


def bundle_path(settings: Settings, role: Role) -> Path:
    """The folder of the bundle for `role`: the setting, or the default beside the package."""
    named = settings.drafter if role == "drafter" else settings.verifier
    if named is not None:
        return named
    import models

    return Path(models.__file__).parent / DEFAULT_BUNDLES[role]


def find_bundle(settings: Settings, role: Role) -> Bundle:
    """The bundle for `role`, every file checked.

    Raises:
        BundleError: it is missing, damaged or of another role.
    """
    path = bundle_path(settings, role)
    bundle = Bundle(path, _manifest(path, role))
    check_files(bundle)
    return bundle


def _tokenizer_bundle(path: Path, role: Role) -> Bundle:
    """A bundle whose model is not needed here: tokenizer and calibration are checked."""
    bundle = Bundle(path, _manifest(path, role))
    needed = (bundle.manifest.tokenizer, CALIBRATION)
    files = {name: fact for name, fact in bundle.manifest.files.items() if name in needed}
    check_files(replace(bundle, manifest=replace(bundle.manifest, files=files)))
    return bundle


def _manifest(path: Path, role: Role) -> Manifest:
    try:
        manifest = read_manifest(path)
    except BundleNotFound as error:
        raise BundleNotFound(
            f"There is no {role} bundle here",
            where=str(path),
            fix=f"Name one with --{role} DIR, or make one with `specrag export {role}`",
        ) from error
    if manifest.role != role:
        raise BundleIncompatible(
            f"Bundle {manifest.name} is a {manifest.role}, not a {role}",
            where=str(path),
            fix=f"Name a {role} bundle with --{role} DIR",
        )
    return manifest


def open_knowledge_base(
    settings: Settings,
    *,
    create: bool = False,
    writable: bool = False,
    on_wait: Callable[[str], None] | None = None,
) -> KnowledgeBase:
    """The knowledge base that the settings name.

    Args:
        on_wait: told who else is writing, before waiting for it.

    Raises:
        KnowledgeBaseError: it is missing, locked, damaged, newer, or cannot be written.
    """
    from runtime.knowledge_base import KnowledgeBase

    return KnowledgeBase.open(
        knowledge_base_path(settings),
        create=create,
        writable=writable,
        stemmer=settings.stemmer,
        on_wait=on_wait,
    )


def assemble(settings: Settings, *, create: bool = False, writable: bool = False) -> Assembled:
    """A pipeline over the knowledge base and the two models that the settings name.

    Raises:
        KnowledgeBaseError, BundleError, SessionError: what the parts raise. A remote verifier that
            does not answer is a warning instead.
    """
    with ThreadPoolExecutor(3, thread_name_prefix="specrag-open") as threads:
        drafter_work = threads.submit(_open_drafter, settings)
        verifier_work = threads.submit(_open_verifier, settings)
        knowledge_base_work = threads.submit(
            open_knowledge_base, settings, create=create, writable=writable
        )
        try:
            knowledge_base = knowledge_base_work.result()
            drafter, verifier = drafter_work.result(), verifier_work.result()
            return _joined(knowledge_base, drafter, verifier)
        except BaseException:
            for work in (knowledge_base_work, drafter_work, verifier_work):
                work.add_done_callback(_close_result)
            raise


def assemble_with(
    settings: Settings, documents: Iterable[ParsedDocument], folder: Path
) -> Assembled:
    """A pipeline over a new knowledge base in `folder` that holds exactly `documents`.

    Raises:
        As `assemble`, and DocumentError if one of them holds no text.
    """
    settings = replace(settings, kb=folder)
    with open_knowledge_base(settings, create=True) as knowledge_base:
        knowledge_base.add_many((one, *_digest(one.text)) for one in documents)
    return assemble(settings)


def _digest(text: str) -> tuple[str, int]:
    """The sha256 (hex) and size of a text's UTF-8."""
    raw = text.encode("utf-8")
    return hashlib.sha256(raw).hexdigest(), len(raw)


def _close_result(work: Future[Any]) -> None:
    """Close what one thread opened, because another one failed."""
    if work.cancelled() or work.exception() is not None:
        return
    result = work.result()
    closable = result.session if isinstance(result, _Model) else result
    if closable is not None:
        closable.close()


def _open_drafter(settings: Settings) -> _Model:
    bundle = find_bundle(settings, "drafter")
    session = _open_local_session(settings, bundle)
    return _Model(bundle, session, session.placement.warnings)


def _open_verifier(settings: Settings) -> _Model:
    if settings.verifier_url is None:
        bundle = find_bundle(settings, "verifier")
        session = _open_local_session(settings, bundle)
        return _Model(bundle, session, session.placement.warnings)
    bundle = _tokenizer_bundle(bundle_path(settings, "verifier"), "verifier")
    try:
        remote = _open_remote_session(settings, settings.verifier_url, bundle)
    except RemoteUnavailable as error:
        warnings = (f"answers are not verified: {error}",)
        return _Model(bundle, None, warnings, f"the verifier cannot be used: {error.what}")
    return _Model(bundle, remote, remote.placement.warnings)


def open_session_of(settings: Settings, role: Role) -> Session:
    """The session of one model alone, as the settings place it.

    Raises:
        BundleError, SessionError
    """
    if role == "verifier" and settings.verifier_url is not None:
        bundle = _tokenizer_bundle(bundle_path(settings, "verifier"), "verifier")
        return _open_remote_session(settings, settings.verifier_url, bundle)
    return _open_local_session(settings, find_bundle(settings, role))


def _open_remote_session(settings: Settings, url: str, bundle: Bundle) -> Session:
    from runtime.remote import open_remote_session

    return open_remote_session(
        url,
        token=settings.token,
        timeout=settings.timeout,
        bundle=bundle,
        plain_token=settings.plain_token,
    )


def _open_local_session(settings: Settings, bundle: Bundle) -> Session:
    from runtime.sessions import SessionOptions, open_session

    provider = settings.provider
    if bundle.manifest.role == "drafter" and settings.drafter_provider is not None:
        provider = settings.drafter_provider
    options = SessionOptions(
        provider=provider,
        threads=settings.threads,
        require_provider=settings.require_provider,
        cache=settings.engine_cache,
    )
    return open_session(bundle, options)


def _joined(knowledge_base: KnowledgeBase, drafter: _Model, verifier: _Model) -> Assembled:
    from runtime.drafting import Drafter
    from runtime.encoding import PairEncoder
    from runtime.pipeline import Pipeline
    from runtime.verification import Verifier
    from runtime.windows import WindowTokenizer

    assert drafter.session is not None
    reads, judges = drafter.bundle.manifest, verifier.bundle.manifest
    encoder = PairEncoder(drafter.bundle.tokenizer_path, reads.max_length)
    knowledge_base.tokenizer = WindowTokenizer(encoder.tokenizer)
    same = drafter.bundle.tokenizer_sha256 == verifier.bundle.tokenizer_sha256
    judge = None
    if verifier.session is not None:
        shared = same and reads.max_length == judges.max_length
        own = encoder if shared else PairEncoder(verifier.bundle.tokenizer_path, judges.max_length)
        judge = Verifier(verifier.session, own, judges.null_index, reuses_windows=same)
    calibration, doubts = calibration_of(drafter.bundle, verifier.bundle)
    pipeline = Pipeline(
        knowledge_base,
        Drafter(drafter.session, encoder, reads.null_index),
        judge,
        calibration=calibration,
        without_verifier=verifier.absent,
    )
    warnings = (*drafter.warnings, *verifier.warnings, *doubts)
    return Assembled(pipeline, tuple(dict.fromkeys(warnings)))  # what both say is said once


def calibration_of(drafter: Bundle, verifier: Bundle) -> tuple[Calibration, tuple[str, ...]]:
    """The maps that were fitted for this very pair, and why there are none if there are none.

    The verifier's bundle holds them, with the drafter they were fitted beside; with another
    drafter they would promise what nobody measured.
    """
    from runtime.calibration import SCORE, CalibrationMap
    from runtime.decision import Calibration

    try:
        stored = verifier.optional_json(CALIBRATION)
        if stored is None:
            return Calibration({}), ()
        fitted_beside, maps = stored["drafter"], dict(stored["maps"])
    except (ValueError, KeyError, TypeError) as error:
        raise BundleDamaged(
            f"The bundle's calibration cannot be read: {error!r}",
            where=str(verifier.path / CALIBRATION),
            fix="Fit it again with `specrag calibrate`",
        ) from error
    if fitted_beside not in _graph_digests(drafter):
        return Calibration({}), (
            f"confidences are uncalibrated: {verifier.manifest.name} was calibrated beside "
            f"another drafter than {drafter.manifest.name}",
        )
    if stored.get("score") != SCORE:
        return Calibration({}), (
            f"confidences are uncalibrated: {verifier.manifest.name} was calibrated for another "
            "score than this version's; fit it again with `specrag calibrate`",
        )
    return Calibration({route: CalibrationMap.from_json(raw) for route, raw in maps.items()}), ()


def _graph_digests(bundle: Bundle) -> set[str]:
    """The sha256 of each graph: names may be given twice, these may not."""
    return {bundle.manifest.files[name].sha256 for name in bundle.manifest.graphs.values()}


def ask_options(settings: Settings) -> AskOptions:
    """The settings that concern one question, as the pipeline takes them."""
    from runtime.drafting import DraftingOptions
    from runtime.pipeline import AskOptions
    from runtime.retrieval import RetrievalOptions
    from runtime.verification import Term, VerificationOptions

    return AskOptions(
        route=cast("Literal['auto', 'speculative', 'standard', 'drafter']", settings.route),
        windows=settings.k,
        subsets=settings.subsets,
        strategy=settings.strategy,
        seed=settings.seed,
        threshold=settings.threshold,
        drafter_deadline=settings.deadline,
        retrieval=RetrievalOptions(exclude_flagged=settings.exclude_flagged),
        drafting=DraftingOptions(
            max_answer_tokens=settings.answer_tokens, rationale_tokens=settings.rationale_tokens
        ),
        verification=VerificationOptions(
            context=cast("Literal['rationale', 'window']", settings.verify),
            refine=settings.refine,
            terms=cast("tuple[Term, ...]", settings.terms),
            max_answer_tokens=settings.answer_tokens,
        ),
    )

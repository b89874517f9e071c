"""This machine -> will it work, proven: each check says what was found and what to do about it.

The last check is the real thing: a question about a built-in text, asked through the same assembly
as every other question. Only essential checks decide the exit code.
"""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from edge.command import Run, command
from edge.screen import Style, counted
from edge.settings import Settings, knowledge_base_path
from models.bundle import Role
from runtime.errors import KnowledgeBaseNotFound, SpecragError

State = Literal["ok", "note", "warning", "failed"]

LEAST_MEMORY = 600 << 20  # bytes that ought to be free: a question needs up to 400 MB
LEAST_DISK = 200 << 20
WHEELS = {
    "onnxruntime": "cpu",
    "onnxruntime-gpu": "gpu",
    "onnxruntime-openvino": "openvino",
    "onnxruntime-qnn": "",
    "onnxruntime-directml": "",
}
# What makes matrix multiplication fast, by name in /proc/cpuinfo.
INSTRUCTIONS = {
    "x86": ("avx", "avx2", "fma", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "amx_bf16"),
    "arm": ("asimd", "asimdhp", "asimddp", "i8mm", "sve", "sve2", "bf16"),
}
EXTRAS: dict[str, tuple[str, tuple[str, ...]]] = {
    "ocr": ("scans and pictures are read", ("rapidocr",)),
    "export": ("models are made and trained", ("torch", "transformers", "optimum", "onnx")),
}
READERS = {
    "PDF": "pypdfium2",
    "DOCX": "docx",
    "PPTX": "pptx",
    "XLSX": "openpyxl",
    "HTML, EPUB": "lxml",
    "RTF": "striprtf",
}

PROBE_TEXT = (
    "The relief valve of the test station opens at 6.5 bar. It is tested every 12 months by the "
    "shift engineer.\n\nThe bearings of pump 2 are greased every 500 hours with 30 g of lithium "
    "grease. The filters are changed every month."
)
PROBE_QUESTION = "How often is the relief valve tested?"
PROBE_ANSWER = "12 months"


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. A check that is not essential never fails the whole."""

    name: str
    state: State
    found: str
    fix: str = ""
    essential: bool = False


@command(
    "doctor",
    scopes=("store", "models"),
    examples=("specrag doctor", "specrag doctor --provider cuda --json"),
)
def doctor(run: Run) -> int:
    """Prove that this machine can answer questions.

    Says what is missing, and fails when it is essential: ONNX Runtime, the models, or the answer to
    a real question about a built-in text.
    """
    checks: list[Check] = []
    for check in examine(run.settings):
        checks.append(check)
        if not run.json:
            _tell(run, check)
    healthy = not any(check.essential and check.state == "failed" for check in checks)
    if run.json:
        run.emit({"ok": healthy, "checks": [asdict(check) for check in checks]})
    else:
        run.screen.line()
        verdict: tuple[str, Style] = (
            ("This machine can answer questions.", "good")
            if healthy
            else ("This machine cannot answer questions yet.", "bad")
        )
        run.screen.line(verdict)
    return 0 if healthy else 1


def _tell(run: Run, check: Check) -> None:
    styles: dict[State, Style] = {
        "ok": "good", "note": "dim", "warning": "warning", "failed": "bad",
    }  # fmt: skip
    run.screen.line((f"{check.state:8}", styles[check.state]), f"{check.name}: ", check.found)
    if check.fix:
        run.screen.line((check.fix, "dim"), indent=8)


def examine(settings: Settings) -> Iterator[Check]:
    """All checks, the cheap ones first."""
    yield _python()
    yield _cpu()
    yield _memory()
    yield _onnxruntime()
    for role in ("drafter", "verifier"):
        yield _bundle(settings, role)
        yield _placement(settings, role)
    yield _question(settings)
    yield _knowledge_base(settings)
    yield _disk()
    yield _readers()
    yield from _extras()


def _python() -> Check:
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    return Check("Python", "ok", found, essential=True)  # older ones cannot import this module


def _cpu() -> Check:
    from runtime.providers import physical_cores

    facts = _cpu_facts()
    flags = set(facts.get("flags", facts.get("features", "")).split())
    is_arm = platform.machine().lower().startswith(("aarch64", "arm"))
    known = [name for name in INSTRUCTIONS["arm" if is_arm else "x86"] if name in flags]
    name = facts.get("model name", platform.processor() or platform.machine())
    found = (
        f"{name}, {physical_cores()} physical cores, {' '.join(known) or 'instructions unknown'}"
    )
    if flags and not is_arm and "avx2" not in flags:
        return Check("CPU", "warning", found, "Without AVX2 answers take several times as long")
    return Check("CPU", "ok", found)


def _cpu_facts() -> dict[str, str]:
    """The first CPU's lines of /proc/cpuinfo, names in lower case; empty where there is none."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.split("\n\n", 1)[0].splitlines())
    return {name.strip().lower(): value.strip() for name, _, value in lines}


def _memory() -> Check:
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except OSError:
        return Check("memory", "note", "unknown on this system")
    facts = {
        name: int(rest.split()[0]) << 10 for name, _, rest in (x.partition(":") for x in lines)
    }
    available, total = facts.get("MemAvailable", 0), facts.get("MemTotal", 0)
    found = f"{available / 1e9:.1f} GB free of {total / 1e9:.1f} GB"
    if available < LEAST_MEMORY:
        return Check(
            "memory", "warning", found, "A question needs up to 400 MB; end something else"
        )
    return Check("memory", "ok", found)


def _onnxruntime() -> Check:
    wheels = {name: _version(name) for name in WHEELS}
    installed = {name: found for name, found in wheels.items() if found}
    shown = ", ".join(f"{name} {found}" for name, found in installed.items())
    if not installed:
        return Check(
            "ONNX Runtime", "failed", "not installed",
            "pip install 'specrag[cpu]' (or [gpu], [openvino]; exactly one)", essential=True,
        )  # fmt: skip
    if len(installed) > 1:
        return Check(
            "ONNX Runtime", "failed", f"several wheels that overwrite each other: {shown}",
            f"pip uninstall {' '.join(installed)}, then install exactly one extra: "
            "specrag[cpu], [gpu] or [openvino]", essential=True,
        )  # fmt: skip
    try:
        import onnxruntime
    except ImportError as error:
        return Check(
            "ONNX Runtime", "failed", f"{shown}, but it cannot be imported: {error}",
            "Install it again", essential=True,
        )  # fmt: skip
    providers = ", ".join(
        name.removesuffix("ExecutionProvider") for name in onnxruntime.get_available_providers()
    )
    return Check("ONNX Runtime", "ok", f"{shown}, providers {providers}", essential=True)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _guarded(name: str, probe: Callable[[], Check]) -> Check:
    """What `probe` finds; an error of ours as a failed essential check."""
    try:
        return probe()
    except SpecragError as error:
        where = f" ({error.where})" if error.where else ""
        return Check(name, "failed", f"{error.what}{where}", error.fix or "", essential=True)


def _bundle(settings: Settings, role: Role) -> Check:
    def probe() -> Check:
        from edge.assembly import bundle_path, find_bundle

        if role == "verifier" and settings.verifier_url is not None:
            return Check(role, "note", f"elsewhere, at {settings.verifier_url}")
        bundle = find_bundle(settings, role)
        size = sum(fact.bytes for fact in bundle.manifest.files.values())
        return Check(
            role, "ok",
            f"{bundle.manifest.name}, {bundle.manifest.precision}, {size / 1e6:.1f} MB, "
            f"{len(bundle.manifest.files)} files intact, {bundle_path(settings, role)}",
            essential=True,
        )  # fmt: skip

    return _guarded(role, probe)


def _placement(settings: Settings, role: Role) -> Check:
    name = f"{role} runs on"

    def probe() -> Check:
        from edge.assembly import open_session_of

        started = time.perf_counter()
        session = open_session_of(settings, role)
        milliseconds = (time.perf_counter() - started) * 1e3
        placement = session.placement
        session.close()
        threads = f", {placement.threads} threads" if placement.threads else ""
        found = (
            f"{placement.device} ({placement.provider}), {placement.precision}{threads}; "
            f"{placement.reason}; opened in {milliseconds:.0f} ms"
        )
        state: State = "warning" if placement.warnings else "ok"
        return Check(name, state, found, "; ".join(placement.warnings), essential=True)

    return _guarded(name, probe)


def _question(settings: Settings) -> Check:
    def probe() -> Check:
        from edge.assembly import ask_options, assemble_with
        from edge.rendering import timing
        from runtime.readers import parse_text

        document = parse_text(PROBE_TEXT, "doctor.txt")
        with TemporaryDirectory(prefix="specrag-doctor-") as folder:
            started = time.perf_counter()
            assembled = assemble_with(settings, [document], Path(folder))
            opened = (time.perf_counter() - started) * 1e3
            with assembled.pipeline as pipeline:
                answer = pipeline.answer(PROBE_QUESTION, ask_options(settings))
        found = (
            f"{answer.text!r} by route {answer.route} in {timing(answer.trace)}; "
            f"ready in {opened:.0f} ms"
        )
        if answer.citation is not None and answer.citation.span.of(document.text) != answer.text:
            return Check(
                "a question", "failed", f"{found}; not the slice it cites",
                "Please report this", essential=True,
            )  # fmt: skip
        if PROBE_ANSWER not in (answer.text or ""):
            return Check(
                "a question", "warning", f"{found}; {PROBE_ANSWER!r} was right",
                "These models may not suit English questions; try the default ones", essential=True,
            )  # fmt: skip
        return Check("a question", "ok", found, essential=True)

    return _guarded("a question", probe)


def _knowledge_base(settings: Settings) -> Check:
    from edge.assembly import open_knowledge_base

    path = knowledge_base_path(settings)
    name = "knowledge base"
    try:
        with open_knowledge_base(settings) as kb:
            documents = kb.statistics().documents
    except KnowledgeBaseNotFound:
        return Check(name, "note", f"none yet in {path}", "Make one: specrag add PATH")
    except SpecragError as error:
        return Check(name, "warning", str(error), error.fix or "")
    found = f"{counted(documents, 'document')} in {path}"
    if not os.access(path, os.W_OK):
        return Check(name, "note", f"{found}, read-only: it can be asked, not added to")
    return Check(name, "ok", f"{found}, readable and writable")


def _disk() -> Check:
    import tempfile

    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    found = f"{free / 1e9:.1f} GB free in {folder}"
    if free < LEAST_DISK:
        return Check("disk", "warning", found, "Free some space, or set TMPDIR")
    return Check("disk", "ok", found)


def _readers() -> Check:
    missing = [kind for kind, module in READERS.items() if find_spec(module) is None]
    there = [kind for kind in READERS if kind not in missing]
    found = f"text, Markdown, CSV, e-mail, {', '.join(there)}"
    if missing:
        return Check(
            "readers", "warning", f"{found}; not {', '.join(missing)}", "pip install specrag again"
        )
    return Check("readers", "ok", found)


def _extras() -> Iterator[Check]:
    for extra, (purpose, modules) in EXTRAS.items():
        name = f"extra {extra}"
        missing = [module for module in modules if find_spec(module) is None]
        if missing:
            yield Check(
                name, "note", f"not installed ({', '.join(missing)}); with it, {purpose}",
                f"pip install 'specrag[{extra}]'",
            )  # fmt: skip
        else:
            yield Check(name, "ok", purpose)

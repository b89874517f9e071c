"""The house keeps its rules: arrows run one way, and the annotated tree is the tree.

Run as a program, it writes the tree into docs/architecture.md: `python -m tests.test_architecture`.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
PACKAGES = ("edge", "runtime", "export", "models", "benchmarks")
BEGIN, END = "<!-- tree -->\n```\n", "```\n<!-- /tree -->"

MAY_IMPORT = {
    "edge": {"edge", "runtime", "models"},
    "runtime": {"runtime", "models"},
    "models": {"models"},
    "export": {"export", "runtime", "models"},
    "benchmarks": {"benchmarks", "edge", "runtime", "models"},
}
# Everybody may raise errors; the command line loads the heavy halves by name, when called.
EVERYWHERE = {"runtime.errors"}
LAZILY = {"edge": {"benchmarks", "export"}, "benchmarks": {"export"}}
HEAVY = {"torch", "transformers", "optimum", "onnx", "safetensors", "matplotlib"}


def modules() -> list[Path]:
    return sorted(p for package in PACKAGES for p in (ROOT / package).rglob("*.py"))


def imports(path: Path) -> list[tuple[str, bool]]:
    """(module, whether the import is inside a function) for each import of the file."""
    tree = ast.parse(path.read_text("utf-8"))
    inner = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, id(node) in inner) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.append((node.module, id(node) in inner))
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_arrows_run_one_way(path):
    package = path.relative_to(ROOT).parts[0]
    for name, lazy in imports(path):
        target = name.partition(".")[0]
        if target not in PACKAGES or name in EVERYWHERE:
            continue
        allowed = MAY_IMPORT[package] | (LAZILY.get(package, set()) if lazy else set())
        assert target in allowed, f"{path.name} imports {name}"


@pytest.mark.parametrize("package", ["runtime", "models", "edge"])
def test_the_light_half_never_names_the_heavy_libraries(package):
    for path in (ROOT / package).rglob("*.py"):
        for name, _ in imports(path):
            assert name.partition(".")[0] not in HEAVY, f"{path} imports {name}"


def test_importing_the_pipeline_loads_nothing_heavy():
    """The same, proven by running it: transitive imports count too."""
    code = (
        "import sys, runtime.pipeline, edge.assembly; "
        f"print(sorted({HEAVY!r} & {{m.partition('.')[0] for m in sys.modules}}))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_a_cold_question_compiles_no_patterns_of_revisions():
    """Guards 20 ms at every start for the few questions that a superseded document answers."""
    code = "import sys, runtime.pipeline, edge.assembly; print('runtime.revisions' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "False"


def tree() -> str:
    """Every module with the first sentence of its docstring."""
    lines, folder = [], None
    for path in modules():
        relative = path.relative_to(ROOT)
        docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        phrase = docstring.split("\n", 1)[0].rstrip(".")
        if relative.parent != folder:
            folder = relative.parent
            lines.append(f"{folder}/")
        lines.append(f"  {path.name:<24}{phrase}")
    return "\n".join(lines) + "\n"


def test_every_module_opens_with_what_it_turns_into_what():
    for path in modules():
        assert ast.get_docstring(ast.parse(path.read_text("utf-8"))), path


def test_the_annotated_tree_is_the_tree():
    page = PAGE.read_text("utf-8")
    written = page[page.index(BEGIN) + len(BEGIN) : page.index(END)]
    assert written == tree(), "run: python -m tests.test_architecture"


if __name__ == "__main__":
    text = PAGE.read_text("utf-8")
    start, stop = text.index(BEGIN) + len(BEGIN), text.index(END)
    PAGE.write_text(text[:start] + tree() + text[stop:], "utf-8")

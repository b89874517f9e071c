"""doctor and info: a healthy machine is proven so, and each fault is found, named and mended."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

import edge.doctor
from edge.doctor import PROBE_TEXT, Check
from tests.shell import VALVE, Shell, has_shape, make_models
from tests.tiny_models import CORPUS, make_bundle


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    folder = tmp_path_factory.mktemp("doctor")
    for role in ("drafter", "verifier"):
        make_bundle(folder / role, role=role, vocabulary=(*CORPUS, PROBE_TEXT))  # type: ignore[arg-type]
    return Shell(folder / "home")


CHECK = {"name": str, "state": str, "found": str, "fix": str, "essential": bool}


def checks(shell: Shell, *options: object) -> dict[str, dict[str, object]]:
    result = shell("doctor", "--json", *options)
    for check in result.json["checks"]:
        has_shape(check, CHECK)
        assert check["state"] in ("ok", "note", "warning", "failed")
        if check["state"] == "failed":
            assert check["fix"], "a failure says what to do"
    assert result.code == (0 if result.json["ok"] else 1)
    return {check["name"]: check for check in result.json["checks"]}


def test_a_healthy_machine(shell: Shell) -> None:
    found = checks(shell)
    for name in ("Python", "ONNX Runtime", "drafter", "verifier", "a question"):
        assert found[name]["essential"] is True
        assert found[name]["state"] in ("ok", "warning"), found[name]
    assert "CPUExecutionProvider" in str(found["verifier runs on"]["found"])
    assert "fp32" in str(found["verifier runs on"]["found"])
    assert "verify" in str(found["a question"]["found"])
    assert found["knowledge base"]["state"] == "note"


def test_text_for_people(shell: Shell) -> None:
    result = shell("doctor")
    assert result.code == 0
    assert result.out.rstrip().endswith("This machine can answer questions.")
    assert max(map(len, result.out.splitlines())) <= 100


def test_a_missing_model_fails_with_what_to_do(shell: Shell, tmp_path: Path) -> None:
    result = shell("doctor", "--drafter", tmp_path / "none", "--json")
    assert result.code == 1
    assert result.json["ok"] is False
    found = checks(shell, "--drafter", tmp_path / "none")
    assert "There is no drafter bundle here" in str(found["drafter"]["found"])
    assert found["a question"]["state"] == "failed"
    assert found["verifier"]["state"] == "ok", "the other checks go on"


def test_a_damaged_model_fails_by_name(shell: Shell, tmp_path: Path) -> None:
    make_models(tmp_path)
    graph = tmp_path / "verifier" / "weights.bin"
    graph.write_bytes(b"\0" * graph.stat().st_size)
    found = checks(shell, "--verifier", tmp_path / "verifier")
    assert "weights.bin" in str(found["verifier"]["found"])
    assert found["verifier"]["state"] == "failed"


def test_hardware_that_is_not_there(shell: Shell) -> None:
    warned = checks(shell, "--provider", "cuda")
    assert warned["verifier runs on"]["state"] == "warning"
    refused = checks(shell, "--provider", "cuda", "--require-provider")
    assert refused["verifier runs on"]["state"] == "failed"


def test_a_verifier_elsewhere_that_does_not_answer(shell: Shell) -> None:
    found = checks(shell, "--verifier-url", "http://127.0.0.1:9")
    assert found["verifier runs on"]["state"] == "failed"


@pytest.mark.parametrize(
    ("installed", "state", "fix"),
    [
        ({}, "failed", "pip install 'specrag[cpu]'"),
        ({"onnxruntime": "1.0", "onnxruntime-gpu": "1.0"}, "failed", "pip uninstall onnxruntime"),
        ({"onnxruntime-openvino": "1.0"}, "ok", ""),
    ],
)
def test_wheels_that_exclude_each_other(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    installed: dict[str, str],
    state: str,
    fix: str,
) -> None:
    """Two onnxruntime wheels overwrite each other's files: the best-known broken installation."""

    def version(name: str) -> str:
        if name not in installed:
            raise PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(edge.doctor, "version", version)
    check: Check = edge.doctor._onnxruntime()
    assert check.state == state
    assert check.fix.startswith(fix)


def test_missing_extras_are_notes_with_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge.doctor, "find_spec", lambda _: None)
    for check in edge.doctor._extras():
        assert check.state == "note"
        assert not check.essential
        assert check.fix == f"pip install '{check.name.replace('extra ', 'specrag[')}]'"
    assert edge.doctor._readers().state == "warning"


def test_extras_are_those_of_the_project() -> None:
    """What doctor tells people to install must exist."""
    import tomllib

    root = Path(__file__).resolve().parent.parent
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    declared = set(project["optional-dependencies"])
    assert set(edge.doctor.EXTRAS) <= declared
    assert {extra for extra in edge.doctor.WHEELS.values() if extra} <= declared


def test_a_knowledge_base_with_something_in_it(shell: Shell) -> None:
    other = Shell(shell.home.parent / "other")
    other("add", other.write("valve.txt", VALVE))
    assert checks(other)["knowledge base"]["state"] == "ok"


def test_info(shell: Shell, tmp_path: Path) -> None:
    result = shell("info", "--json")
    assert result.code == 0
    assert result.json["versions"]["python"].startswith("3.")
    assert result.json["bundles"]["drafter"]["precision"] == "int8"
    assert result.json["placements"]["verifier"]["precision"] == "fp32"
    assert "error" in result.json["kb"]
    assert result.json["settings"]["threads"] == 1
    secret = shell("info", "--json", "--token", "hush", "--drafter", tmp_path / "none")
    assert secret.code == 0, "info tells what is wrong instead of failing"
    assert "hush" not in secret.out
    assert "error" in secret.json["bundles"]["drafter"]
    assert "drafter name" in shell("info").out

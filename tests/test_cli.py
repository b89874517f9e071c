"""The command line's contract: errors of one shape, exit codes, help that teaches, lazy imports."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from edge.cli import LOCATIONS, cli
from edge.command import Deferred
from tests.shell import DEFAULT_PAIR, ROOT, VALVE, Shell, needs_default_pair


def commands() -> list[tuple[str, click.Command]]:
    """All commands of our own by their path; groups too."""
    found: list[tuple[str, click.Command]] = []

    def walk(path: str, command: click.Command) -> None:
        if isinstance(command, Deferred):
            command = command.load()
        found.append((path, command))
        if isinstance(command, click.Group):
            for name in command.list_commands(click.Context(command)):
                child = command.get_command(click.Context(command), name)
                assert child is not None
                walk(f"{path} {name}", child)

    walk("specrag", cli)
    return found


@pytest.mark.parametrize(("path", "command"), commands(), ids=str)
def test_help_of_every_command_teaches(shell: Shell, path: str, command: click.Command) -> None:
    result = shell(*path.split()[1:], "--help")
    assert result.code == 0
    assert "Examples:" in result.out
    examples = result.out.split("Examples:")[1]
    assert path in examples or path == "specrag"
    for param in command.params:
        if isinstance(param, click.Option) and not param.hidden:
            assert param.help, f"{path} {param.opts[0]} has no help"


def test_root_help_lists_every_command(shell: Shell) -> None:
    out = shell("--help").out
    for name in LOCATIONS:
        assert f"\n  {name} " in out


def test_every_command_takes_json(shell: Shell) -> None:
    for path, command in commands():
        if not isinstance(command, click.Group):
            assert "--json" in {o for p in command.params for o in p.opts}, path


def test_version(shell: Shell) -> None:
    result = shell("--version")
    assert result.code == 0
    assert result.out.startswith("specrag ")


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: Shell, name: str) -> None:
    script = shell("completion", name).out
    assert "_SPECRAG_COMPLETE" in script
    assert "specrag" in script
    assert shell("completion", name, "--json").json["script"].strip() == script.strip()
    if program := shutil.which(name):
        file = shell.write(f"completion.{name}", script)
        subprocess.run([program, "-n", file], check=True)  # its grammar is right


def test_completion_completes_commands_and_choices(shell: Shell) -> None:
    """The scripts only call back: what the program answers is what is offered."""
    offered = _complete(shell, "specrag ask --strategy ", 3)
    assert "round-robin" in offered
    assert "add" in _complete(shell, "specrag a", 1)


def _complete(shell: Shell, words: str, position: int) -> str:
    result = shell.run(
        _SPECRAG_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(position)
    )
    assert result.code == 0
    assert result.err == ""
    return result.out


def test_unknown_command_and_option_are_usage_errors(shell: Shell) -> None:
    for arguments in (["explode"], ["list", "--explode"], ["add"], ["ask", "--route", "sideways"]):
        result = shell(*arguments)
        assert result.code == 2, arguments
        assert result.err.startswith("error: ")
        assert "--help" in result.err
        as_json = shell(*arguments, "--json")
        assert as_json.code == 2
        assert as_json.json["error"]["kind"] == "UsageError"
    assert "Did you mean 'status'?" in shell("staus").err


def test_errors_have_one_shape(shell: Shell) -> None:
    result = shell("list")
    assert result.code == 1
    assert result.out == ""
    assert result.err.splitlines()[0] == "error: There is no knowledge base here"
    assert f"where: {shell.kb}" in result.err
    assert "  fix: Make one by adding documents" in result.err


def test_errors_as_json_go_to_standard_output(shell: Shell) -> None:
    result = shell("list", "--json")
    assert result.code == 1
    assert result.err == ""
    assert set(result.json) == {"schema_version", "error"}
    assert set(result.json["error"]) == {"what", "where", "fix", "kind"}
    assert result.json["error"]["kind"] == "KnowledgeBaseNotFound"


def test_common_options_may_stand_before_the_command(shell: Shell) -> None:
    elsewhere = shell.home / "elsewhere"
    before = shell("--json", "--kb", elsewhere, "list")
    after = shell("list", "--json", "--kb", elsewhere)
    assert before == after
    assert before.json["error"]["where"] == str(elsewhere)


def test_a_fault_of_our_own_is_short_and_asks_for_a_report(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("edge.assembly.open_knowledge_base", broken)
    result = shell("list")
    assert result.code == 70
    assert "specrag itself failed: ZeroDivisionError: a bug" in result.err
    assert "CONTRIBUTING.md" in result.err
    assert "Traceback" not in result.err
    assert "Traceback" in shell("list", "--debug").err
    assert shell("list", "--json").json["error"]["kind"] == "InternalFault"


def test_ctrl_c_ends_with_130_and_no_traceback(shell: Shell) -> None:
    folder = shell.write("documents/valve.txt", VALVE).parent
    process = shell.start("watch", str(folder), "--json")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["summary"]["added"] == 1
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err == b"interrupted\n"


def test_a_reader_that_goes_away_is_no_error(shell: Shell) -> None:
    """`specrag list | head -0`: writing to the closed pipe must neither trace nor complain."""
    process = shell.start("list", "--help")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=30) == 141
    assert err == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_standard_output(shell: Shell) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "edge.cli", "--help"],
            cwd=ROOT,
            env=shell.environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.startswith("error: No space left on device\n")
    assert done.stderr.count("error") == 1


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-"])
def test_a_stream_that_was_closed(shell: Shell, closed: str) -> None:
    """Python has None for it: every command ended as a fault of specrag, with a traceback."""
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m edge.cli ask {closed}', sys.executable],
        cwd=ROOT,
        env=shell.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == (0 if shell.kb.exists() else 1)
    assert "Traceback" not in done.stderr
    assert "itself failed" not in done.stderr


def test_ctrl_c_while_adding_keeps_what_was_published(shell: Shell) -> None:
    """The signal comes when the writer has begun: Python still starting would die of it."""
    text = "\n\n".join(f"Pump {i} is greased. {VALVE}" for i in range(300))
    for number in range(30):
        shell.write(f"many/{number}.txt", text)
    process = shell.start("add", str(shell.home / "many"))
    until = time.monotonic() + 60
    while not (shell.kb / "writer.lock").exists() and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode in (0, 130), "it may have been done already"
    assert b"Traceback" not in err
    assert shell("add", shell.home / "many", "--json").code == 0
    assert len(shell("list", "--json").json["documents"]) == 30
    assert shell("verify").code == 0


def test_help_imports_no_models(shell: Shell) -> None:
    """Shells call the program on every press of the tab key."""
    program = (
        "import sys\n"
        "from edge.cli import run_command\n"
        "assert run_command(['--help']) == 0\n"
        "print([m for m in ('numpy', 'starlette', 'tokenizers') if m in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=shell.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1] == "[]"


FORBIDDEN = (
    "torch", "transformers", "onnx", "optimum", "httpx", "uvicorn", "starlette", "rich",
    "pypdfium2", "docx", "pptx", "openpyxl", "lxml", "asyncio", "email", "export", "benchmarks",
)  # fmt: skip


def test_ask_imports_only_what_answering_needs(shell: Shell) -> None:
    """A cold question's time and memory are its imports; one stray import costs up to seconds."""
    shell("add", shell.write("valve.txt", VALVE))
    program = (
        "import sys\n"
        "from edge.cli import run_command\n"
        "assert run_command(['ask', 'When is the relief valve tested?', '--json']) == 0\n"
        f"found = [name for name in {FORBIDDEN!r} if name in sys.modules]\n"
        "print(found, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=shell.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.strip() == "[]"
    assert json.loads(done.stdout)["schema_version"] == 1


@needs_default_pair
def test_a_cold_question_with_the_default_models_is_cheap(shell: Shell) -> None:
    """Under 400 MB resident; the time is bounded as CPU time, which a busy machine inflates less
    than the clock (on two quiet cores the clock shows about two thirds of it)."""
    shell.variables.update(DEFAULT_PAIR, SPECRAG_THREADS="")
    shell("add", ROOT / "examples" / "pumping-station")
    # A small process in between: a child's peak begins with that of the process it was forked from.
    measure = (
        "import json, resource, subprocess, sys; "
        "done = subprocess.run(sys.argv[1:], capture_output=True, check=True); "
        "used = resource.getrusage(resource.RUSAGE_CHILDREN); "
        "print(json.dumps([json.loads(done.stdout)['route'], used.ru_maxrss, "
        "used.ru_utime + used.ru_stime]))"
    )
    ask = [sys.executable, "-m", "edge.cli", "ask", "How often is the generator tested?", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", measure, *ask],
        cwd=ROOT,
        env=shell.environment(),
        capture_output=True,
        check=True,
    )
    route, resident_kb, cpu_seconds = json.loads(done.stdout)
    assert route in ("speculative", "standard", "abstained")
    assert resident_kb < 400_000
    assert cpu_seconds < 4.0


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_output_to_an_ascii_terminal_does_not_fail(shell: Shell) -> None:
    shell("add", shell.write("cafe.txt", "The café beside the reservoir closes at five."))
    for arguments in (["list"], ["ask", "When does the café close?"]):
        result = shell.run(*arguments, PYTHONIOENCODING="ascii", LC_ALL="C")
        assert result.code == 0
        assert result.err == ""
    listed = shell.run("list", "--json", PYTHONIOENCODING="ascii")
    assert listed.json["documents"][0]["source"].endswith("cafe.txt")


def test_nothing_is_left_running(shell: Shell) -> None:
    """The child processes that parse files must end with the command."""
    shell.run("add", str(shell.write("valve.txt", VALVE)))
    mine = [
        line
        for pid in filter(str.isdigit, os.listdir("/proc"))
        if str(shell.home) in (line := _environment(pid))
    ]
    assert mine == []


def _environment(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


@pytest.mark.parametrize("json_flag", [[], ["--json"]])
def test_without_the_extra_help_is_there_and_work_names_what_it_needs(json_flag: list[str]) -> None:
    """Guards: the error spoke of `specrag distil`, which is no command; help needed PyTorch."""
    program = (
        "import sys; sys.modules.update(dict.fromkeys(['torch', 'onnx', 'transformers'])); "
        "from edge.cli import main; main(sys.argv[1:])"
    )

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", program, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)

    for command in ("train distil", "train finetune", "export drafter", "calibrate"):
        helped = run(*command.split(), "--help")
        assert helped.returncode == 0
        assert "Examples:" in helped.stdout
    data = "tests/data/siblings.json"
    done = run("train", "distil", "teacher", "--data", data, "-o", "absent/out", *json_flag)
    assert done.returncode == 1
    told = json.loads(done.stdout)["error"] if json_flag else None
    what, fix = (told["what"], told["fix"]) if told else (done.stderr, done.stderr)
    assert "`specrag train distil` needs the package torch" in what
    assert "specrag[export]" in fix


@pytest.mark.parametrize("command", ["calibrate", "train finetune"])
def test_errors_of_the_workshop_are_one_object(shell: Shell, command: str) -> None:
    """Guards that with `--json` they said nothing at all."""
    nothing = str(shell.write("bad.jsonl", "{}"))
    given = {
        "calibrate": ["--drafter", "absent", "--verifier", "absent", "--data", nothing],
        "train finetune": ["absent", "--data", nothing, "-o", "out"],
    }[command]
    result = shell(*command.split(), *given, "--json")
    assert result.code == 1
    assert result.json["error"]["what"]

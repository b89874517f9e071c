"""The command line's own grammar -> a completion script for a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from edge.command import Run, command
from runtime.errors import UsageError

SHELLS = ("bash", "zsh", "fish")


@command(
    "completion",
    examples=(
        'eval "$(specrag completion bash)"',
        "specrag completion zsh > ~/.zfunc/_specrag",
        "specrag completion fish > ~/.config/fish/completions/specrag.fish",
    ),
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(run: Run, shell: str) -> None:
    """Print the completion script for a shell."""
    found = get_completion_class(shell)
    if found is None:
        raise UsageError(f"There is no completion for {shell}", fix=f"Choose of: {SHELLS}")
    from edge.cli import COMPLETION, cli

    script = found(cli, {}, "specrag", COMPLETION).source()
    if run.json:
        run.emit({"shell": shell, "script": script})
    else:
        click.echo(script)

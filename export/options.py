"""What a user may choose for an export."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from export import parity
from runtime.errors import UsageError

if TYPE_CHECKING:
    from export.checkpoint import Checkpoint

DrafterTarget = Literal["x86", "x86-vnni", "arm64", "openvino", "qnn"]
VerifierTarget = Literal["cuda", "tensorrt", "cpu"]
DRAFTER_TARGETS: tuple[DrafterTarget, ...] = get_args(DrafterTarget)
VERIFIER_TARGETS: tuple[VerifierTarget, ...] = get_args(VerifierTarget)


@dataclass(frozen=True)
class ExportOptions:
    """What a user may choose for an export.

    Attributes:
        gate: file of gate questions; None is the built-in set.
        gate_limit: at most so many of its questions (never fewer than 300).
        gate_length: tokens of a pair in the gate.
        limit_f1: F1 points that may be lost; None is the precision's default.
        accept_loss: a larger loss the user accepts, recorded in the manifest.
        batch, length: shape of the latency measurement.
    """

    gate: Path | None = None
    gate_limit: int | None = None
    gate_length: int = parity.GATE_LENGTH
    accept_loss: float | None = None
    offline: bool = False
    revision: str | None = None
    allow_pickle: bool = False
    name: str | None = None
    licence: str | None = None
    trained_on: str | None = None
    threads: int = 2
    batch: int = 10
    length: int = 128
    seconds: float = 30.0

    def questions(self) -> tuple[list[parity.GateQuestion], str]:
        """The gate's questions and the name of their file."""
        path = self.gate or parity.BUILT_IN
        data = path.name if self.gate else "built-in: 345 questions of SquadShifts new_wiki"
        return parity.read_questions(path, limit=self.gate_limit), data

    def limits(self, precision: str) -> parity.Limits:
        return parity.Limits(parity.LIMITS[precision], self.accept_loss)

    def check_length(self, checkpoint: Checkpoint) -> None:
        """
        Raises:
            UsageError: a wished length is more than the model has positions for.
        """
        for option, length in (("--gate-length", self.gate_length), ("--length", self.length)):
            if length > checkpoint.max_length:
                raise UsageError(
                    f"{length} tokens are more than the model's {checkpoint.max_length} positions",
                    where=option,
                    fix=f"Give at most {checkpoint.max_length}",
                )

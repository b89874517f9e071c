"""The machine a figure was measured on, named so that figures can be compared."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

# The instruction sets that decide how fast INT8 and FP32 matrix products are.
_TELLING_FLAGS = (
    "avx2", "avx512f", "avx_vnni", "avx512_vnni", "amx_int8", "amx_bf16",
    "asimd", "asimddp", "i8mm", "sve",
)  # fmt: skip


def describe() -> dict[str, Any]:
    """CPU model, usable cores, telling instruction sets, memory in GiB, system and versions."""
    import numpy
    import onnxruntime

    fields = _cpu_fields()
    flags = set((fields.get("flags") or fields.get("Features") or "").split())
    return {
        "cpu": fields.get("model name") or platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "instruction_sets": [flag for flag in _TELLING_FLAGS if flag in flags],
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "onnxruntime": onnxruntime.__version__,
        "numpy": numpy.__version__,
    }


def _cpu_fields() -> dict[str, str]:
    """The first processor's entries of /proc/cpuinfo; empty where there is none."""
    try:
        first, *_ = Path("/proc/cpuinfo").read_text("utf-8").split("\n\n")
    except OSError:
        return {}
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}

"""How much one file may cost, and whether pictures of text are read."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Limits for one file, all enforced from outside the code that parses it.

    Attributes:
        file_bytes: largest file that is opened.
        seconds: wall-clock time for a file without OCR, to which `seconds_per_mib` adds for each
            MiB of the file: a manual of a thousand pages may take its time on a slow box.
        ocr_seconds: wall-clock time from the moment that OCR begins.
        memory_bytes: address space that parsing may take on top of the idle child's.
        ocr_memory_bytes: the same once OCR begins.
        output_bytes: largest reply (all texts and places found in the file).
        ocr: whether scans and images are read, where the OCR extra is installed.
    """

    file_bytes: int = 128 * MIB
    seconds: float = 60.0
    seconds_per_mib: float = 10.0
    ocr_seconds: float = 1800.0
    memory_bytes: int = 1024 * MIB
    ocr_memory_bytes: int = 3072 * MIB
    output_bytes: int = 256 * MIB
    ocr: bool = True

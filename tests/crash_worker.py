"""Run as a process that is to be killed: changes a knowledge base without end, and says each change
on standard output once it is published. `python -m tests.crash_worker FOLDER SEED`."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

from runtime.knowledge_base import KnowledgeBase
from tests.knowledge import add, numbered, tokenizer

DOCUMENTS = 12


def main(folder: Path, seed: int) -> None:
    """Every seed is another sequence of adds, batches, removes and compactions."""
    choose = random.Random(seed)
    version = seed * 1_000_000
    with KnowledgeBase.open(folder, tokenizer=tokenizer(), create=True) as kb:
        _say("open")
        while True:
            version += 1
            number = choose.randrange(DOCUMENTS)
            action = choose.choices(("add", "batch", "remove", "compact"), (6, 3, 4, 2))[0]
            if action == "add":
                add(kb, numbered(number, version))
                _say(f"doc{number} {version}")
            elif action == "batch":
                numbers = choose.sample(range(DOCUMENTS), 4)
                with kb.batch():
                    for one in numbers:
                        add(kb, numbered(one, version))
                for one in numbers:
                    _say(f"doc{one} {version}")
            elif action == "remove":
                kb.remove(f"doc{number}")
                _say(f"doc{number} {-version}")
            else:
                kb.compact()


def _say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

"""Two files of `ask.py` -> whether the second gives the first's answers, near-ties listed.

A near-tie is another answer whose margin the first machine also puts within TIE logits of its
best: INT8 sums are exact on both, but FP32 between them is added in another order.

    python tests/arm64_box/compare.py X86.json ARM64.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

TIE = 0.5  # logits


def main() -> int:
    expected, found = (json.loads(Path(name).read_text("utf-8")) for name in sys.argv[1:3])
    same, ties, wrong = 0, 0, 0
    pairs = zip(expected["answers"], found["answers"], strict=True)
    for number, (wanted, given) in enumerate(pairs):
        if given[0]["span"] == wanted[0]["span"]:
            same += 1
            continue
        margins = {tuple(answer["span"]): answer["margin"] for answer in wanted}
        gap = wanted[0]["margin"] - margins.get(tuple(given[0]["span"]), float("-inf"))
        near = gap <= TIE
        ties, wrong = ties + near, wrong + (not near)
        print(
            f"  question {number}: {wanted[0]['text']!r} -> {given[0]['text']!r}, "
            f"{'near-tie' if near else 'DIFFERENT'}: {gap:.3f} logits apart"
        )
    print(f"{found['machine']}: {same} the same, {ties} near-ties, {wrong} different")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

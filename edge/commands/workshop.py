"""export, train, calibrate: the commands of the offline workshop, in the command line's groups.

Their options need nothing; their work needs PyTorch, which answering questions never does.
"""

from __future__ import annotations

from edge.command import Deferred, group

export = group(
    "export",
    help="Make a bundle from a Hugging Face model, behind an accuracy gate.",
    examples=(
        "specrag export drafter distilbert-base-cased-distilled-squad -o my-drafter",
        "specrag export verifier ./my-verifier-checkpoint -o my-verifier --offline",
    ),
)
train = group(
    "train",
    help="Fine-tune a model, or distil a smaller one from it.",
    examples=(
        "specrag train distil ./teacher --data squadshifts.json -o student --layers 0,2,5",
        "specrag train finetune ./checkpoint --data questions.jsonl -o better",
    ),
)
for made, name, summary in (
    (export, "drafter", "Make an INT8 drafter bundle."),
    (export, "verifier", "Make an FP16 verifier bundle."),
    (train, "distil", "Teach a smaller model."),
    (train, "finetune", "Train a model on questions."),
):
    made.add_command(Deferred(name, f"export.commands:{name}_command", summary))

calibrate = Deferred(
    "calibrate", "export.commands:calibrate_command", "Fit the map from scores to probabilities."
)

"""The kinds of flag that a document may carry, and which of them are not about safety."""

from __future__ import annotations

ADDRESSES_MODEL = "addresses-model"
HIDDEN = "hidden-text"
DUPLICATION = "duplication"
NOT_INDEXED = "not-indexed"
SUPERSEDED = "superseded"

# The document is incomplete or old, not unsafe: `--exclude-flagged` keeps it.
HARMLESS = (NOT_INDEXED, SUPERSEDED)

"""The kinds of flag that a document may carry, and which of them are about safety."""

from __future__ import annotations

ADDRESSES_MODEL = "addresses-model"
HIDDEN = "hidden-text"
DUPLICATION = "duplication"
NOT_INDEXED = "not-indexed"
SUPERSEDED = "superseded"

# What `--exclude-flagged` leaves out. The others say that a document is incomplete or old.
UNSAFE = (ADDRESSES_MODEL, HIDDEN, DUPLICATION)

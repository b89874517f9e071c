"""The light half: documents, windows, retrieval, drafting, verification, decision."""

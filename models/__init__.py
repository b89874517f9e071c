"""Bundles: the manifest's reader, and the default pair."""

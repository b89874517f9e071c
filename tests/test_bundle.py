"""Bundles: every file is checked, and what is wrong is named."""

from __future__ import annotations

import json
import shutil

import pytest

from models.bundle import manifest_digest, open_bundle, read_manifest
from runtime.errors import BundleDamaged, BundleIncompatible, BundleNotFound
from tests.tiny_models import make_bundle


@pytest.fixture
def bundle(tmp_path):
    return make_bundle(tmp_path / "bundle", role="verifier")


def test_a_manifest_survives_writing_and_reading(bundle):
    assert read_manifest(bundle.path) == bundle.manifest


def test_a_bundle_can_be_moved(bundle, tmp_path):
    moved = shutil.move(bundle.path, tmp_path / "elsewhere")
    assert open_bundle(tmp_path / "elsewhere").graph("fp32").is_file(), moved


def test_each_file_is_covered_by_the_check(bundle):
    """One flipped bit in any file must be found, and the file named."""
    for name in bundle.manifest.files:
        file = bundle.path / name
        original = file.read_bytes()
        file.write_bytes(bytes([original[0] ^ 1]) + original[1:])
        with pytest.raises(BundleDamaged, match=name):
            open_bundle(bundle.path)
        file.unlink()
        with pytest.raises(BundleDamaged, match=name):
            open_bundle(bundle.path)
        file.write_bytes(original)
    open_bundle(bundle.path)


def test_an_edited_manifest_is_found_by_its_digest(bundle):
    """No checksum inside a bundle can cover the manifest: whoever edits it writes that too."""
    digest = manifest_digest(bundle.path)
    open_bundle(bundle.path, manifest_sha256=f" {digest.upper()}\n")
    edit(bundle, gate={"f1": 100})
    open_bundle(bundle.path)
    with pytest.raises(BundleDamaged, match="manifest has another sha256"):
        open_bundle(bundle.path, manifest_sha256=digest)


@pytest.mark.parametrize("wrong", [None, 5, [], {}])
@pytest.mark.parametrize("field", ["name", "role", "task", "target", "precision", "tokenizer"])
def test_a_field_of_the_wrong_type_is_named(bundle, field, wrong):
    """Guards the tracebacks that numbers and lists for names gave, here and where they were used;
    a missing field was told as `KeyError('name')`."""
    facts = bundle.manifest.to_json()
    (bundle.path / "manifest.json").write_text(json.dumps({**facts, field: wrong}))
    with pytest.raises(BundleDamaged, match=f"field: '{field}' is not text"):
        read_manifest(bundle.path)
    del facts[field]
    (bundle.path / "manifest.json").write_text(json.dumps(facts))
    with pytest.raises(BundleDamaged, match=f"field: there is no '{field}'"):
        read_manifest(bundle.path)


def test_a_folder_without_manifest_is_no_bundle(tmp_path):
    (tmp_path / "README.md").write_text("a file", "utf-8")
    with pytest.raises(BundleNotFound):
        open_bundle(tmp_path / "README.md")
    with pytest.raises(BundleNotFound):
        open_bundle(tmp_path)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 1}', "\0"])
def test_a_garbled_manifest_is_refused(bundle, content):
    (bundle.path / "manifest.json").write_text(content)
    with pytest.raises(BundleDamaged, match="manifest"):
        open_bundle(bundle.path)


def test_another_format_version_is_refused(bundle):
    edit(bundle, format=99)
    with pytest.raises(BundleIncompatible, match="99"):
        open_bundle(bundle.path)


def test_the_wrong_role_is_refused(bundle):
    with pytest.raises(BundleIncompatible, match="verifier"):
        open_bundle(bundle.path, role="drafter")


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/../../b"])
def test_a_file_outside_the_bundle_is_refused(bundle, name):
    edit(bundle, graphs={"fp32": name})
    with pytest.raises(BundleDamaged, match="outside"):
        open_bundle(bundle.path)


def test_a_graph_without_checksum_is_refused(bundle):
    """Guards against a manifest that points at a file which the check does not cover."""
    shutil.copy(bundle.graph("fp32"), bundle.path / "other.onnx")
    edit(bundle, graphs={"fp32": "other.onnx"})
    with pytest.raises(BundleDamaged, match="checksum"):
        open_bundle(bundle.path)


def test_a_precision_that_is_not_there_is_named(bundle):
    with pytest.raises(BundleIncompatible, match="int4"):
        bundle.graph("int4")


def edit(bundle, **fields):
    file = bundle.path / "manifest.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))

"""Files that cannot or should not be read: the right error, in time, and nothing else harmed."""

from __future__ import annotations

import os
import resource
import threading
import time
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from runtime.errors import (
    DamagedDocument,
    DocumentChanged,
    DocumentError,
    DocumentTooLarge,
    EmptyDocument,
    EncryptedDocument,
    ScanNotIndexed,
    UnsupportedDocument,
    UsageError,
)
from runtime.readers import ReadOptions, find_files, parse_text, read_document, read_file
from tests import reader_files as files


def _fails(folder: Path, name: str, data: bytes, kind: type[DocumentError]) -> DocumentError:
    path = files.write(folder, name, data)
    with pytest.raises(kind) as caught:
        read_document(path, ReadOptions(ocr=False))
    assert caught.value.what
    assert str(path) in str(caught.value)
    return caught.value


@pytest.mark.parametrize("name", ["a.txt", "a.pdf", "a.docx", "a.zip", "a.html", "a.csv"])
@pytest.mark.parametrize("data", [b"", b" \n\t\r\n", b"\x00" * 64])
def test_empty_files(name: str, data: bytes, tmp_path: Path) -> None:
    _fails(tmp_path, name, data, EmptyDocument)


def test_formats_without_text(tmp_path: Path) -> None:
    import docx

    buffer = BytesIO()
    docx.Document().save(buffer)
    _fails(tmp_path, "a.docx", buffer.getvalue(), EmptyDocument)
    _fails(tmp_path, "a.html", b"<html><body><nav>Home</nav></body></html>", EmptyDocument)
    _fails(tmp_path, "a.pdf", files.canvas_pdf(lambda canvas: canvas.showPage()), EmptyDocument)
    _fails(tmp_path, "a.zip", files.zip_of({"photo.xyz": b"x"}), EmptyDocument)


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.html", "a.csv", "a.unknown"])
def test_binary_data(name: str, tmp_path: Path) -> None:
    _fails(tmp_path, name, bytes(range(256)) * 40, UnsupportedDocument)


@pytest.mark.parametrize("magic", [b"\x7fELF", b"\x1f\x8b\x08", b"GIF89a", b"SQLite format 3\x00"])
def test_known_other_kinds(magic: bytes, tmp_path: Path) -> None:
    assert "docs/formats.md" in str(
        _fails(tmp_path, "a.dat", magic + b"x" * 99, UnsupportedDocument)
    )


@pytest.mark.parametrize(
    "name", ["manual.pdf", "rules.docx", "deck.pptx", "parts.xlsx", "book.epub"]
)
@pytest.mark.parametrize("share", [0.1, 0.6])
def test_truncated_files(name: str, share: float, tmp_path: Path) -> None:
    whole = files.all_formats()[name]
    _fails(tmp_path, name, whole[: int(share * len(whole))], DamagedDocument)


def test_passwords(tmp_path: Path) -> None:
    _fails(tmp_path, "a.pdf", files.manual_pdf(1, password="secret"), EncryptedDocument)
    package = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\x00" * 600
    package += "EncryptedPackage".encode("utf-16-le") + b"\x00" * 600
    _fails(tmp_path, "a.docx", package, EncryptedDocument)
    _fails(tmp_path, "a.xlsx", package, EncryptedDocument)
    locked = bytearray(files.zip_of({"a.md": files.manual_md()}))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        locked[locked.index(signature) + offset] |= 1
    _fails(tmp_path, "a.zip", bytes(locked), EncryptedDocument)


def test_old_office_formats_say_what_to_do(tmp_path: Path) -> None:
    error = _fails(
        tmp_path, "a.docx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"W" * 900, DamagedDocument
    )
    assert ".docx" in str(error.fix)


def test_a_scan_without_ocr(tmp_path: Path) -> None:
    for name, data in (("a.pdf", files.scan_pdf([["Text"]])), ("a.png", files.picture(["Text"]))):
        assert "specrag[ocr]" in str(_fails(tmp_path, name, data, ScanNotIndexed))


def test_a_file_over_the_size_limit_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "big.txt"
    with path.open("wb") as file:
        file.truncate(200 << 20)
    start = time.monotonic()
    with pytest.raises(DocumentTooLarge, match="200 MiB"):
        read_document(path)
    assert time.monotonic() - start < 10


def test_missing_unreadable_and_special_files(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="No such file"):
        read_document(tmp_path / "missing.txt")
    with pytest.raises(DocumentError):
        read_document(tmp_path)
    pipe = tmp_path / "pipe.txt"
    os.mkfifo(pipe)
    start = time.monotonic()
    with pytest.raises(UnsupportedDocument):
        read_document(pipe)
    assert time.monotonic() - start < 10


def test_a_file_that_changes_while_it_is_read(tmp_path: Path) -> None:
    path = files.write(tmp_path, "a.txt", b"First words of the log.\n" * 200_000)
    stop = threading.Event()

    def append() -> None:
        with path.open("ab", buffering=0) as file:
            while not stop.is_set():
                file.write(b"more words\n")
                time.sleep(0.005)

    writer = threading.Thread(target=append)
    writer.start()
    try:
        with pytest.raises(DocumentChanged):
            read_document(path)
    finally:
        stop.set()
        writer.join()


# --- hostile files --------------------------------------------------------------------------------


def test_archive_bombs(tmp_path: Path) -> None:
    zeros = b"0" * (64 << 20)
    _fails(tmp_path, "a.zip", files.zip_of({"a.txt": zeros}), DocumentTooLarge)
    package = {"[Content_Types].xml": b"<Types/>", "word/document.xml": zeros}
    _fails(tmp_path, "a.docx", files.zip_of(package), DocumentTooLarge)
    nested = files.zip_of({"a.txt": b"deep"})
    for depth in range(8):
        nested = files.zip_of({f"{depth}.zip": nested})
    _fails(tmp_path, "b.zip", nested, DocumentTooLarge)


def test_a_zip_that_lies_about_sizes(tmp_path: Path) -> None:
    """The directory says 10 bytes, the data unpacks to far more."""
    data = bytearray(files.zip_of({"a.txt": b"words " * 4_000_000}))
    directory = data.rindex(b"PK\x01\x02")
    data[directory + 24 : directory + 28] = (10).to_bytes(4, "little")
    _fails(tmp_path, "a.zip", bytes(data), DamagedDocument)


def _bomb(part: str, whole: bytes) -> bytes:
    """A real package with `part` replaced by an XML bomb."""
    entities = '<!ENTITY e0 "haha">' + "".join(
        f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12)
    )
    bomb = f'<?xml version="1.0"?><!DOCTYPE x [{entities}]><x>&e11;</x>'.encode()
    buffer = BytesIO()
    with zipfile.ZipFile(BytesIO(whole)) as old, zipfile.ZipFile(buffer, "w") as new:
        for item in old.namelist():
            new.writestr(item, bomb if item == part else old.read(item))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("rules.docx", "word/document.xml"),
        ("deck.pptx", "ppt/presentation.xml"),
        ("parts.xlsx", "xl/workbook.xml"),
        ("parts.xlsx", "xl/worksheets/sheet1.xml"),
        ("parts.xlsx", "xl/sharedStrings.xml"),
        ("book.epub", "OEBPS/book.opf"),
    ],
)
def test_xml_bombs(name: str, part: str, tmp_path: Path) -> None:
    start = time.monotonic()
    path = files.write(tmp_path, name, _bomb(part, files.all_formats()[name]))
    try:
        documents = read_document(path)
    except DocumentError:
        documents = []
    assert all("haha" not in document.text for document in documents)
    assert time.monotonic() - start < 15


def test_external_entities_are_not_fetched(tmp_path: Path) -> None:
    secret = files.write(tmp_path, "secret.txt", b"TOPSECRET")
    evil = (
        f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY s SYSTEM "file://{secret}">]>'
        '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">'
        "<w:body><w:p><w:r><w:t>before &s; after</w:t></w:r></w:p></w:body></w:document>"
    ).encode()
    buffer = BytesIO()
    with (
        zipfile.ZipFile(BytesIO(files.manual_docx())) as old,
        zipfile.ZipFile(buffer, "w") as new,
    ):
        for item in old.namelist():
            new.writestr(item, evil if item == "word/document.xml" else old.read(item))
    try:
        text = read_document(files.write(tmp_path, "a.docx", buffer.getvalue()))[0].text
    except DocumentError:
        text = ""
    assert "TOPSECRET" not in text
    page = f"<!DOCTYPE x [<!ENTITY s SYSTEM 'file://{secret}'>]><p>seen &s;</p>".encode()
    assert "TOPSECRET" not in read_document(files.write(tmp_path, "a.html", page))[0].text


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("deep.html", b"<div>" * 200_000 + b"deep" + b"</div>" * 200_000),
        ("deep.md", b"> " * 50_000 + b"deep\n"),
        ("list.md", b"\n".join(b" " * n + b"- x" for n in range(3_000))),
        ("deep.rtf", b"{\\rtf1 " + b"{" * 200_000 + b"deep" + b"}" * 200_000 + b"}"),
        ("wide.html", b"<table><tr><td rowspan=65000 colspan=65000>x</table>" * 400),
        ("one.txt", b"x" * 8_000_000),
        ("brackets.md", b"[" * 30_000),
        ("stars.md", b"*a_ " * 20_000),
        ("commas.csv", b"," * 5_000_000 + b"x"),
        ("quote.csv", b'"' + b"a\n" * 2_000_000),
        ("dots.txt", b". " * 2_000_000 + b"1"),
        ("css.html", b"<style>" + b"a{" * 100_000 + b"</style><p>seen</p>"),
    ],
)
def test_deep_and_wide_files_end_in_time(name: str, data: bytes, tmp_path: Path) -> None:
    path = files.write(tmp_path, name, data)
    start = time.monotonic()
    try:
        documents = read_document(path, ReadOptions(seconds=20, seconds_per_mib=0.0))
    except DocumentError:
        documents = []
    assert time.monotonic() - start < 30
    assert sum(len(document.text) for document in documents) <= len(data) + 1000


@pytest.mark.parametrize("name", ["a.html", "a.eml", "a.md"])
def test_pages_nested_too_deeply_say_so(name: str, tmp_path: Path) -> None:
    """The parser ends silently at 2048 levels: such a page was "empty", or lost its second half."""
    page = "<div>" * 2100 + "deep" + "</div>" * 2100 + "<p>after</p>"
    head = "Subject: x\nContent-Type: text/html\n\n" if name == "a.eml" else ""
    error = _fails(tmp_path, name, (head + page).encode(), DocumentTooLarge)
    assert "nested too deeply" in error.what


def test_a_gigantic_page(tmp_path: Path) -> None:
    from reportlab.pdfgen.canvas import Canvas

    buffer = BytesIO()
    canvas = Canvas(buffer, pagesize=(14_000_000, 14_000_000))
    canvas.drawString(72, 72, "A very large page.")
    canvas.save()
    (document,) = read_document(files.write(tmp_path, "a.pdf", buffer.getvalue()))
    assert document.text == "A very large page."


def test_memory_and_time_are_bounded(tmp_path: Path) -> None:
    path = files.write(tmp_path, "a.csv", b"a,b,c\n" * 6_000_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DocumentTooLarge):
        read_document(path, ReadOptions(memory_bytes=200 << 20, seconds=60))
    with pytest.raises(DocumentTooLarge, match="longer than"):
        read_document(path, ReadOptions(seconds=0.2, seconds_per_mib=0.0))
    small = files.write(tmp_path, "b.txt", b"many words in it " * 100_000)
    with pytest.raises(DocumentTooLarge, match="text"):
        read_document(small, ReadOptions(output_bytes=1 << 20))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 100 << 10  # KiB: the parent never held any of it
    good = files.write(tmp_path, "good.txt", b"Still reading.")
    assert read_document(good)[0].text == "Still reading."


def test_a_reader_that_dies_harms_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from runtime import readers
    from runtime.sandbox import Sandbox

    dying = Sandbox("tests.sandbox_child")
    monkeypatch.setattr(readers, "_sandbox", dying)
    path = files.write(tmp_path, "a.txt", b"words")
    with pytest.raises(DamagedDocument, match="died"):
        read_document(path)  # the child knows no "path" and ends with a KeyError
    dying.close()


def test_many_threads_read_at_once(tmp_path: Path) -> None:
    paths = [files.write(tmp_path, f"{n}.txt", f"Text of file {n}.".encode()) for n in range(24)]
    texts: dict[int, str] = {}

    def read(first: int) -> None:
        for number in range(first, 24, 4):
            texts[number] = read_document(paths[number])[0].text

    threads = [threading.Thread(target=read, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {number: f"Text of file {number}." for number in range(24)}


def test_the_hash_is_of_the_bytes_that_were_parsed(tmp_path: Path) -> None:
    import hashlib

    data = b"Words to be hashed."
    read = read_file(files.write(tmp_path, "a.txt", data))
    assert (read.content_sha256, read.size) == (hashlib.sha256(data).hexdigest(), len(data))


def test_texts_in_memory_can_be_empty_or_of_no_known_type() -> None:
    with pytest.raises(EmptyDocument):
        parse_text(" \u200b\n", "note")
    with pytest.raises(UsageError):
        parse_text("x", "note", "application/pdf")


# --- finding files --------------------------------------------------------------------------------


def test_folders_patterns_and_names(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / ".hidden").mkdir()
    for name in ("b.txt", "a.md", "sub/c.pdf", "photo.xyz", ".hidden/d.txt", ".e.txt"):
        (tmp_path / name).write_bytes(b"x")
    found = find_files([tmp_path])
    assert [file.path.name for file in found.files] == ["a.md", "b.txt", "c.pdf"]
    assert found.skipped == (str(tmp_path / "photo.xyz"),)
    found = find_files([tmp_path / "*.txt", tmp_path / "**/*.pdf", tmp_path / "b.txt"])
    assert [file.path.name for file in found.files] == ["b.txt", "c.pdf"]
    found = find_files([tmp_path / "photo.xyz", tmp_path / "*.none", tmp_path / "missing"])
    assert [file.path.name for file in found.files] == ["photo.xyz"]
    assert len(found.errors) == 2


def test_loops_of_links_end_and_files_come_once(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "one.txt").write_bytes(b"x")
    (folder / "again.txt").symlink_to(folder / "one.txt")
    (folder / "loop").symlink_to(tmp_path)
    (folder / "self").symlink_to(folder / "self")
    (tmp_path / "b").symlink_to(folder)
    found = find_files([tmp_path, folder])
    assert [file.path.name for file in found.files] == ["again.txt"]
    assert all("self" in str(error) for error in found.errors)


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/na\xefve \xff.txt"
    try:
        with open(path, "wb") as file:
            file.write(b"Text in an oddly named file.")
    except OSError:
        pytest.skip("this file system takes only UTF-8 names")
    (found,) = find_files([tmp_path]).files
    assert found.source.endswith("/na\\xefve \\xff.txt")
    (document,) = read_document(found.path)
    assert document.text == "Text in an oddly named file."
    document.source.encode("utf-8")

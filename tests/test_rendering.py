"""What people see: marked answers, bounded widths, nothing obeyed that a document says."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from edge.rendering import short_path, show_answer, surroundings
from edge.screen import (
    Column,
    PlainScreen,
    RichScreen,
    columns,
    is_terminal,
    one_line,
    path_end,
    printable,
)
from runtime.documents import Citation, Span
from runtime.knowledge_base import KnowledgeBase
from runtime.pipeline import AskOptions, Pipeline
from tests.tiny_models import make_bundle
from tests.worlds import fill, make_drafter, make_verifier

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def plain() -> tuple[PlainScreen, io.StringIO]:
    stream = io.StringIO()
    return PlainScreen(stream), stream


def rich(monkeypatch: pytest.MonkeyPatch, width: int = 80) -> tuple[RichScreen, io.StringIO]:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for name in ("NO_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", str(width))
    stream = Terminal()
    return RichScreen(stream), stream


def test_control_characters_are_shown_not_obeyed() -> None:
    hostile = "a\x1b[2Jb\x07c\x9bd\u202eé\udcff\n"
    shown = printable(hostile)
    assert shown == "a\\x1b[2Jb\\x07c\\x9bd\\u202eé\\udcff\n"
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", shown)
    shown.encode("utf-8")


def test_bidirectional_overrides_are_shown() -> None:
    """A right-to-left override in a file name makes `gpj.exe` look like `exe.jpg`."""
    assert "\u202e" not in printable("photo\u202egpj.exe")


@pytest.mark.parametrize(
    ("text", "width"), [("abc", 3), ("水泵", 4), ("e\u0301", 1), ("ｆ", 2), ("", 0)]
)
def test_columns(text: str, width: int) -> None:
    assert columns(text) == width


def test_one_line_is_cut_to_columns() -> None:
    assert one_line("a\n b\t c") == "a b c"
    for text in ("水泵站有三台水泵", "x" * 50, "a b c d e f g h i j k l"):
        assert columns(one_line(text, 9)) <= 9
        assert one_line(text, 9).endswith("…")


def test_long_paths_keep_their_end() -> None:
    path = "/very/long/" + "folder/" * 20 + "manual.pdf"
    assert path_end(path, 30).endswith("/manual.pdf")
    assert columns(path_end(path, 30)) <= 30
    assert columns(path_end("/水泵/" * 40, 31)) <= 31


def test_short_path_is_as_seen_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert short_path(f"{tmp_path}/manuals/a.pdf") == "manuals/a.pdf"
    assert short_path("/elsewhere/a.pdf") == "/elsewhere/a.pdf"
    assert short_path("text-1234") == "text-1234"


def test_plain_tables_stay_within_their_width() -> None:
    screen, stream = plain()
    screen.table(
        "Title",
        (Column("n", right=True), Column("path"), Column("text", wide=True)),
        [("1", "p" * 200, "word " * 60), ("22", "水泵" * 40, "é" * 300)],
    )
    lines = stream.getvalue().splitlines()
    assert max(map(columns, lines)) <= 100
    assert lines[0] == "Title"
    assert stream.getvalue().count("word") == 60, "wide cells go on below, nothing is lost"


def test_plain_pairs_go_on_below_and_break_no_paths() -> None:
    screen, stream = plain()
    path = "/folder" * 20
    screen.pairs([("path", path), ("a long name", "word " * 50), ("empty", "")])
    lines = stream.getvalue().splitlines()
    assert lines[0] == f"path         {path}"
    assert lines[1].startswith("a long name  word word")
    assert lines[2].startswith("             word word")
    assert max(map(len, lines[1:])) <= 100
    assert lines[-1] == "empty"


def test_plain_output_has_no_escapes_and_marks_the_answer() -> None:
    screen, stream = plain()
    screen.line(("error: ", "bad"), "what")
    screen.quote("it is ", "every 12 months", " by")
    assert stream.getvalue() == "error: what\n  it is >>every 12 months<< by\n"


def test_rich_output_marks_by_colour_and_never_reads_markup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`[bold]` in a document is text, and `:smile:` stays as it is."""
    screen, stream = rich(monkeypatch)
    screen.quote("see [bold]x[/bold] :smile: ", "12 months", "")
    shown = stream.getvalue()
    assert "\x1b[" in shown
    assert "see [bold]x[/bold] :smile: 12 months" in ESCAPE.sub("", shown)


@pytest.mark.parametrize("width", [40, 80, 300])
def test_rich_output_is_bounded(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    screen, stream = rich(monkeypatch, width)
    screen.line("word " * 100)
    screen.table("T", (Column("a"), Column("b", wide=True)), [("x" * 50, "word " * 40)])
    screen.pairs([("name", "value " * 50)])
    lines = ESCAPE.sub("", stream.getvalue()).splitlines()
    assert max(map(columns, lines)) <= min(width, 110)


@pytest.mark.parametrize("width", [60, 80, 110])
def test_a_narrow_terminal_loses_no_column(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """Guards `list` and `status` on 80 columns: long names of files pushed the numbers and the
    flags out of the table altogether."""
    screen, stream = rich(monkeypatch, width)
    head = (Column("id", right=True), Column("file"), Column("title"), Column("n", right=True),
            Column("flags", wide=True))  # fmt: skip
    screen.table("", head, [("17", "f" * 48, "t" * 60, "1,234", "superseded " * 3)])
    out = ESCAPE.sub("", stream.getvalue())
    for whole in ("17", "1,234", "superseded"):
        assert whole in out
    assert max(map(columns, out.splitlines())) <= width


def test_colours_only_where_they_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    _, terminal = rich(monkeypatch)
    assert is_terminal(terminal)
    assert not is_terminal(io.StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert not is_terminal(terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not is_terminal(terminal)


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    folder = tmp_path_factory.mktemp("rendering")
    drafter = make_bundle(folder / "drafter", role="drafter")
    verifier = make_bundle(folder / "verifier", role="verifier")
    fill(folder / "kb", drafter)
    from runtime.windows import WindowTokenizer

    kb = KnowledgeBase.open(
        folder / "kb", tokenizer=WindowTokenizer.from_file(drafter.tokenizer_path)
    )
    return Pipeline(kb, make_drafter(drafter), make_verifier(verifier))


@pytest.mark.parametrize("reach", [0, 10, 10_000])
def test_surroundings_join_to_a_slice_of_the_document(pipeline: Pipeline, reach: int) -> None:
    kb = pipeline.knowledge_base
    for document in kb.documents():
        text = kb.text(document.id)
        for start in range(0, len(text), 7):
            span = Span(start, min(len(text), start + 5))
            before, after = surroundings(kb, kb.citation(document.id, span), reach)
            joined = before.lstrip("…") + span.of(text) + after.rstrip("…")
            assert joined in text


def test_a_terminal_shows_the_same_words_as_a_pipe(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = pipeline.answer("Who tests the relief valve?", AskOptions(route="speculative"))
    coloured, terminal = rich(monkeypatch, 100)
    show_answer(coloured, answer, pipeline.knowledge_base)
    bare, pipe = plain()
    show_answer(bare, answer, pipeline.knowledge_base)
    words = re.sub(r"\s+", " ", ESCAPE.sub("", terminal.getvalue())).strip()
    assert words == re.sub(r"\s+", " ", re.sub(">>|<<", "", pipe.getvalue())).strip()
    assert answer.text is not None
    assert pipe.getvalue().startswith(answer.text)


def test_places_in_words() -> None:
    from edge.rendering import place, reference

    citation = Citation(1, "/a/manual.pdf", "Manual", Span(3, 9), "valve", 4, ("Part", "Chapter"))
    assert place(citation) == "/a/manual.pdf, page 4, Part > Chapter, characters 3-9"
    assert reference(citation) == "/a/manual.pdf#3-9"
    unknown = Citation(1, "text-1", "", Span(3, 9), "valve")
    assert place(unknown) == "text-1, characters 3-9", "a page that is not known is absent"

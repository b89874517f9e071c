"""Words with places on pages -> blocks in reading order.

Per page: furniture goes (running headers, page numbers), the page is turned so that its text runs
from left to right, tables with ruling lines are cut out, the rest is split into bands and columns,
and lines become paragraphs, items, headings and table rows. Nothing here knows PDFium.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from runtime.cleaning import (
    EdgeLine,
    Vocabulary,
    clean_block,
    contents_lines,
    is_page_label,
    join_lines,
    running_lines,
)
from runtime.readers.blocks import Block, join_blocks, table_blocks
from runtime.readers.equations import exponent
from runtime.readers.table_header import split_header

_ITEM = re.compile(r"^(?:[-*•◦▪‣·–—●○■□]|\(?\d{1,2}[.)]|\(?[a-z][.)])(?:\s+|$)")
_NUMBERED = re.compile(r"^(\d{1,2}(?:\.\d{1,3}){0,4})\.?\s+[^\W\d_]")
_MARKER = re.compile(r"^(?:[^\w\s]|\(?\w{1,2}[.)]|\d{1,2}(?:\.\d{1,3}){1,4}\.?|[•o])$")
_ENDS = (".", "!", "?", "。", "！", "？", "…", '."', ".”", ".)")
_SMALLER = 0.85  # of the size of what it is raised above: the largest raised text
_RAISED = 0.15  # of that size: how far its middle is above that one's at least
_EDGE_LINES = 3
_MARGIN = 0.14  # of the page's height: where headers and footers stand
_HEADING_LENGTH = 120


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in points, y upwards."""

    left: float
    bottom: float
    right: float
    top: float

    @property
    def width(self) -> float:
        return self.right - self.left

    @property
    def height(self) -> float:
        return self.top - self.bottom


@dataclass(slots=True, eq=False)
class Word:
    """A word and its box in points (y upwards); `glued` to the word before it without a space."""

    text: str
    left: float
    bottom: float
    right: float
    top: float
    size: float
    bold: bool = False
    angle: int = 0
    glued: bool = False
    mono: bool = False

    @property
    def middle(self) -> float:
        return (self.bottom + self.top) / 2


@dataclass(slots=True)
class PageContent:
    """What is on one page.

    Attributes:
        number: the page's number in the file, from 1.
        rules: thin lines; `frames`: outlined or filled boxes; `painted`: areas that are not white.
        pictured: share of the page covered by pictures.
        hidden: texts on it that people do not see, with the reason.
    """

    number: int
    box: Box = Box(0.0, 0.0, 612.0, 792.0)
    words: list[Word] = field(default_factory=list)
    rules: list[Box] = field(default_factory=list)
    frames: list[Box] = field(default_factory=list)
    painted: list[Box] = field(default_factory=list)
    pictured: float = 0.0
    hidden: list[tuple[str, str]] = field(default_factory=list)

    @property
    def is_scan(self) -> bool:
        """Mostly picture, hardly any text."""
        return self.pictured >= 0.5 and sum(len(word.text) for word in self.words) < 40

    def is_painted(self, left: float, bottom: float, right: float, top: float) -> bool:
        """Whether something other than white lies behind a place."""
        x, y = (left + right) / 2, (bottom + top) / 2
        return any(b.left <= x <= b.right and b.bottom <= y <= b.top for b in self.painted)


@dataclass(slots=True)
class Line:
    """Words on one baseline, in reading order."""

    words: list[Word]
    page: int = 0
    left: float = 0.0
    right: float = 0.0
    bottom: float = 0.0
    top: float = 0.0
    size: float = 0.0
    text: str = ""

    def __post_init__(self) -> None:
        words = self.words
        rtl = sum(map(_right_to_left, words)) > len(words) / 2
        words.sort(key=(lambda w: -w.right) if rtl else (lambda w: w.left))
        self.left = min(word.left for word in words)
        self.right = max(word.right for word in words)
        self.bottom = median(word.bottom for word in words)
        self.top = median(word.top for word in words)
        self.size = max(words, key=lambda word: len(word.text)).size
        self.text = _joined(words)

    @property
    def mono(self) -> bool:
        """Set in a typewriter face throughout, as commands and listings are."""
        return all(word.mono for word in self.words)

    @property
    def bold(self) -> bool:
        return all(word.bold for word in self.words if any(map(str.isalnum, word.text)))


def layout(pages: Sequence[PageContent]) -> list[Block]:
    """Blocks of all pages in reading order."""
    upright = [_upright(page) for page in pages]
    lines = [_lines(page.words, page.number) for page in upright]
    grids = [_grids(page) for page in upright]
    _drop_furniture(upright, lines, grids, _Measures([line for page in lines for line in page]))
    lines = [_without_labels(page_lines) for page_lines in lines]
    _drop_contents(lines)
    measures = _Measures([line for page in lines for line in page])
    regions = list(map(_regions, grids, lines))
    blocks: list[Block] = []
    for page, page_regions in zip(upright, regions, strict=True):
        fresh = [block for region in page_regions for block in region.blocks(page.number, measures)]
        _connect(blocks, fresh, measures)
        blocks += fresh
    return blocks


def _upright(page: PageContent) -> PageContent:
    """The page turned so that most of its text runs from left to right; the rest follows it."""
    turns = Counter[int]()
    for word in page.words:
        turns[word.angle] += len(word.text)
    main = next((angle for angle, _ in turns.most_common() if angle >= 0), 0)
    turned = PageContent(page.number, _turned_box(page.box, main))
    turned.rules = [_turned_box(box, main) for box in page.rules]
    turned.frames = [_turned_box(box, main) for box in page.frames]
    aside: list[Word] = []
    for word in page.words:
        box = _turned_box(Box(word.left, word.bottom, word.right, word.top), main)
        word.left, word.bottom, word.right, word.top = box.left, box.bottom, box.right, box.top
        (turned.words if word.angle == main else aside).append(word)
    turned.words += _aside(aside, main, turned)
    return turned


def _aside(words: list[Word], main: int, page: PageContent) -> list[Word]:
    """Words that run another way, set below everything else, one line a group; water marks go."""
    groups: dict[tuple[int, int], list[Word]] = defaultdict(list)
    for word in words:
        if word.angle >= 0:
            across = word.middle if (word.angle - main) % 180 == 0 else (word.left + word.right) / 2
            groups[word.angle, round(across / max(word.size, 1.0))].append(word)
    placed: list[Word] = []
    bottom = min([page.box.bottom, *(word.bottom for word in page.words)]) - 20.0
    for group in groups.values():
        left = page.box.left
        for word in group:
            width = max(word.right - word.left, word.top - word.bottom)
            word.left, word.right, word.bottom, word.top = left, left + width, bottom, bottom + 10.0
            left += width + 3.0
            placed.append(word)
        bottom -= 20.0
    return placed


def _turned_box(box: Box, angle: int) -> Box:
    if angle == 90:
        return Box(box.bottom, -box.right, box.top, -box.left)
    if angle == 180:
        return Box(-box.right, -box.top, -box.left, -box.bottom)
    if angle == 270:
        return Box(-box.top, box.left, -box.bottom, box.right)
    return box


def _lines(words: Iterable[Word], page: int) -> list[Line]:
    """Words grouped by baseline, top to bottom.

    A word belongs to a line if it overlaps the first of the line's largest words: what is raised
    comes first, and what is lowered does not reach it. Where it is much smaller, less will do.
    """
    groups: list[list[Word]] = []
    largest: list[Word] = []  # of each group
    for word in sorted(words, key=lambda w: (-w.bottom - w.top, w.left)):
        bottom, top = word.bottom, word.top
        for place in range(max(0, len(groups) - 3), len(groups)):
            first = largest[place]
            overlap = (top if top < first.top else first.top) - (
                bottom if bottom > first.bottom else first.bottom
            )
            height = min(top - bottom, first.top - first.bottom)
            if overlap > (0.5 if word.size > _SMALLER * first.size else 0.3) * height:
                groups[place].append(word)
                if word.size > first.size:
                    largest[place] = word
                break
        else:
            groups.append([word])
            largest.append(word)
    return [Line(group, page) for group in groups]


def _right_to_left(word: Word) -> bool:
    return any("\u0590" <= c <= "\u08ff" or "\ufb1d" <= c <= "\ufefc" for c in word.text)


def _joined(words: Sequence[Word]) -> str:
    """The words of a line; a number raised above the word that it follows stays raised."""
    parts: list[str] = []
    raised: list[str] = []  # pieces above `base`
    base = words[0]
    for before, word in zip([None, *words], words, strict=False):
        spaced = before is not None and _apart(before, word)
        if not spaced and _is_raised(word, base):
            raised.append(word.text)
            continue
        parts += [exponent("".join(raised)), " " if spaced else "", word.text]
        raised.clear()
        base = word
    return "".join([*parts, exponent("".join(raised))])


def _apart(before: Word, word: Word) -> bool:
    """Whether there is a space between two words.

    PDFium sees one wherever the line goes on higher or lower; beside an index there is none.
    """
    gap = max(word.left - before.right, before.left - word.right)
    if gap > 0.12 * max(word.size, 1.0):
        return not (word.glued and gap < 0.3 * word.size)
    after_index = before.size <= _SMALLER * word.size and abs(gap) < 0.1 * word.size
    return not word.glued and not after_index and gap > -0.5 * word.size


def _is_raised(word: Word, base: Word) -> bool:
    """Whether a word is much smaller than another one and stands well above its middle."""
    if word.size > _SMALLER * base.size:
        return False
    return word.middle - base.middle > _RAISED * base.size


def _drop_furniture(
    pages: Sequence[PageContent],
    lines: list[list[Line]],
    grids: Sequence[Sequence[_Grid]],
    measures: _Measures,
) -> None:
    """Remove running headers, footers and page numbers from the pages' lines.

    What heads the rows of a table stays, on each page that the table goes on.
    """
    edges: list[EdgeLine] = []
    pieces: dict[tuple[int, int], Line] = {}
    for index, (page, page_lines) in enumerate(zip(pages, lines, strict=True)):
        for top in (True, False):
            margin = _margin(page, page_lines, grids[index], top=top)
            for number, (depth, place, piece) in enumerate(margin, len(pieces)):
                edges.append(_edge(piece, index, number, depth, place, measures, top=top))
                pieces[index, number] = piece
    dropped: dict[int, set[int]] = defaultdict(set)  # page index: ids of words
    for key in running_lines(edges, len(pages)):
        dropped[key[0]].update(id(word) for word in pieces[key].words)
    for index, page_lines in enumerate(lines):
        if words := dropped[index]:
            words -= _column_names(page_lines, words)
            kept = [_without(line, words) for line in page_lines]
            lines[index] = [line for line in kept if line is not None]


def _edge(
    piece: Line,
    page: int,
    number: int,
    depth: int,
    place: int,
    measures: _Measures,
    *,
    top: bool,
) -> EdgeLine:
    text = clean_block(piece.text)
    size = piece.size / max(measures.body, 1.0)
    stands_out = measures.heading_level([piece], text) > 0
    return EdgeLine(page, number, text, top, depth, place, size, stands_out)


def _margin(
    page: PageContent, lines: Sequence[Line], grids: Sequence[_Grid], *, top: bool
) -> Iterator[tuple[int, int, Line]]:
    """Lines in a page's upper or lower margin, in pieces where wide gaps part them.

    Each with the lines between it and the edge, and where it stands. A table that reaches beyond
    the margin is no part of it.
    """
    ordered = lines[:_EDGE_LINES] if top else lines[::-1][:_EDGE_LINES]
    height = _MARGIN * page.box.height
    for depth, line in enumerate(ordered):
        distance = page.box.top - line.top if top else line.bottom - page.box.bottom
        if distance > height:
            return
        for grid in grids:
            reach = page.box.top - grid.box.bottom if top else grid.box.top - page.box.bottom
            if reach > height and grid.without(line) is None and grid.is_table(lines):
                return
        for segment in _segments(line, 2.0 * line.size):
            yield depth, round(distance / 6.0), Line(segment, line.page)


def _column_names(lines: Sequence[Line], dropped: set[int]) -> set[int]:
    """Those of the words (their `id`) at the top that name the columns of rows that stay."""
    names: set[int] = set()
    for line, below in reversed(list(pairwise(lines[: _EDGE_LINES + 1]))):
        stays = not all(id(word) in dropped - names for word in below.words)
        if stays and _names_columns(line, below):
            names.update(id(word) for word in line.words)
    return names


def _names_columns(line: Line, row: Line) -> bool:
    """Whether a line has words above those of a row right below it, each at the same edge."""
    if line.bottom - row.bottom > 2.5 * row.size or abs(line.size - row.size) > 0.6:
        return False
    gutter = max(7.0, 0.9 * line.size)
    names = [Line(segment) for segment in _segments(line, gutter)]
    cells = [Line(segment) for segment in _segments(row, gutter)]
    return len(names) >= 2 and all(
        not name.text.isdigit()
        and any(
            min(
                abs(name.left - cell.left),
                abs(name.right - cell.right),
                abs(name.left + name.right - cell.left - cell.right) / 2,
            )
            <= 2.0
            for cell in cells
        )
        for name in names
    )


def _without_labels(lines: list[Line]) -> list[Line]:
    """Less a first or last line that only says "Page 3"."""
    ends = (0, len(lines) - 1)
    return [
        line
        for number, line in enumerate(lines)
        if number not in ends or not is_page_label(clean_block(line.text))
    ]


def _without(line: Line, dropped: set[int]) -> Line | None:
    """The line less these words, by their `id`; None where none is left."""
    words = [word for word in line.words if id(word) not in dropped]
    if not words:
        return None
    return line if len(words) == len(line.words) else Line(words, line.page)


class _Measures:
    """What is usual in this document: body size, leading, heading sizes, vocabulary."""

    def __init__(self, lines: Sequence[Line]) -> None:
        sizes = Counter[float]()
        for line in lines:
            sizes[_half(line.size)] += len(line.text)
        self.body = sizes.most_common(1)[0][0] if sizes else 10.0
        larger = sorted((s for s in sizes if s >= 1.12 * self.body), reverse=True)
        self._levels = {size: min(rank, 6) for rank, size in enumerate(larger[:8], 1)}
        gaps = [
            above.bottom - below.bottom
            for above, below in pairwise(lines)
            if above.page == below.page
            and 0 < above.bottom - below.bottom < 3 * self.body
            and _half(above.size) == _half(below.size) == self.body
        ]
        self.leading = median(gaps) if gaps else 1.3 * self.body
        bold = sum(len(line.text) for line in lines if line.bold)
        self._bold_stands_out = bold < 0.4 * sum(len(line.text) for line in lines)
        mono = sum(len(line.text) for line in lines if line.mono)
        self.code_stands_out = mono < 0.5 * sum(len(line.text) for line in lines)
        self.vocabulary = Vocabulary([line.text for line in lines])

    def heading_level(self, lines: Sequence[Line], text: str) -> int:
        """Level of a block of lines, 0 where it is no heading."""
        words = text.rstrip()
        if not 2 <= len(words) <= _HEADING_LENGTH or not any(map(str.isalpha, words)):
            return 0
        if len(lines) > 3 or words.endswith((",", ";")):
            return 0
        level = self._levels.get(_half(lines[0].size), 0)
        if level:
            return level
        bold = self._bold_stands_out and all(line.bold for line in lines)
        if bold and len(lines) <= 2 and not words.endswith((".", ":")):
            deepest = len([1 for size in self._levels if size > self.body]) + 1
            match = _NUMBERED.match(words)
            return min(6, max(deepest, match.group(1).count(".") + 1 if match else 0))
        return 0


def _half(size: float) -> float:
    return round(size * 2) / 2


# --- regions --------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Region:
    """A part of a page read as one: a column of lines, or rows of cells."""

    lines: list[Line]
    rows: list[list[str]] | None = None
    bold_header: bool = False
    listed: bool = False  # the first cell of each row is the marker of a list item

    def blocks(self, page: int, measures: _Measures) -> Iterator[Block]:
        if self.rows is None:
            yield from _paragraphs(self.lines, page, measures)
        elif self.listed:
            for cells in self.rows:
                yield Block("item", " ".join(filter(None, cells)), page=page)
        elif self.bold_header and len(self.rows) > 1:
            yield from table_blocks(self.rows[1:], header=self.rows[0], page=page)
        else:
            header, body = split_header(self.rows)
            yield from table_blocks(body, header=header, page=page)


def _regions(grids: Sequence[_Grid], lines: list[Line]) -> list[_Region]:
    """The page's parts in reading order: ruled tables, columns, unruled tables, running text."""
    tables = [(grid, rows) for grid in grids if (rows := grid.fill(lines)) is not None]
    regions: list[_Region] = []
    rest = lines
    for grid, _ in tables:
        rest = [kept for line in rest if (kept := grid.without(line)) is not None]
    pending = sorted(tables, key=lambda table: -table[0].box.top)
    above: list[Line] = []
    for line in rest:
        while pending and line.top <= pending[0][0].box.top:
            regions += _bands(above)
            above = []
            regions.append(pending.pop(0)[1])
        above.append(line)
    regions += _bands(above)
    regions += [region for _, region in pending]
    return regions


class _Grid:
    """The cells between ruling lines."""

    def __init__(self, box: Box, columns: list[float], rows: list[float]) -> None:
        self.box = box
        self._columns = columns  # x of the boundaries, ascending
        self._rows = rows  # y of the boundaries, descending

    def holds(self, word: Word) -> bool:
        x, y = (word.left + word.right) / 2, word.middle
        return (
            self.box.left - 1 <= x <= self.box.right + 1
            and self.box.bottom - 1 <= y <= self.box.top + 1
        )

    def without(self, line: Line) -> Line | None:
        """The line less the words in this table."""
        if line.bottom > self.box.top + 2 or line.top < self.box.bottom - 2:
            return line
        outside = [word for word in line.words if not self.holds(word)]
        if len(outside) == len(line.words):
            return line
        return Line(outside, line.page) if outside else None

    def fill(self, lines: Sequence[Line]) -> _Region | None:
        """The table's rows; None where it is a frame around running text."""
        cells: dict[tuple[int, int], list[Word]] = defaultdict(list)
        for line in lines:
            for word in line.words:
                if self.holds(word):
                    cells[self._row(word.middle), self._column(word)].append(word)
        rows, bold = [], []
        for row in range(len(self._rows) - 1):
            words = [cells.get((row, column), []) for column in range(len(self._columns) - 1)]
            if any(words):
                rows.append([_cell_text(cell) for cell in words])
                bold.append(all(word.bold for cell in words for word in cell))
        filled = sum(bool(cell) for row in rows for cell in row)
        if len(rows) < 2 or filled < 3 or max(sum(map(bool, row)) for row in rows) < 2:
            return None
        if any(len(cell) > 1500 for row in rows for cell in row):
            return None
        header = bold[0] and not all(bold) and all(rows[0])
        return _Region([], rows, header)

    def is_table(self, lines: Sequence[Line]) -> bool:
        """Whether it has rows of cells, and is not a frame around a page with a few boxes."""
        region = self.fill(lines)
        rows = region.rows if region and region.rows else []
        letters = [len(cell) for row in rows for cell in row]
        several = [row for row in rows if sum(map(bool, row)) > 1]
        return len(several) > 2 and 2 * max(letters) <= sum(letters)

    def _row(self, y: float) -> int:
        return sum(boundary > y for boundary in self._rows[1:-1])

    def _column(self, word: Word) -> int:
        x = (word.left + word.right) / 2
        return sum(boundary < x for boundary in self._columns[1:-1])


def _cell_text(words: list[Word]) -> str:
    lines = _lines(words, 0)
    return " ".join(line.text for line in lines)


def _grids(page: PageContent) -> list[_Grid]:
    """Tables drawn with lines or boxes: groups of rules that touch each other."""
    rules = [*page.rules]
    for frame in page.frames:
        if frame.width > 0.97 * page.box.width and frame.height > 0.8 * page.box.height:
            continue
        rules += (
            Box(frame.left, frame.bottom, frame.left, frame.top),
            Box(frame.right, frame.bottom, frame.right, frame.top),
            Box(frame.left, frame.bottom, frame.right, frame.bottom),
            Box(frame.left, frame.top, frame.right, frame.top),
        )
    if not 4 <= len(rules) <= 6000:
        return []
    grids = []
    for group in _touching(rules):
        columns = _boundaries([(r.left, r.height) for r in group if r.height > r.width])
        rows = _boundaries([(r.bottom, r.width) for r in group if r.width >= r.height])
        if len(columns) >= 3 and len(rows) >= 3:
            box = Box(columns[0], rows[0], columns[-1], rows[-1])
            grids.append(_Grid(box, columns, rows[::-1]))
    return grids


def _touching(rules: Sequence[Box]) -> list[list[Box]]:
    """Rules in groups that overlap or touch, by sweeping from top to bottom."""
    groups: list[tuple[list[float], list[Box]]] = []
    for rule in sorted(rules, key=lambda r: -r.top):
        near = [
            group
            for group in groups
            if rule.left <= group[0][2] + 2
            and rule.right >= group[0][0] - 2
            and rule.top >= group[0][1] - 2
        ]
        edge = [rule.left, rule.bottom, rule.right, rule.top]
        members = [rule]
        for group in near:
            edge = [
                min(edge[0], group[0][0]),
                min(edge[1], group[0][1]),
                max(edge[2], group[0][2]),
                max(edge[3], group[0][3]),
            ]
            members = group[1] + members
            groups.remove(group)
        groups.append((edge, members))
    return [members for _, members in groups if len(members) >= 4]


def _boundaries(edges: Sequence[tuple[float, float]]) -> list[float]:
    """Distinct coordinates, ascending; edges closer than 3 points are one."""
    found: list[float] = []
    for place, length in sorted(edges):
        if length > 2 and (not found or place - found[-1] > 3):
            found.append(place)
    return found


def _bands(lines: list[Line]) -> list[_Region]:
    """Lines top to bottom, cut into zones that share a gutter and lines that do not."""
    regions: list[_Region] = []
    plain: list[Line] = []
    start = 0
    while start < len(lines):
        zone = _zone(lines, start)
        if zone is None:
            plain.append(lines[start])
            start += 1
            continue
        end, gutters = zone
        if plain:
            regions.append(_Region(plain))
            plain = []
        regions += _split(lines[start:end], gutters)
        start = end
    if plain:
        regions.append(_Region(plain))
    return regions


def _zone(lines: list[Line], start: int) -> tuple[int, list[float]] | None:
    """The longest run of lines from `start` with gutters that none of its words crosses."""
    first = lines[start]
    gutter = max(7.0, (2.2 if first.mono else 0.9) * first.size)
    if len(_segments(first, gutter)) < 2:
        following = lines[start + 1] if start + 1 < len(lines) else None
        if following is None or len(_segments(following, gutter)) < 2:
            return None
        if first.right > _segments(following, gutter)[1][0].left - gutter / 2:
            return None
        if first.bottom - following.bottom > 2.2 * first.size:
            return None
    free = [(-1e9, 1e9)]
    left, right = first.left, first.right
    end = start
    best: list[tuple[float, float]] = []
    two_sided = 0
    while end < len(lines):
        narrowed = _free_after(free, lines[end], gutter)
        left, right = min(left, lines[end].left), max(right, lines[end].right)
        interior = [(a, b) for a, b in narrowed if a > left and b < right]
        closed = not interior and (best or end > start + 1)
        if end > start and (closed or _leaves(lines, start, end, best)):
            break
        free, best = narrowed, interior
        two_sided += len(_segments(lines[end], gutter)) >= 2
        end += 1
    if not best or two_sided < 2 or two_sided < 0.5 * (end - start):
        return None
    if two_sided == 2 and max(b - a for a, b in best) < 1.5 * first.size:
        return None
    while end > start and len(_segments(lines[end - 1], gutter)) < 2 and _outlying(lines, end - 1):
        end -= 1
    return end, [(a + b) / 2 for a, b in best]


def _leaves(
    lines: list[Line], start: int, end: int, gutters: Sequence[tuple[float, float]]
) -> bool:
    """Whether a line is no part of the zone above it: far below, or indented after a larger gap."""
    drop = lines[end - 1].bottom - lines[end].bottom
    if drop > 6 * lines[start].size:
        return True
    if end < start + 2 or not gutters or lines[end].left < gutters[0][1]:
        return False
    return drop > 1.3 * (lines[end - 2].bottom - lines[end - 1].bottom)


def _outlying(lines: list[Line], index: int) -> bool:
    """Whether a line stands clearly below the one before it: it belongs to what follows."""
    above, line = lines[index - 1], lines[index]
    return above.bottom - line.bottom > 1.8 * max(above.size, line.size)


def _free_after(
    free: list[tuple[float, float]], line: Line, gutter: float
) -> list[tuple[float, float]]:
    """Free x intervals less the line's segments."""
    for segment in _segments(line, gutter):
        left = min(word.left for word in segment)
        right = max(word.right for word in segment)
        narrowed = []
        for a, b in free:
            if right <= a or left >= b:
                narrowed.append((a, b))
                continue
            if left - a >= gutter:
                narrowed.append((a, left))
            if b - right >= gutter:
                narrowed.append((right, b))
        free = narrowed
    return free


def _segments(line: Line, gutter: float) -> list[list[Word]]:
    """Runs of words without a gap as wide as a gutter, left to right."""
    words = sorted(line.words, key=lambda word: word.left)
    segments = [[words[0]]]
    right = words[0].right
    for word in words[1:]:
        if word.left - right >= gutter:
            segments.append([])
        segments[-1].append(word)
        right = max(right, word.right)
    return segments


def _split(lines: list[Line], gutters: list[float]) -> list[_Region]:
    """A zone as columns of running text, or as rows of a table."""
    edges = [*sorted(gutters), 1e9]
    columns: list[list[Word]] = [[] for _ in edges]
    for line in lines:
        for word in line.words:
            x = (word.left + word.right) / 2
            columns[next(i for i, edge in enumerate(edges) if x < edge)].append(word)
    page = lines[0].page
    markers = [line.text for line in _lines(columns[0], page)]
    if _are_markers(markers, counted=len(gutters) == 1):
        if len(gutters) > 1:
            return [_Region(lines)]
        return [_Region([], _table_rows(lines, edges), listed=True)]
    columns = [column for column in columns if column]
    if _is_running_text(columns):
        ordered = columns[::-1] if _mostly_right_to_left(columns) else columns
        return [region for column in ordered for region in _bands(_lines(column, page))]
    rows = _table_rows(lines, edges)
    bold = [all(w.bold for w in line.words) for line in lines]
    return [_Region([], rows, bold[0] and not all(bold) and all(rows[0]))]


def _are_markers(cells: Sequence[str], *, counted: bool) -> bool:
    """Whether a first column holds markers of list items; bare numbers only where they count."""
    if all(_MARKER.match(cell) for cell in cells):
        return True
    if not counted or len(cells) < 2 or not all(cell.isdigit() and len(cell) < 3 for cell in cells):
        return False
    return all(int(b) == int(a) + 1 for a, b in pairwise(cells))


def _mostly_right_to_left(columns: Sequence[Sequence[Word]]) -> bool:
    words = [word for column in columns for word in column]
    return sum(map(_right_to_left, words)) > len(words) / 2


def _is_running_text(columns: Sequence[Sequence[Word]]) -> bool:
    """Columns of prose have lines that fill them; cells of a table do not."""
    prose = 0
    for column in columns:
        lines = _lines(column, 0)
        width = max(line.right for line in lines) - min(line.left for line in lines)
        filling = [line for line in lines if line.right - line.left > 0.7 * width]
        letters = median(len(line.text) for line in lines)
        prose += len(lines) >= 4 and letters >= 16 and len(filling) >= 0.5 * len(lines)
    return prose >= 2 and prose >= len(columns) - 1


def _table_rows(lines: Sequence[Line], edges: Sequence[float]) -> list[list[str]]:
    """Rows of an unruled table; a line without a first cell continues the row above."""
    rows: list[list[str]] = []
    for line in lines:
        cells: list[list[Word]] = [[] for _ in edges]
        for word in line.words:
            x = (word.left + word.right) / 2
            cells[next(i for i, edge in enumerate(edges) if x < edge)].append(word)
        texts = [_joined(cell) if cell else "" for cell in cells]
        if rows and not texts[0]:
            rows[-1] = [f"{a} {b}".strip() for a, b in zip(rows[-1], texts, strict=True)]
        else:
            rows.append(texts)
    return rows


# --- paragraphs -----------------------------------------------------------------------------------


def _paragraphs(lines: list[Line], page: int, measures: _Measures) -> Iterator[Block]:
    """Lines of one column as headings, items and paragraphs."""
    if not lines:
        return
    left = min(line.left for line in lines)
    right = max(line.right for line in lines)
    hanging = _hanging(lines)
    group: list[Line] = []
    for line in lines:
        if group and (
            _begins(group, line, left, right, measures) or (hanging and _returns(group, line))
        ):
            yield _block(group, page, measures)
            group = []
        group.append(line)
    yield _block(group, page, measures)


def _hanging(lines: Sequence[Line]) -> bool:
    """Whether items go on below their text, not below their marker."""
    return any(
        _ITEM.match(above.text)
        and len(above.words) > 1
        and abs(line.left - above.words[1].left) < 2
        for above, line in pairwise(lines)
    )


def _returns(group: Sequence[Line], line: Line) -> bool:
    """Whether a line after an item stands left of the item's text."""
    first = group[0]
    if not _ITEM.match(first.text) or len(first.words) < 2:
        return False
    return line.left < first.words[1].left - 0.3 * first.size


def _begins(
    group: Sequence[Line], line: Line, left: float, right: float, measures: _Measures
) -> bool:
    """Whether a line begins a new block after `group`."""
    above = group[-1]
    size = max(above.size, line.size)
    if measures.code_stands_out and above.mono != line.mono:
        return True
    if abs(_half(above.size) - _half(line.size)) >= 1.0 or _ITEM.match(line.text):
        return True
    drop = above.bottom - line.bottom
    usual = max(measures.leading * size / max(measures.body, 1.0), 1.05 * size)
    if drop > 1.35 * usual or drop < -size:
        return True
    if above.bold != line.bold and _is_short_title(group if above.bold else [line], measures):
        return True
    indented = line.left > left + 0.8 * size and above.left <= left + 0.4 * size
    starts_item = _ITEM.match(group[0].text)
    if indented and not starts_item and above.right > right - 4 * size and line.text[:1].isupper():
        return True
    outdented = bool(starts_item) and line.left < group[0].left - 0.3 * size
    short = above.right < left + 0.75 * (right - left) and above.text.endswith(_ENDS)
    return outdented or (short and line.text[:1].isupper())


def _is_short_title(lines: Sequence[Line], measures: _Measures) -> bool:
    text = " ".join(line.text for line in lines)
    return measures.heading_level(lines, text) > 0


def _block(lines: Sequence[Line], page: int, measures: _Measures) -> Block:
    if measures.code_stands_out and all(line.mono for line in lines):
        return Block("code", "\n".join(line.text for line in lines), page=page)
    text = join_lines([line.text for line in lines], measures.vocabulary)
    level = measures.heading_level(lines, text)
    if level and not (_ITEM.match(text) and not _NUMBERED.match(text)):
        return Block("heading", text, level, page)
    return Block("item" if _ITEM.match(text) else "paragraph", text, page=page)


def _connect(blocks: list[Block], fresh: list[Block], measures: _Measures) -> None:
    """A paragraph that crosses the page, or the column, goes on without a break."""
    chain = [*blocks[-1:], *fresh]
    for last, first in pairwise(chain):
        if last.kind not in ("paragraph", "item") or first.kind != "paragraph":
            continue
        if last.text.rstrip().endswith((*_ENDS, ":")) or not first.text[:1].islower():
            continue
        join_blocks(last, first, measures.vocabulary)


def _drop_contents(lines: list[list[Line]]) -> None:
    """Remove a table of contents with dot leaders."""
    texts = [clean_block(line.text) for page in lines for line in page]
    dropped = contents_lines(texts)
    if not dropped:
        return
    first = 0
    for page, page_lines in enumerate(lines):
        lines[page] = [line for i, line in enumerate(page_lines, first) if i not in dropped]
        first += len(page_lines)

"""A place in a document -> what it lies under: the document's title and the headings above it.

Search counts these words for each passage, and the models read them before each text, because a
text often does not say itself what it is about: "The oil is changed every 500 hours", under
"Pump P2".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from runtime.documents import Heading, Span

_BETWEEN = ": "


@dataclass(frozen=True, slots=True)
class Outline:
    """A document's title, and those of its headings that a passage lies under or holds, in order
    of `start`."""

    title: str
    headings: tuple[Heading, ...] = ()

    def header(self, position: int) -> str:
        """What a reader of the text from `position` on has not read: title and headings before it.

        The title is left out where it is a heading, too; outermost first, so that the end of the
        header is what matters most.
        """
        named = (one.title for one in self.headings)
        title = [] if not self.title or self.title in named else [self.title]
        return as_header([*title, *self.above(position)])

    def above(self, position: int) -> list[str]:
        """The headings before `position` that are open there, outermost first."""
        path = heading_path(position, self.headings)
        return [heading.title for heading in path if heading.start < position]


def as_header(parts: Iterable[str]) -> str:
    """A title and headings, outermost first, as the models read them before a text."""
    return "".join(f"{part}{_BETWEEN}" for part in parts)


def heading_path(position: int, headings: Iterable[Heading]) -> list[Heading]:
    """The headings open at `position`, outermost first. `headings` are in order of `start`."""
    path: list[Heading] = []
    for heading in headings:
        if heading.start > position:
            break
        _open_heading(path, heading)
    return path


def contexts(
    passages: Iterable[Span], document_title: str, headings: Sequence[Heading]
) -> Iterator[str]:
    """What each passage's own text does not say: the document's title and the headings above it.

    `passages` and `headings` are in order of `start`.
    """
    path: list[Heading] = []
    reached = 0
    for span in passages:
        while reached < len(headings) and headings[reached].start <= span.start:
            _open_heading(path, headings[reached])
            reached += 1
        yield " ".join([document_title, *(heading.title for heading in path)])


def _open_heading(path: list[Heading], heading: Heading) -> None:
    """Begin a section, which ends those of its own level and below."""
    while path and path[-1].level >= heading.level:
        path.pop()
    path.append(heading)

"""ZIP -> a document for each member that has a reader. Nothing is ever unpacked to disk."""

from __future__ import annotations

from pathlib import PurePosixPath

from runtime.errors import DocumentError, DocumentTooLarge, EmptyDocument
from runtime.readers.blocks import RawDocument
from runtime.readers.context import Context
from runtime.readers.kinds import is_supported_name
from runtime.readers.packages import open_zip, read_member


def read(data: bytes, context: Context) -> list[RawDocument]:
    """Documents of the members; those that fail are noted in `context.failures`.

    Raises:
        EmptyDocument: no member has a reader.
    """
    documents: list[RawDocument] = []
    failures = len(context.failures)
    with open_zip(data, context) as archive:
        members = [m for m in archive.infolist() if not m.is_dir() and _wanted(m.filename)]
        taken: dict[str, int] = {}
        for member in members:
            name = unique_name(member.filename, taken)
            try:
                context.unpack(member.compress_size, member.file_size)
                if member.file_size > context.options.file_bytes:
                    raise DocumentTooLarge(
                        f"It is {member.file_size >> 20} MiB",
                        where=f"{context.source}!/{name}",
                    )
                content = read_member(archive, member, context)
                documents += member_documents(content, name, context)
            except DocumentError as error:
                context.failures.append(error)
    if not documents and len(context.failures) == failures:
        raise EmptyDocument("It holds no file that can be read", where=context.source)
    return documents


def unique_name(name: str, taken: dict[str, int]) -> str:
    """`name`, or `name (2)` before its ending where it is taken.

    A document's place is its key in a knowledge base: of two of one name only one would be kept.

    Args:
        taken: the names given so far, each with the last number it was given; updated.
    """
    ending = PurePosixPath(name).suffix
    free = name
    while free in taken:
        taken[name] += 1
        free = f"{name.removesuffix(ending)} ({taken[name]}){ending}"
    taken[free] = 1
    return free


def member_documents(data: bytes, name: str, context: Context) -> list[RawDocument]:
    """Documents of one member or attachment, each with its place inside the file."""
    from runtime.readers.reading import raw_documents

    documents = raw_documents(data, name, context.inside(name))
    for document in documents:
        document.member = f"{name}!/{document.member}" if document.member else name
    return documents


def _wanted(name: str) -> bool:
    parts = PurePosixPath(name).parts
    hidden = any(part.startswith((".", "__MACOSX")) and part != ".." for part in parts)
    return not hidden and is_supported_name(name)

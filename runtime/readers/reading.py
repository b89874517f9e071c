"""Bytes of a file -> parsed documents, by the reader of its kind. Runs in the child process."""

from __future__ import annotations

from importlib import import_module

from runtime.documents import ParsedDocument
from runtime.errors import (
    DamagedDocument,
    DocumentError,
    DocumentTooLarge,
    EmptyDocument,
    UnsupportedDocument,
)
from runtime.readers.blocks import RawDocument, assemble
from runtime.readers.context import Context
from runtime.readers.kinds import reader_for

_HOW_TO_INSTALL = "Install the package again with its dependencies."


def raw_documents(data: bytes, name: str, context: Context) -> list[RawDocument]:
    """What the file's reader finds, several documents for an archive or e-mail.

    Raises:
        DocumentError: of the kind that says what is wrong with it.
    """
    if not data.strip(b"\x00 \t\r\n"):
        raise EmptyDocument("It is empty", where=context.source)
    kind = reader_for(data, name, context)
    try:
        module = import_module(f"runtime.readers.{kind}")
        found: list[RawDocument] = module.read(data, context)
    except DocumentError as error:
        raise type(error)(error.what, where=error.where or context.source, fix=error.fix) from error
    except MemoryError:
        raise
    except ImportError as error:
        raise UnsupportedDocument(
            f"Reading it needs the package {error.name}", where=context.source, fix=_HOW_TO_INSTALL
        ) from error
    except RecursionError as error:
        raise DocumentTooLarge("It is nested too deeply", where=context.source) from error
    except Exception as error:  # whatever a library says about a damaged file
        raise DamagedDocument(
            f"It is damaged ({type(error).__name__})",
            where=context.source,
            fix="Copy or export it again from its source.",
        ) from error
    return found


def parse_bytes(data: bytes, name: str, context: Context) -> list[ParsedDocument]:
    """The file's documents, cleaned. Those without text are left out.

    Raises:
        EmptyDocument: none of them has text and nothing else went wrong.
    """
    parsed = []
    for raw in raw_documents(data, name, context):
        source = f"{context.source}!/{raw.member}" if raw.member else context.source
        document = assemble(raw, source)
        if document.text:
            parsed.append(document)
    if not parsed and not context.failures:
        raise EmptyDocument("There is no text in it", where=context.source)
    return parsed

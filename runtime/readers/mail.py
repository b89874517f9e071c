"""E-mail (.eml) -> the message, then each attachment that has a reader as a document of its own."""

from __future__ import annotations

from dataclasses import replace
from email import policy
from email.errors import MessageError
from email.message import EmailMessage, MIMEPart
from email.parser import BytesParser

from runtime.cleaning import smuggled_text
from runtime.errors import DamagedDocument, DocumentError, EncryptedDocument
from runtime.readers.blocks import INVISIBLE, Block, RawDocument
from runtime.readers.context import Context
from runtime.readers.html import html_blocks, html_text
from runtime.readers.kinds import is_supported_name
from runtime.readers.text import decode, text_blocks

_SHOWN = ("From", "To", "Cc", "Date", "Subject")
_ENCRYPTED = ("application/pkcs7-mime", "application/x-pkcs7-mime", "multipart/encrypted")
_MOST_ATTACHMENTS = 200


def read(data: bytes, context: Context) -> list[RawDocument]:
    """The message's headers and body, and its attachments.

    Raises:
        DamagedDocument: no header of an e-mail in it.
        EncryptedDocument: S/MIME or PGP.
    """
    message = BytesParser(_class=EmailMessage, policy=policy.default).parsebytes(data)
    if not any(message.get(name) for name in ("From", "To", "Subject", "Date")):
        raise DamagedDocument("It is not an e-mail", where=context.source)
    if message.get_content_type() in _ENCRYPTED:
        raise EncryptedDocument("It is an encrypted e-mail", where=context.source)
    headers = [f"{name}: {message[name]}" for name in _SHOWN if message.get(name)]
    raw = RawDocument(
        "message/rfc822",
        [Block("paragraph", "\n".join(headers))],
        title=str(message.get("Subject", "")),
    )
    _body(message, raw, context)
    return [raw, *_attachments(message, context)]


def _body(message: EmailMessage, raw: RawDocument, context: Context) -> None:
    body = message.get_body(("plain", "html"))
    if body is None:
        return
    data = _payload(body)
    charset = body.get_content_charset()
    try:
        text = data.decode(charset or "utf-8")
    except (LookupError, UnicodeDecodeError):
        html = body.get_content_subtype() == "html"
        text = html_text(data, context) if html else decode(data, context)
    if body.get_content_subtype() == "html":
        content = html_blocks(text)
        raw.blocks += content.blocks
        raw.hidden += content.hidden
        raw.markup = True
    else:
        raw.blocks += [replace(block, page=None) for block in text_blocks(text)]
        raw.hidden += [(INVISIBLE, smuggled)] if (smuggled := smuggled_text(text)) else []


def _attachments(message: EmailMessage, context: Context) -> list[RawDocument]:
    from runtime.readers.archive import member_documents, unique_name

    found: list[RawDocument] = []
    taken: dict[str, int] = {}
    try:
        parts = list(message.iter_attachments())[:_MOST_ATTACHMENTS]
    except (MessageError, AttributeError, TypeError, KeyError):
        return found
    for index, part in enumerate(parts, 1):
        name = part.get_filename() or ""
        if part.get_content_type() == "message/rfc822":
            name = name or f"message-{index}.eml"
            data = part.get_payload(0).as_bytes()  # type: ignore[union-attr]
        elif part.is_multipart() or not is_supported_name(name):
            continue
        else:
            data = _payload(part)
        if part.get_content_maintype() == "image" and part.get_content_disposition() == "inline":
            continue  # signatures and logos
        try:
            context.unpack(len(data), len(data))
            found += member_documents(data, unique_name(name, taken), context)
        except DocumentError as error:
            context.failures.append(error)
    return found


def _payload(part: MIMEPart) -> bytes:
    data = part.get_payload(decode=True)
    return data if isinstance(data, bytes) else b""

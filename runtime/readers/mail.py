"""E-mail (.eml) -> the message, then each attachment that has a reader as a document of its own."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from email import policy
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
_OFFICE = "application/vnd.openxmlformats-officedocument."
_ENDINGS = {  # of attachments that are read whatever their name, or without one
    "text/plain": ".txt",
    "text/html": ".html",
    "text/markdown": ".md",
    "text/csv": ".csv",
    "text/rtf": ".rtf",
    "application/rtf": ".rtf",
    "application/pdf": ".pdf",
    "application/zip": ".zip",
    "application/epub+zip": ".epub",
    f"{_OFFICE}wordprocessingml.document": ".docx",
    f"{_OFFICE}spreadsheetml.sheet": ".xlsx",
    f"{_OFFICE}presentationml.presentation": ".pptx",
}


def read(data: bytes, context: Context) -> list[RawDocument]:
    """The message's headers and body, and its attachments.

    Raises:
        DamagedDocument: no header of an e-mail in it.
        EncryptedDocument: S/MIME or PGP.
    """
    message = BytesParser(_class=EmailMessage, policy=policy.default).parsebytes(data)
    shown = {name: value for name in _SHOWN if (value := _header(message, name))}
    if not shown.keys() & {"From", "To", "Subject", "Date"}:
        raise DamagedDocument("It is not an e-mail", where=context.source)
    if message.get_content_type() in _ENCRYPTED:
        raise EncryptedDocument("It is an encrypted e-mail", where=context.source)
    headers = [f"{name}: {value}" for name, value in shown.items()]
    raw = RawDocument(
        "message/rfc822",
        [Block("paragraph", "\n".join(headers))],
        title=shown.get("Subject", ""),
    )
    content = _content(message, context)
    for text in content.texts:
        raw.blocks += text.blocks
        raw.hidden += text.hidden
        raw.flags += text.flags
        raw.markup |= text.markup
    return [raw, *_attachments(content.attached, context)]


def _header(message: EmailMessage, name: str) -> str:
    """A header as text; as it stands where Python's parser fails at it (a date in year 10^20)."""
    try:
        return str(message.get(name, ""))
    except (ValueError, OverflowError, IndexError, AttributeError):
        written = (value for key, value in message.raw_items() if key.lower() == name.lower())
        return " ".join(str(next(written)).split())


@dataclass(slots=True)
class _Content:
    """What a part of a message is made of: texts of the body in order, and attachments."""

    texts: list[RawDocument] = field(default_factory=list)
    attached: list[MIMEPart] = field(default_factory=list)

    def shown(self) -> str:
        return " ".join(block.text for text in self.texts for block in text.blocks)


def _content(part: MIMEPart, context: Context, holder: str = "") -> _Content:
    """The texts and attachments of a part; `holder` is the kind of multipart it stands in.

    Some programs write a text, a picture and a text again as three parts, and hang attachments into
    one of the alternatives.
    """
    kind = part.get_content_type()
    if kind == "message/rfc822":
        return _Content(attached=[part])
    if part.is_multipart():
        inner = [
            _content(child, context, kind)
            for child in part.get_payload()
            if isinstance(child, MIMEPart)
        ]
        shown = _alternative(inner) if kind == "multipart/alternative" else inner
        return _Content(
            [text for content in shown for text in content.texts],
            [attached for content in inner for attached in content.attached],
        )
    named = part.get_filename() or part.get_content_disposition() == "attachment"
    broken = kind.startswith("multipart/")  # its boundary never comes
    if broken or (kind in ("text/plain", "text/html") and not (holder and named)):
        return _Content([_text(part, context)])
    if part.get_content_maintype() == "image" and (
        part.get_content_disposition() == "inline" or holder == "multipart/related"
    ):
        return _Content()  # signatures and logos
    return _Content(attached=[part] if holder else [])


def _alternative(choices: list[_Content]) -> list[_Content]:
    """The first of several forms of one text, or the last where the first lacks most of it.

    Plain text comes first and reads best, but may be a mere "Please view this in HTML".
    """
    texts = [choice for choice in choices if choice.texts]
    if not texts:
        return []
    plain, rich = _pieces(texts[0].shown()), _pieces(texts[-1].shown())
    return [texts[-1] if len(plain & rich) < 0.5 * len(rich) else texts[0]]


def _pieces(text: str) -> set[str]:
    """Three characters each, in any script, however lines are broken."""
    letters = "".join(filter(str.isalnum, text.casefold()))
    return {letters[start : start + 3] for start in range(len(letters) - 2)}


def _text(part: MIMEPart, context: Context) -> RawDocument:
    data = _payload(part)
    html = part.get_content_subtype() == "html"
    try:
        text = data.decode(part.get_content_charset() or "utf-8")
    except (LookupError, UnicodeDecodeError):
        text = html_text(data, context) if html else decode(data, context)
    if html:
        content = html_blocks(text)
        return RawDocument(
            "text/html", content.blocks, hidden=content.hidden, flags=content.flags, markup=True
        )
    hidden = [(INVISIBLE, smuggled)] if (smuggled := smuggled_text(text)) else []
    blocks = [replace(block, page=None) for block in text_blocks(text)]
    return RawDocument("text/plain", blocks, hidden=hidden)


def _attachments(parts: list[MIMEPart], context: Context) -> list[RawDocument]:
    from runtime.readers.archive import member_documents, unique_name

    found: list[RawDocument] = []
    taken: dict[str, int] = {}
    for index, part in enumerate(parts[:_MOST_ATTACHMENTS], 1):
        name = part.get_filename() or ""
        kind = part.get_content_type()
        if kind == "message/rfc822" and part.is_multipart():
            name = name or f"message-{index}.eml"
            data = part.get_payload(0).as_bytes()  # type: ignore[union-attr]
        elif kind not in _ENDINGS and not is_supported_name(name):
            continue
        else:
            name = name or f"attachment-{index}{_ENDINGS[kind]}"
            data = _payload(part)
        try:
            context.unpack(len(data), len(data))
            found += member_documents(data, unique_name(name, taken), context)
        except DocumentError as error:
            context.failures.append(error)
    return found


def _payload(part: MIMEPart) -> bytes:
    data = part.get_payload(decode=True)
    return data if isinstance(data, bytes) else b""

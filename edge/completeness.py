"""What a knowledge base was made of -> what of it the disk still has."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator

from runtime.knowledge_base import MEMBER
from runtime.readers.discovery import real_path

_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)


def may_exist(source: str) -> bool:
    """Whether it is there, or nobody can say: the folder may not be entered, the drive fails."""
    *archives, whole = places(source)
    return _may_be_there(whole) or any(_may_be_there(one, folder=False) for one in archives)


def places(source: str) -> Iterator[str]:
    """The paths that may be the file of a source, shortest first.

    Of `a/b.zip!/c!/d.txt` it is `a/b.zip`, but a folder's name may end in "!", too.
    """
    parts = real_path(source).split(MEMBER)
    return (MEMBER.join(parts[:count]) for count in range(1, len(parts) + 1))


def _may_be_there(path: str, *, folder: bool = True) -> bool:
    """
    Args:
        folder: a folder at this place counts; it does not where an archive must be.
    """
    try:
        found = os.stat(path)
    except OSError as error:
        return error.errno not in _NOT_THERE
    except ValueError:  # a NUL, in the name of a member
        return False
    return folder or not stat.S_ISDIR(found.st_mode)

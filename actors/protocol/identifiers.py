"""Which characters no transactional id, family and group may have in its name, and how long a transactional id may be.

Control characters: one of them stands between a family and the number of its member (`rules/family.py`), and none
is of use in a name that people read. Halves of surrogate pairs: no text on the wire has them.
"""

from __future__ import annotations

import re
from typing import Final

from raylog.errors import InvalidTransactionalId

MAX_ID_BYTES: Final = 1024
MAX_FAMILY_BYTES: Final = MAX_ID_BYTES - 12  # room for a member's number in its transactional id

_REFUSED: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def refused_character(name: str) -> str:
    """The first that no name may have; empty: there is none."""
    found = _REFUSED.search(name)
    return "" if found is None else found[0]


def check_transactional_id(name: str, maximum: int = MAX_ID_BYTES) -> None:
    """InvalidTransactionalId."""
    size = len(name.encode(errors="replace"))
    refused = refused_character(name)
    if refused or not 0 < size <= maximum:
        raise InvalidTransactionalId(size, maximum, ascii(refused) if refused else "")

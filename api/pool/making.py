"""Making a pool beside others that make one of the same name.

What must stay true: each making keeps its spec in a place of its own. So one that is refused leaves alone what the
other has kept, and nothing of its own is left.
"""

from __future__ import annotations

from collections.abc import Callable

from raylog.api.pool.rules.pool_options import PoolSpec
from raylog.api.pool.supervisor import Store
from raylog.errors import PoolExists


def make_once(spec: PoolSpec, store: Store, begin: Callable[[], object]) -> None:
    """Keep the spec, and begin its supervisor, which raises ValueError where the name is taken. PoolExists."""
    store.save(spec)
    try:
        begin()
    except ValueError as error:  # another program was quicker
        store.clear()
        raise PoolExists(spec.group_id) from error

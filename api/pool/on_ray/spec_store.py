"""The spec of a pool in Ray's control store: where a supervisor that is started again finds it.

Two programs may make a pool of one name at once, and one of them is refused. So each making has a key of its own.

A pool is a program on this Ray, so it lasts as long as Ray's own table of actors does, and goes with it. Nothing of the
log is kept there (rule 32). Each value begins with its version.
"""

from __future__ import annotations

import pickle
from typing import Final

from ray.experimental import internal_kv

from raylog.api.pool.rules.pool_options import PoolSpec

_NAMESPACE: Final = b"raylog"
_VERSION: Final = b"\x01"


class SpecStore:
    """The place of one pool's spec. `making`: what tells this making of it from others."""

    def __init__(self, cluster: str, group_id: str, making: str) -> None:
        self._key = f"pool/{cluster}/{group_id}/{making}".encode()

    def load(self) -> PoolSpec | None:
        """None: there is none, or none that this version of raylog reads."""
        found = internal_kv._internal_kv_get(self._key, namespace=_NAMESPACE)
        if not found or found[:1] != _VERSION:
            return None
        spec: PoolSpec = pickle.loads(found[1:])
        return spec

    def save(self, spec: PoolSpec) -> None:
        internal_kv._internal_kv_put(self._key, _VERSION + pickle.dumps(spec), overwrite=True, namespace=_NAMESPACE)

    def clear(self) -> None:
        internal_kv._internal_kv_del(self._key, namespace=_NAMESPACE)

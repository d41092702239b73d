"""Asking Ray's autoscaler for the nodes that pools want. Ray keeps one wish for its whole cluster; pools share it.

What must stay true: each pool's part lies in Ray's control store, and whoever asks, asks for the sum. Two that ask at
once may leave out a part; each asks again after a while. What other programs ask of the autoscaler by themselves is
replaced, so `request_nodes=False` leaves it alone.
"""

from __future__ import annotations

import json
from typing import Final

from ray.autoscaler.sdk import request_resources
from ray.experimental import internal_kv

from raylog.api.pool.rules.pool_options import PoolSpec

_NAMESPACE: Final = b"raylog"
_WISHES: Final = b"pool-nodes/"
_AGAIN_SECONDS: Final = 60.0


class NodesWish:
    """The part of one pool."""

    def __init__(self, cluster: str, group_id: str) -> None:
        self._key = _WISHES + f"{cluster}/{group_id}".encode()
        self._said: list[dict[str, float]] = []
        self._said_at = 0.0

    def want(self, count: int, spec: PoolSpec, now: float) -> None:
        """Have nodes for so many actors, as far as the autoscaler can. Nothing, where nothing has changed."""
        each = _resources(spec)
        wish = [each] * count if each and spec.options.request_nodes else []
        is_new = wish != self._said
        if not is_new and (not wish or now - self._said_at < _AGAIN_SECONDS):
            return
        self._said, self._said_at = wish, now
        if wish:
            internal_kv._internal_kv_put(self._key, json.dumps(wish).encode(), overwrite=True, namespace=_NAMESPACE)
        else:
            internal_kv._internal_kv_del(self._key, namespace=_NAMESPACE)
        request_resources(bundles=[bundle for key in _keys() for bundle in _part(key)])


def _keys() -> list[bytes]:
    return list(internal_kv._internal_kv_list(_WISHES, namespace=_NAMESPACE))


def _part(key: bytes) -> list[dict[str, float]]:
    found = internal_kv._internal_kv_get(key, namespace=_NAMESPACE)
    part: list[dict[str, float]] = json.loads(found) if found else []
    return part


def _resources(spec: PoolSpec) -> dict[str, float]:
    more = spec.options.actor_options
    found = {"CPU": spec.options.num_cpus, "GPU": more.get("num_gpus") or 0, **(more.get("resources") or {})}
    return {name: amount for name, amount in found.items() if amount}

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

from raylog.api.pool.nodes_wish import Wish

_NAMESPACE: Final = b"raylog"
_WISHES: Final = b"pool-nodes/"


def tell_wish(cluster: str, group_id: str, wish: Wish) -> None:
    """Keep this pool's part, and ask for the sum."""
    key = _WISHES + f"{cluster}/{group_id}".encode()
    if wish:
        internal_kv._internal_kv_put(key, json.dumps(wish).encode(), overwrite=True, namespace=_NAMESPACE)
    else:
        internal_kv._internal_kv_del(key, namespace=_NAMESPACE)
    request_resources(bundles=[bundle for each in _keys() for bundle in _part(each)])


def _keys() -> list[bytes]:
    return list(internal_kv._internal_kv_list(_WISHES, namespace=_NAMESPACE))


def _part(key: bytes) -> Wish:
    found = internal_kv._internal_kv_get(key, namespace=_NAMESPACE)
    part: Wish = json.loads(found) if found else []
    return part

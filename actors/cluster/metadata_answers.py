"""Answers to clients that ask for metadata: all of it, or what has changed since a version that they know.

What must stay true: a part is answered only to a client that has the rest, and only where every change since is known.
"""

from __future__ import annotations

from collections.abc import Collection

from raylog.actors.cluster.assignments import (
    broker_metadata_of,
    changed_metadata_of,
    coordinator_metadata_of,
    metadata_of,
)
from raylog.actors.cluster.metadata_fold import MetadataFold
from raylog.actors.protocol.control_messages import NOTHING_KNOWN, Metadata


def metadata_answer(fold: MetadataFold, topics: Collection[str], known: int) -> Metadata:
    """Return the answer for these topics; none: all. `known`: the client knows just these as of that version."""
    state, times = fold.state, fold.times
    is_part = times.all_since <= known <= fold.version
    if is_part:
        found = changed_metadata_of(state, topics, times.changed(known))
        gone = tuple(name for name in topics or times.gone(known) if not state.has_topic(name))
    else:
        found, gone = metadata_of(state, topics), ()
    return Metadata(
        fold.version,
        state.cluster_id,
        found,
        broker_metadata_of(state),
        coordinator_metadata_of(state),
        known if is_part else NOTHING_KNOWN,
        gone,
    )

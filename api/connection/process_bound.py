"""Clients belong to the process that made them: their threads, connections and buffers cannot be sent to another one.

What captures one by accident, a task of Ray's say, fails when it is sent, with the sentence that helps. Ray looks at
every attribute of what it could not send, to tell where the fault lies; so no property of a client may raise.
"""

from __future__ import annotations

from typing import NoReturn


class ProcessBound:
    """Refuses to be pickled."""

    def __reduce__(self) -> NoReturn:
        name = type(self).__name__
        raise TypeError(
            f"This {name} belongs to the process that made it and cannot be sent to a task, an actor or another "
            f"process. Make one there: {name}(…, cluster=cluster). The handle of the cluster can be sent, and so can "
            "its name."
        )

"""A broker's part in changing the secrets: on its disk first, then in use, then told to the processes beside it.

What must stay true:
- What a broker has said it holds, it still holds after a restart from its disk alone. It may know a set already, from
  the search for its controller, and then it is not on the disk yet, nor told to anybody.
- Sets are written one after the other. The controller tells a set again when the answer is late, and a second writing
  of it that was still under way replaced a later set on the disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.stream_interface import Stream
from raylog.actors.protocol.cluster_secrets import ClusterSecrets
from raylog.actors.protocol.secret_messages import KeepSecrets
from raylog.errors import StreamError

_NONE: Final = -1
_log = logging.getLogger(__name__)


class SecretKeeping:
    """Keeps secrets. `keep` writes a set to the broker's directory; `beside` are the streams to its processes."""

    def __init__(
        self, env: Environment, keep: Callable[[ClusterSecrets], None], beside: Callable[[], Iterable[Stream]]
    ) -> None:
        self._env = env
        self._keep = keep
        self._beside = beside
        self._kept = _NONE  # the version that was written and told
        self._writing = asyncio.Lock()

    async def take(self, message: KeepSecrets) -> None:
        """Take a set: a later one is kept, used and passed on; an older one is ignored."""
        found = message.secrets
        async with self._writing:
            if found.version <= self._kept or found.version < self._env.keys.secrets.version:
                return
            await self._env.off_loop(partial(self._keep, found))
            self._kept = found.version
            self._env.keys.adopt(found)
            for stream in self._beside():
                self.tell(stream)

    def tell(self, stream: Stream) -> None:
        """Tell a process beside this one, which may have been started under an earlier set."""
        try:
            stream.send(KeepSecrets.of(self._env.keys.secrets))
        except StreamError as error:  # it hears of them when it is back
            _log.info("%s does not hear of the new secrets yet: %s", stream.peer, error)

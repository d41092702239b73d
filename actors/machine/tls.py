"""TLS for streams over TCP, from the certificates that Ray uses where its own TLS is on.

Both sides show a certificate, and it has to be signed by the cluster's authority. Host names are not compared: many
clusters have one certificate for all nodes, and which process is on the other side is for `admission.py` to find out.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

from raylog.errors import InvalidConfig


@dataclass(frozen=True)
class RayTls:
    """Paths of the PEM files that Ray uses."""

    certificate: str
    key: str
    authority: str

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> RayTls | None:
        """Return the paths that Ray uses; None: its TLS is off."""
        if environment.get("RAY_USE_TLS", "0").lower() not in ("1", "true"):
            return None
        names = ("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")
        for name in names:
            if not environment.get(name):
                raise InvalidConfig(name, "", "the path of a PEM file, since RAY_USE_TLS is on")
        return cls(*(environment[name] for name in names))

    def accepting(self) -> ssl.SSLContext:
        """Return the context of the side that accepts."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        return self._loaded(context)

    def dialling(self) -> ssl.SSLContext:
        """Return the context of the side that connects."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        return self._loaded(context)

    def _loaded(self, context: ssl.SSLContext) -> ssl.SSLContext:
        context.load_cert_chain(self.certificate, self.key)
        context.load_verify_locations(self.authority)
        context.verify_mode = ssl.CERT_REQUIRED
        return context

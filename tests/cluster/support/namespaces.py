"""Hosts on one machine: network namespaces with an address each, on a switch that is a namespace too.

    this machine ── .1 ──┐
    host 2 ───────── .2 ──┤ bridge, in a namespace of its own     they share one file system and one table of processes,
    host 3 ───────── .3 ──┘                                       but no socket: all they have in common is this network

A host is cut off both ways by taking its link down. One way it is cut off without a filter: who is to reach nobody is
given addresses of network cards that do not exist, and so its packets leave and arrive nowhere.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_NETWORK: Final = "198.18.77"  # of the range kept for tests of network devices
_NOBODY: Final = "02:00:00:00:00:fe"
_NEW_NETWORK: Final = 0x40000000  # CLONE_NEWNET
_COMMAND_SECONDS: Final = 20.0


class NamespacesUnavailable(Exception):
    """Says why this machine cannot have them."""


class Network:
    """Made by `network`. Host 1 is this machine itself."""

    def __init__(self, hosts: int) -> None:
        self._tag = f"rl{os.getpid() % 100_000}"
        self._switch = f"{self._tag}sw"
        self.hosts = range(1, hosts + 1)

    def address(self, host: int) -> str:
        return f"{_NETWORK}.{host}"

    def namespace(self, host: int) -> str:
        """The name of its namespace; empty: this process is in it."""
        return "" if host == 1 else f"{self._tag}h{host}"

    def command(self, host: int, *words: str) -> list[str]:
        """Return the command that runs this on that host."""
        return list(words) if host == 1 else ["ip", "netns", "exec", self.namespace(host), *words]

    # --- cutting --------------------------------------------------------------------------------------------------

    def cut(self, host: int) -> None:
        """Cut a host off: it neither hears nor is heard."""
        _ip("-n", self._switch, "link", "set", self._port(host), "down")

    def mute(self, host: int) -> None:
        """Nothing that it sends arrives."""
        for other in self._others(host):
            self._mislead(host, other)

    def deafen(self, host: int) -> None:
        """Nothing that is sent to it arrives."""
        for other in self._others(host):
            self._mislead(other, host)

    def heal(self, host: int) -> None:
        _ip("-n", self._switch, "link", "set", self._port(host), "up")
        for other in self._others(host):
            self._lead_again(host, other)
            self._lead_again(other, host)

    def _others(self, host: int) -> list[int]:
        return [other for other in self.hosts if other != host]

    def _mislead(self, host: int, to: int) -> None:
        neighbour = (self.address(to), "lladdr", _NOBODY, "dev", self._card(host), "nud", "permanent")
        _ip(*self._in(host), "neigh", "replace", *neighbour)

    def _lead_again(self, host: int, to: int) -> None:
        """Lead frames to the address that the card really has again."""
        neighbour = (self.address(to), "lladdr", self._card_address(to), "dev", self._card(host), "nud", "reachable")
        _ip(*self._in(host), "neigh", "replace", *neighbour)

    # --- making, removing -----------------------------------------------------------------------------------------

    def make(self) -> None:
        _ip("netns", "add", self._switch)
        _ip("-n", self._switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self._switch, "link", "set", "bridge", "up")
        for host in self.hosts:
            if host != 1:
                _ip("netns", "add", self.namespace(host))
            self._plug_in(host)

    def remove(self) -> None:
        """The cards go with their namespaces, or with the other end of their cable."""
        for host in self.hosts:
            if host != 1:
                subprocess.run(["ip", "netns", "del", self.namespace(host)], check=False, capture_output=True)
        subprocess.run(["ip", "netns", "del", self._switch], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", self._card(1)], check=False, capture_output=True)

    def _plug_in(self, host: int) -> None:
        card, port = self._card(host), self._port(host)
        _ip("link", "add", card, "address", self._card_address(host), "type", "veth", "peer", "name", port)
        _ip("link", "set", port, "netns", self._switch)
        _ip("-n", self._switch, "link", "set", port, "master", "bridge", "up")
        if host != 1:
            _ip("link", "set", card, "netns", self.namespace(host))
            _ip(*self._in(host), "link", "set", "lo", "up")
        _ip(*self._in(host), "addr", "add", f"{self.address(host)}/24", "dev", card)
        _ip(*self._in(host), "link", "set", card, "up")

    def _in(self, host: int) -> list[str]:
        return [] if host == 1 else ["-n", self.namespace(host)]

    def _card(self, host: int) -> str:
        return f"{self._tag}c{host}"

    def _port(self, host: int) -> str:
        return f"{self._tag}p{host}"

    def _card_address(self, host: int) -> str:
        return f"02:00:00:00:00:{host:02x}"


@contextmanager
def network(hosts: int) -> Iterator[Network]:
    """NamespacesUnavailable where that cannot be."""
    if shutil.which("ip") is None:
        raise NamespacesUnavailable("there is no command `ip` (iproute2)")
    if os.geteuid() != 0:
        raise NamespacesUnavailable("only root can make network namespaces")
    made = Network(hosts)
    try:
        made.make()
        yield made
    finally:
        made.remove()


def enter(namespace: str) -> None:
    """Let the calling thread, and it alone, open its sockets on that host from now on."""
    with open(f"/run/netns/{namespace}") as opened:
        library = ctypes.CDLL(None, use_errno=True)
        if library.setns(opened.fileno(), _NEW_NETWORK) != 0:
            raise OSError(ctypes.get_errno(), f"entering the namespace {namespace}")


def _ip(*words: str) -> None:
    finished = subprocess.run(["ip", *words], check=False, capture_output=True, text=True, timeout=_COMMAND_SECONDS)
    if finished.returncode:
        raise NamespacesUnavailable(f"`ip {' '.join(words)}`: {finished.stderr.strip()}")

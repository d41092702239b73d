"""Hosts that `ray up` may set up: namespaces with an address, an sshd, a home, a data disk, and processes of their own.

    this machine (.1, "the laptop") ──ssh──► host 2 (.2) ──ssh──► hosts 3, 4, …

What must stay true: a host sees no process but its own (a PID namespace), so a `ray stop` there stops nothing of
anybody else. What would change the machine (`sudo`, `pip`) is written down there and not done.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.cluster.support.namespaces import NamespacesUnavailable, Network, network

_NEEDED: Final = {
    "/usr/sbin/sshd": "openssh-server",
    "ssh": "openssh-client",
    "rsync": "rsync",
    "unshare": "util-linux",
}
_SSHD_CONFIG: Final = """
ListenAddress {address}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
PidFile none
PermitRootLogin prohibit-password
UsePAM no
StrictModes no
"""
_BASHRC: Final = """
export PATH={home}/bin:{python}:$PATH
export TMPDIR={folder}/tmp RAY_TMPDIR={folder}/tmp RAYLOG_DATA_DIR={home}/disk
unset XDG_RUNTIME_DIR RAY_ADDRESS PYTHONDONTWRITEBYTECODE
"""
_USERS: Final = """\
root:x:0:0:root:{home}:/bin/bash
sshd:x:110:65534::/run/sshd:/usr/sbin/nologin
"""
# The disk is mounted over itself, so that it is a mount point as a data disk is. Ray takes the address of the card that
# leads into the world for its own; so there has to be one, though nothing is behind it. And it expects its folder of
# temporary files under the same name everywhere. Where root is at home, ssh asks of the file of users only.
_BOOT: Final = (
    'ip route add default via "$2" && mount --bind "$1/disk" "$1/disk" && mount --bind "$1/tmp" "$3" '
    '&& mount --bind "$1/passwd" /etc/passwd && mkdir -p /run/sshd && exec /usr/sbin/sshd -D -e -f "$1/sshd_config"'
)


class SshHosts:
    """Made by `ssh_hosts`. Host 1 is this machine; the others have an sshd."""

    def __init__(self, made: Network, folder: Path) -> None:
        self._network = made
        self.folder = folder
        self.key = folder / "key"
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def numbers(self) -> list[int]:
        return [host for host in self._network.hosts if host != 1]

    def address(self, host: int) -> str:
        return self._network.address(host)

    def home(self, host: int) -> Path:
        return self.folder / f"h{host}"

    def asked_of(self, host: int, command: str) -> list[str]:
        """Return how `sudo` or `pip` was called there."""
        written = self.home(host) / f"{command}.calls"
        return written.read_text().splitlines() if written.exists() else []

    def boot(self, host: int) -> None:
        home = self.home(host)
        for part in ("bin", "tmp", "disk"):
            (home / part).mkdir(parents=True)
        for command in ("sudo", "pip"):
            written_down = home / "bin" / command
            written_down.write_text(f'#!/bin/sh\necho "$@" >> {home}/{command}.calls\n')
            written_down.chmod(0o755)
        (home / ".bashrc").write_text(_BASHRC.format(home=home, folder=self.folder, python=Path(sys.executable).parent))
        (home / "passwd").write_text(_USERS.format(home=home))
        config = _SSHD_CONFIG.format(address=self.address(host), folder=self.folder)
        (home / "sshd_config").write_text(config)
        apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"]
        boot = ("bash", "-c", _BOOT, "boot", str(home), self.address(1), str(self.folder / "tmp"))
        command_line = self._network.command(host, *apart, *boot)
        with (home / "sshd.log").open("wb") as log:
            self._running[host] = subprocess.Popen(command_line, stdout=log, stderr=log)

    def kill(self, host: int) -> None:
        """All of its processes at once: they end with the first one of their namespace."""
        process = self._running.pop(host)
        process.kill()
        process.wait(timeout=10)

    def cut(self, host: int) -> None:
        self._network.cut(host)

    def kill_all(self) -> None:
        for host in list(self._running):
            self.kill(host)

    def ssh(self, host: int, command: str) -> list[str]:
        """Return the command that runs this there, as `ray up` does."""
        quiet = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR")
        options = [word for option in quiet for word in ("-o", option)]
        return ["ssh", "-i", str(self.key), *options, f"root@{self.address(host)}", f"source ~/.bashrc; {command}"]


@contextmanager
def ssh_hosts(count: int, folder: Path) -> Iterator[SshHosts]:
    """NamespacesUnavailable says what this machine lacks."""
    for command, package in _NEEDED.items():
        if shutil.which(command) is None:
            raise NamespacesUnavailable(f"there is no {command} ({package})")
    with network(count + 1) as made:
        hosts = SshHosts(made, folder)
        _check_own_processes(made)
        for name in ("key", "host_key"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True, timeout=20
            )
        try:
            (folder / "tmp").mkdir()
            for host in hosts.numbers:
                hosts.boot(host)
            yield hosts
        finally:
            hosts.kill_all()


def _check_own_processes(made: Network) -> None:
    tried = ["unshare", "--pid", "--fork", "--mount", "--mount-proc", "true"]
    finished = subprocess.run(made.command(2, *tried), check=False, capture_output=True, text=True, timeout=20)
    if finished.returncode or os.geteuid() != 0:
        raise NamespacesUnavailable(f"`unshare` makes no namespace of processes: {finished.stderr.strip()}")

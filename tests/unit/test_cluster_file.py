"""The commands of cluster.yaml that prepare a node's data disk, run by a shell among programs that only write down.

Each line of the file's commands is run as `ray up` runs it. `sudo` runs nothing but the programs made here, so nothing
of this machine is formatted, mounted or changed.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import pytest
import yaml

_CLUSTER: Final = yaml.safe_load((Path(__file__).parents[2] / "cluster.yaml").read_text())
_EBS: Final = "Amazon Elastic Block Store"
_INSTANCE_STORE: Final = "Amazon EC2 NVMe Instance Storage"
_BLANK: Final = "none"
_UUID: Final = "1111-2222"

# `disks` has a line per disk: name, number of partitions, where it is mounted (-: nowhere), file system, model.
_PROGRAMS: Final = {
    "sudo": 'echo "$@" >> $FOLDER/calls; [ -x $FOLDER/bin/$1 ] && exec $FOLDER/bin/"$@"',
    "mountpoint": "[ -e $FOLDER/mounted ]",
    "lsblk": """
case "$1" in
-dnpo) awk '{model = $5; for (i = 6; i <= NF; i++) model = model " " $i; print $1, model}' $FOLDER/disks ;;
-nro)  awk -v disk=$3 -v what=$2 '$1 == disk && what == "NAME" {for (i = 0; i <= $2; i++) print disk i}
       $1 == disk && what == "MOUNTPOINT" {print $3 == "-" ? "" : $3}' $FOLDER/disks ;;
esac""",
    "blkid": """
for disk; do :; done
held=$(awk -v disk=$disk '$1 == disk {print $4}' $FOLDER/disks)
[ "$held" = broken ] && exit 4
[ "$held" = none ] && ! grep -qs "^$disk$" $FOLDER/formatted && exit 2
echo 1111-2222""",
    "mkfs.ext4": "for disk; do :; done; echo $disk >> $FOLDER/formatted",
    "mkdir": ":",
    "tee": "cat >> $FOLDER/fstab",
    "mount": "[ ! -e $FOLDER/mount-fails ] && touch $FOLDER/mounted",
    "chown": ":",
    "ray": 'echo "$@" >> $FOLDER/ray-calls',
}  # fmt: skip


class Node:
    """A machine with these disks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        for name, text in _PROGRAMS.items():
            program = folder / "bin" / name
            program.write_text(f"#!/bin/bash\n{text}\n")
            program.chmod(0o755)
        self.have()

    def have(self, *disks: str) -> None:
        (self.folder / "disks").write_text("".join(f"{disk}\n" for disk in ("/dev/nvme0n1 3 / ext4 " + _EBS, *disks)))

    def succeeds(self, command: str) -> bool:
        variables = {"PATH": f"{self.folder / 'bin'}:/usr/bin:/bin", "FOLDER": str(self.folder), "USER": "ubuntu"}
        variables |= {"HOME": str(self.folder), "RAYLOG_DATA_DIR": str(self.folder / "data"), "RAY_HEAD_IP": "10.0.0.1"}
        shell = ["/bin/bash", "-c", command]
        return subprocess.run(shell, check=False, capture_output=True, env=variables, timeout=20).returncode == 0

    def lines(self, name: str) -> list[str]:
        file = self.folder / name
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def prepare(node: Node) -> bool:
    """What `ray up` runs before it starts Ray, up to the first failure; without what installs software."""
    disk_commands = [*_CLUSTER["initialization_commands"], *_CLUSTER["setup_commands"]]
    return all(node.succeeds(command) for command in disk_commands if "mountpoint" in command)


def starts_ray(node: Node, kind: str) -> bool:
    return all(node.succeeds(command) for command in _CLUSTER[f"{kind}_start_ray_commands"])


def test_a_blank_data_disk_is_formatted_once_and_mounted_at_each_boot(node: Node) -> None:
    node.have(f"/dev/nvme1n1 0 - {_BLANK} {_EBS}")
    assert prepare(node)
    assert node.lines("formatted") == ["/dev/nvme1n1"]
    assert node.lines("fstab") == [f"UUID={_UUID} {node.folder}/data auto noatime,nofail 0 2"]
    assert node.lines("calls")[-2:] == [f"mount {node.folder}/data", f"chown ubuntu {node.folder}/data"]
    assert prepare(node), "a second run finds it mounted"
    assert node.lines("formatted") == ["/dev/nvme1n1"]


def test_a_disk_with_data_is_mounted_as_it_is(node: Node) -> None:
    node.have(f"/dev/nvme1n1 0 - ext4 {_EBS}")
    assert prepare(node)
    assert not node.lines("formatted")


@pytest.mark.parametrize(
    "disks",
    [
        (),
        (f"/dev/sda 0 - {_BLANK} Somebody's Raw Disk",),
        (f"/dev/nvme1n1 0 - {_BLANK} {_INSTANCE_STORE}",),
        (f"/dev/nvme1n1 0 - {_BLANK} {_EBS}", f"/dev/nvme2n1 0 - {_BLANK} {_EBS}"),
        (f"/dev/nvme1n1 2 - {_BLANK} {_EBS}",),
        (f"/dev/nvme1n1 0 /srv ext4 {_EBS}",),
        (f"/dev/nvme1n1 0 - broken {_EBS}",),
    ],
    ids=["none", "raw", "instance store", "two", "partitioned", "mounted elsewhere", "cannot be probed"],
)
def test_no_disk_is_formatted_of_which_it_is_not_sure_that_it_is_the_data_disk(
    node: Node, disks: tuple[str, ...]
) -> None:
    node.have(*disks)
    assert not prepare(node)
    assert not node.lines("formatted")
    assert not (node.folder / "mounted").exists()


@pytest.mark.parametrize("kind", ["head", "worker"])
def test_ray_is_not_started_where_the_mount_has_failed(node: Node, kind: str) -> None:
    node.have(f"/dev/nvme1n1 0 - ext4 {_EBS}")
    (node.folder / "mount-fails").touch()
    assert not prepare(node)
    assert not starts_ray(node, kind)
    assert not any(call.startswith("start") for call in node.lines("ray-calls"))
    (node.folder / "mount-fails").unlink()
    assert prepare(node)
    assert starts_ray(node, kind)
    assert any(call.startswith("start") for call in node.lines("ray-calls"))


def test_with_machines_of_ones_own_nothing_is_formatted(node: Node) -> None:
    """Of the file's first part, which another provider replaces, nothing is left then."""
    node.have(f"/dev/nvme1n1 0 - {_BLANK} {_EBS}")
    common = [*_CLUSTER["setup_commands"], *_CLUSTER["head_start_ray_commands"], *_CLUSTER["worker_start_ray_commands"]]
    assert not any("mkfs" in command or "sudo mount" in command for command in common)
    assert not node.succeeds(next(command for command in common if "mountpoint" in command))

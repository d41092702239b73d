"""What a start finds below its data directory, and what it refuses."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from raylog.actors.machine.real_environment import Place
from raylog.actors.machine.secret_files import SECRET_FILE, keep_secrets, read_secrets
from raylog.actors.metadata_log.files import PROMISE_FILE, SNAPSHOT_FILE
from raylog.actors.on_ray.data_directories import (
    FoundDirectory,
    check_free,
    check_no_copies,
    check_writable,
    cluster_of,
    find_directories,
    interrupted_formation,
    secrets_in,
)
from raylog.actors.on_ray.directory_holder import sign
from raylog.actors.protocol.cluster_secrets import ClusterSecrets, KeyRing, Standing
from raylog.actors.protocol.names import METADATA_TOPIC
from raylog.actors.protocol.secret_messages import KeepSecrets
from raylog.errors import (
    BrokersLeftOut,
    DirectoryCopied,
    DirectoryLocked,
    DirectoryNotMade,
    DirectoryNotOurs,
    DiskReadOnly,
    InvalidConfig,
    LogDamaged,
    WrongCluster,
)
from raylog.storage.directory.data_directory import BrokerIdentity, Claim, DataDirectory
from raylog.storage.disk.local_disk import LocalDisk


def make_broker(
    data_dir: Path, number: int, broker_id: int, cluster: str = "c1", first_voters: tuple[int, ...] = ()
) -> str:
    path = f"{data_dir}/broker-{number}"
    DataDirectory.open(path, BrokerIdentity(cluster, broker_id), claim=Claim("d", first_voters)).close()
    return path


def test_a_missing_directory_is_blank_and_stays_missing(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    assert find_directories(str(data_dir), None) == (FoundDirectory(f"{data_dir}/broker-0"),)
    assert [each.is_blank for each in find_directories(str(data_dir), 3)] == [True] * 3
    assert not data_dir.exists()


def test_where_nothing_may_be_written_no_broker_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may write everywhere, so the system's answer is replaced."""
    monkeypatch.setattr("os.access", lambda place, _mode: place != str(tmp_path))
    with pytest.raises(DiskReadOnly, match=f"write in {tmp_path}.*correct the ownership"):
        check_writable(f"{tmp_path}/data/logs", [])
    (tmp_path / "data").mkdir()
    check_writable(f"{tmp_path}/data/logs", [])
    path = make_broker(tmp_path / "data" / "logs", 0, 0)
    monkeypatch.setattr("os.access", lambda place, _mode: place != path)
    with pytest.raises(DiskReadOnly, match=f"write in {path}"):
        check_writable(f"{tmp_path}/data/logs", find_directories(f"{tmp_path}/data/logs", None))


def test_a_directory_that_cannot_be_made_is_refused_and_nothing_is_left_of_the_attempt(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    long = "d" * 300
    impossible = {
        f"{tmp_path}/file/data": "Not a directory",
        f"{tmp_path}/{long}": "File name too long",
        "/proc/raylog/data": "No such file or directory",
    }
    for path, reason in impossible.items():
        with pytest.raises(DirectoryNotMade, match=f"cannot be made: {reason}.*Give a path where"):
            check_writable(path, [])
    check_writable(f"{tmp_path}/data/deep", [])
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_directory_that_another_process_keeps_is_refused(tmp_path: Path) -> None:
    path = make_broker(tmp_path, 0, 0)
    found = find_directories(str(tmp_path), 2)
    check_free(found, 0.0)
    lock = LocalDisk().lock_directory(path)
    sign(path, "other")
    with pytest.raises(DirectoryLocked, match=rf"{path} is locked by .*process {os.getpid()} of the cluster 'other'"):
        check_free(found, 0.0)
    lock.release()
    check_free(found, 0.0)


def test_a_file_is_no_data_directory(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(DirectoryNotOurs, match="it is a file"):
        find_directories(f"{tmp_path}/notes.txt", None)


def test_other_files_beside_the_brokers_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert len(find_directories(str(tmp_path), 2)) == 2


def test_as_many_are_found_as_there_are_and_more_where_more_are_asked_for(tmp_path: Path) -> None:
    make_broker(tmp_path, 0, broker_id=4)
    make_broker(tmp_path, 2, broker_id=6)
    found = find_directories(str(tmp_path), None)
    assert [each.broker_id for each in found] == [4, 6]
    assert [each.broker_id for each in find_directories(str(tmp_path), 3)] == [4, -1, 6]
    assert cluster_of(found) == "c1"


def test_fewer_brokers_than_there_are_directories_are_refused(tmp_path: Path) -> None:
    make_broker(tmp_path, 0, 0)
    make_broker(tmp_path, 1, 1)
    with pytest.raises(BrokersLeftOut, match="2 brokers, and 1 were asked for"):
        find_directories(str(tmp_path), 1)


@pytest.mark.parametrize("brokers", [0, -1, 1000])
def test_an_impossible_number_of_brokers_is_refused(tmp_path: Path, brokers: int) -> None:
    with pytest.raises(InvalidConfig, match="brokers"):
        find_directories(str(tmp_path), brokers)


def test_the_directory_of_a_single_broker_is_not_taken_for_a_data_directory(tmp_path: Path) -> None:
    with pytest.raises(DirectoryNotOurs, match="the one it is in"):
        find_directories(make_broker(tmp_path, 0, 0), None)


def test_a_directory_with_foreign_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broker-0").mkdir()
    (tmp_path / "broker-0" / "photo.jpg").touch()
    with pytest.raises(DirectoryNotOurs):
        find_directories(str(tmp_path), None)


def test_directories_of_two_clusters_are_refused(tmp_path: Path) -> None:
    make_broker(tmp_path, 0, 0, "c1")
    make_broker(tmp_path, 1, 0, "c2")
    with pytest.raises(WrongCluster):
        cluster_of(find_directories(str(tmp_path), None))


def test_a_copy_of_a_brokers_directory_is_refused(tmp_path: Path) -> None:
    make_broker(tmp_path, 0, broker_id=3)
    shutil.copytree(tmp_path / "broker-0", tmp_path / "broker-1")
    with pytest.raises(DirectoryCopied, match="both belong to broker 3"):
        find_directories(str(tmp_path), None)


def test_a_copy_on_another_node_is_refused_and_blank_directories_are_none() -> None:
    here, there = FoundDirectory("/data/broker-0", "c1", 3), FoundDirectory("/data/broker-0", "c1", 4)
    blank = FoundDirectory("/data/broker-0")
    check_no_copies([("a", here), ("b", there), ("c", blank), ("d", blank)])
    with pytest.raises(DirectoryCopied, match="c and a"):
        check_no_copies([("a", here), ("b", there), ("c", here)])


def test_a_formation_that_was_interrupted_is_told_by_what_was_claimed(tmp_path: Path) -> None:
    assert interrupted_formation(find_directories(str(tmp_path), 3)) == ()
    path = make_broker(tmp_path, 0, 0, first_voters=(0, 1, 2))
    keep_secrets(path, ClusterSecrets.draw())
    (Path(path) / PROMISE_FILE).touch()
    assert interrupted_formation(find_directories(str(tmp_path), 3)) == (0, 1, 2)
    make_broker(tmp_path, 1, 1, first_voters=(0, 1, 2))
    assert interrupted_formation(find_directories(str(tmp_path), 3)) == (0, 1, 2)


@pytest.mark.parametrize("name", ["clicks-0", f"{METADATA_TOPIC}-0", SNAPSHOT_FILE])
def test_what_holds_data_belongs_to_a_cluster_that_was_formed(tmp_path: Path, name: str) -> None:
    make_broker(tmp_path, 0, 0, first_voters=(0,))
    (Path(make_broker(tmp_path, 1, 1, first_voters=(0,))) / name).mkdir()
    assert interrupted_formation(find_directories(str(tmp_path), None)) == ()


def test_a_directory_that_was_claimed_later_belongs_to_a_cluster_that_was_formed(tmp_path: Path) -> None:
    make_broker(tmp_path, 0, 0, first_voters=(0,))
    make_broker(tmp_path, 1, 1)
    assert interrupted_formation(find_directories(str(tmp_path), None)) == ()


def test_secrets_are_found_again_and_only_their_owner_can_read_them(tmp_path: Path) -> None:
    held = ClusterSecrets.draw().rotated(until_ms=1_800_000_000_000)
    path = make_broker(tmp_path, 0, 0)
    assert read_secrets(path) is None
    keep_secrets(path, held)
    keep_secrets(path, held)
    assert read_secrets(path) == held
    assert secrets_in(find_directories(str(tmp_path), None)) == held
    assert stat.S_IMODE((Path(path) / SECRET_FILE).stat().st_mode) == 0o600


def test_of_several_directories_the_newest_secrets_count(tmp_path: Path) -> None:
    first = ClusterSecrets.draw()
    for number, held in enumerate((first, first.rotated(0), first)):
        keep_secrets(make_broker(tmp_path, number, number), held)
    found = secrets_in(find_directories(str(tmp_path), None))
    assert found is not None
    assert found.version == 2


def test_the_one_secret_of_raylog_1_counts_for_none(tmp_path: Path) -> None:
    """Every client knew it: whoever held it would be taken for a broker."""
    path = make_broker(tmp_path, 0, 0)
    (Path(path) / SECRET_FILE).write_text("ab" * 32)
    assert read_secrets(path) is None


def test_secrets_do_not_show_themselves() -> None:
    held = ClusterSecrets.draw()
    shown = f"{held} {held!r} {[held]} {held.keys} {KeepSecrets.of(held)} {Place('c', held, 'h')}"
    for each in (*held.internal, *held.client):
        assert each.hex() not in shown
        assert str(each) not in shown
    assert held != ClusterSecrets.draw()


@pytest.mark.parametrize(
    "text",
    ["", "zz", "00ff", "raylog secrets 2\n", "raylog secrets 2\nversion 1\nuntil 0\ninternal ab\nclient cd\n"],
)
def test_damaged_secrets_are_told(tmp_path: Path, text: str) -> None:
    path = make_broker(tmp_path, 0, 0)
    (Path(path) / SECRET_FILE).write_text(text)
    with pytest.raises(LogDamaged, match="holds no secrets"):
        read_secrets(path)


# --- secrets that change ----------------------------------------------------------------------------------------------


def test_a_rotated_set_keeps_the_newest_of_each_beside_the_new() -> None:
    first = ClusterSecrets.draw()
    second = first.rotated(until_ms=5)
    third = second.rotated(until_ms=9)
    assert second.internal[1:] == first.internal
    assert second.client[1:] == first.client
    assert third.internal[1:] == second.internal[:1]
    assert third.without_previous().client == third.client[:1]
    assert [each.version for each in (first, second, third, third.without_previous())] == [1, 2, 3, 4]
    assert second.has_previous
    assert not third.without_previous().has_previous


def test_a_client_holds_no_internal_secret() -> None:
    held = ClusterSecrets.draw().rotated(0)
    given = held.for_clients()
    assert {key.standing for key in given.keys} == {Standing.CLIENT}
    assert given.own_keys == given.keys
    assert {key.standing for key in held.own_keys} == {Standing.INTERNAL}


def test_a_process_takes_over_later_sets_only() -> None:
    first = ClusterSecrets.draw()
    changes: list[int] = []
    ring = KeyRing(first, lambda: changes.append(ring.secrets.version))
    assert not ring.adopt(ClusterSecrets.draw())
    assert ring.adopt(first.rotated(0))
    assert not ring.adopt(first)
    assert ring.secrets.version == 2
    assert changes == [2]

"""`ray up cluster.yaml`, as it stands in the repository, on four hosts of this machine, over ssh.

Only what stands in its first part is replaced: the provider by Ray's `local` one, and how to log in. The head sets up
the workers as it would anywhere, while the command that its first lines tell of waits for them and forms the cluster;
there is a broker on each. Then a host dies for good, and nothing is lost. There are
three brokers, since of two none may die: what is left has no majority of the metadata's copies, and elects nobody.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.cluster.support.namespaces import NamespacesUnavailable
from tests.cluster.support.ssh_hosts import SshHosts, ssh_hosts

pytestmark = pytest.mark.cluster

_ROOT: Final = Path(__file__).parents[2]
_BROKERS: Final = 3
_RECORDS: Final = 20_000
_UP_SECONDS: Final = 120
_STEP_SECONDS: Final = 100

_PROGRAM: Final = f"""
import itertools
import ray, raylog

ray.init(log_to_driver=False, logging_level="ERROR")
input()
cluster = raylog.connect()
cluster.create_topic("clicks", replication_factor={_BROKERS})
producer = raylog.Producer(acks="all")

def produce(start):
    sent = producer.send_many("clicks", [b"%d" % number for number in range(start, start + {_RECORDS})])
    sent.result(timeout={_STEP_SECONDS})

produce(0)
brokers = {{broker.broker: broker for broker in cluster.describe_cluster().brokers}}
assert len(brokers) == {_BROKERS} and all("/disk/broker-" in broker.directory for broker in brokers.values()), brokers
print("leader", brokers[cluster.describe_topic("clicks").partitions[0].leader].host, flush=True)
input()
produce({_RECORDS})
consumer = raylog.Consumer("clicks", auto_offset_reset="earliest", consumer_timeout_ms={_STEP_SECONDS} * 1000)
found = [int(record.value) for record in itertools.islice(consumer, 2 * {_RECORDS})]
assert found == list(range(2 * {_RECORDS})), len(found)
assert consumer.end_offsets(consumer.assignment()) == {{raylog.TopicPartition("clicks", 0): len(found)}}
print("consumed", len(found), flush=True)
"""


@pytest.fixture
def hosts(ray_folder: Path) -> Iterator[SshHosts]:
    try:
        with ssh_hosts(1 + _BROKERS, ray_folder) as made:
            yield made
    except NamespacesUnavailable as reason:
        pytest.skip(f"there can be no hosts with an sshd on this machine: {reason}")


def for_these(hosts: SshHosts) -> dict[str, Any]:
    """cluster.yaml, with another provider."""
    config: dict[str, Any] = yaml.safe_load((_ROOT / "cluster.yaml").read_text())
    head, *workers = hosts.numbers
    for name in ("available_node_types", "head_node_type", "initialization_commands", "max_workers"):
        del config[name]
    provider = {"head_ip": hosts.address(head), "worker_ips": [hosts.address(worker) for worker in workers]}
    config["provider"] = {"type": "local", **provider}
    # Ray's second autoscaler takes the head of a `local` cluster for terminated, and then starts one worker only.
    first, start = config["head_start_ray_commands"]
    config["head_start_ray_commands"] = [first, start.replace("export ", "export RAY_enable_autoscaler_v2=0 ")]
    config["auth"] = {"ssh_user": "root", "ssh_private_key": str(hosts.key)}
    return config


def ray_up(hosts: SshHosts) -> None:
    """Run `ray up` on a laptop with a home of its own, in which there is a token."""
    home = hosts.home(1)
    (home / ".ray").mkdir(parents=True)
    (home / ".ray" / "auth_token").write_text("ab" * 32)
    config = home / "cluster.yaml"
    config.write_text(yaml.safe_dump(for_these(hosts)))
    on_laptop(hosts, "up", "-y", "--no-config-cache", str(config))


def form(hosts: SshHosts) -> None:
    """Form the cluster by the command in the file's first lines; only the data disk is another."""
    (told,) = re.findall(r"^# +ray exec cluster\.yaml '(raylog start .*)'$", (_ROOT / "cluster.yaml").read_text(), re.M)
    assert f"--nodes {_BROKERS} " in told
    command = told.replace("/mnt/raylog", "$RAYLOG_DATA_DIR")
    on_laptop(hosts, "exec", "--no-config-cache", str(hosts.home(1) / "cluster.yaml"), command)


def on_laptop(hosts: SshHosts, *arguments: str) -> None:
    home, ray = hosts.home(1), Path(sys.executable).with_name("ray")
    mine = {"HOME": str(home), "TMPDIR": str(home), "RAY_TMPDIR": str(home), "RAY_AUTH_MODE": "token"}
    with (home / "ray-up.log").open("ab") as log:
        subprocess.run(
            [ray, *arguments],
            cwd=_ROOT, env={**os.environ, **mine}, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            timeout=_UP_SECONDS, check=True,
        )  # fmt: skip


def logs(hosts: SshHosts) -> str:
    """Return the logs of the laptop and the head."""
    head = hosts.home(hosts.numbers[0])
    files = [hosts.home(1) / "ray-up.log", *head.glob("tmp/ray/session_2*/logs/monitor.*")]
    return "".join(f"--- {file}\n{file.read_text()[-6000:]}\n" for file in files)


def next_line(program: subprocess.Popen[str], begins: str) -> str:
    assert program.stdout is not None
    for line in program.stdout:
        if line.startswith(begins):
            return line.split()[1]
    raise AssertionError(f"the program ended without {begins!r}")


@pytest.mark.timeout(300)
def test_a_cluster_that_ray_up_made_outlives_a_host(hosts: SshHosts) -> None:
    began = time.monotonic()
    ray_up(hosts)
    up = time.monotonic()
    head, *workers = hosts.numbers
    (hosts.home(head) / "program.py").write_text(_PROGRAM)
    over_ssh = hosts.ssh(head, "RAY_AUTH_MODE=token python ~/program.py")
    program = subprocess.Popen(over_ssh, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert program.stdin is not None
    try:
        form(hosts)
        program.stdin.write("it is formed\n")
        program.stdin.flush()
        leader = next_line(program, "leader")
        for host in (head, *workers):
            assert any("[metrics,spark]" in call for call in hosts.asked_of(host, "pip")), "raylog was not installed"
            assert not any("mkfs" in call or "mount" in call for call in hosts.asked_of(host, "sudo"))
            assert (hosts.home(host) / "raylog-source" / "raylog" / "storage").is_symlink(), "nothing was copied"
        produced = time.monotonic()
        lost = next(host for host in workers if hosts.address(host) == leader)
        hosts.cut(lost)
        hosts.kill(lost)
        program.stdin.write("go on\n")
        program.stdin.flush()
        assert next_line(program, "consumed") == str(2 * _RECORDS)
        sys.stderr.write(
            f"ray up {up - began:.1f} s, formed and produced {produced - up:.1f} s, "
            f"consumed {time.monotonic() - produced:.1f} s after a host had died\n"
        )
    except BaseException:
        sys.stderr.write(logs(hosts))
        raise
    finally:
        program.kill()
        program.communicate(timeout=10)

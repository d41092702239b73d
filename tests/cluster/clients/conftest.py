"""Harm that tests of clients do to the cluster that they share."""

from __future__ import annotations

import os
import signal

import ray


def kill_coordinators() -> None:
    """SIGKILL for the processes of all coordinators, those of groups and those of transactions."""
    prefix = "coordinators-"
    names = [each for each in ray.util.list_named_actors(all_namespaces=True) if each["name"].startswith(prefix)]
    assert len(names) == 3
    for each in names:
        actor = ray.get_actor(each["name"], namespace=each["namespace"])
        os.kill(ray.get(actor.__ray_call__.remote(lambda _: os.getpid()), timeout=20.0), signal.SIGKILL)

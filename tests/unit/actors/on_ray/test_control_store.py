"""Where Ray keeps what its control store knows, by the environment of the head's Ray."""

from __future__ import annotations

import pytest

from raylog.actors.on_ray.runtime.control_store import MEMORY, REDIS, ROCKSDB, control_store, what_it_means


@pytest.mark.parametrize(
    ("environment", "store"),
    [
        ({}, MEMORY),
        ({"RAY_REDIS_ADDRESS": ""}, MEMORY),
        ({"RAY_gcs_storage": "memory"}, MEMORY),
        ({"RAY_REDIS_ADDRESS": "10.0.0.9:6379"}, REDIS),
        ({"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": "/data"}, ROCKSDB),
        ({"RAY_gcs_storage": "rocksdb", "RAY_REDIS_ADDRESS": "10.0.0.9:6379"}, ROCKSDB),
    ],
)
def test_what_the_environment_of_the_head_says(environment: dict[str, str], store: str) -> None:
    assert control_store(environment) == store


def test_what_it_means_for_whoever_loses_the_head() -> None:
    assert what_it_means(MEMORY).endswith("a cold start")
    assert all("workers outlive" in what_it_means(each) for each in (REDIS, ROCKSDB))
    assert what_it_means("") == "not known"

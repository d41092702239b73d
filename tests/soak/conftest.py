"""A folder for Ray, as the tests on a real Ray have it."""

from tests.cluster.conftest import ray_folder

__all__ = ["ray_folder"]

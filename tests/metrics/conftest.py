from tests.cluster.conftest import ray_folder

__all__ = ["ray_folder"]

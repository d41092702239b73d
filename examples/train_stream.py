"""A model learns from a stream, and goes on learning where it was: its weights are committed with the stream's offsets.

    python -m examples.train_stream

Each batch of the stream is one lesson. The weights that come of it are a record of a topic, written in the transaction
that commits the offsets. So whenever this program is killed, the next run finds weights that have learned from each
record up to the offsets where it goes on, and from none beyond them.

Records are learned from with `iter_torch_batches` where torch is installed (and pydantic, which Ray wants for it), else
with `iter_batches`, which gives arrays of numpy. The model is linear, so that it needs no more than that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import raylog
from examples.small_cluster import small_cluster

if TYPE_CHECKING:
    import numpy as np
    import ray.data

    from raylog.api.admin.cluster import Cluster

FLATS, MODELS, GROUP = "flats", "models", "trainers"
RATE: Final = 0.3
_LESSON: Final = 500  # rows of a batch of the stream
_STEP: Final = 20  # rows that change the weights together
_TRUE: Final = (2.0, -1.0, 0.5)  # of size, age, and of all


def has_torch() -> bool:
    return all(find_spec(name) is not None for name in ("torch", "pydantic"))


def steps(dataset: ray.data.Dataset) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
    """Yield columns of a few rows each."""
    if has_torch():
        for tensors in dataset.iter_torch_batches(batch_size=_STEP, device="cpu"):
            yield {name: tensor.numpy() for name, tensor in tensors.items()}
    else:
        yield from dataset.iter_batches(batch_size=_STEP, batch_format="numpy")


def learn(weights: list[float], dataset: ray.data.Dataset) -> list[float]:
    """Return the weights after one pass over the records: a step of gradient descent for each few of them."""
    import numpy as np

    now = np.array(weights)
    for columns in steps(dataset):
        inputs = np.stack([columns["size"], columns["age"], np.ones(len(columns["size"]))], axis=1)
        now -= RATE * inputs.T @ (inputs @ now - columns["price"]) / len(inputs)
    return [float(each) for each in now]


def last_model() -> dict[str, Any]:
    """Return the weights that were committed last, and how many records they have learned from."""
    models = raylog.data.read(MODELS, columns=["value"]).take_all()
    found = [json.loads(row["value"]) for row in models]
    return max(found, key=lambda model: int(model["learned"])) if found else {"weights": [0.0] * 3, "learned": 0}


def train(lessons: int | None = None) -> dict[str, Any]:
    """Learn what is new, for so many lessons at most, and return the model. A service leaves `idle_timeout_ms` out."""
    import pyarrow as pa
    import ray.data

    fields = pa.schema([(name, pa.float64()) for name in ("size", "age", "price")])
    models = raylog.data.sink(MODELS, key="name", value=["weights", "learned"])
    with raylog.data.stream(
        FLATS, group_id=GROUP, schema=raylog.data.Json(fields), columns=fields.names, max_rows=_LESSON,
        idle_timeout_ms=1000,
    ) as batches:  # fmt: skip
        model = last_model()  # after the stream has begun: from then on nobody else commits one
        for number, batch in enumerate(batches):
            if number == lessons:
                break
            weights = learn(model["weights"], batch.dataset)
            model = {"weights": weights, "learned": model["learned"] + batch.dataset.count()}
            with batch.transaction(models) as out:
                out.write(ray.data.from_items([{"name": "prices", **model}]))
    return model


def offer(cluster: Cluster, count: int, first: int = 0) -> None:
    """Write flats whose prices follow from their sizes and ages."""
    values = []
    for number in range(first, first + count):
        size, age = number * 7 % 20 / 10, number * 13 % 30 / 15
        price = _TRUE[0] * size + _TRUE[1] * age + _TRUE[2]
        values.append(json.dumps({"size": size, "age": age, "price": price}).encode())
    with raylog.Producer(cluster=cluster) as producer:
        producer.send_many(FLATS, values).result(30)


def main() -> None:
    with small_cluster() as (cluster, _):
        cluster.create_topic(FLATS, partitions=2)
        cluster.create_topic(MODELS, config={"cleanup.policy": "compact"})  # the last one is enough
        offer(cluster, 3000)
        print("batches of", "torch" if has_torch() else "numpy")
        print("learned from", train(lessons=2)["learned"], "records, and was stopped")
        model = train()
        print("learned from", model["learned"], "records in all")
        wrong = max(abs(is_now - true) for is_now, true in zip(model["weights"], _TRUE, strict=True))
        print("the weights are", "right" if wrong < 0.1 else f"WRONG: {model['weights']}")


if __name__ == "__main__":
    main()

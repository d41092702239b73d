"""A stream of comments is scored by actors that hold a model; each comment gets one score, whatever dies meanwhile.

    python -m examples.score_stream

The model is a small one: words hashed into 4,096 features, and a weight for each, learned from a few sentences. Any
other takes its place: what `Scorer.__init__` loads stays in its actor from batch to batch of a Dataset.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import raylog
from examples.small_cluster import small_cluster

if TYPE_CHECKING:
    import numpy as np

    from raylog.api.admin.cluster import Cluster

COMMENTS, SCORES, GROUP = "comments", "scores", "scorers"
_FEATURES: Final = 4096
_KNOWN: Final = [
    ("a lovely clear talk", 1), ("great work and kind people", 1), ("thanks this helped a lot", 1),
    ("awful noise and rude staff", 0), ("broken again what a waste", 0), ("slow rude and awful", 0),
]  # fmt: skip


def features(text: str) -> np.ndarray[Any, Any]:
    import numpy as np

    found = np.zeros(_FEATURES)
    for word in text.lower().split():
        found[zlib.crc32(word.encode()) % _FEATURES] += 1
    return found


def train(rounds: int = 200) -> np.ndarray[Any, Any]:
    """Return the weights of a logistic regression on the known sentences."""
    import numpy as np

    inputs = np.array([features(text) for text, _ in _KNOWN])
    wanted = np.array([label for _, label in _KNOWN])
    weights = np.zeros(_FEATURES)
    for _ in range(rounds):
        weights += 0.5 * inputs.T @ (wanted - 1 / (1 + np.exp(-inputs @ weights)))
    return weights


class Scorer:
    """A model in an actor."""

    def __init__(self) -> None:
        self._weights = train()

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        import numpy as np

        inputs = np.array([features(value.decode()) for value in batch["value"]])
        scores = 1 / (1 + np.exp(-inputs @ self._weights))
        return {"key": batch["key"], "comment": [value.decode() for value in batch["value"]], "score": scores}


def score_all(batch_rows: int = 1000) -> int:
    """Score what is new, and return how many comments that was. A service leaves `idle_timeout_ms` out, and goes on."""
    import ray.data

    count = 0
    scores = raylog.data.sink(SCORES, key="key", value=["comment", "score"])
    with raylog.data.stream(
        COMMENTS, group_id=GROUP, columns=["key", "value"], max_rows=batch_rows, idle_timeout_ms=1000
    ) as batches:
        for batch in batches:
            with batch.transaction(scores) as out:
                scored = batch.dataset.map_batches(Scorer, compute=ray.data.ActorPoolStrategy(size=1))
                count += out.write(scored)
    return count


def comment(cluster: Cluster, count: int) -> None:
    with raylog.Producer(cluster=cluster) as producer:
        texts = [_KNOWN[number % len(_KNOWN)][0].encode() for number in range(count)]
        producer.send_many(COMMENTS, texts, [b"user-%d" % (number % 20) for number in range(count)]).result(30)


def read_scores() -> Counter[tuple[str, bool]]:
    """Return how many comments there are of each text, and whether they were taken for friendly."""
    found = raylog.data.read(SCORES, columns=["value"]).take_all()
    told = [json.loads(row["value"]) for row in found]
    return Counter((each["comment"], each["score"] > 0.5) for each in told)


def make_topics(cluster: Cluster) -> None:
    cluster.create_topic(COMMENTS, partitions=2)
    cluster.create_topic(SCORES, partitions=2)


def main() -> None:
    with small_cluster() as (cluster, _):
        make_topics(cluster)
        comment(cluster, 300)
        print(score_all(), "comments were scored")
        comment(cluster, 60)
        print(score_all(), "more were scored")
        found, expected = read_scores(), Counter({(text, bool(label)): 60 for text, label in _KNOWN})
        print("the scores of", found.total(), "comments are", "right" if found == expected else "WRONG")


if __name__ == "__main__":
    main()

"""What is told of a start of Spark that takes long."""

from __future__ import annotations

import pytest

from raylog.spark_bridge.sessions.start_steps import StartSteps


def test_each_line_names_the_step_that_it_is_at(caplog: pytest.LogCaptureFixture) -> None:
    now = 50.0
    steps = StartSteps("job", lambda: now)
    for second in range(25):
        steps.step = "it starts" if second < 10 else "executors start"
        now = 50.0 + second
        steps.look()
    assert [each.getMessage() for each in caplog.records] == [
        "Has waited 3 s for the Spark session 'job': it starts",
        "Has waited 13 s for the Spark session 'job': executors start",
        "Has waited 23 s for the Spark session 'job': executors start",
    ]


def test_a_start_that_is_quick_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with StartSteps("job", lambda: 0.0) as steps:
        steps.step = "it is nearly there"
    assert caplog.records == []

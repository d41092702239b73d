"""Assignors in processes of their own: what foreign code does there, it does to nobody else (rule 34)."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import NoReturn

import pytest

from raylog.errors import AssignorFailed, UnknownAssignor
from raylog.groups.assignors import processes
from raylog.groups.assignors.assignment import Assignment, Subscriber, TopicPartition, TopicShape
from raylog.groups.assignors.calling import AssignorCall, Given, assign
from raylog.groups.assignors.processes import AssignorProcess, AssignorProcesses
from raylog.groups.assignors.worker import call_of, packed_call

SECRET = "RAYLOG_TEST_SECRET"


def _everything(topics: Mapping[str, TopicShape]) -> list[TopicPartition]:
    return [(name, number) for name, shape in topics.items() for number in range(shape.partitions)]


def first_takes_all(subscribers: Sequence[Subscriber], topics: Mapping[str, TopicShape]) -> Assignment:
    sys.stdout.write("this goes nowhere\n")
    sys.stdout.flush()
    return {min(each.member_id for each in subscribers): _everything(topics)}


def exits(_subscribers: object, _topics: object) -> Assignment:
    raise SystemExit("enough")


def interrupts(_subscribers: object, _topics: object) -> Assignment:
    raise KeyboardInterrupt


def vanishes(_subscribers: object, _topics: object) -> Assignment:
    os._exit(3)


def goes_on_for_ever(_subscribers: object, _topics: object) -> Assignment:
    while True:
        time.sleep(0.01)


def looks_around(_subscribers: object, _topics: object) -> Assignment:
    raise ValueError(f"secret: {os.environ.get(SECRET)}, files: {len(os.listdir('/proc/self/fd'))}")


class _Strange(dict[str, list[TopicPartition]]):
    def items(self) -> NoReturn:
        raise SystemExit("in the middle of it")


def returns_what_exits(_subscribers: object, _topics: object) -> Assignment:
    return _Strange()


def gives_to_nobody(_subscribers: object, _topics: object) -> Assignment:
    return {}


FUNCTIONS = (
    first_takes_all, exits, interrupts, vanishes, goes_on_for_ever, looks_around, returns_what_exits, gives_to_nobody,
)  # fmt: skip
ALLOWED = frozenset(f"{__name__}.{each.__name__}" for each in FUNCTIONS)
MEMBERS = (
    Subscriber("a", topics=frozenset({"t", "u"}), owned=frozenset({("t", 0)})),
    Subscriber("b", "static", "rack", frozenset({"t"})),
)
TOPICS = {"t": TopicShape(2, (frozenset({"rack"}), frozenset())), "u": TopicShape(3)}


def call(function: Callable[..., Assignment] | str) -> AssignorCall:
    name = function if isinstance(function, str) else f"{__name__}.{function.__name__}"
    return AssignorCall(name, MEMBERS, TOPICS)


@pytest.fixture
def process() -> Iterator[AssignorProcess]:
    process = AssignorProcess(seconds=10.0)
    yield process
    process.close()


def test_a_call_reaches_the_process_as_it_is() -> None:
    asked = call("range")
    assert call_of(packed_call(asked)) == asked


def test_a_foreign_assignor_is_called_in_one_process_again_and_again(process: AssignorProcess) -> None:
    given = process.call(call(first_takes_all))
    pid = process.pid
    assert given == {"a": frozenset(_everything(TOPICS)), "b": frozenset()}
    assert process.call(call(first_takes_all)) == given
    assert process.pid == pid != os.getpid()
    assert process.call(call("sticky")) == assign("sticky", MEMBERS, TOPICS)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (exits, "raised SystemExit: enough"),
        (interrupts, "raised KeyboardInterrupt"),
        (vanishes, "ended in the middle of it .exit status 3"),
        (returns_what_exits, "raised SystemExit: in the middle of it"),
        (gives_to_nobody, "nobody got"),
    ],
)
def test_whatever_it_does_is_an_error_and_the_next_call_is_answered(
    process: AssignorProcess, function: Callable[..., Assignment], reason: str
) -> None:
    with pytest.raises(AssignorFailed, match=reason):
        process.call(call(function))
    assert process.call(call(first_takes_all))["b"] == frozenset()


def test_one_that_takes_too_long_is_killed(process: AssignorProcess) -> None:
    process.call(call("range"))  # it is started
    pid = process.pid
    assert pid is not None
    process._seconds = 0.3
    with pytest.raises(AssignorFailed, match=r"took more than 0\.3 s"):
        process.call(call(goes_on_for_ever))
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    process._seconds = 10.0
    assert process.call(call(first_takes_all))


def test_it_is_told_nothing_that_it_need_not_know(process: AssignorProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET, "s3cret")
    with open(os.devnull) as _open_file, pytest.raises(AssignorFailed, match=r"secret: None, files: [0-9]+") as failed:
        process.call(call(looks_around))
    assert int(failed.value.reason.rpartition(" ")[2]) <= 8


@pytest.mark.parametrize(
    "answer", [b"", b"\xc1", b"\x92\xc3\xc0", b"\x92\xc3\x92\x90\x91\x92\x09\x00", b"\x92\xc3\x92\x90\x91\x92\xff\x00"]
)
def test_an_answer_that_makes_no_sense_is_an_error(answer: bytes) -> None:
    with pytest.raises(AssignorFailed, match="makes no sense"):
        processes._given(call("range"), answer)


def test_an_answer_that_is_too_large_is_not_read(process: AssignorProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_MAX_ANSWER", 3)
    with pytest.raises(AssignorFailed, match="3 are the most"):
        process.call(call(first_takes_all))


# --- as a coordinator has them --------------------------------------------------------------------------------------


def run(scene: Callable[[AssignorProcesses], Awaitable[None]], seconds: float = 10.0) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assignors = AssignorProcesses(lambda work: loop.run_in_executor(None, work), ALLOWED, seconds)
        try:
            await scene(assignors)
        finally:
            assignors.close()

    asyncio.run(main())


def test_ours_have_no_process_where_there_is_little_to_do() -> None:
    async def scene(assignors: AssignorProcesses) -> None:
        assert await assignors.run(call("sticky")) == assign("sticky", MEMBERS, TOPICS)
        assert not assignors._processes
        many = AssignorCall("roundrobin", MEMBERS, {"t": TopicShape(9_000)})
        given: Given = await assignors.run(many)
        assert len(given["a"]) == len(given["b"]) == 4_500
        assert list(assignors._processes) == ["roundrobin"]

    run(scene)


def test_who_is_not_allowed_is_refused_before_anything_is_imported() -> None:
    async def scene(assignors: AssignorProcesses) -> None:
        with pytest.raises(UnknownAssignor):
            await assignors.run(call("unittest.main"))

    run(scene)


def test_the_loop_turns_and_other_assignors_run_while_one_goes_on_for_ever() -> None:
    async def scene(assignors: AssignorProcesses) -> None:
        await assignors.run(call(first_takes_all))
        stuck = asyncio.ensure_future(assignors.run(call(goes_on_for_ever)))
        began = time.monotonic()
        await assignors.run(call(first_takes_all))
        assert time.monotonic() - began < 15.0
        assignors.close()
        with pytest.raises(AssignorFailed, match=r"coordinator has ended|ended in the middle of it"):
            await stuck

    run(scene, seconds=30.0)


def test_after_the_end_nothing_is_started() -> None:
    async def scene(assignors: AssignorProcesses) -> None:
        await assignors.run(call(first_takes_all))
        (process, _threads) = assignors._processes[f"{__name__}.first_takes_all"]
        assignors.close()
        with pytest.raises(AssignorFailed, match=r"its coordinator has ended|middle of it"):
            process.call(call(first_takes_all))

    run(scene)

"""The error tree: every error crosses a process boundary whole, and tells a person what to do."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from raylog import errors
from raylog.actors.protocol.remote_errors import failure_of, remote_failed
from raylog.errors import RaylogError

ERROR_CLASSES = [
    value for _, value in inspect.getmembers(errors, inspect.isclass) if issubclass(value, RaylogError)
]
SAMPLES = {"int": 7, "bool": True, "str": "text", "object": "value", "str | None": None, "int | str": "brotli"}
# One line per class that takes more than a text: its name, and what its constructor takes, in order. `?` has a default.
CONSTRUCTORS = {
    name: parameters
    for name, *parameters in map(str.split, Path(__file__).with_name("error_constructors.txt").read_text().splitlines())
}


def parameters_of(error: type[RaylogError]) -> dict[str, str]:
    """What the constructor takes, in order, with the type of each."""
    if "__init__" in vars(error) and error is not RaylogError:
        signature = inspect.signature(error)
        return {name: str(parameter.annotation) for name, parameter in signature.parameters.items()}
    declared = {name: kind for cls in error.__mro__ for name, kind in vars(cls).get("__annotations__", {}).items()}
    return {name: declared[name] for name in error.__match_args__}


def example_of(error: type[RaylogError]) -> RaylogError:
    """An instance with a plausible argument for every parameter of the constructor."""
    return error(*map(SAMPLES.__getitem__, parameters_of(error).values())) if parameters_of(error) else error("It ran.")


each_error = pytest.mark.parametrize("error", ERROR_CLASSES, ids=lambda error: error.__name__)


@each_error
def test_every_error_survives_pickling(error: type[RaylogError]) -> None:
    before = example_of(error)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        after = pickle.loads(pickle.dumps(before, protocol))
        assert type(after) is error
        assert after.args == before.args
        assert str(after) == str(before)
        assert vars(after) == vars(before)


@each_error
def test_every_error_is_found_under_the_module_that_pickles_name(error: type[RaylogError]) -> None:
    assert (error.__module__, error.__qualname__) == ("raylog.errors", error.__name__)
    assert getattr(errors, error.__name__) is error


@each_error
def test_every_error_takes_what_it_always_took_in_the_same_order(error: type[RaylogError]) -> None:
    expected = CONSTRUCTORS.get(error.__name__, [])
    names = [name.rstrip("?") for name in expected]
    required = len([name for name in expected if not name.endswith("?")])
    given = tuple(SAMPLES[kind] for kind in parameters_of(error).values())
    assert list(parameters_of(error)) == names
    if names:
        assert error(*given).args == given
        assert len(error(*given[:required]).args) == len(given), "defaults belong to args: another process gets them"
        by_name = cast(Callable[..., RaylogError], error)(**dict(zip(names, given, strict=True)))
        assert (by_name.args, vars(by_name)) == (given, vars(error(*given)))
        for wrong in [given[: required - 1]] * (required > 0) + [(*given, "more")]:
            with pytest.raises(TypeError):
                error(*wrong)


def test_constructors_of_errors_that_are_gone_are_not_listed() -> None:
    assert CONSTRUCTORS.keys() <= {error.__name__ for error in ERROR_CLASSES}


@each_error
def test_every_error_that_another_process_answers_is_built_again(error: type[RaylogError]) -> None:
    before = example_of(error)
    after = remote_failed("broker 1", failure_of(before)).error
    assert type(after) is error
    assert (after.args, vars(after)) == (before.args, vars(before))


def test_an_error_within_an_error_survives_pickling() -> None:
    inner = errors.NotLeader("clicks", 3, leader=2, leader_epoch=9)
    outer = errors.RemoteFailed("broker 1", "RemoteFailed", "…", errors.RemoteFailed("broker 2", "N", "…", inner))
    after = pickle.loads(pickle.dumps(outer)).error.error
    assert type(after) is errors.NotLeader
    assert (after.args, after.leader) == (("clicks", 3, 2, 9), 2)


def test_what_is_not_an_error_of_raylog_is_kept_out_of_the_answer_of_another_process() -> None:
    failed = errors.RemoteFailed("broker 1", "KeyError", "'x'", KeyError("x"))
    assert failed.error is None
    assert pickle.loads(pickle.dumps(failed)).error is None


def test_pickles_of_earlier_versions_can_be_read() -> None:
    error = pickle.loads(b"craylog.errors\nUnknownConfig\n(S'retention.hours'\nS'retention.ms'\nS''\ntR.")
    assert vars(error) == {"name": "retention.hours", "suggestion": "retention.ms", "hint": ""}


def test_a_call_that_does_not_fit_the_fields_is_refused_by_mypy_and_at_runtime() -> None:
    calls: list[Callable[[], RaylogError]] = [  # mypy refuses an ignore that is not needed
        lambda: errors.UnknownTopic(partition=3),  # type: ignore[call-arg]
        lambda: errors.UnknownTopic("a", topic="b"),  # type: ignore[misc]
        lambda: errors.UnknownTopic("a", "b"),  # type: ignore[call-arg]
        lambda: errors.UnknownTopic(subject="a"),  # type: ignore[call-arg]
        lambda: errors.UnknownTopic("a", b=1),  # type: ignore[call-arg]
    ]
    for call in calls:
        with pytest.raises(TypeError, match="UnknownTopic takes topic; given were"):
            call()


def test_types_of_fields_are_checked() -> None:
    assert errors.UnknownPartition(topic="clicks", partition="3").partition == "3"  # type: ignore[arg-type, comparison-overlap]


def test_an_error_without_fields_takes_a_text_and_no_names() -> None:
    assert str(errors.DiskFull("No space is left.")).startswith("No space is left. Free space")
    with pytest.raises(TypeError, match="DiskFull takes one text"):
        errors.DiskFull("No space is left.", path="/data")  # type: ignore[call-arg]


def test_an_error_can_be_taken_apart_by_a_pattern() -> None:
    match cast(RaylogError, errors.UnknownPartition("clicks", 3)):
        case errors.UnknownPartition(topic, partition):
            assert (topic, partition) == ("clicks", 3)
        case _:
            raise AssertionError


def test_an_error_of_another_module_keeps_its_place() -> None:
    class Mine(RaylogError):
        """Declared by a user."""

        color: str

    assert Mine("red").color == "red"
    assert Mine.__module__ == __name__


@each_error
def test_every_error_says_what_it_stands_for(error: type[RaylogError]) -> None:
    assert (vars(error)["__doc__"] or "").strip().endswith(".")


@each_error
def test_every_error_stands_in_the_tree_at_the_top_of_its_package(error: type[RaylogError]) -> None:
    assert errors.__doc__ is not None
    assert error.__name__ in errors.__doc__


@each_error
def test_every_error_that_is_raised_says_what_happened_in_a_sentence(error: type[RaylogError]) -> None:
    text = str(example_of(error))
    assert text
    assert text[-1] in ".?"


def test_configuration_errors_are_value_errors_too() -> None:
    with pytest.raises(ValueError, match="Did you mean"):
        raise errors.UnknownConfig("retention.hours", "retention.ms")

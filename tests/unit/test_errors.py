"""The error tree: every error crosses a process boundary whole, and tells a person what to do."""

from __future__ import annotations

import inspect
import pickle

import pytest

from raylog import errors
from raylog.errors import RaylogError

ERROR_CLASSES = [
    value for _, value in inspect.getmembers(errors, inspect.isclass) if issubclass(value, RaylogError)
]


def example_of(error: type[RaylogError]) -> RaylogError:
    """An instance with a plausible argument for every parameter of the constructor."""
    if "__init__" not in vars(error):
        return error("Something happened.")
    samples = {"int": 7, "bool": True, "str": "text", "object": ["value"], "str | None": None, "int | str": "brotli"}
    parameters = list(inspect.signature(error).parameters.values())
    return error(*[samples[str(parameter.annotation)] for parameter in parameters])


@pytest.mark.parametrize("error", ERROR_CLASSES, ids=lambda error: error.__name__)
def test_every_error_survives_pickling(error: type[RaylogError]) -> None:
    before = example_of(error)
    after = pickle.loads(pickle.dumps(before))
    assert type(after) is error
    assert after.args == before.args
    assert str(after) == str(before)
    assert vars(after) == vars(before)


@pytest.mark.parametrize("error", ERROR_CLASSES, ids=lambda error: error.__name__)
def test_every_error_stands_in_the_tree_at_the_top_of_its_file(error: type[RaylogError]) -> None:
    assert errors.__doc__ is not None
    assert error.__name__ in errors.__doc__


@pytest.mark.parametrize("error", ERROR_CLASSES, ids=lambda error: error.__name__)
def test_every_error_that_is_raised_says_what_happened_in_a_sentence(error: type[RaylogError]) -> None:
    text = str(example_of(error))
    assert text
    assert text[-1] in ".?"


def test_configuration_errors_are_value_errors_too() -> None:
    with pytest.raises(ValueError, match="Did you mean"):
        raise errors.UnknownConfig("retention.hours", "retention.ms")

"""Puts every test below this folder, and the import of its file, under the rules of `unit_rules`."""

from collections.abc import Generator, Iterator

import pytest

from tests.unit.unit_rules import unit_rules


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    with unit_rules():
        return (yield)


@pytest.fixture(scope="module", autouse=True)
def _obey_unit_rules() -> Iterator[None]:
    with unit_rules():
        yield

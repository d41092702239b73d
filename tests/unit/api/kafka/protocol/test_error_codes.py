"""Every error of raylog has a code of Kafka's, or is one that no gateway meets."""

from __future__ import annotations

import inspect

import pytest

from raylog import errors
from raylog.api.kafka.protocol.error_codes import ELSEWHERE, Asked, ErrorCode, code_of, has_code
from raylog.errors import RaylogError

ERRORS = [value for _, value in inspect.getmembers(errors, inspect.isclass) if issubclass(value, RaylogError)]
# Bases that nobody raises: what extends them is asked one by one.
FAMILIES = [each for each in ERRORS if each is RaylogError or (RaylogError in each.__bases__ and each.__subclasses__())]


@pytest.mark.parametrize("error", [each for each in ERRORS if each not in FAMILIES], ids=lambda error: error.__name__)
def test_every_error_has_a_code_or_is_met_elsewhere(error: type[RaylogError]) -> None:
    assert has_code(error) or issubclass(error, ELSEWHERE)


@pytest.mark.parametrize("elsewhere", ELSEWHERE, ids=lambda error: error.__name__)
def test_what_is_met_elsewhere_has_no_code(elsewhere: type[RaylogError]) -> None:
    assert not has_code(elsewhere)


def test_numbers_are_those_of_kafka_python() -> None:
    theirs = pytest.importorskip("kafka.errors", reason="the extra `kafka` is not installed")
    known = {each.errno for _, each in inspect.getmembers(theirs, inspect.isclass) if hasattr(each, "errno")}
    assert set(ErrorCode) - known <= {ErrorCode.INVALID_REGULAR_EXPRESSION}


def test_an_error_that_has_no_line_has_that_of_its_base() -> None:
    assert code_of(errors.NullKey("No key.")) is ErrorCode.INVALID_RECORD
    assert code_of(errors.UnsupportedCodec(9)) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert code_of(errors.TopicStillStarting("clicks", 10)) is ErrorCode.REQUEST_TIMED_OUT
    assert code_of(errors.GroupNotRead("g", 10)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert code_of(ValueError("It broke.")) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_some_codes_depend_on_what_was_asked() -> None:
    fenced, unknown = errors.ProducerFenced(7, 2, 3), errors.UnknownPartition("clicks", 9)
    assert code_of(fenced) is ErrorCode.PRODUCER_FENCED
    assert code_of(fenced, Asked.PRODUCE) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert code_of(unknown) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code_of(unknown, Asked.BY_TOPIC_ID) is ErrorCode.UNKNOWN_TOPIC_ID
    assert code_of(errors.TransactionAborted("t", "it took too long"), Asked.PRODUCE) is ErrorCode.TRANSACTION_ABORTABLE
    loading = errors.CoordinatorLoading("g", 10)
    assert code_of(loading, Asked.CLASSIC_GROUP) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert code_of(loading, Asked.SYNC) is ErrorCode.REBALANCE_IN_PROGRESS
    assert code_of(errors.FencedMember("g", "m", 1, 2, -1), Asked.SYNC) is ErrorCode.ILLEGAL_GENERATION

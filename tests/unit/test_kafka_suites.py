"""The report on test suites of others: each test is counted once, and what did not pass has its reason."""

from __future__ import annotations

from tests.kafka.suite_report import Outcome, as_table, outcomes_of

_REPORT = """<testsuites><testsuite>
<testcase classname="test.integration.test_admin" name="test_one" time="0.1" />
<testcase classname="test.test_admin" name="test_two"><failure message="assert 1\n  == 2">x</failure></testcase>
<testcase classname="test.test_sasl" name="test_three"><skipped message="no SASL" /></testcase>
<testcase classname="test.test_ssl" name="test_four"><error message="failed on setup">x</error></testcase>
</testsuite></testsuites>"""


def test_each_test_is_told_with_its_reason() -> None:
    assert outcomes_of(_REPORT) == [
        Outcome("test_admin::test_one", "passed", ""),
        Outcome("test_admin::test_two", "failed", "assert 1 == 2"),
        Outcome("test_sasl::test_three", "skipped", "no SASL"),
        Outcome("test_ssl::test_four", "failed", "failed on setup"),
    ]


def test_the_table_counts_and_names_what_did_not_pass() -> None:
    table = as_table(outcomes_of(_REPORT)).splitlines()
    assert table[0] == "1 passed, 2 failed, 1 skipped"
    assert len([line for line in table if line.startswith("| test_")]) == 3

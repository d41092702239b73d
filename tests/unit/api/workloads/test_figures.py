"""From samples to figures, to JSON and to a page."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

from raylog.api.cli.commands.bench import _runs
from raylog.api.workloads.chart import page
from raylog.api.workloads.driver import KAFKA, NATS, RAYLOG, REDIS, Target
from raylog.api.workloads.report import document
from raylog.api.workloads.workload import NO_LATENCY, Outcome, Payloads, Workload, due_of, grid, latency_of


def outcome(driver: str, rate: float, workload: Workload) -> Outcome:
    latency = latency_of([number / 1e6 for number in range(1, 1001)])
    return Outcome(workload, driver, "1.0", "in <memory>", rate, latency, latency, 5000, 2 * rate)


def test_percentiles_are_of_the_samples() -> None:
    found = latency_of([number / 1000 for number in range(1000, 0, -1)])
    assert (found.count, found.p50, found.p75, found.p95, found.p99, found.p999, found.most) == (
        1000, 500, 750, 950, 990, 999, 1000,
    )  # fmt: skip
    assert latency_of([0.004]).p9999 == 4
    assert latency_of([]) == NO_LATENCY


def test_records_have_their_size_and_the_time_when_they_were_due() -> None:
    payloads = Payloads(100)
    one, other = payloads.make(123), payloads.make(456)
    assert (len(one), due_of(one), due_of(other)) == (100, 123, 456)
    assert one[8:] != other[8:]
    assert len(Payloads(8).make(1)) == 8


def test_systems_without_replicas_are_measured_once_for_all_of_those() -> None:
    loads = list(grid(Workload(), [1], [100, 1000], [1, 3], ["1", "all"]))
    assert len(loads) == 8
    runs = list(_runs([Target(kind, "") for kind in (RAYLOG, REDIS, NATS, KAFKA)], loads))
    assert [sum(target.kind == kind for target, _ in runs) for kind in (RAYLOG, REDIS, NATS, KAFKA)] == [8, 2, 2, 8]


def test_the_report_has_openmessagings_names_and_is_json() -> None:
    report = json.loads(json.dumps(document([outcome(RAYLOG, 1000, Workload(size=200))], {"nats": "not there"})))
    (result,) = report["results"]
    assert result["publishRate"] == 1000
    assert result["publishMegabytesPerSecond"] == 0.2
    assert result["aggregatedPublishLatency99pct"] == 0.99
    assert result["aggregatedEndToEndLatencyMax"] == 1.0
    assert result["settings"]["partitions"] == 3
    assert report["left_out"] == {"nats": "not there"}


def test_the_page_stands_alone() -> None:
    outcomes = [
        outcome(RAYLOG, 2000, Workload()),
        outcome(RAYLOG, 900, Workload(replicas=1)),
        outcome(REDIS, 1000, Workload()),
    ]
    text = page(outcomes, {"kafka": "no <client>"}, "this machine")
    HTMLParser().feed(text)
    assert "<script" not in text
    assert not re.search(r"(src|href)=|url\(|@import", text)
    assert text.count("<svg") == 4
    assert "in &lt;memory&gt;" in text
    assert "no &lt;client&gt;" in text
    widths = [float(width) for width in re.findall(r'<rect[^>]* width="([\d.]+)"', text)]
    assert widths[0] / widths[2] == 2


def test_a_page_without_latencies_says_so() -> None:
    bare = outcome(RAYLOG, 1, Workload())
    bare = Outcome(**{**vars(bare), "publish_latency": NO_LATENCY, "end_to_end_latency": NO_LATENCY})
    assert page([bare], {}, "").count("No figures") == 2

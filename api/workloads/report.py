"""Results as JSON: names after OpenMessaging's results where it has one. Rates a second, latencies in ms."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from raylog.api.workloads.workload import Latency, Outcome

VERSION: Final = 1
_PERCENTILES: Final = {
    "50pct": "p50",
    "75pct": "p75",
    "95pct": "p95",
    "99pct": "p99",
    "999pct": "p999",
    "9999pct": "p9999",
}


def document(outcomes: Sequence[Outcome], left_out: Mapping[str, str]) -> dict[str, Any]:
    """`left_out`: systems, or points of one, that were not measured, and why."""
    return {
        "format": VERSION,
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "kernel": platform.release(),
            "processor": platform.machine(),
        },
        "results": [_result(each) for each in outcomes],
        "left_out": dict(left_out),
    }


def _result(each: Outcome) -> dict[str, Any]:
    return {
        "workload": each.point,
        "driver": each.driver,
        "version": each.version,
        "guarantee": each.guarantee,
        "settings": asdict(each.workload),
        "publishRate": each.publish_rate,
        "publishMegabytesPerSecond": each.publish_megabytes,
        **_latency("aggregatedPublishLatency", each.publish_latency),
        **_latency("aggregatedEndToEndLatency", each.end_to_end_latency),
        "backlog": each.backlog,
        "drainRate": each.drain_rate,
    }


def _latency(name: str, latency: Latency) -> dict[str, Any]:
    named = {f"{name}{suffix}": getattr(latency, field) for suffix, field in _PERCENTILES.items()}
    return {f"{name}Count": latency.count, f"{name}Avg": latency.average, **named, f"{name}Max": latency.most}

"""The figures as one HTML file: tables and SVG drawn here, nothing loaded from elsewhere, no scripts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Final

from raylog.api.workloads.workload import Latency, Outcome

_COLOURS: Final = {"raylog": "#3366cc", "redis": "#c0392b", "nats": "#27a05f", "kafka": "#555555"}
_WIDTH: Final = 860
_BAR: Final = 22
_LABELS: Final = 270
_STYLE: Final = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 900px; padding: 0 1em; color: #222 }
h2 { margin-top: 2em } svg text { font: 12px system-ui, sans-serif; fill: #333 } td, th { padding: .2em .7em }
table { border-collapse: collapse; font-variant-numeric: tabular-nums } td { text-align: right }
td:first-child, th:first-child, td:last-child { text-align: left } tr { border-bottom: 1px solid #ddd }
@media (prefers-color-scheme: dark) { body { background: #181818; color: #ddd } svg text { fill: #ccc } }
"""


def page(outcomes: Sequence[Outcome], left_out: Mapping[str, str], machine: str) -> str:
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>raylog bench</title>",
        f"<style>{_STYLE}</style><h1>raylog bench</h1><p>{escape(machine)}</p>",
        "<h2>Published, until acknowledged</h2><p>Records a second; more is better.</p>",
        _bars(outcomes, lambda each: each.publish_rate),
        "<h2>Backlog drained</h2><p>Records a second by one consumer; more is better.</p>",
        _bars(outcomes, lambda each: each.drain_rate),
        "<h2>Publish latency</h2><p>From when a record was due until it was acknowledged; less is better.</p>",
        _curves(outcomes, lambda each: each.publish_latency),
        "<h2>End-to-end latency</h2><p>Until a consumer in another process had it.</p>",
        _curves(outcomes, lambda each: each.end_to_end_latency),
        "<h2>What an acknowledged record survives</h2>",
        _guarantees(outcomes),
    ]
    for name, reason in left_out.items():
        parts.append(f"<p>Not measured: {escape(name)}, {escape(reason.rstrip('.'))}.</p>")
    return "\n".join(parts) + "\n"


def _label(each: Outcome) -> str:
    return f"{each.driver} {each.point}"


def _colour(each: Outcome) -> str:
    return _COLOURS.get(each.driver, "#888888")


def _bars(outcomes: Sequence[Outcome], figure: Callable[[Outcome], float]) -> str:
    most = max(map(figure, outcomes), default=0) or 1
    rows = []
    for place, each in enumerate(outcomes):
        top, value = place * (_BAR + 6), figure(each)
        width = max(1.0, (_WIDTH - _LABELS - 90) * value / most)
        rows.append(
            f'<text x="{_LABELS - 8}" y="{top + 15}" text-anchor="end">{escape(_label(each))}</text>'
            f'<rect x="{_LABELS}" y="{top}" width="{width:.1f}" height="{_BAR}" rx="2" fill="{_colour(each)}"/>'
            f'<text x="{_LABELS + width + 6:.1f}" y="{top + 15}">{value:,.0f}</text>'
        )
    height = len(outcomes) * (_BAR + 6)
    return f'<svg viewBox="0 0 {_WIDTH} {height}" width="100%" role="img">{"".join(rows)}</svg>'


_POINTS: Final[Sequence[tuple[str, Callable[[Latency], float]]]] = (
    ("50 %", lambda latency: latency.p50),
    ("75 %", lambda latency: latency.p75),
    ("95 %", lambda latency: latency.p95),
    ("99 %", lambda latency: latency.p99),
    ("99.9 %", lambda latency: latency.p999),
    ("most", lambda latency: latency.most),
)
_TOP, _BOTTOM, _LEFT, _RIGHT = 10, 250, 70, 600


def _curves(outcomes: Sequence[Outcome], of: Callable[[Outcome], Latency]) -> str:
    """Milliseconds, on a scale of powers of ten."""
    shown = [each for each in outcomes if of(each).count]
    values = [max(point(of(each)), 0.001) for each in shown for _, point in _POINTS]
    if not values:
        return "<p>No figures.</p>"
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)

    def x(place: int) -> float:
        return _LEFT + place * (_RIGHT - _LEFT) / (len(_POINTS) - 1)

    def y(value: float) -> float:
        return _BOTTOM - (math.log10(max(value, 0.001)) - low) / (high - low) * (_BOTTOM - _TOP)

    drawn = []
    for power in range(low, high + 1):
        level = y(10.0**power)
        drawn.append(f'<line x1="{_LEFT}" x2="{_RIGHT}" y1="{level:.1f}" y2="{level:.1f}" stroke="#8884"/>')
        drawn.append(f'<text x="{_LEFT - 8}" y="{level + 4:.1f}" text-anchor="end">{10.0**power:g} ms</text>')
    for place, (name, _) in enumerate(_POINTS):
        drawn.append(f'<text x="{x(place):.1f}" y="{_BOTTOM + 20}" text-anchor="middle">{name}</text>')
    for number, each in enumerate(shown):
        line = " ".join(f"{x(place):.1f},{y(point(of(each))):.1f}" for place, (_, point) in enumerate(_POINTS))
        dashes = f"{2 + 3 * number} 3" if number and _colour(each) in map(_colour, shown[:number]) else "none"
        stroke = f'stroke="{_colour(each)}" stroke-width="2" stroke-dasharray="{dashes}"'
        drawn.append(f'<polyline points="{line}" fill="none" {stroke}/>')
        drawn.append(
            f'<text x="{_RIGHT + 12}" y="{_TOP + 14 + 16 * number}" style="fill:{_colour(each)}">'
            f"{escape(_label(each))}</text>"
        )
    height = max(_BOTTOM + 30, _TOP + 20 + 16 * len(shown))
    return f'<svg viewBox="0 0 {_WIDTH} {height}" width="100%" role="img">{"".join(drawn)}</svg>'


def _guarantees(outcomes: Sequence[Outcome]) -> str:
    columns = ("system", "records/s", "MB/s", "publish p50, p99 (ms)", "end to end p50, p99 (ms)", "drain/s")
    head = "<tr>" + "".join(f"<th>{each}" for each in (*columns, "acknowledged means"))
    rows = []
    for each in outcomes:
        publish, whole = each.publish_latency, each.end_to_end_latency
        rows.append(
            f"<tr><td>{escape(_label(each))}<td>{each.publish_rate:,.0f}<td>{each.publish_megabytes:,.1f}"
            f"<td>{publish.p50:.2f}, {publish.p99:.2f}<td>{whole.p50:.2f}, {whole.p99:.2f}<td>{each.drain_rate:,.0f}"
            f"<td>{escape(each.guarantee)}"
        )
    return f"<table>{head}{''.join(rows)}</table>"

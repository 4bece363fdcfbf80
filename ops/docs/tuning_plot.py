"""Draws what a search found, from the tuning log, as SVG: a row for each kernel, a dot for each candidate, at its time
beside the fastest one's; the winner is filled.

    kiln tune-log --data-dir data | python3 ops/docs/tuning_plot.py "TITLE" > plot.svg

Takes the log's JSON lines; of their columns it needs kernel_key, template, verdict, won and median_us.
"""

import html
import json
import math
import sys
from collections.abc import Iterable
from typing import Any

ROW, LEFT, WIDTH, TOP, MOST = 22, 250, 470, 44, 16  # of a plot, in its own units; the axis ends at MOST times as long
AHEAD, BEHIND, INK, GRID = "#1a7f37", "#bc4c00", "#1f2328", "#d0d7de"


def kernels_of(lines: Iterable[str]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Timed candidates by template and kernel; kernels that have fewer than two are left out."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for line in lines:
        record = json.loads(line)
        if record["verdict"] == "ok" and record["median_us"]:
            found.setdefault((record["template"], record["kernel_key"]), []).append(record)
    return {kernel: records for kernel, records in sorted(found.items()) if len(records) > 1}


def draw_search(title: str, lines: Iterable[str]) -> str:
    kernels = kernels_of(lines)
    height = TOP + ROW * len(kernels) + 28

    def at(times: float) -> float:
        return round(LEFT + WIDTH * math.log2(min(times, MOST)) / math.log2(MOST), 1)

    def text(x: float, y: float, what: str, anchor: str = "start", size: int = 12) -> str:
        words = html.escape(what)
        return f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}" fill="{INK}">{words}</text>'

    drawn = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 780 {height}" role="img" '
             'font-family="system-ui, sans-serif">',
             f"<title>{html.escape(title)}</title>",
             f'<rect width="780" height="{height}" rx="10" fill="#ffffff"/>', text(20, 26, title, size=14)]
    for times in (1, 2, 4, 8, MOST):
        drawn.append(f'<path d="M{at(times)} {TOP}V{height - 24}" stroke="{INK if times == 1 else GRID}"/>')
        drawn.append(text(at(times), height - 8, f"{times} x", "middle"))
    for i, ((template, key), records) in enumerate(kernels.items()):
        y = TOP + ROW * i + ROW // 2
        least = min(record["median_us"] for record in records)
        drawn.append(text(LEFT - 14, y + 4, f"{template} {key[:8]}  {least:.1f} us", "end"))
        for record in sorted(records, key=lambda each: bool(each["won"])):  # the winner on top
            fill = f'fill="{AHEAD}"' if record["won"] else f'fill="none" stroke="{BEHIND}" stroke-width="1.5"'
            drawn.append(f'<circle cx="{at(record["median_us"] / least)}" cy="{y}" r="5" {fill}/>')
    return "\n".join([*drawn, "</svg>"]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(draw_search(sys.argv[1], sys.stdin))

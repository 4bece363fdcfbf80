"""Draws the plots of the documents, as SVG in docs/pictures: from the tables that measurements are kept in, and from
records that `kiln tune-log` printed (docs/pictures/*.jsonl, by tuning_plot.py).

    python3 ops/docs/plots.py             draws them
    python3 ops/docs/plots.py --check     exits with 1 when a plot is not what its table says
"""

import dataclasses
import html
import re
import sys
from pathlib import Path

from tuning_plot import draw_search

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "pictures"
ROW, LEFT, WIDTH, TOP = 22, 330, 380, 44  # of a plot, in its own units
AHEAD, BEHIND, INK, GRID = "#1a7f37", "#bc4c00", "#1f2328", "#d0d7de"


@dataclasses.dataclass
class Plot:
    file: str
    title: str
    source: str  # a document
    label: str  # the heading of the column that names a row
    value: str  # the heading of the column with a number: how often as fast as the other side Kiln is


PLOTS = [
    Plot("memory_bound.svg", "Time of torch.compile max-autotune / Kiln's, one H200",
         "tests/gpu/RESULTS.md", "workload", "autotune / Kiln"),
    Plot("models.svg", "Time of torch.compile / Kiln's, whole models of bf16, H100s",
         "docs/performance.md", "model, bf16, random weights", "ratio"),
]


def rows_of(text: str, label: str, value: str) -> list[tuple[str, float]]:
    """The rows of the first table with such headings; a row without a number is none."""
    found: list[tuple[str, float]] = []
    heads: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            if found:
                return found
            heads = []
        elif not heads:
            heads = cells
        elif label in heads and value in heads and len(cells) == len(heads):
            number = re.match(r"\d+(\.\d+)?", cells[heads.index(value)])
            if number:
                found.append((cells[heads.index(label)], float(number[0])))
    return found


def draw(plot: Plot, rows: list[tuple[str, float]]) -> str:
    most = max(2.0, *(value for _, value in rows))
    height = TOP + ROW * len(rows) + 28

    def at(value: float) -> float:
        return round(LEFT + WIDTH * value / most, 1)

    def text(x: float, y: float, what: str, anchor: str = "start", size: int = 12) -> str:
        words = html.escape(what)
        return f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}" fill="{INK}">{words}</text>'

    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 780 {height}" role="img" '
             'font-family="system-ui, sans-serif">',
             f"<title>{html.escape(plot.title)}</title>",
             f'<rect width="780" height="{height}" rx="10" fill="#ffffff"/>', text(20, 26, plot.title, size=14)]
    for tick in range(int(most) + 1):
        stroke = f'stroke="{INK if tick == 1 else GRID}" stroke-width="{1.5 if tick == 1 else 1}"'
        lines.append(f'<path d="M{at(tick)} {TOP}V{height - 24}" {stroke}/>')
        lines.append(text(at(tick), height - 8, str(tick), "middle"))
    for i, (name, value) in enumerate(rows):
        y = TOP + ROW * i
        lines.append(text(LEFT - 8, y + 15, name, "end"))
        lines.append(f'<rect x="{LEFT}" y="{y + 4}" width="{round(at(value) - LEFT, 1)}" height="{ROW - 7}" rx="2" '
                     f'fill="{AHEAD if value >= 1 else BEHIND}" fill-opacity="0.75"/>')
        lines.append(text(at(value) + 5, y + 15, f"{value:.2f}"))
    return "\n".join([*lines, "</svg>"]) + "\n"


# The titles of the searches, by file.
SEARCHES = {"search_cpu": "Candidates' times beside the fastest, one layer of llama on a CPU"}


def main() -> int:
    stale = []

    def keep(file: Path, drawn: str) -> None:
        if "--check" not in sys.argv[1:]:
            file.write_text(drawn)
        elif not file.exists() or file.read_text() != drawn:
            stale.append(file.name)

    for name, title in SEARCHES.items():
        keep(PICTURES / f"{name}.svg", draw_search(title, (PICTURES / f"{name}.jsonl").read_text().splitlines()))
    for plot in PLOTS:
        rows = rows_of((ROOT / plot.source).read_text(), plot.label, plot.value)
        if not rows:
            print(f"{plot.source} has no table with '{plot.label}' and '{plot.value}'", file=sys.stderr)
            return 1
        keep(PICTURES / plot.file, draw(plot, rows))
    if stale:
        print(f"{', '.join(stale)}: not as the tables and records say; run ops/docs/plots.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())

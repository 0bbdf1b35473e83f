"""Draws the summary table of docs/results/evidence.md as a forest plot: docs/images/evidence.svg.

    python3 tools/plot_evidence.py

Each row is a method against its baseline, each panel an environment. A dot is the mean difference over five seeds in points of
success, a bar its 95 % interval. It needs Python 3.10 and nothing else.
"""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/results/evidence.md"
IMAGE = ROOT / "docs/images/evidence.svg"

ROW, LABELS, PANEL, GAP, TOP, BOTTOM = 16, 190, 190, 14, 46, 40
# Points of success at the ends of the axis.
LOW, HIGH = -20, 20
CELL = re.compile(r"\**([+-]?[\d.]+) \[(-?[\d.]+), (-?[\d.]+)\]\**$")


def read_table() -> tuple[list[str], list[tuple[str, list[tuple[float, float, float] | None]]]]:
    """Returns the names of the panels and, for each row, its label and (mean, low, high) for each panel."""
    panels: list[str] = []
    rows = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if not line.startswith("| "):
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] == "method":
            panels = [re.sub(r"\[([^\]]*)\].*", r"\1", cell) for cell in cells[3:]]
        elif panels and len(cells) == len(panels) + 3:
            found = [CELL.match(cell) for cell in cells[3:]]
            values = [tuple(float(part) for part in match.groups()) if match else None for match in found]
            rows.append((f"{cells[0]} vs {cells[1]}", values))
    return panels, rows


def draw(panels: list[str], rows: list) -> str:
    width = LABELS + len(panels) * (PANEL + GAP)
    bottom = TOP + ROW * len(rows)
    scale = PANEL / (HIGH - LOW)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom + BOTTOM}" '
        'font-family="sans-serif" font-size="11" fill="#222">',
        f'<rect width="{width}" height="{bottom + BOTTOM}" fill="#fff"/>',
    ]
    for index, (label, _) in enumerate(rows):
        parts.append(f'<text x="{LABELS - 10}" y="{TOP + ROW * index + 12}" text-anchor="end">{label}</text>')
    for number, name in enumerate(panels):
        left = LABELS + number * (PANEL + GAP)
        parts.append(f'<text x="{left + PANEL / 2}" y="{TOP - 12}" text-anchor="middle" font-weight="bold">{name}</text>')
        for tick in range(LOW, HIGH + 1, 10):
            x = left + (tick - LOW) * scale
            colour = "#888" if tick == 0 else "#ddd"
            parts.append(f'<path d="M{x:.1f} {TOP}V{bottom}" stroke="{colour}"/>')
            if LOW < tick < HIGH:  # Labels at the ends would run into the next panel's.
                label = f"{tick:+d}" if tick else "0"
                parts.append(f'<text x="{x:.1f}" y="{bottom + 14}" text-anchor="middle" fill="#666">{label}</text>')
        for index, (_, values) in enumerate(rows):
            if values[number] is None:
                continue
            mean, low, high = values[number]
            if not LOW <= low <= mean <= high <= HIGH:
                raise SystemExit(f"{PAGE}: {rows[index][0]}: {values[number]} is outside the axis [{LOW}, {HIGH}]")
            colour = "#1f6fb4" if low > 0 else "#d1661a" if high < 0 else "#999"
            y = TOP + ROW * index + 8
            ends = [left + (value - LOW) * scale for value in (low, high)]
            parts.append(f'<path d="M{ends[0]:.1f} {y}H{ends[1]:.1f}" stroke="{colour}" stroke-width="2"/>')
            parts.append(f'<circle cx="{left + (mean - LOW) * scale:.1f}" cy="{y}" r="3" fill="{colour}"/>')
    middle = LABELS + (width - LABELS) / 2
    parts.append(
        f'<text x="{middle}" y="{bottom + 32}" text-anchor="middle" fill="#666">'
        "difference in success, points; bar: 95 % interval over 5 seeds (Student's t)</text>"
    )
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    names, table = read_table()
    if not table:
        raise SystemExit(f"{PAGE}: no summary table found")
    IMAGE.parent.mkdir(exist_ok=True)
    IMAGE.write_text(draw(names, table), encoding="utf-8")
    print(f"{IMAGE.relative_to(ROOT)}: {len(table)} rows, {len(names)} panels")

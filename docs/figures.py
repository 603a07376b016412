"""The pictures of the documentation, as SVG: boxes, arrows and words at given places. `docs.generate` writes them."""
# ruff: noqa: INP001

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH = 805
_LINE = 17
_STYLE = """\
text { font: 13px system-ui, sans-serif; fill: #1b1f24; text-anchor: middle }
.title { font-weight: 600 }
.code { font: 11px ui-monospace, monospace; fill: #57606a }
.note { font-size: 12px; fill: #57606a }
rect { fill: #fff; stroke: #57606a; rx: 5px }
.outside { fill: #f6f8fa; stroke-dasharray: 4 3 }
.stored { fill: #ddf4ff; stroke: #0969da }
.canvas { fill: #fff; stroke: none }
path { fill: none; stroke: #57606a; marker-end: url(#head) }
.crash { stroke: #cf222e; stroke-dasharray: 4 3; marker-end: none }
.letter { font-weight: 600; fill: #cf222e }
marker path { fill: #57606a; stroke: none; marker-end: none }
"""
_HEAD = (
    '<marker id="head" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
    '<path d="M0,0 L8,4 L0,8 z"/></marker>'
)


@dataclass(frozen=True)
class Box:
    """A rectangle at (x, y) with a title, lines of text, and a line of code such as a module's name."""

    x: int
    y: int
    width: int
    title: str
    lines: Sequence[str] = ()
    code: str = ""
    kind: str = "inside"

    @property
    def height(self) -> int:
        """Height that the text needs."""
        return 14 + _LINE * (1 + len(self.lines) + bool(self.code))

    def svg(self) -> Iterator[str]:
        """Give the box as SVG elements."""
        yield f'<rect class="{self.kind}" x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}"/>'
        styled = [("title", self.title), *(("note", line) for line in self.lines)]
        for number, (style, line) in enumerate([*styled, ("code", self.code)] if self.code else styled):
            yield text(self.x + self.width // 2, self.y + 20 + _LINE * number, line, style)


def text(x: int, y: int, words: str, style: str = "note") -> str:
    """Give a line of text, centred at x."""
    return f'<text class="{style}" x="{x}" y="{y}">{escape(words)}</text>'


def arrow(*points: tuple[int, int], style: str = "arrow") -> str:
    """Give an arrow along these points."""
    return f'<path class="{style}" d="M{" L".join(f"{x},{y}" for x, y in points)}"/>'


def picture(height: int, about: str, elements: Iterable[str | Box]) -> str:
    """Give a whole picture; `about` is what it shows, for those who do not see it."""
    lines = [line for one in elements for line in ([one] if isinstance(one, str) else one.svg())]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
            f"<title>{escape(about)}</title>",
            f"<style>\n{_STYLE}</style>",
            _HEAD,
            f'<rect class="canvas" width="{WIDTH}" height="{height}"/>',
            *lines,
            "</svg>\n",
        ]
    )


def record_to_alert() -> str:
    """Draw the way of a record: from the topic to the tables, to an alert's message."""
    return picture(
        420,
        "From a record of __consumer_offsets to a table row and an alert message",
        [
            Box(20, 20, 160, "__consumer_offsets", ("group records", "and offset commits"), "Kafka", "outside"),
            arrow((180, 62), (212, 62)),
            Box(215, 20, 165, "Filter by type", ("in the JVM: commits", "do not reach Python"), "stream/source.py"),
            arrow((380, 62), (412, 62)),
            Box(
                415, 20, 180, "Decode and fold", ("one group at a time,", "in offset order"), "offsets_decoder, groups/"
            ),
            arrow((595, 62), (627, 62)),
            Box(630, 20, 165, "Write", ("append events, then", "replace group rows"), "stream/groups_writer.py"),
            arrow((670, 102), (670, 132)),
            '<rect class="outside" x="10" y="135" width="700" height="102"/>',
            text(360, 153, "Delta tables, written by tables/"),
            Box(20, 165, 165, "groups", ("one row per group",), kind="stored"),
            Box(195, 165, 165, "group_events", ("one row per change",), kind="stored"),
            Box(370, 165, 165, "quarantine", ("not decodable",), kind="stored"),
            Box(545, 165, 155, "alerts", ("pending to resolved",), kind="stored"),
            arrow((752, 102), (752, 272)),
            Box(630, 275, 165, "Group cache", ("groups in memory",), "job/group_cache.py"),
            arrow((630, 307), (598, 307)),
            Box(415, 275, 180, "Rules, every 5 s", ("pending, firing, resolved",), "alerts/"),
            arrow((570, 275), (570, 217)),
            arrow((415, 307), (383, 307)),
            Box(215, 275, 165, "Notifications", ("one thread per sink",), "notify/"),
            arrow((100, 237), (100, 272)),
            Box(20, 275, 160, "list, describe, sql", ("without Spark",), "queries/, cli/"),
            arrow((297, 340), (297, 367)),
            Box(205, 370, 185, "Alertmanager, Slack, ...", kind="outside"),
            arrow((712, 340), (712, 367)),
            Box(630, 370, 165, "/metrics", kind="outside"),
            arrow((100, 340), (100, 367)),
            Box(20, 370, 160, "terminal", kind="outside"),
        ],
    )


_STEPS = (
    ("1", ("Offsets of the", "batch are logged"), "checkpoint"),
    ("2", ("Events are", "appended"), "group_events"),
    ("3", ("Undecodable", "are appended"), "quarantine"),
    ("4", ("Group rows", "are replaced"), "groups"),
    ("5", ("The batch is", "committed"), "checkpoint"),
)


def crash() -> str:
    """Draw the steps of a micro-batch and the places where it can be interrupted."""
    elements: list[str | Box] = []
    for number, (title, lines, code) in enumerate(_STEPS):
        x = 38 + 152 * number
        elements.append(Box(x, 20, 112, title, lines, code, "stored"))
        if number < len(_STEPS) - 1:
            elements += [
                arrow((x + 112, 60), (x + 149, 60)),
                arrow((x + 132, 70), (x + 132, 128), style="crash"),
                text(x + 132, 145, "ABCD"[number], "letter"),
            ]
    elements.append(arrow((702, 102), (702, 175), (94, 175), (94, 105)))
    elements.append(text(402, 193, "next batch; after a crash at A, B, C or D the same batch again"))
    return picture(205, "The steps of a micro-batch; A, B, C and D are where it can be interrupted", elements)


def rooms(layers: Sequence[Sequence[str]], around: Sequence[str]) -> str:
    """Draw packages in layers, the highest first; `around` are the packages below all of them."""
    elements: list[str | Box] = [text(420, 25, "streaming_app", "title")]
    step, left = 44, 60
    for row, names in enumerate(layers):
        width = (720 - 10 * (len(names) - 1)) // len(names)
        for place, name in enumerate(names):
            elements.append(Box(left + place * (width + 10), 38 + row * step, width, name))
    bottom = 38 + len(layers) * step
    for row, name in enumerate(around):
        elements.append(Box(left, bottom + 22 + row * step, 720, name, kind="outside"))
    height = bottom + 22 + len(around) * step
    elements.append(arrow((35, 45), (35, height - 20)))
    elements.append(
        f'<text class="note" transform="rotate(-90 22 {height // 2})" x="22" y="{height // 2}">imports</text>'
    )
    return picture(height, "The packages in layers: each imports only what is below it", elements)

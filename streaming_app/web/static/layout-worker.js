// Draws a picture with Graphviz, as SVG. It gets ids, kinds and sizes made by the page, never a name: the page writes
// the names into the texts of the drawing.
import { instance } from "./vendor/viz.js";

const POINTS = 72; // an inch; one point is one unit of the picture
const ROUND = "shape=box style=rounded";
const SHAPES = {
  topic: ROUND, pattern: ROUND, repartition: ROUND, changelog: ROUND, store: "shape=cylinder", folded: "shape=box3d",
};
const ready = instance();

function dot({ nodes, edges, boxes, direction }) {
  const lines = [
    "digraph {",
    `graph [rankdir=${direction === "TB" ? "TB" : "LR"} nodesep=0.28 ranksep=0.55 pad=0.1 bgcolor=transparent]`,
    'node [fixedsize=true fontname=sans fontsize=12.5 href="#"]',
    "edge [arrowsize=0.6]",
  ];
  const line = ({ id, kind, rows, width, height }) =>
    `${id} [id=${id} ${SHAPES[kind] ?? "shape=box"} width=${width / POINTS} height=${height / POINTS} label="${Array(rows).fill("x").join("\\n")}"]`;
  for (const { id, width, height } of boxes) {
    const room = `width="${width}" height="${height}"`; // for the title
    const label = `<<table border="0" ${room}><tr><td align="left">x</td></tr></table>>`;
    lines.push(`subgraph cluster_${id} { id=${id} href="#" margin=14 labeljust=l fontname=sans fontsize=12.5 label=${label}`);
    for (const node of nodes) if (node.box === id) lines.push(line(node));
    lines.push("}");
  }
  const drawn = new Set(boxes.map(({ id }) => id));
  for (const node of nodes) if (!drawn.has(node.box)) lines.push(line(node));
  edges.forEach(([from, to, kind], index) =>
    lines.push(`${from} -> ${to} [id=e${index}${kind === "state" ? " arrowhead=none style=dashed" : ""}]`));
  lines.push("}");
  return lines.join("\n");
}

onmessage = async ({ data }) => {
  try {
    const viz = await ready;
    postMessage({ job: data.job, result: viz.renderString(dot(data), { format: "svg" }) });
  } catch (error) {
    postMessage({ job: data.job, error: String(error) });
  }
};

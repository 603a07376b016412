// Lays out a picture with Graphviz. It gets sizes and ids made by the page, never a name, and returns positions.
import { instance } from "./vendor/viz.js";

const POINTS = 72; // an inch; one point is one unit of the picture
const ready = instance();

function dot({ nodes, edges, boxes, direction, gap }) {
  const lines = [
    "digraph {",
    `graph [rankdir=${direction === "TB" ? "TB" : "LR"} nodesep=0.28 ranksep=${gap} pad=0.1]`,
    'node [shape=box fixedsize=true label=""]',
    "edge [arrowhead=none]",
  ];
  const line = ({ id, width, height }) => `${id} [width=${width / POINTS} height=${height / POINTS}]`;
  for (const box of boxes) {
    const room = `width="${box.width}" height="${box.height}"`; // for the title
    lines.push(`subgraph cluster_${box.id} { margin=14 labeljust=l label=<<table border="0" ${room}><tr><td></td></tr></table>>`);
    for (const node of nodes) if (node.box === box.id) lines.push(line(node));
    lines.push("}");
  }
  const drawn = new Set(boxes.map(({ id }) => id));
  for (const node of nodes) if (!drawn.has(node.box)) lines.push(line(node));
  for (const [from, to] of edges) lines.push(`${from} -> ${to}`);
  lines.push("}");
  return lines.join("\n");
}

const numbers = (text) => text.split(",").map(Number);

function positions(result, edges) {
  const [, , width, height] = numbers(result.bb);
  const flip = ([x, y]) => [x, height - y];
  const nodes = {};
  const boxes = {};
  const names = [];
  for (const one of result.objects ?? []) {
    names[one._gvid] = one.name;
    if (one.name.startsWith("cluster_")) {
      const [left, bottom, right, top] = numbers(one.bb);
      boxes[one.name.slice(8)] = { x: left, y: height - top, width: right - left, height: top - bottom };
    } else if (one.pos) nodes[one.name] = flip(numbers(one.pos));
  }
  const paths = new Map();
  for (const edge of result.edges ?? []) {
    const points = edge.pos.replace(/^[se],\S+ /, "").replace(/^[se],\S+ /, "").split(" ").map(numbers).map(flip);
    paths.set(`${names[edge.tail]} ${names[edge.head]}`, points);
  }
  return { width, height, nodes, boxes, edges: edges.map(([from, to]) => paths.get(`${from} ${to}`) ?? []) };
}

onmessage = async ({ data }) => {
  try {
    const viz = await ready;
    const result = positions(viz.renderJSON(dot(data)), data.edges);
    postMessage({ job: data.job, result });
  } catch (error) {
    postMessage({ job: data.job, error: String(error) });
  }
};

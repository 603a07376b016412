// Draws a picture: layout in a worker, own SVG, keyboard and pointer, boxes that open and close, and a link that reopens
// the view.
// Names become text nodes and attributes only.

import { chosenInstant } from "./timeline.js";
import { workerUrl } from "./workers.js";

const SVG = "http://www.w3.org/2000/svg";
const LEVELS = { map: "Subtopologies", processors: "Processors" };
const PADDING = 12;
const LINE = 16;
const MIN_SCALE = 0.05;
const MAX_SCALE = 3;
const READABLE = 0.62; // below this the text is too small: begin zoomed in, at the start

function element(name, attributes = {}, text = "") {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text) made.textContent = text;
  return made;
}

function draw(name, attributes = {}, text = "") {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text) made.textContent = text;
  return made;
}

const canvas = document.createElement("canvas").getContext("2d");

function textWidth(text, font) {
  canvas.font = `${font} ${getComputedStyle(document.documentElement).fontFamily}`;
  return canvas.measureText(text).width;
}

// The picture is that of the instant which is chosen on the timeline.
function atQuery() {
  const at = chosenInstant();
  return at === null ? "" : `&at=${new Date(at).toISOString()}`;
}

const isBox = (node) => node.kind === "folded" || node.kind === "frame"; // Enter and a click open or close it
const titleOf = (node) => (isBox(node) ? `${node.kind === "folded" ? "+" : "−"} ${node.title}` : node.title);

function openedFrom(text) {
  if (text === "*") return text;
  try {
    const names = JSON.parse(text);
    return Array.isArray(names) ? names.filter((name) => typeof name === "string") : [];
  } catch {
    return [];
  }
}

// The title of an open box, which is drawn as a node.
function frameOf(box) {
  return { ...box, kind: box.is_open ? "frame" : "label", lines: [] };
}

function sizeOf(node) {
  const widths = [textWidth(titleOf(node), "600 12.5px"), ...node.lines.map((line) => textWidth(line, "11.5px"))];
  return {
    width: Math.ceil(Math.max(70, ...widths)) + 2 * PADDING,
    height: LINE * (1 + node.lines.length) + PADDING + (node.kind === "store" ? 8 : 0),
  };
}

// The middle of a line of cubic curves: its ends and their control points.
function middleOf(points) {
  if (points.length < 4) return [0, 0];
  const at = 3 * ((points.length - 1) / 3 >> 1);
  const [a, b, c, d] = points.slice(at, at + 4);
  return [0, 1].map((axis) => (a[axis] + 3 * (b[axis] + c[axis]) + d[axis]) / 8);
}

export class Picture {
  #host;
  #worker = null;
  #job = 0;
  #waiting = new Map();
  #graph = null;
  #layoutKey = null;
  #layout = null;
  #elements = new Map();
  #view = { x: 0, y: 0, k: 1 };
  #state;
  #updates = Promise.resolve();
  #isQueued = false;
  #toggled = null; // the name of the box that was opened or closed, until that is drawn

  constructor(host) {
    this.#host = host;
    const saved = new URLSearchParams(location.hash.slice(1));
    this.#state = {
      level: saved.get("level") in LEVELS ? saved.get("level") : host.hasAttribute("data-described") ? "processors" : "map",
      internal: saved.get("internal") !== "0",
      node: saved.get("node"),
      find: saved.get("find") ?? "",
      view: saved.get("view"),
      open: openedFrom(saved.get("open")), // names of boxes, or * for all
    };
    this.#build();
    document.addEventListener("instant", () => this.update(this.#host));
  }

  // One update at a time; those that are asked for meanwhile are one.
  update(host) {
    this.#host = host;
    if (this.#isQueued) return this.#updates;
    this.#isQueued = true;
    this.#updates = this.#updates.then(() => {
      this.#isQueued = false;
      return this.#update(this.#host);
    });
    return this.#updates;
  }

  // Fetches the data again; lays out again only if the topology has changed.
  async #update(host) {
    const described = host.hasAttribute("data-described");
    this.levels.hidden = !described;
    if (!described) this.#state.level = "map";
    let graph;
    try {
      const response = await fetch(`${host.dataset.graph}&level=${this.#state.level}${this.#openQuery()}${atQuery()}`);
      if (!response.ok) throw new Error(response.statusText);
      graph = await response.json();
    } catch {
      if (!this.#graph) this.#say("The picture could not be loaded.");
      return;
    }
    this.#graph = graph;
    this.internalButton.hidden = !graph.nodes.some((node) => node.internal);
    const closed = graph.nodes.some((node) => node.kind === "folded");
    this.boxesButton.hidden = !closed && !graph.boxes.some((box) => box.is_open);
    this.boxesButton.textContent = closed ? "Open all" : "Close all";
    if (graph.problem) {
      this.#layoutKey = null;
      this.#say(graph.problem);
      return;
    }
    const shown = this.#shown();
    const key = `${graph.key} ${this.#state.internal}`;
    if (key !== this.#layoutKey) {
      let layout;
      try {
        layout = await this.#layOut(shown);
      } catch (error) {
        this.#say(`The picture could not be laid out: ${error.message}`);
        return;
      }
      this.#layout = layout;
      const first = this.#layoutKey === null;
      this.#layoutKey = key;
      this.#draw(shown);
      const toggled = this.#toggled && [...this.#elements].find(([, { node }]) => isBox(node) && node.name === this.#toggled);
      if (toggled) {
        this.#fit();
        this.#select(toggled[0]);
        this.#focus(toggled[0]);
      } else if (!(first && this.#restoreView())) {
        this.#fit();
        this.#reveal(this.#opening(shown));
      }
    } else this.#relabel(shown);
    this.notes.replaceChildren(...graph.notes.map((note) => element("li", {}, note)));
    this.#toggled = null;
    this.#highlight();
  }

  #openQuery() {
    const { open } = this.#state;
    return open.length ? `&open=${encodeURIComponent(open === "*" ? open : JSON.stringify(open))}` : "";
  }

  #open(open, name = null) {
    this.#state.open = open;
    this.#state.node = name;
    this.#state.view = null;
    this.#toggled = name;
    this.#save(false);
    this.update(this.#host);
  }

  #toggle({ kind, name }) {
    const { open } = this.#state;
    const names = open === "*" ? this.#graph.boxes.map((box) => box.name) : open;
    this.#open(kind === "folded" ? [...names, name] : names.filter((other) => other !== name), name);
  }

  // Enter or a click.
  #activate(id) {
    const node = id && this.#elements.get(id).node;
    if (node && isBox(node)) this.#toggle(node);
    else this.#select(id === this.selected ? null : id);
  }

  #shown() {
    const { nodes, edges, boxes } = this.#graph;
    if (this.#state.internal) return { nodes, edges, boxes };
    const kept = nodes.filter((node) => !node.internal);
    const ids = new Set(kept.map((node) => node.id));
    return { nodes: kept, edges: edges.filter(([from, to]) => ids.has(from) && ids.has(to)), boxes };
  }

  #layOut({ nodes, edges, boxes }) {
    if (!this.#worker) {
      this.#worker = new Worker(workerUrl("layout-worker.js"), { type: "module" });
      this.#worker.onmessage = ({ data }) => {
        const { resolve, reject, sent } = this.#waiting.get(data.job);
        this.#waiting.delete(data.job);
        if (data.error) reject(new Error(data.error));
        else {
          this.stage.dataset.layoutMilliseconds = Math.round(performance.now() - sent);
          resolve(data.result);
        }
      };
      this.#worker.onerror = () => {
        for (const { reject } of this.#waiting.values()) reject(new Error("the worker did not start"));
        this.#waiting.clear();
      };
    }
    const job = (this.#job += 1);
    this.sizes = new Map([...nodes, ...boxes.map(frameOf)].map((node) => [node.id, sizeOf(node)]));
    const message = {
      job,
      nodes: nodes.map((node) => ({ id: node.id, box: node.box, ...this.sizes.get(node.id) })),
      edges: edges.map(([from, to]) => [from, to]),
      boxes: boxes.map(({ id }) => ({ id, ...this.sizes.get(id) })),
      direction: this.#host.clientWidth < 600 ? "TB" : "LR",
      gap: this.#graph.level === "pipelines" ? 2 : 0.55, // inches; there the edges have texts
    };
    return new Promise((resolve, reject) => {
      this.#waiting.set(job, { resolve, reject, sent: performance.now() });
      this.#worker.postMessage(message);
    });
  }

  #build() {
    const bar = element("div", { class: "picture-bar", role: "group", "aria-label": "Picture" });
    const button = (label, title, action) => {
      const made = element("button", { type: "button", title }, label);
      made.addEventListener("click", action);
      return made;
    };
    this.levels = element("span", { class: "group" });
    this.levelButtons = Object.entries(LEVELS).map(([level, label]) => {
      const made = button(label, `Show the ${label.toLowerCase()}`, () => this.#setLevel(level));
      made.dataset.level = level;
      return made;
    });
    this.levels.append(...this.levelButtons);
    this.find = element("input", { type: "search", placeholder: "Find in the picture", "aria-label": "Find in the picture", value: this.#state.find });
    this.find.addEventListener("input", () => {
      this.#state.find = this.find.value;
      this.#highlight();
      this.#save();
    });
    this.find.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.#focusMatch();
    });
    this.internalButton = button("Stores", "Show or hide stores and changelog topics", () => {
      this.#state.internal = !this.#state.internal;
      this.#save();
      this.update(this.#host);
    });
    this.boxesButton = button("Open all", "Open or close all boxes", () =>
      this.#open(this.#graph.nodes.some((node) => node.kind === "folded") ? "*" : []));
    this.boxesButton.hidden = true;
    const zoom = element("span", { class: "group" });
    zoom.append(
      button("−", "Zoom out (-)", () => this.#zoom(1 / 1.3)),
      button("+", "Zoom in (+)", () => this.#zoom(1.3)),
      button("Fit", "Show all (0)", () => this.#fit(true)),
    );
    bar.append(this.levels, this.find, this.internalButton, this.boxesButton, zoom, button("Download SVG", "Save the picture", () => this.#download()));
    this.stage = element("div", { class: "picture-stage" });
    this.facts = element("dl", { class: "picture-facts", "aria-live": "polite" });
    this.notes = element("ul", { class: "picture-notes" });
    this.#host.append(bar, this.stage, this.facts, this.notes);
    this.#say("Drawing …");
  }

  #say(text) {
    this.#elements.clear();
    this.stage.style.height = "";
    this.stage.replaceChildren(element("p", { class: "picture-message" }, text));
    this.facts.replaceChildren();
    this.notes.replaceChildren();
    this.#press();
  }

  #press() {
    for (const made of this.levelButtons) made.setAttribute("aria-pressed", made.dataset.level === this.#state.level);
    this.internalButton.setAttribute("aria-pressed", this.#state.internal);
  }

  #draw({ nodes, edges, boxes }) {
    const { width, height } = this.#layout;
    this.svg = draw("svg", { role: "group", "aria-label": `${this.#host.dataset.label ?? "Topology"}: ${nodes.length} nodes. Arrow keys follow the arrows, Enter selects, and opens and closes boxes.` });
    const marker = draw("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" });
    marker.append(draw("path", { class: "arrow", d: "M0 0 8 4 0 8Z" }));
    const definitions = draw("defs");
    definitions.append(marker);
    this.scene = draw("g");
    const frames = boxes.filter(({ id }) => this.#layout.boxes[id]).map((box) => {
      const { x, y, width: boxWidth, height: boxHeight } = this.#layout.boxes[box.id];
      this.scene.append(draw("rect", { class: `box ${box.tone ? `t-${box.tone}` : ""}`, x, y, width: boxWidth, height: boxHeight, rx: 6 }));
      const frame = frameOf(box);
      const { width: own, height: ownHeight } = this.sizes.get(box.id);
      if (box.is_open) this.#layout.nodes[box.id] = [x + 4 + own / 2, y + 4 + ownHeight / 2];
      else this.scene.append(draw("text", { class: "box-title", x: x + 10, y: y + 17 }, box.title));
      return frame;
    }).filter(isBox);
    this.edges = edges.map(([from, to, kind, text], index) => {
      const points = this.#layout.edges[index];
      const [first, ...rest] = points;
      const d = points.length ? `M${first} C${rest.join(" ")}` : "";
      const path = draw("path", { class: `edge ${kind === "state" ? "state" : ""}`, d, ...(kind === "state" ? {} : { "marker-end": "url(#arrow)" }) });
      this.scene.append(path);
      const [x, y] = middleOf(points);
      const label = draw("text", { class: "edge-text", x, y: y - 4, "text-anchor": "middle" }, text);
      return { from, to, path, label };
    });
    this.#elements.clear();
    for (const node of [...frames, ...nodes]) this.#drawNode(node);
    this.scene.append(...this.edges.map(({ label }) => label));
    this.svg.append(definitions, this.scene);
    const stageWidth = this.#host.clientWidth || 900;
    const scale = Math.min(1, Math.max(READABLE, stageWidth / (width + 40)));
    this.stage.replaceChildren(this.svg);
    this.svg.setAttribute("height", Math.round(Math.min(Math.max(140, height * scale + 40), innerHeight * 0.72)));
    this.#listen();
    this.#press();
    const selected = [...nodes, ...frames].find((node) => node.name === this.#state.node) ?? null;
    if (selected) this.#select(selected.id, false);
    else this.facts.replaceChildren();
    this.#setTabStop(selected?.id ?? nodes[0]?.id);
  }

  #drawNode(node) {
    const [x, y] = this.#layout.nodes[node.id];
    const { width, height } = this.sizes.get(node.id);
    const group = draw("g", { class: "node", transform: `translate(${x - width / 2} ${y - height / 2})`, role: "button", tabindex: "-1", "data-id": node.id });
    if (node.kind === "store") {
      const d = `M0 7 C0 -2 ${width} -2 ${width} 7 V${height - 7} C${width} ${height + 2} 0 ${height + 2} 0 ${height - 7} Z M0 7 C0 16 ${width} 16 ${width} 7`;
      group.append(draw("path", { d }));
    } else {
      if (node.kind === "folded") group.append(draw("rect", { class: "behind", x: 4, y: 4, width, height, rx: 4 }));
      const rounded = ["topic", "unwritten", "pattern", "repartition", "changelog"].includes(node.kind);
      group.append(draw("rect", { width, height, rx: rounded ? height / 2.4 : 4 }));
    }
    const offset = node.kind === "store" ? 10 : 0;
    if (isBox(node)) group.setAttribute("aria-expanded", node.kind === "frame");
    const texts = [titleOf(node), ...node.lines].map((_, index) =>
      draw("text", { class: index ? "line" : "title", x: width / 2, y: PADDING / 2 + 12 + index * LINE + offset, "text-anchor": "middle" }));
    group.append(...texts);
    this.scene.append(group);
    this.#elements.set(node.id, { group, texts, node });
    this.#label(node);
  }

  #label(node) {
    const entry = this.#elements.get(node.id);
    if (!entry) return;
    entry.node = node;
    [titleOf(node), ...node.lines].forEach((text, index) => {
      const spoken = `${text} `; // a blank between the lines in the name of the button
      if (entry.texts[index] && entry.texts[index].textContent !== spoken) entry.texts[index].textContent = spoken;
    });
    entry.base = `node k-${node.kind}${node.tone ? ` t-${node.tone}` : ""}`;
    entry.group.setAttribute("class", entry.base);
  }

  #relabel({ nodes, edges, boxes }) {
    for (const node of [...nodes, ...boxes.map(frameOf)]) this.#label(node);
    edges.forEach(([, , , text], index) => {
      const { label } = this.edges[index];
      if (label.textContent !== text) label.textContent = text;
    });
    if (this.selected) this.#showFacts();
  }

  // Selection, search and keyboard

  #reach(id, step) {
    const seen = new Set([id]);
    const queue = [id];
    while (queue.length) {
      const one = queue.pop();
      for (const edge of this.edges) {
        const [near, far] = step > 0 ? [edge.from, edge.to] : [edge.to, edge.from];
        if (near === one && !seen.has(far)) {
          seen.add(far);
          queue.push(far);
        }
      }
    }
    return seen;
  }

  #highlight() {
    if (!this.#elements.size) return;
    const text = this.#state.find.trim().toLowerCase();
    let kept = null;
    if (text) {
      kept = new Set();
      for (const [id, { node }] of this.#elements) {
        const names = [node.name, node.title, ...(node.holds ?? [])];
        if (names.some((name) => name.toLowerCase().includes(text))) kept.add(id);
      }
    } else if (this.selected && this.#elements.get(this.selected)?.node.kind !== "frame") kept = new Set([...this.#reach(this.selected, 1), ...this.#reach(this.selected, -1)]);
    for (const [id, { group, base }] of this.#elements) {
      const classes = [base];
      if (kept && !kept.has(id)) classes.push("dim");
      if (text && kept.has(id)) classes.push("match");
      if (id === this.selected) classes.push("selected");
      group.setAttribute("class", classes.join(" "));
      if (!group.hasAttribute("aria-expanded")) group.setAttribute("aria-pressed", id === this.selected);
    }
    for (const { from, to, path, label } of this.edges) {
      const isDim = Boolean(kept) && !(kept.has(from) && kept.has(to));
      path.classList.toggle("dim", isDim);
      label.classList.toggle("dim", isDim);
    }
  }

  #select(id, save = true) {
    this.selected = id;
    this.#state.node = id ? this.#elements.get(id).node.name : null;
    this.#showFacts();
    this.#highlight();
    if (save) this.#save();
  }

  #showFacts() {
    const { facts = [], href = null } = this.selected ? this.#elements.get(this.selected).node : {};
    this.facts.replaceChildren(...facts.flatMap(([title, text]) => [element("dt", {}, title), element("dd", {}, text)]));
    if (!href) return;
    const link = element("dd");
    link.append(element("a", { href }, "Open"));
    this.facts.append(element("dt", {}, "Page"), link);
  }

  #setTabStop(id) {
    for (const [other, { group }] of this.#elements) group.setAttribute("tabindex", other === id ? "0" : "-1");
  }

  #focus(id) {
    if (!id) return;
    this.#setTabStop(id);
    this.#elements.get(id).group.focus({ preventScroll: true });
    this.#reveal(id);
  }

  #focusMatch() {
    const matches = [...this.#elements].filter(([, { group }]) => group.classList.contains("match")).map(([id]) => id);
    if (matches.length) {
      this.#focus(matches[0]);
      this.#select(matches[0]);
    }
  }

  #neighbour(id, key) {
    const ids = (from, to) => this.edges.filter((edge) => edge[from] === id).map((edge) => edge[to]);
    const { node } = this.#elements.get(id);
    const inside = () => [...this.#elements].find(([, one]) => node.kind === "frame" && one.node.box === id)?.[0];
    if (key === "ArrowRight") return ids("from", "to")[0] ?? inside();
    if (key === "ArrowLeft") return ids("to", "from")[0] ?? (this.#elements.has(node.box) ? node.box : undefined);
    const [x, y] = this.#layout.nodes[id];
    const sign = key === "ArrowDown" ? 1 : -1;
    let best;
    let distance = Infinity;
    for (const other of this.#elements.keys()) {
      const [ox, oy] = this.#layout.nodes[other];
      const down = (oy - y) * sign;
      const cost = down + 2 * Math.abs(ox - x);
      if (other !== id && down > 1 && cost < distance) [best, distance] = [other, cost];
    }
    return best;
  }

  #listen() {
    let from = null;
    this.svg.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      from = { x: event.clientX, y: event.clientY, view: { ...this.#view }, moved: false };
    });
    this.svg.addEventListener("pointermove", (event) => {
      if (!from) return;
      const [dx, dy] = [event.clientX - from.x, event.clientY - from.y];
      if (!from.moved && Math.hypot(dx, dy) > 4) {
        from.moved = true;
        this.svg.setPointerCapture(event.pointerId);
      }
      if (from.moved) this.#move({ ...from.view, x: from.view.x + dx, y: from.view.y + dy });
    });
    const end = (event) => {
      if (from && !from.moved && event.type === "pointerup") {
        const id = event.target.closest?.(".node")?.dataset.id ?? null;
        if (id) this.#setTabStop(id);
        this.#activate(id);
      } else if (from?.moved) this.#save();
      from = null;
    };
    this.svg.addEventListener("pointerup", end);
    this.svg.addEventListener("pointercancel", end);
    this.svg.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // the page scrolls
      event.preventDefault();
      const box = this.svg.getBoundingClientRect();
      this.#zoom(Math.exp(-event.deltaY / 300), event.clientX - box.x, event.clientY - box.y);
    }, { passive: false });
    this.svg.addEventListener("keydown", (event) => {
      const id = event.target.closest?.(".node")?.dataset.id;
      if (event.key.startsWith("Arrow") && id) this.#focus(this.#neighbour(id, event.key));
      else if ((event.key === "Enter" || event.key === " ") && id) this.#activate(id);
      else if (event.key === "Escape") this.#select(null);
      else if (event.key === "+" || event.key === "=") this.#zoom(1.3);
      else if (event.key === "-") this.#zoom(1 / 1.3);
      else if (event.key === "0") this.#fit(true);
      else return;
      event.preventDefault();
    });
  }

  // View

  #move({ x, y, k }) {
    this.#view = { x, y, k };
    this.scene.setAttribute("transform", `translate(${x} ${y}) scale(${k})`);
  }

  #zoom(factor, x = this.svg.clientWidth / 2, y = this.svg.clientHeight / 2) {
    const k = Math.min(MAX_SCALE, Math.max(MIN_SCALE, this.#view.k * factor));
    const ratio = k / this.#view.k;
    this.#move({ x: x - (x - this.#view.x) * ratio, y: y - (y - this.#view.y) * ratio, k });
    this.#save();
  }

  #fit(everything = false) {
    const { width, height } = this.#layout;
    const [w, h] = [this.svg.clientWidth, this.svg.clientHeight];
    let k = Math.min(1.15, (w - 24) / width, (h - 24) / height);
    if (!everything) k = Math.max(k, Math.min(READABLE, 1));
    const centre = (free) => Math.max(12, free / 2);
    this.#move({ x: centre(w - width * k), y: everything || height * k < h ? (h - height * k) / 2 : 12, k });
    if (everything) {
      this.#state.view = null;
      this.#save(false);
    }
  }

  // Where a picture that is larger than its stage opens: where trouble is or tasks move, else at the first box.
  #opening({ nodes }) {
    const moving = ["bad", "warning", "busy"].map((tone) => nodes.find((node) => node.tone === tone)).find(Boolean);
    const leftmost = (one, other) => (this.#layout.nodes[other.id][0] < this.#layout.nodes[one.id][0] ? other : one);
    return (moving ?? nodes.reduce(leftmost)).id;
  }

  #reveal(id) {
    const [x, y] = this.#layout.nodes[id];
    const at = [x * this.#view.k + this.#view.x, y * this.#view.k + this.#view.y];
    const [w, h] = [this.svg.clientWidth, this.svg.clientHeight];
    if (at[0] > 60 && at[0] < w - 60 && at[1] > 30 && at[1] < h - 30) return;
    // The node is in the middle, but for a node at an edge: a part of the stage would be empty.
    const { width, height } = this.#layout;
    const k = this.#view.k;
    const within = (wanted, size, stage, now) =>
      size * k + 24 <= stage ? now : Math.min(12, Math.max(stage - size * k - 12, wanted));
    this.#move({
      x: within(w / 2 - x * k, width, w, this.#view.x),
      y: within(h / 2 - y * k, height, h, this.#view.y),
      k,
    });
  }

  #restoreView() {
    const [x, y, k] = (this.#state.view ?? "").split(",").map(Number);
    if (!(k >= MIN_SCALE && k <= MAX_SCALE && Number.isFinite(x) && Number.isFinite(y))) return false;
    this.#move({ x, y, k });
    return true;
  }

  #setLevel(level) {
    this.#state.level = level;
    this.#state.open = [];
    this.#select(null);
    this.#state.view = null;
    this.#layoutKey = null;
    this.#save(false);
    this.update(this.#host);
  }

  #save(view = true) {
    const { level, internal, node, find, open } = this.#state;
    const values = new URLSearchParams();
    if (this.#host.hasAttribute("data-described")) values.set("level", level);
    if (!internal) values.set("internal", "0");
    if (node && node.length < 300) values.set("node", node);
    if (find) values.set("find", find);
    if (open.length) values.set("open", open === "*" ? open : JSON.stringify(open));
    if (view) values.set("view", [this.#view.x, this.#view.y, this.#view.k].map((one) => one.toFixed(2)).join(","));
    history.replaceState(history.state, "", `${location.pathname}${location.search}#${values}`);
  }

  #download() {
    if (!this.#layout || !this.#elements.size) return;
    const copy = this.svg.cloneNode(true);
    const kept = ["fill", "stroke", "stroke-width", "stroke-dasharray", "font-family", "font-size", "font-weight", "opacity"];
    const originals = this.svg.querySelectorAll("*");
    copy.querySelectorAll("*").forEach((made, index) => {
      const style = getComputedStyle(originals[index]);
      for (const name of kept) made.setAttribute(name, style.getPropertyValue(name));
    });
    const { width, height } = this.#layout;
    copy.setAttribute("viewBox", `-12 -12 ${width + 24} ${height + 24}`);
    copy.setAttribute("width", width + 24);
    copy.setAttribute("height", height + 24);
    copy.lastChild.removeAttribute("transform");
    const ground = draw("rect", { x: -12, y: -12, width: width + 24, height: height + 24, fill: getComputedStyle(this.stage).backgroundColor });
    copy.insertBefore(ground, copy.firstChild);
    const url = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" }));
    element("a", { href: url, download: "topology.svg" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }
}

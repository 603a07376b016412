// Shows a picture that Graphviz draws in a worker: names and colours, keyboard and pointer, boxes that open and close,
// and a link that reopens the view. Nodes are links. Names become text nodes and attributes only.

import { chosenInstant } from "./timeline.js";
import { layoutWorkerUrl, parseDrawing } from "./workers.js";

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

function textIn(node, text) {
  if (node.textContent !== text) node.textContent = text;
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

export class Picture {
  #host;
  #worker = null;
  #job = 0;
  #waiting = new Map();
  #graph = null;
  #layoutKey = null;
  #drawing = null;
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
      try {
        this.#drawing = parseDrawing(await this.#layOut(shown));
      } catch (error) {
        this.#say(`The picture could not be laid out: ${error.message}`);
        return;
      }
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

  #shown() {
    const { nodes, edges, boxes } = this.#graph;
    if (this.#state.internal) return { nodes, edges, boxes };
    const kept = nodes.filter((node) => !node.internal);
    const ids = new Set(kept.map((node) => node.id));
    return { nodes: kept, edges: edges.filter(([from, to]) => ids.has(from) && ids.has(to)), boxes };
  }

  #layOut({ nodes, edges, boxes }) {
    if (!this.#worker) {
      this.#worker = new Worker(layoutWorkerUrl(), { type: "module" });
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
    const message = {
      job,
      nodes: nodes.map((node) => ({ id: node.id, box: node.box, kind: node.kind, rows: 1 + node.lines.length, ...sizeOf(node) })),
      edges,
      boxes: boxes.map((box) => ({ id: box.id, ...sizeOf(frameOf(box)) })),
      direction: this.#host.clientWidth < 600 ? "TB" : "LR",
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
    this.notes = element("ul", { class: "picture-notes" });
    this.#host.append(bar, this.stage, this.notes);
    this.#say("Drawing …");
  }

  #say(text) {
    this.#elements.clear();
    this.stage.style.height = "";
    this.stage.replaceChildren(element("p", { class: "picture-message" }, text));
    this.notes.replaceChildren();
    this.#press();
  }

  #press() {
    for (const made of this.levelButtons) made.setAttribute("aria-pressed", made.dataset.level === this.#state.level);
    this.internalButton.setAttribute("aria-pressed", this.#state.internal);
  }

  // Names, links and colours for what Graphviz has drawn.
  #draw({ nodes, edges, boxes }) {
    this.svg = document.importNode(this.#drawing, true);
    const { width, height } = this.svg.viewBox.baseVal;
    this.size = { width, height };
    for (const one of this.svg.querySelectorAll("title")) one.remove();
    for (const name of ["viewBox", "width"]) this.svg.removeAttribute(name);
    this.svg.setAttribute("role", "group");
    this.svg.setAttribute("aria-label", `Topology: ${nodes.length} nodes. Arrow keys follow the arrows, Enter opens and closes boxes, and follows links.`);
    this.scene = document.createElementNS(this.svg.namespaceURI, "g");
    this.scene.append(...this.svg.childNodes);
    this.svg.append(this.scene);
    const stageWidth = this.#host.clientWidth || 900;
    const scale = Math.min(1, Math.max(READABLE, stageWidth / (width + 40)));
    this.svg.setAttribute("height", Math.round(Math.min(Math.max(140, height * scale + 40), innerHeight * 0.72)));
    this.stage.replaceChildren(this.svg);
    const { e, f } = this.scene.querySelector(".graph").transform.baseVal.consolidate().matrix;
    const drawn = new Map([...this.scene.querySelectorAll("[id]")].map((one) => [one.id, one]));
    this.edges = edges.map(([from, to, kind], index) => {
      const group = drawn.get(`e${index}`);
      group.setAttribute("class", `edge ${kind}`);
      return { from, to, group };
    });
    this.#elements.clear();
    for (const node of [...boxes.map(frameOf), ...nodes]) {
      const group = drawn.get(node.id);
      if (!group) continue; // an empty box
      const link = group.querySelector("a");
      const texts = [...group.querySelectorAll("text")];
      for (const name of ["href", "title"]) link.removeAttributeNS("http://www.w3.org/1999/xlink", name);
      texts[0].setAttribute("class", "title");
      this.#name(group, texts, node);
      if (node.kind === "label") continue;
      link.setAttribute("href", node.href ?? `#${new URLSearchParams({ node: node.name.slice(0, 300) })}`);
      if (isBox(node)) link.setAttribute("aria-expanded", node.kind === "frame");
      const box = (node.kind === "frame" ? texts[0] : group).getBBox();
      this.#elements.set(node.id, { group, link, texts, node, place: [box.x + box.width / 2 + e, box.y + box.height / 2 + f] });
    }
    this.#relabel({ nodes, edges, boxes });
    this.#listen();
    this.#press();
    const found = [...this.#elements.values()].find(({ node }) => node.name === this.#state.node);
    this.selected = null;
    if (found) this.#select(found.node.id, false);
    this.#setTabStop(found?.node.id ?? nodes[0]?.id);
  }

  #name(group, texts, node) {
    // A blank between the lines in the name of the link.
    [titleOf(node), ...node.lines].forEach((text, index) => texts[index] && textIn(texts[index], `${text} `));
    group.setAttribute("class", `${node.kind === "label" ? "box" : "node"} k-${node.kind}${node.tone ? ` t-${node.tone}` : ""}`);
  }

  #relabel({ nodes, boxes }) {
    for (const node of [...boxes.map(frameOf), ...nodes]) {
      const entry = this.#elements.get(node.id);
      if (!entry) continue;
      entry.node = node;
      this.#name(entry.group, entry.texts, node);
      entry.base = entry.group.getAttribute("class");
    }
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

  #highlight(around = this.selected) {
    if (!this.#elements.size) return;
    const text = this.#state.find.trim().toLowerCase();
    let kept = null;
    if (text) {
      kept = new Set();
      for (const [id, { node }] of this.#elements) {
        const names = [node.name, node.title, ...(node.holds ?? [])];
        if (names.some((name) => name.toLowerCase().includes(text))) kept.add(id);
      }
    } else if (around && this.#elements.get(around)?.node.kind !== "frame") kept = new Set([...this.#reach(around, 1), ...this.#reach(around, -1)]);
    for (const [id, { group, link, base }] of this.#elements) {
      const classes = [base];
      if (kept && !kept.has(id)) classes.push("dim");
      if (text && kept.has(id)) classes.push("match");
      if (id === this.selected) classes.push("selected");
      group.setAttribute("class", classes.join(" "));
      link.setAttribute("aria-current", id === this.selected);
    }
    for (const { from, to, group } of this.edges) group.classList.toggle("dim", Boolean(kept) && !(kept.has(from) && kept.has(to)));
  }

  #select(id, save = true) {
    this.selected = id;
    this.#state.node = id ? this.#elements.get(id).node.name : null;
    this.#highlight();
    if (save) this.#save();
  }

  #setTabStop(id) {
    for (const [other, { link }] of this.#elements) link.setAttribute("tabindex", other === id ? "0" : "-1");
  }

  #focus(id) {
    if (!id) return;
    this.#setTabStop(id);
    this.#elements.get(id).link.focus({ preventScroll: true });
    this.#reveal(id);
  }

  #focusMatch() {
    const matches = [...this.#elements].filter(([, { group }]) => group.classList.contains("match")).map(([id]) => id);
    this.#focus(matches[0]);
  }

  #neighbour(id, key) {
    const ids = (from, to) => this.edges.filter((edge) => edge[from] === id).map((edge) => edge[to]);
    const { node } = this.#elements.get(id);
    const inside = () => [...this.#elements].find(([, one]) => node.kind === "frame" && one.node.box === id)?.[0];
    if (key === "ArrowRight") return ids("from", "to")[0] ?? inside();
    if (key === "ArrowLeft") return ids("to", "from")[0] ?? (this.#elements.has(node.box) ? node.box : undefined);
    const [x, y] = this.#elements.get(id).place;
    const sign = key === "ArrowDown" ? 1 : -1;
    let best;
    let distance = Infinity;
    for (const other of this.#elements.keys()) {
      const [ox, oy] = this.#elements.get(other).place;
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
    let isDragged = false;
    const end = () => {
      isDragged = Boolean(from?.moved);
      if (isDragged) this.#save();
      from = null;
    };
    this.svg.addEventListener("pointerup", end);
    this.svg.addEventListener("pointercancel", end);
    this.svg.addEventListener("dragstart", (event) => event.preventDefault());
    const idOf = (event) => {
      const id = event.target.closest?.("a")?.closest("[id^=n], [id^=b]")?.id;
      return this.#elements.has(id) ? id : undefined;
    };
    this.svg.addEventListener("focusin", (event) => this.#select(idOf(event)));
    this.svg.addEventListener("pointerover", (event) => this.#highlight(idOf(event)));
    this.svg.addEventListener("click", (event) => {
      const id = idOf(event);
      const node = id && this.#elements.get(id).node;
      if (isDragged || (node && !node.href && !event.ctrlKey && !event.metaKey)) event.preventDefault();
      if (isDragged) return;
      if (node && isBox(node)) this.#toggle(node);
      else if (node && !node.href) this.#focus(id);
      else if (!node) this.#select(null);
    });
    this.svg.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // the page scrolls
      event.preventDefault();
      const box = this.svg.getBoundingClientRect();
      this.#zoom(Math.exp(-event.deltaY / 300), event.clientX - box.x, event.clientY - box.y);
    }, { passive: false });
    this.svg.addEventListener("keydown", (event) => {
      const id = idOf(event);
      if (event.key.startsWith("Arrow") && id) this.#focus(this.#neighbour(id, event.key));
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
    const { width, height } = this.size;
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
    const leftmost = (one, other) => (this.#elements.get(other.id).place[0] < this.#elements.get(one.id).place[0] ? other : one);
    return (moving ?? nodes.reduce(leftmost)).id;
  }

  #reveal(id) {
    const [x, y] = this.#elements.get(id).place;
    const at = [x * this.#view.k + this.#view.x, y * this.#view.k + this.#view.y];
    const [w, h] = [this.svg.clientWidth, this.svg.clientHeight];
    if (at[0] > 60 && at[0] < w - 60 && at[1] > 30 && at[1] < h - 30) return;
    // The node is in the middle, but for a node at an edge: a part of the stage would be empty.
    const { width, height } = this.size;
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
    if (!this.#elements.size) return;
    const copy = this.svg.cloneNode(true);
    const kept = ["fill", "stroke", "stroke-width", "stroke-dasharray", "font-family", "font-size", "font-weight", "opacity"];
    const originals = this.svg.querySelectorAll("*");
    copy.querySelectorAll("*").forEach((made, index) => {
      const style = getComputedStyle(originals[index]);
      for (const name of kept) made.setAttribute(name, style.getPropertyValue(name));
    });
    const { width, height } = this.size;
    copy.setAttribute("viewBox", `-12 -12 ${width + 24} ${height + 24}`);
    copy.setAttribute("width", width + 24);
    copy.setAttribute("height", height + 24);
    copy.lastChild.removeAttribute("transform");
    const ground = document.createElementNS(copy.namespaceURI, "rect");
    for (const [name, value] of Object.entries({ x: -12, y: -12, width: width + 24, height: height + 24, fill: getComputedStyle(this.stage).backgroundColor })) ground.setAttribute(name, value);
    copy.insertBefore(ground, copy.firstChild);
    const url = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" }));
    element("a", { href: url, download: "topology.svg" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }
}

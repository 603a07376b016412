// The timeline of a group: point at an instant, zoom by dragging, and the same by keyboard. The server draws it; what is
// chosen here becomes part of the URL.
//
// `document` gets an event `instant` whenever another instant is chosen, and `detail.time` is it in milliseconds since
// 1970, or null for now. `chosenInstant` returns the same, for who listens later than the page has begun.

export const OWN_ATTRIBUTES = /^(?:role|tabindex|aria-.*)$/;

const STEPS = 100; // of an arrow key, in the whole width
const PAUSE = 350; // milliseconds after an arrow key
const DRAG = 6; // pixels
const SHORTEST = 10000; // milliseconds, as on the server

let cursor = null;
let pause = 0;
let published = null;

export function chosenInstant() {
  return published;
}

function publish(time) {
  if (time === published) return;
  published = time;
  document.dispatchEvent(new CustomEvent("instant", { detail: { time } }));
}

// Instants are whole seconds, as those that the server gives: only what is pointed at is rounded, and only here.
function second(time) {
  return Math.round(time / 1000) * 1000;
}

function write(time) {
  return new Date(second(time)).toISOString().replace(/\.\d+Z$/, "Z");
}

function words(time) {
  return write(time).replace("T", " ").replace("Z", " UTC");
}

class Timeline {
  constructor(stage, go) {
    this.stage = stage;
    this.go = go;
    this.from = null;
    stage.addEventListener("pointerdown", (event) => this.press(event));
    stage.addEventListener("pointermove", (event) => this.move(event));
    stage.addEventListener("pointerup", (event) => this.release(event));
    stage.addEventListener("pointercancel", () => this.leave());
    stage.addEventListener("pointerleave", () => this.leave());
    stage.addEventListener("keydown", (event) => this.key(event));
    stage.addEventListener("blur", () => this.clear());
    stage.addEventListener("focus", () => this.show(this.current()));
  }

  get begin() {
    return Date.parse(this.stage.dataset.begin);
  }

  get end() {
    return Date.parse(this.stage.dataset.end);
  }

  get at() {
    return this.stage.dataset.at ? Date.parse(this.stage.dataset.at) : null;
  }

  current() {
    const time = cursor ?? this.at ?? this.end;
    return Math.min(this.end, Math.max(this.begin, time));
  }

  // A morph takes these away, as the server does not know them.
  describe() {
    const { stage } = this;
    const now = this.current();
    stage.setAttribute("role", "slider");
    stage.tabIndex = 0;
    stage.setAttribute("aria-label", "Instant");
    stage.setAttribute("aria-valuemin", Math.round(this.begin / 1000));
    stage.setAttribute("aria-valuemax", Math.round(this.end / 1000));
    stage.setAttribute("aria-valuenow", Math.round(now / 1000));
    stage.setAttribute("aria-valuetext", [words(now), this.health(now)].filter(Boolean).join(", "));
  }

  // The verdict at a time, since when and why, an alert, and what else lasted then; empty if nothing is known.
  health(time) {
    const x = (1000 * (time - this.begin)) / (this.end - this.begin);
    const at = (kind) => {
      const spans = [...this.stage.querySelectorAll(kind)];
      const found = spans.findLast((one) => Number(one.getAttribute("x")) <= x);
      const isOver = !found || x > Number(found.getAttribute("x")) + Number(found.getAttribute("width")) + 0.1;
      return isOver ? "" : found.textContent;
    };
    const kinds = [".gap", ".health", '[class*="alert-"]', ".deployment", ".members", ".lag-bar"];
    return kinds.map(at).filter(Boolean).join("; ");
  }

  time(event) {
    const box = this.stage.getBoundingClientRect();
    const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    return this.begin + share * (this.end - this.begin);
  }

  press(event) {
    if (event.button) return;
    this.from = { x: event.clientX, time: this.time(event) };
    this.stage.setPointerCapture(event.pointerId);
  }

  move(event) {
    this.show(this.time(event), this.from && this.isDrag(event) ? this.from.time : null);
  }

  release(event) {
    if (!this.from) return;
    const { from } = this;
    const dragged = this.isDrag(event);
    this.from = null;
    const time = this.time(event);
    if (dragged) this.zoom(Math.min(from.time, time), Math.max(from.time, time));
    else this.choose(time);
  }

  isDrag(event) {
    return Math.abs(event.clientX - this.from.x) >= DRAG;
  }

  leave() {
    if (this.from) return;
    this.clear();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const length = this.end - this.begin;
    const now = this.current();
    const moves = {
      ArrowLeft: () => (event.shiftKey ? now - length / STEPS : this.change(now, -1)),
      ArrowRight: () => (event.shiftKey ? now + length / STEPS : this.change(now, 1)),
      PageDown: () => now - length / 10,
      PageUp: () => now + length / 10,
      Home: () => this.begin,
      End: () => this.end,
    };
    if (moves[event.key]) this.moveTo(moves[event.key]());
    else if (event.key === "Enter" || event.key === " ") this.choose(now);
    else if (event.key === "+" || event.key === "-") this.zoomBy(event.key === "+" ? 1 / 4 : 4, now);
    else if (event.key === "Escape") this.forget();
    else return;
    event.preventDefault();
  }

  moveTo(time) {
    cursor = Math.min(this.end, Math.max(this.begin, time));
    this.show(cursor);
    this.describe();
    clearTimeout(pause);
    pause = setTimeout(() => this.choose(cursor, true), PAUSE);
  }

  // The next change that is drawn, in one direction.
  change(now, direction) {
    const marks = this.stage.querySelectorAll("line.event, rect.span, rect.members");
    const length = this.end - this.begin;
    const times = [...marks].map((one) => this.begin + (length * Number(one.getAttribute("x1") ?? one.getAttribute("x"))) / 1000);
    const ahead = times.filter((time) => (time - now) * direction > Math.max(500, length / 2000));
    return ahead.length ? Math[direction > 0 ? "min" : "max"](...ahead) : direction > 0 ? this.end : this.begin;
  }

  choose(time, replace = false) {
    clearTimeout(pause);
    cursor = second(time);
    const { selected } = this.stage.dataset;
    this.go(this.url(selected ? { range: selected } : this.window(), cursor), replace);
    publish(cursor);
    this.describe();
  }

  // Goes back to now, and from there to the range that the page begins with.
  forget() {
    clearTimeout(pause);
    const { selected, url } = this.stage.dataset;
    if (cursor === null && this.at === null) this.go(url);
    else this.go(this.url(selected ? { range: selected } : this.window(), null));
    cursor = null;
    publish(null);
    this.clear();
  }

  zoomBy(factor, center) {
    const length = Math.max(SHORTEST, (this.end - this.begin) * factor);
    const begin = center - (length * (center - this.begin)) / (this.end - this.begin);
    this.zoom(begin, begin + length);
  }

  zoom(begin, end) {
    clearTimeout(pause);
    this.clear();
    this.go(this.url({ from: write(begin), to: write(Math.max(end, begin + SHORTEST)) }, this.at));
  }

  window() {
    return { from: write(this.begin), to: write(this.end) };
  }

  url(parameters, at) {
    const more = new URLSearchParams({ ...parameters, ...(at === null ? {} : { at: write(at) }) });
    return `${this.stage.dataset.url}&${more}`;
  }

  show(time, from = null) {
    const pointer = this.stage.querySelector("#pointer");
    if (!pointer.firstChild) {
      for (const name of ["selection", "hair", "when"]) {
        const element = document.createElement("div");
        element.className = name;
        pointer.append(element);
      }
    }
    const [selection, hair, when] = pointer.children;
    const share = (one) => (100 * (one - this.begin)) / (this.end - this.begin);
    const x = share(time);
    hair.style.left = `${x}%`;
    const verdict = document.createElement("span");
    verdict.textContent = this.health(time);
    when.replaceChildren(words(time), verdict);
    when.classList.toggle("left", x > 50);
    when.style.left = x > 50 ? "" : `${x}%`;
    when.style.right = x > 50 ? `${100 - x}%` : "";
    selection.hidden = from === null;
    if (from !== null) {
      selection.style.left = `${Math.min(share(from), x)}%`;
      selection.style.width = `${Math.abs(share(from) - x)}%`;
    }
    pointer.hidden = false;
  }

  clear() {
    const pointer = this.stage.querySelector("#pointer");
    if (document.activeElement === this.stage && cursor !== null) this.show(this.current());
    else pointer.hidden = true;
  }
}

const timelines = new WeakMap();

export function startTimeline(go) {
  const stage = document.getElementById("timeline");
  if (!stage) return;
  if (!timelines.has(stage)) timelines.set(stage, new Timeline(stage, go));
  timelines.get(stage).describe();
  publish(timelines.get(stage).at);
}

// Keeps an open page up to date, and draws the picture where there is one. Everything works without this file, but for
// the picture. No HTML is ever made from text here: new pages are parsed by the browser as it loads them.
import { Idiomorph } from "./vendor/idiomorph.js";
import { follow } from "./events.js";
import { OWN_ATTRIBUTES, startTimeline } from "./timeline.js";
import { workerUrl } from "./workers.js";

const FILTER_PAUSE = 150; // milliseconds after a key
const etags = new Map();
let loading = null;
let again = false;
let picture = null;

function pageUrl() {
  return location.pathname + location.search;
}

function load(url) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("GET", url);
    request.responseType = "document";
    if (etags.has(url)) request.setRequestHeader("If-None-Match", etags.get(url));
    request.onload = () => {
      const etag = request.getResponseHeader("ETag");
      if (request.status === 200 && etag) {
        etags.clear();
        etags.set(url, etag);
      }
      resolve(request.status === 304 ? null : request.response);
    };
    request.onerror = () => reject(new Error("no answer"));
    request.send();
  });
}

async function refresh() {
  if (document.querySelector("form.sql")) return; // a query runs when the reader wants it
  if (loading) {
    again = true;
    return;
  }
  const url = pageUrl();
  loading = url;
  try {
    const fresh = await load(url);
    if (fresh && url === pageUrl()) show(fresh);
  } catch {
    connection("No answer from the server");
  } finally {
    loading = null;
    if (again) {
      again = false;
      refresh();
    }
  }
}

function show(fresh) {
  const next = fresh.getElementById("page");
  if (!next) return;
  Idiomorph.morph(document.getElementById("page"), next, {
    morphStyle: "outerHTML",
    ignoreActiveValue: true,
    callbacks: {
      beforeNodeMorphed: (old) => !(old instanceof Element && (old.hasAttribute("data-keep") || old.id === "connection")),
      beforeAttributeUpdated: (name, node) =>
        !(name === "open" && node.tagName === "DETAILS") && !(node.id === "timeline" && OWN_ATTRIBUTES.test(name)),
    },
  });
  document.title = fresh.title;
  measureSkew();
  countAges();
  showTimes();
  startPicture();
  startTimeline(go);
  listen();
}

// Ages count on between two readings of the tables.
const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

function duration(seconds) {
  let left = Math.max(0, Math.floor(seconds));
  if (left >= 600) left -= left % 60;
  const parts = [];
  for (const [length, unit] of UNITS) {
    if (left >= length || (unit === "s" && !parts.length)) {
      parts.push(`${Math.floor(left / length)} ${unit}`);
      left %= length;
    } else if (parts.length) break;
  }
  return parts.slice(0, 2).join(" ");
}

// Times are shown as the reader's clock has them, or in UTC: `u` changes it, and the browser remembers it.
let inUtc = localStorage.getItem("times") === "utc";
const LOCAL = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium" });

function offset(time) {
  const minutes = -time.getTimezoneOffset();
  const parts = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  return minutes ? (minutes < 0 ? "-" : "+") + parts.map((part) => String(part).padStart(2, "0")).join(":") : "Z";
}

function showTimes() {
  for (const element of document.querySelectorAll("time[data-time]")) {
    const time = new Date(element.dateTime);
    const utc = `${time.toISOString().replace("T", " ").slice(0, 19)}Z`;
    const text = inUtc ? utc : LOCAL.format(time) + offset(time);
    if (element.textContent !== text) element.textContent = text;
  }
}

function press(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const search = document.querySelector("#filter input[type=search]");
  const writes = event.target.closest?.("input, select, textarea");
  if (event.key === "Escape" && writes && writes === search && search.value) {
    search.value = "";
    search.dispatchEvent(new Event("input", { bubbles: true }));
  }
  if (writes) return;
  if (event.key === "/") {
    if (search) search.focus();
    else location.href = `${document.querySelector(".brand").href.split("#")[0]}#filter`;
    event.preventDefault();
  } else if (event.key === "?") document.getElementById("keys").showModal();
  else if (event.key === "u") {
    inUtc = !inUtc;
    localStorage.setItem("times", inUtc ? "utc" : "local");
    showTimes();
  }
}

async function copy(event) {
  const button = event.target.closest?.("button[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
  button.textContent = "Copied";
}

let skew = 0;

// The clock of this machine may differ from that of the server, whose times the page shows.
function measureSkew() {
  const difference = Date.parse(document.getElementById("page").dataset.now) - Date.now();
  skew = Math.abs(difference) > 10000 ? difference : 0;
}

function countAges() {
  const now = Date.now() + skew;
  for (const element of document.querySelectorAll("time[data-age]")) {
    const text = duration((now - Date.parse(element.dateTime)) / 1000);
    if (element.textContent !== text) element.textContent = text;
  }
}

function localTime(event) {
  const element = event.target.closest?.("time");
  if (!element) return;
  const time = new Date(element.dateTime);
  const utc = time.toISOString().replace("T", " ").slice(0, 19);
  element.title = `${time.toLocaleString()} here, ${utc} UTC`;
}

// Filters and links of the same page change the URL and the content, and keep focus and scroll.
function filterUrl(form) {
  const values = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (value) values.append(name, value);
  const query = values.toString();
  return query ? `./?${query}` : "./";
}

let pause = 0;

function filterSoon(event) {
  const form = event.target.closest?.("#filter");
  if (!form) return;
  clearTimeout(pause);
  const apply = () => {
    history.replaceState(null, "", filterUrl(form));
    refresh();
  };
  // What is chosen must be in the URL before a change of the tables loads the page of the old one.
  if (event.type === "input" && event.target.type === "search") pause = setTimeout(apply, FILTER_PAUSE);
  else apply();
}

// Goes to another URL of this page without loading it as a whole. The picture keeps its view in the hash.
function go(url, replace = false) {
  history[replace ? "replaceState" : "pushState"](null, "", url.split("#")[0] + location.hash);
  refresh();
}

function submitSoftly(event) {
  const form = event.target;
  if (!form.hasAttribute("data-soft")) return;
  event.preventDefault();
  go(`${form.getAttribute("action").split("#")[0]}?${new URLSearchParams(new FormData(form))}`);
}

function followSoftly(event) {
  const link = event.target.closest?.("a[data-soft]");
  if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  go(link.getAttribute("href"));
  const search = document.querySelector("#filter input[type=search]");
  if (search) search.value = new URLSearchParams(location.search).get("q") ?? "";
}

// The stream of events, which all tabs share where the browser can: it only says that something has changed.
let opened = false;
let followed = "";
let port = null;
let end = null;

function connection(text) {
  const element = document.getElementById("connection");
  if (element && element.textContent !== text) element.textContent = text;
  document.body.classList.toggle("is-silent", Boolean(text));
}

function hear(kind, data) {
  if (kind === "lost") {
    connection("Not connected: this may be out of date");
    return;
  }
  connection("");
  if (kind === "open") {
    if (opened) refresh();
    opened = true;
    return;
  }
  const { tag, success, inputs } = JSON.parse(data);
  const time = document.querySelector("#success time");
  if (success && time) time.dateTime = success;
  for (const element of document.querySelectorAll("[data-inputs]")) {
    const times = element.dataset.inputs.split("|").map((name) => inputs[name]);
    const shown = element.querySelector("time");
    if (shown && times.every(Boolean)) shown.dateTime = times.sort()[0];
  }
  if (tag && tag !== document.getElementById("page").dataset.tag) refresh();
}

function listen() {
  const url = new URL(document.getElementById("page").dataset.events, location.href).href;
  if (url === followed) return;
  unfollow();
  followed = url;
  if (!globalThis.SharedWorker) {
    end = follow(url, hear);
    return;
  }
  if (!port) {
    const worker = new SharedWorker(workerUrl("events-worker.js"), { type: "module" });
    worker.onerror = () => {
      end ??= follow(followed, hear); // it could not be loaded: this tab has a stream of its own
    };
    ({ port } = worker);
    port.onmessage = ({ data: [kind, data] }) => followed && hear(kind, data);
  }
  port.postMessage(url);
}

function unfollow() {
  followed = "";
  port?.postMessage(null);
  end?.();
  end = null;
}

async function startPicture() {
  const host = document.getElementById("picture");
  if (!host) return;
  if (!picture) {
    const { Picture } = await import("./picture.js");
    picture ??= new Picture(host);
  }
  picture.update(host);
}

document.addEventListener("input", filterSoon);
document.addEventListener("change", filterSoon);
document.addEventListener("submit", (event) => {
  if (event.target.id === "filter") {
    event.preventDefault();
    filterSoon(event);
  } else submitSoftly(event);
});
document.addEventListener("click", followSoftly);
document.addEventListener("click", copy);
document.addEventListener("keydown", press);
document.addEventListener("pointerover", localTime);
document.addEventListener("focusin", localTime);
addEventListener("popstate", refresh);
addEventListener("pagehide", unfollow);
addEventListener("pageshow", (event) => {
  if (event.persisted) {
    listen();
    refresh();
  }
});
setInterval(countAges, 1000);
measureSkew();
countAges();
showTimes();
if (location.hash === "#filter") document.querySelector("#filter input[type=search]")?.focus();
listen();
startPicture();
startTimeline(go);

// Keeps an open page up to date, and draws the picture where there is one. Everything works without this file, but for
// the picture. No HTML is ever made from text here: new pages are parsed by the browser as it loads them.
import { Idiomorph } from "./vendor/idiomorph.js";
import { OWN_ATTRIBUTES, startTimeline } from "./timeline.js";

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

// Asks whether something has changed; a tab that is hidden asks once it is shown.
const ASK_AGAIN = 2000; // milliseconds
const ANSWER = 10000;
let asking = false;

function connection(text) {
  const element = document.getElementById("connection");
  if (element && element.textContent !== text) element.textContent = text;
  document.body.classList.toggle("is-silent", Boolean(text));
}

async function ask() {
  if (asking || document.hidden) return;
  asking = true;
  try {
    const url = document.getElementById("page").dataset.changes;
    const response = await fetch(url, { signal: AbortSignal.timeout(ANSWER) });
    if (!response.ok) throw new Error(response.statusText);
    const { tag, success, inputs } = await response.json();
    connection("");
    const time = document.querySelector("#success time");
    if (success && time) time.dateTime = success;
    for (const element of document.querySelectorAll("[data-inputs]")) {
      const times = element.dataset.inputs.split("|").map((name) => inputs[name]);
      const shown = element.querySelector("time");
      if (shown && times.every(Boolean)) shown.dateTime = times.sort()[0];
    }
    if (tag && tag !== document.getElementById("page").dataset.tag) refresh();
  } catch {
    connection("Not connected: this may be out of date");
  } finally {
    asking = false;
  }
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
document.addEventListener("visibilitychange", ask);
addEventListener("pageshow", (event) => event.persisted && ask());
setInterval(ask, ASK_AGAIN);
setInterval(countAges, 1000);
measureSkew();
countAges();
showTimes();
if (location.hash === "#filter") document.querySelector("#filter input[type=search]")?.focus();
ask();
startPicture();
startTimeline(go);

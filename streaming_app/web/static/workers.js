// Where workers may be started from: only files of this page. And the drawing of one of them, which has no names.

const FILES = ["layout-worker.js", "events-worker.js"];
const urls = new Map(FILES.map((file) => [file, new URL(`./${file}`, import.meta.url).href]));
const trusted = globalThis.trustedTypes?.createPolicy("streams-groups", {
  createScriptURL(url) {
    if ([...urls.values()].includes(url)) return url;
    throw new TypeError("not a worker of this page");
  },
  createHTML: (text) => text,
});

export function workerUrl(file) {
  const url = urls.get(file);
  return trusted ? trusted.createScriptURL(url) : url;
}

export function parseDrawing(text) {
  return new DOMParser().parseFromString(trusted ? trusted.createHTML(text) : text, "image/svg+xml").documentElement;
}

// Where workers may be started from: only files of this page. And the drawing of one of them, which has no names.

const layout = new URL("./layout-worker.js", import.meta.url).href;
const trusted = globalThis.trustedTypes?.createPolicy("streams-groups", {
  createScriptURL(url) {
    if (url === layout) return url;
    throw new TypeError("not a worker of this page");
  },
  createHTML: (text) => text,
});

export function layoutWorkerUrl() {
  return trusted ? trusted.createScriptURL(layout) : layout;
}

export function parseDrawing(text) {
  return new DOMParser().parseFromString(trusted ? trusted.createHTML(text) : text, "image/svg+xml").documentElement;
}

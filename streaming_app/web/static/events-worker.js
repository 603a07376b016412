// One stream of events for all tabs that show a cluster: a browser opens six connections to a server at most.
import { follow } from "./events.js";

const streams = new Map(); // by URL: the tabs, how it is, its last event, and how to end it

function join(url, port) {
  let stream = streams.get(url);
  if (!stream) {
    stream = { ports: new Set(), kind: null, data: null };
    streams.set(url, stream);
    stream.end = follow(url, (kind, data) => {
      if (kind === "news") stream.data = data;
      else stream.kind = kind;
      for (const one of stream.ports) one.postMessage([kind, data]);
    });
  }
  stream.ports.add(port);
  if (stream.kind) port.postMessage([stream.kind]);
  if (stream.kind === "open" && stream.data) port.postMessage(["news", stream.data]);
}

function leave(url, port) {
  const stream = streams.get(url);
  if (!stream) return;
  stream.ports.delete(port);
  if (stream.ports.size) return;
  stream.end();
  streams.delete(url);
}

// A tab sends the URL that it wants to follow, null when it goes.
globalThis.onconnect = ({ ports: [port] }) => {
  let followed = null;
  port.onmessage = ({ data: url }) => {
    leave(followed, port);
    followed = url;
    if (url) join(url, port);
  };
};

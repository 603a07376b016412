// A stream of events of the server. Each says only that something has changed, or that the connection is alive.

const AGAIN = 10000; // milliseconds after the browser has given up
const SILENCE = 45000; // milliseconds: the server says something every 15 s
const LOOK = 5000;

// Calls tell(kind, data): "open", "news" with the text of an event, "lost". Returns a function that ends it.
// A machine that was asleep has connections that are dead and do not say so: after a silence another one is opened.
export function follow(url, tell) {
  let source = null;
  let pause = 0;
  let heard = Date.now();
  const hear = () => { heard = Date.now(); };
  const open = () => {
    clearTimeout(pause);
    hear();
    source = new EventSource(url);
    source.onopen = () => {
      hear();
      tell("open");
    };
    source.onmessage = ({ data }) => {
      hear();
      tell("news", data);
    };
    source.addEventListener("alive", hear);
    source.onerror = () => {
      hear();
      tell("lost");
      if (source.readyState === EventSource.CLOSED) pause = setTimeout(open, AGAIN);
    };
  };
  const look = setInterval(() => {
    if (Date.now() - heard < SILENCE) return;
    source.close();
    tell("lost");
    open();
  }, LOOK);
  open();
  return () => {
    clearTimeout(pause);
    clearInterval(look);
    source.close();
  };
}

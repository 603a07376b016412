// A stream of events of the server. Each says only that something has changed.

const AGAIN = 10000; // milliseconds after the browser has given up

// Calls tell(kind, data): "open", "news" with the text of an event, "lost". Returns a function that ends it.
export function follow(url, tell) {
  let source = null;
  let pause = 0;
  const open = () => {
    source = new EventSource(url);
    source.onopen = () => tell("open");
    source.onmessage = ({ data }) => tell("news", data);
    source.onerror = () => {
      tell("lost");
      if (source.readyState === EventSource.CLOSED) pause = setTimeout(open, AGAIN);
    };
  };
  open();
  return () => {
    clearTimeout(pause);
    source.close();
  };
}

// The server's API: JSON by GET, and the stream of events.

/** Gets the JSON at a path of the API. An error carries the server's own sentence. */
export async function get(path) {
  const response = await fetch(`/api/v1/${path}`, { cache: "no-store" });
  const body = await response.json().catch(() => null);
  if (!response.ok) throw new Error(body?.error ?? `the server answered ${response.status} to ${path}`);
  return body;
}

const RETRY_MILLISECONDS = 2000;

/**
 * Follows the stream of events for as long as the page is open. Where the connection ends it is opened again.
 *
 * `on` has the handlers: `status` and `guests` with their JSON, `unavailable` with a sentence, `lost` while the server
 * does not answer.
 */
export function follow(on) {
  const source = new EventSource("/api/v1/stream");
  let isOver = false;
  const again = () => {
    if (isOver) return;
    isOver = true;
    source.close();
    on.lost();
    setTimeout(() => follow(on), RETRY_MILLISECONDS);
  };
  source.addEventListener("status", (event) => on.status(JSON.parse(event.data)));
  source.addEventListener("guests", (event) => on.guests(JSON.parse(event.data)));
  source.addEventListener("unavailable", (event) => on.unavailable(JSON.parse(event.data).error));
  source.addEventListener("error", again);
}

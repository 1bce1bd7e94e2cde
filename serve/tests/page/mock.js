// A mock of `ksmith serve`: the HTTP API over a made-up host. Its figures depend on the time only.

import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { extname } from "node:path";
import { fileURLToPath } from "node:url";

import { Host } from "./host.js";

const ASSETS = fileURLToPath(new URL("../../assets/", import.meta.url));

const TYPES = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
  ".txt": "text/plain; charset=utf-8",
};

const HEADERS = {
  "content-security-policy": "default-src 'self'",
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
};

/** Seconds before `now` that a text such as `2h` means, or the time that it gives as seconds since 1970. */
function moment(text, now, fallback) {
  if (text === null) return fallback;
  const [, number, unit] = /^([0-9.]+)([smhdw]?)$/.exec(text) ?? [];
  if (number === undefined) return fallback;
  if (unit === "") return Number(number);
  return now - Number(number) * { s: 1, m: 60, h: 3600, d: 86400, w: 604800 }[unit];
}

/** A server of the page over a made-up host. */
export class Mock {
  /** The settings of the host are those of `Host`. */
  constructor(settings = {}) {
    this.host = new Host(settings);
    this.streams = new Set();
    this.sockets = new Set();
    this.requests = [];
  }

  /** Starts to listen and gives the URL. */
  async listen(port = 0, address = "127.0.0.1") {
    this.server = createServer((request, response) => {
      this.answer(request, response).catch((error) => {
        response.writeHead(500).end(JSON.stringify({ error: String(error) }));
      });
    });
    this.server.on("connection", (socket) => {
      this.sockets.add(socket);
      socket.on("close", () => this.sockets.delete(socket));
    });
    await new Promise((resolve, reject) => {
      this.server.once("error", reject);
      this.server.listen(port, address, resolve);
    });
    this.address = address;
    this.port = this.server.address().port;
    this.url = `http://${address}:${this.port}/`;
    return this.url;
  }

  /** Ends all connections and stops listening. */
  async close() {
    const closed = new Promise((resolve) => this.server.close(resolve));
    for (const socket of this.sockets) socket.destroy();
    await closed;
  }

  /** Sends the state of the host to all streams. */
  push() {
    for (const stream of this.streams) this.send(stream);
  }

  send(stream) {
    if (!this.host.isUp) {
      stream.write(`event: unavailable\ndata: ${JSON.stringify({ error: this.host.downReason })}\n\n`);
      return;
    }
    stream.write(`event: status\ndata: ${JSON.stringify(this.host.status())}\n\n`);
    stream.write(`event: guests\ndata: ${JSON.stringify(this.host.guests())}\n\n`);
  }

  async answer(request, response) {
    const url = new URL(request.url, "http://mock");
    const { pathname, searchParams } = url;
    this.requests.push(request.url);
    const json = (body, code = 200) => {
      response.writeHead(code, { ...HEADERS, "content-type": "application/json", "cache-control": "no-store" });
      response.end(JSON.stringify(body));
    };
    const down = () => json({ error: this.host.downReason }, 503);
    if (request.method !== "GET") return json({ error: "only GET is answered" }, 405);
    if (pathname === "/" || pathname.startsWith("/assets/")) return this.asset(pathname, response);
    const now = this.host.now();
    switch (pathname) {
      case "/api/v1/status":
        return this.host.isUp ? json(this.host.status()) : down();
      case "/api/v1/guests":
        return this.host.isUp ? json(this.host.guests()) : down();
      case "/api/v1/balance":
        return this.host.isUp ? json(this.host.balance()) : down();
      case "/api/v1/hosts":
        return json(this.host.hosts());
      case "/api/v1/history": {
        const until = moment(searchParams.get("until"), now, now);
        const since = moment(searchParams.get("since"), now, now - 7200);
        const points = Number(searchParams.get("points") ?? 1000);
        const label = searchParams.get("by");
        if (label !== null) {
          return this.host.labels[label] === undefined ? json({ error: `no guest had a label ${label}` }, 404) : json(this.host.historyBy(since, until, points, label));
        }
        return json(this.host.history(since, until, points, searchParams.get("guest")));
      }
      case "/api/v1/stream":
        response.writeHead(200, { ...HEADERS, "content-type": "text/event-stream", "cache-control": "no-store" });
        this.streams.add(response);
        request.on("close", () => this.streams.delete(response));
        return this.send(response);
      default:
        return json({ error: `there is no ${pathname}` }, 404);
    }
  }

  async asset(pathname, response) {
    const name = pathname === "/" ? "index.html" : pathname.slice("/assets/".length);
    if (!/^[\w.-]+$/.test(name)) return response.writeHead(404, HEADERS).end();
    try {
      const body = await readFile(ASSETS + name);
      response.writeHead(200, { ...HEADERS, "content-type": TYPES[extname(name)] ?? "application/octet-stream" });
      response.end(body);
    } catch {
      response.writeHead(404, HEADERS).end();
    }
  }
}

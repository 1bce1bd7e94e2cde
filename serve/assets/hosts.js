// Several hosts: this one and the peers that the server was told of.

import { get } from "./api.js";
import { byId, element, replace, setText, table } from "./dom.js";
import { bytes, percent, UNKNOWN } from "./format.js";
import { cover } from "./headline.js";

/** A link to a host's page. Only the web's own schemes become links. */
function linked({ name, url }) {
  return /^(https?:\/\/|\/)/.test(url ?? "") ? element("a", { href: url }, name) : name;
}

/** Asks for all hosts, and shows them where there is more than one. */
export async function load() {
  let hosts;
  try {
    hosts = await get("hosts");
  } catch {
    return;
  }
  setText(byId("host-name"), hosts[0]?.name ?? "");
  document.title = hosts[0]?.name ? `ksmith on ${hosts[0].name}` : "ksmith";
  byId("hosts-section").hidden = hosts.length < 2;
  if (hosts.length < 2) return;
  const rows = hosts.map((host) => {
    const status = host.status ?? {};
    const { part } = cover(status.exposure_bytes, status.headroom_bytes);
    const state = !host.ok ? `does not answer: ${host.error ?? "no reason given"}` : status.daemon ? `${status.daemon.policy}: ${status.daemon.state}` : "no daemon";
    const level = element("span", { class: `level ${status.verdict?.level ?? "unknown"}` }, status.verdict?.level ?? UNKNOWN);
    const verdict = element("span", {}, level, status.verdict ? ` ${status.verdict.sentence}` : "");
    return [linked(host), verdict, state, bytes(status.saved_bytes), bytes(status.profit_bytes), percent(status.ksmd_cpu_percent), percent(part)];
  });
  const headings = ["Host", "Verdict", "State", "Saved", "Profit", "ksmd's CPU", "Exposure of headroom"];
  replace(byId("hosts"), [table("All hosts", headings, rows, [3, 4, 5, 6])]);
}

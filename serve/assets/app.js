// The page: asks the server once, then follows its events.

import { follow, get } from "./api.js";
import * as balance from "./balance.js";
import { byId, setText } from "./dom.js";
import { moment } from "./format.js";
import * as guest from "./guest.js";
import * as guests from "./guests.js";
import { setStale, showStatus } from "./headline.js";
import * as hosts from "./hosts.js";
import * as labels from "./labels.js";
import * as timeline from "./timeline.js";

/** Balance and hosts are asked for this often: they change slowly. */
const SLOW_MILLISECONDS = 10_000;

const THEMES = ["system", "light", "dark"];

let state = "waiting";
let lastSeen = null;

/** Says in one line whether figures are live. Only a change of state is read aloud. */
function say(next, sentence) {
  const place = byId("connection");
  state = next;
  place.className = `state ${next}`;
  setText(place, sentence);
}

function seen() {
  const wasAway = state === "away";
  lastSeen = Date.now() / 1000;
  if (state === "live") return;
  say("live", "Live");
  setStale(false);
  if (wasAway) {
    timeline.load();
    slow();
  }
}

function away(sentence) {
  const since = lastSeen === null ? "" : ` These figures are of ${moment(lastSeen)}.`;
  say("away", `${sentence}${since}`);
  setStale(true);
}

function slow() {
  balance.load();
  hosts.load();
}

const on = {
  status(status) {
    seen();
    showStatus(status);
    timeline.showStatus(status);
  },
  guests(report) {
    seen();
    guests.showGuests(report);
    labels.showGuests(report);
  },
  unavailable(error) {
    away(`The daemon does not answer: ${error}.`);
  },
  lost() {
    away("The server of this page does not answer; it is asked again every two seconds.");
  },
};

function startTheme() {
  const button = byId("theme");
  const current = () => document.documentElement.dataset.theme ?? "system";
  const label = () => setText(button, `Theme: ${current()}`);
  button.onclick = () => {
    const next = THEMES[(THEMES.indexOf(current()) + 1) % THEMES.length];
    if (next === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    try {
      if (next === "system") localStorage.removeItem("ksmith-theme");
      else localStorage.setItem("ksmith-theme", next);
    } catch {
      // Without storage the theme lasts as long as the page.
    }
    label();
    document.dispatchEvent(new Event("ksmith-theme"));
  };
  label();
}

startTheme();
guests.start(guest.refresh);
guest.start();
labels.start();
timeline.start(() => {
  guest.loadHistory();
  labels.load();
});
get("status").then(on.status, (error) => away(`The daemon does not answer: ${error.message}.`));
get("guests").then(on.guests, () => {});
slow();
setInterval(() => {
  if (!document.hidden) slow();
}, SLOW_MILLISECONDS);
follow(on);

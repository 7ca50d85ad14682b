// The inspector: one page over one connection. It knows only what the service answers and what the log says; everything is drawn from
// that, and an address (#/agent/ID?at=SEQ) leads back to what was seen.

import { fork, help } from "./actions.js";
import { AgentPane } from "./agent.js";
import { AgentsPane } from "./agents.js";
import { Questions } from "./approvals.js";
import { tell } from "./dialog.js";
import { DetailsPane, forkOf, requestOf } from "./details.js";
import { kept } from "./dom.js";
import { Keys } from "./keys.js";
import { Link } from "./link.js";
import { showRequest } from "./request.js";
import { agentAddress } from "./texts.js";
import { plain, short, spent, total } from "./words.js";

const THEMES = { "": "As the system", light: "Light", dark: "Dark" };
const REST_MS = 4000;
const HIDDEN_MS = 30_000;
const COST = 20;

class Page {
  constructor() {
    this.at = { id: null, seq: null };
    this.link = new Link(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/`, (state, detail) =>
      this.told(state, detail),
    );
    const by = (id) => document.getElementById(id);
    this.panes = by("panes");
    this.state = by("link");
    this.spend = by("spend");
    this.details = new DetailsPane(this, by("details"));
    this.agent = new AgentPane(this, by("agent"));
    this.agents = new AgentsPane(this, by("agents"));
    this.questions = new Questions(this, by("questions"));
    this.keys = new Keys(this);
    this.themeButton = by("theme");
    this.themeButton.onclick = () => this.turnTheme();
    by("help").onclick = () => this.help();
    addEventListener("hashchange", () => this.route());
    addEventListener("online", () => this.link.hurry());
    document.addEventListener("visibilitychange", () => !document.hidden && this.link.hurry());
    this.drawTheme();
    this.say("Connecting…");
    this.link.connect();
  }

  // -- the connection

  told(state) {
    if (state !== "open") {
      this.say(state === "lost" ? "The connection is lost. Trying again…" : "The service does not answer. Trying again…");
      if (state === "refused") this.door();
      return;
    }
    this.say("");
    if (this.started)
      this.agent.refresh(); // streams and calls went on by themselves
    else this.start();
  }

  start() {
    this.started = true;
    this.agents.restart();
    this.route();
    this.repeat(() => this.questions.refresh());
    // The index is read for it from end to end, so this is asked for as seldom as that costs.
    this.repeat(async () => {
      const usage = await this.link.call("usage", {});
      this.spend.textContent = `${short(total(usage))} tokens`;
      this.spend.title = spent(usage);
    });
  }

  /** Do something again and again, with a rest that its cost demands. What fails is tried again: the link says that it is away. */
  async repeat(work) {
    for (;;) {
      const cost = this.link.stopwatch();
      await work().catch((error) => console.warn(error.message));
      const rest = Math.max(document.hidden ? HIDDEN_MS : REST_MS, cost() * COST);
      await new Promise((done) => setTimeout(done, rest));
    }
  }

  /** Whether the service answers, but does not let us in: then it is the cookie that has run out. */
  async door() {
    try {
      const answer = await fetch("/page/icon.svg", { cache: "no-store", credentials: "same-origin" });
      if (answer.status === 401 || answer.redirected) location.assign("/login");
    } catch {
      // It does not answer at all; the link tries again.
    }
  }

  say(text) {
    this.state.textContent = text;
    document.documentElement.classList.toggle("away", text !== "");
  }

  /** Whether the token has this scope. */
  may(scope) {
    const scopes = this.link.hello?.scopes ?? this.scopes ?? [];
    this.scopes = scopes;
    return scopes.includes(scope) || scopes.includes("admin");
  }

  // -- where we are

  route() {
    const [, id, query] = location.hash.match(/^#\/agent\/([^?]+)(?:\?(.*))?$/) ?? [];
    const seq = new URLSearchParams(query ?? "").get("at");
    this.at = { id: id === undefined ? null : decoded(id), seq: seq === null ? null : Number(seq) };
    document.title = this.at.id === null ? "Callboard" : `${plain(this.at.id)} · Callboard`;
    this.details.show(null);
    this.agent.open(this.at.id, this.at.seq);
    this.agents.list.choose(this.at.id);
    this.look(this.at.id === null ? "agents" : "agent");
  }

  /** Go to an agent. */
  open(id, { focus = false } = {}) {
    if (this.at.id !== id) location.hash = agentAddress(id);
    else this.look("agent");
    if (focus) this.agent.timeline.element.focus();
  }

  /** The pane that a narrow screen shows. */
  look(pane) {
    this.panes.dataset.look = pane;
  }

  back() {
    const { look } = this.panes.dataset;
    if (look === "details") {
      this.look("agent");
      (this.agent.view === 4 ? this.agent.records : this.agent.timeline).element.focus();
    } else if (look === "agent") {
      this.look("agents");
      this.agents.list.element.focus();
    }
  }

  heard(roster) {
    this.roster = roster;
  }

  // -- what is chosen

  chosen(node, how) {
    this.details.show(node, this.agent.feed);
    history.replaceState(null, "", agentAddress(this.at.id, node.seq));
    if (how === "enter") {
      this.look("details");
      if (getComputedStyle(document.getElementById("details")).position === "fixed")
        document.querySelector("#details h2")?.focus();
    }
  }

  chosenRecord(record, how) {
    this.details.showRecord(record, this.agent.feed);
    if (how === "enter") this.look("details");
  }

  request(seq = requestOf(this.details.node) ?? this.details.record?.seq ?? null) {
    if (this.at.id === null) return;
    const from = seq ?? this.agent.feed?.timeline.last ?? -1;
    if (from < 0) tell("This agent has no record yet.");
    else showRequest(this.link, this.at.id, from);
  }

  fork(where = this.details.record ? { at: this.details.record.seq } : forkOf(this.details.node)) {
    if (this.may("send")) fork(this, this.at.id, where);
    else tell("This token may only read.", { bad: true });
  }

  help() {
    help(this);
  }

  // -- the theme

  turnTheme() {
    const names = Object.keys(THEMES),
      next = names[(names.indexOf(kept.get("theme")) + 1) % names.length];
    kept.set("theme", next);
    if (next) document.documentElement.dataset.theme = next;
    else delete document.documentElement.dataset.theme;
    this.drawTheme();
  }

  drawTheme() {
    const name = THEMES[kept.get("theme")] ?? THEMES[""];
    this.themeButton.textContent = { "As the system": "Auto" }[name] ?? name;
    this.themeButton.setAttribute("aria-label", `Theme: ${name.toLowerCase()}`);
  }
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // no address of ours; the service says that there is no such agent
  }
}

new Page();

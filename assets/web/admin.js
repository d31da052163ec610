// The Admin tab: asks for the password, then shows /admin/live once a second while the tab is seen.
import { ask, loaded, say, sayIn } from "./page.js";
import { drawBars, drawLine, STAGES } from "./admin_charts.js";
import { showWays } from "./admin_door.js";
import { Knobs } from "./admin_knobs.js";
import { Lab } from "./admin_lab.js";
import { showGpus, showLadder } from "./admin_machine.js";
import { Models } from "./admin_models.js";
import { table } from "./elements.js";

const LOOK_MS = 1000, HISTORY_EVERY = 10;
const seconds = (value, digits = 2) => (value === null || value === undefined ? "–" : `${value.toFixed(digits)} s`);
const milliseconds = (value) => (value === null || value === undefined ? "–" : `${short(1000 * value)} ms`);
const number = (value, digits = 1) => (value === null || value === undefined ? "–" : value.toFixed(digits));
const percent = (value) => (value === null || value === undefined ? "–" : `${(100 * value).toFixed(1)} %`);
const short = (value) => String(Number(value.toPrecision(3)));
// A column of the history: its name, and how its most is written.
const CHARTS = {
  kv: ["admin.page.kv", percent], lm_tokens_per_s: ["admin.page.lm", short], audio_s_per_s: ["admin.page.audio", short],
  running: ["admin.page.running", short], waiting: ["admin.page.waiting", short],
  step_s: ["admin.page.step", milliseconds], flow_s: ["admin.page.flow", milliseconds], vocoder_s: ["admin.page.vocoder", milliseconds],
  ttfa_p50_s: ["admin.page.first_p50", seconds],
  cpu: ["admin.page.cpu", short], rss_mb: ["admin.page.memory", (value) => `${value.toFixed(0)} MB`],
  gpu_mb: ["admin.page.gpu_memory", (value) => `${value.toFixed(0)} MB`], gpu_use: ["admin.page.gpu_use", percent],
};

// No chart where there is no GPU, or token2wav does not tell.
const MAY_LACK = new Set(["gpu_mb", "gpu_use", "flow_s", "vocoder_s"]);

export async function mountAdmin(root) {
  await loaded;
  sayIn(root);
  new Admin(root);
  root.dataset.ready = "true";
}

class Admin {
  constructor(root) {
    this.root = root;
    this.part = (name) => root.querySelector(`[data-part=${name}]`);
    this.knobs = new Knobs(this.part, (error) => this.failed(error));
    this.lab = new Lab(this.part("lab"), (error) => this.failed(error), () => this.knobs.loadLog());
    this.models = new Models(this.part, (error) => this.failed(error), {
      done: () => this.knobs.loadLog(), shown: () => this.part("charts").replaceChildren(),
    });
    this.looks = 0;
    showWays(this.part);
    this.part("door").addEventListener("submit", (event) => { event.preventDefault(); this.enter(); });
    this.part("leave").addEventListener("click", () => this.leave());
    this.part("span").addEventListener("change", () => this.showHistory().catch((error) => this.failed(error)));
    this.part("legend").append(...STAGES.map(({ key, shade }) => legendItem(say(key), shade)));
    // Not seen is not asked: a hidden tab costs the server nothing.
    new IntersectionObserver(([seen]) => { if (seen.isIntersecting) this.look(); else clearTimeout(this.timer); }).observe(root);
    document.addEventListener("visibilitychange", () => { if (!document.hidden && root.offsetParent) this.look(); });
  }

  async enter() {
    const field = this.part("door").elements.password;
    try {
      await ask("admin/login", { method: "POST", body: { password: field.value } });
      this.doorError("");
      field.value = "";
      await this.look();
    } catch (error) { this.doorError(error.told ?? say("status.lost")); }
  }

  async leave() {
    try { await ask("admin/logout", { method: "POST" }); } catch { /* it had ended already */ }
    this.close();
  }

  close() {
    this.root.dataset.state = "closed";
    this.part("door").hidden = false;
    this.part("inside").hidden = true;
  }

  doorError(text) {
    this.part("door-error").textContent = text;
    this.part("door-error").hidden = !text;
  }

  failed(error) { if (error.status === 401) this.close(); }

  async look() {
    clearTimeout(this.timer);
    if (document.hidden || !this.root.offsetParent) return;
    try {
      const live = await (await ask(`admin/live?model=${this.models.shown}`)).json();
      if (this.root.dataset.state !== "open") await this.open();
      this.show(live);
      if (this.looks++ % HISTORY_EVERY === 0) await this.showHistory();
      await Promise.all([this.knobs.follow(), this.lab.follow(), this.models.follow()]);
    } catch (error) {
      if (error.status === 401) { this.close(); return; }
    }
    this.timer = setTimeout(() => this.look(), LOOK_MS);
  }

  async open() {
    this.part("door").hidden = true;
    this.part("inside").hidden = false;
    this.root.dataset.state = "open";
    this.looks = 0;
    await Promise.all([this.knobs.load(), this.lab.look(), this.models.look()]);
  }

  show({ now, lm, pages, token2wav, in_flight: requests, timeline, ...rest }) {
    const hits = lm?.prefix_cache_queries_tokens ? lm.prefix_cache_hits_tokens / lm.prefix_cache_queries_tokens : null;
    const figures = [
      ["admin.page.kv", percent(now.kv), pages && say("admin.page.blocks", { held: pages.held, blocks: pages.blocks, size: pages.block_size_tokens }),
        pages && say("admin.page.fit", { tokens: (pages.blocks - pages.held) * pages.block_size_tokens })],
      ["admin.page.hits", percent(hits), hits !== null && say("admin.page.hits_of", { hits: lm.prefix_cache_hits_tokens, asked: lm.prefix_cache_queries_tokens })],
      ["admin.page.preemptions", number(lm?.preemptions, 0)],
      ["admin.page.running", number(now.running, 0)], ["admin.page.waiting", number(now.waiting, 0)], ["admin.page.refused", number(rest.refused, 0)],
      ["admin.page.lm", number(now.lm_tokens_per_s)], ["admin.page.audio", number(now.audio_s_per_s)],
      ["admin.page.rows", number(rest.batch_rows)], ["admin.page.step", milliseconds(rest.step_s)],
      // Not every token2wav tells what took the time of its steps.
      ...[["admin.page.flow", rest.flow_s], ["admin.page.vocoder", rest.vocoder_s]].filter(([, s]) => s !== null).map(([key, s]) => [key, milliseconds(s)]),
      ["admin.page.first", [now.ttfa_p50_s, now.ttfa_p95_s, now.ttfa_p99_s].map((v) => number(v, 2)).join(" / ")],
      ["admin.page.rtf", number(rest.rtf, 2)], ["admin.page.underruns", number(rest.underruns, 0)],
      ["admin.page.cpu", number(now.cpu, 2), rest.processes.map((p) => `${p.name} ${p.cpu.toFixed(2)}`).join(" · ")],
      ["admin.page.memory", `${number(now.rss_mb, 0)} MB`, rest.processes.map((p) => `${p.name} ${p.rss_mb.toFixed(0)}`).join(" · ")],
      ["admin.page.state", token2wav ? `${(token2wav.state_bytes / 1e6).toFixed(1)} MB` : "–",
        token2wav?.flow_pages && say("admin.page.flow_pages", { held: token2wav.flow_pages - token2wav.flow_pages_free, pages: token2wav.flow_pages, shared: token2wav.flow_pages_shared }),
        token2wav?.rows_uncached && say("admin.page.uncached", { rows: token2wav.rows_uncached })],
    ];
    this.part("figures").replaceChildren(...figures.map(([key, value, ...notes]) => figure(say(key), value, notes.filter(Boolean))));
    this.showRequests(requests, new Map((pages?.shares ?? []).map((share) => [share.request_id, share])));
    this.showPages(pages);
    showGpus(this.part("gpus"), rest.gpus);
    showLadder(this.part("ladder"), rest.given_up, rest.places);
    const longest = drawBars(this.part("timeline"), timeline);
    this.part("timeline-note").textContent = longest === null ? "" : say("admin.page.timeline_note", { requests: timeline.length, longest: seconds(longest) });
  }

  showRequests(requests, shares) {
    if (!requests.length) { this.part("requests").textContent = say("admin.page.none"); return; }
    const heads = ["request", "user", "stage", "age", "tokens", "kv_blocks", "ahead"].map((name) => say(`admin.page.${name}`));
    const rows = requests.map((r) => [
      r.request_id, r.client, say(`admin.stage.${r.stage}`), seconds(r.age_s, 1), r.tokens,
      shares.get(r.request_id)?.blocks ?? 0, seconds(r.ahead_s, 1), this.endButton(r.request_id),
    ]);
    this.part("requests").replaceChildren(table([...heads, ""], rows));
  }

  endButton(id) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = say("admin.page.abort");
    button.setAttribute("aria-label", `${say("admin.page.abort")} ${id}`);
    button.addEventListener("click", async () => {
      button.disabled = true;
      try { await ask(`admin/requests/${id}/abort`, { method: "POST" }); } catch (error) { this.failed(error); }
    });
    return button;
  }

  showPages(pages) {
    const strip = this.part("pages");
    if (!pages) { strip.replaceChildren(); this.part("pages-note").textContent = ""; return; }
    const parts = pages.shares.flatMap((share, at) => [
      page(share.shared, `${share.request_id} (${share.shared})`, at, true), page(share.blocks - share.shared, `${share.request_id} (${share.blocks})`, at, false),
    ]).filter((part) => part.style.flexGrow > 0);
    strip.replaceChildren(...parts, page(Math.max(0, pages.blocks - pages.held), "", -1, false));
    strip.setAttribute("aria-label", say("admin.page.blocks", { held: pages.held, blocks: pages.blocks, size: pages.block_size_tokens }));
    this.part("pages-note").textContent = say("admin.page.pages_note", { difference: pages.difference });
  }

  async showHistory() {
    const history = await (await ask(`admin/history?span=${this.part("span").value}&model=${this.models.shown}`)).json();
    const charts = this.part("charts");
    for (const [name, [key, written]] of Object.entries(CHARTS)) {
      if (MAY_LACK.has(name) && !history[name].some((value) => value !== null)) continue;
      let chart = charts.querySelector(`[data-chart=${name}]`);
      if (!chart) { chart = chartOf(name, say(key)); charts.append(chart); }
      const most = drawLine(chart.querySelector("canvas"), history[name]);
      chart.querySelector("figcaption span").textContent = most === null ? "–" : `≤ ${written(most)}`;
    }
  }
}

function legendItem(text, shade) {
  const item = document.createElement("span");
  item.textContent = text;
  item.style.setProperty("--shade", `var(${shade})`);
  return item;
}

function figure(name, value, notes) {
  const box = document.createElement("div");
  const term = document.createElement("dt"), told = document.createElement("dd");
  term.textContent = name;
  told.textContent = value;
  for (const note of notes) { const small = document.createElement("small"); small.textContent = note; told.append(small); }
  box.append(term, told);
  return box;
}

function page(blocks, title, at, shared) {
  const part = document.createElement("span");
  part.style.flexGrow = blocks;
  part.title = title;
  part.dataset.shade = at < 0 ? "free" : String(at % 4);
  if (shared) part.dataset.shared = "true";
  return part;
}

function chartOf(name, title) {
  const chart = document.createElement("figure");
  chart.dataset.chart = name;
  const caption = document.createElement("figcaption"), most = document.createElement("span");
  caption.append(`${title} `, most);
  const canvas = document.createElement("canvas");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", title);
  chart.append(caption, canvas);
  return chart;
}

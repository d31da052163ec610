// The Lab of the Admin tab: starts a run, follows it, and shows what the runs have measured as curves and tables.
import { ask, askJson, base, say } from "./page.js";
import { button, element, table } from "./elements.js";
import { curves, isPlanned } from "./curves.js";

const LOOK_EVERY = 10;  // looks of the tab, while no run is known to be under way
const TEXTS_S = [3, 6, 12];

export class Lab {
  // failed: told of errors; ended: called when a run has ended.
  constructor(root, failed, ended) {
    Object.assign(this, { root, failed, ended, looks: 0, progress: null, sweeps: [] });
    this.fields = this.form();
    this.error = element("p", { class: "field-error", role: "alert", hidden: true });
    this.status = element("p", { role: "status", "data-part": "lab-status" });
    this.runs = element("div", { "data-part": "lab-runs" });
    this.start = button(say("lab.page.start"), () => this.guarded(() => this.begin()), { class: "primary", "data-part": "lab-start", disabled: true });
    this.end = button(say("lab.page.stop"), () => this.guarded(() => this.stop()), { "data-part": "lab-stop", hidden: true });
    root.replaceChildren(
      element("p", {}, say("lab.page.intro")),
      element("div", { class: "lab-form" }, ...Object.entries(this.fields).map(([name, field]) => labelled(name, field))),
      this.error, element("p", { class: "admin-buttons" }, this.start, this.end), this.status, this.runs,
    );
  }

  form() {
    const number = (value, min, max) => element("input", { type: "number", value, min, max });
    const fields = {
      sweep: element("select", { onchange: () => this.pick() }),
      values: element("input", { type: "text", maxLength: 200 }),
      listeners: number(2, 1, 64), seconds: number(20, 1, 600),
      text_s: element("select", {}, ...TEXTS_S.map((length) => new Option(`${length} s`, length, false, length === 6))),
      beyond: element("input", { type: "checkbox" }), force: element("input", { type: "checkbox" }),
    };
    for (const [name, field] of Object.entries(fields)) field.name = `lab_${name}`;
    return fields;
  }

  async guarded(does) {
    this.tell("");
    try { await does(); } catch (error) {
      this.failed(error);
      this.tell(error.told ?? say("status.lost"));
    }
  }

  tell(text) {
    this.error.textContent = text;
    this.error.hidden = !text;
  }

  get picked() { return this.sweeps.find((sweep) => sweep.name === this.fields.sweep.value); }

  pick() {
    const { knob, values, refused } = this.picked;
    this.fields.values.value = values.join(", ");
    this.fields.listeners.disabled = knob === "streams";
    this.fields.beyond.disabled = knob === "streams";
    this.start.disabled = Boolean(refused);
    this.tell(refused ?? "");
  }

  async begin() {
    const { sweep, values, listeners, seconds, text_s, beyond, force } = this.fields;
    const isNumber = /^\d+$/;
    const wanted = values.value.split(",").map((word) => word.trim()).filter(Boolean).map((word) => (isNumber.test(word) ? Number(word) : word));
    await ask("admin/lab", { method: "POST", body: {
      sweep: sweep.value, values: wanted, streams: Number(listeners.value), seconds: Number(seconds.value),
      text_s: Number(text_s.value), beyond_plan: beyond.checked, force: force.checked,
    } });
    this.progress ??= {};  // so that its end is seen, however soon it comes
    await this.look();
  }

  async stop() {
    await ask("admin/lab/stop", { method: "POST" });
    this.status.textContent = say("lab.page.stopping");
  }

  // Called at each look of the tab.
  async follow() {
    if (this.progress || this.looks++ % LOOK_EVERY === 0) await this.look();
  }

  async look() {
    const { sweeps, progress, runs } = await askJson("admin/lab");
    const before = this.progress;
    this.progress = progress;
    if (!this.sweeps.length) {
      this.sweeps = sweeps;
      this.fields.sweep.replaceChildren(...sweeps.map(({ name }) => new Option(say(`lab.page.${name}`), name)));
      this.pick();
    }
    this.root.dataset.state = progress ? "running" : "idle";
    this.end.hidden = !progress;
    this.status.textContent = progress ? say("lab.page.at", {
      ...progress, sweep: say(`lab.page.${progress.sweep}`), value: progress.value ?? "–", step: say(`lab.step.${progress.step}`),
    }) : "";
    const state = JSON.stringify(runs);
    if (state !== this.shown) this.showRuns(runs);
    this.shown = state;
    if (before && !progress) await this.ended();
  }

  showRuns(runs) {
    const open = new Set([...this.runs.querySelectorAll("details[open]")].map((run) => run.dataset.run));
    this.runs.replaceChildren(...runs.map((run, at) => this.run(run, at === 0 || open.has(String(run.number)))));
  }

  run({ number, at_s, who, asked, conditions, outcome, reason, points }, open) {
    const { knob, curves: pictures } = this.sweeps.find((sweep) => sweep.name === asked.sweep);
    const told = say(outcome === "running" ? "lab.outcome.running" : `admin.outcome.${outcome}`);
    const when = new Date(1000 * at_s).toLocaleString();
    const columns = [...new Set(points.flatMap((point) => Object.keys(point)))];
    return element("details", { open, "data-run": number },
      element("summary", {}, `${say(`lab.page.${asked.sweep}`)} – ${say("lab.page.by", { when, who, outcome: told, reason })}`),
      element("p", {}, say("lab.page.on", { ...conditions, load: conditions.load_1m, text: asked.text_s, seconds: asked.seconds, streams: knob === "streams" ? asked.values.join(", ") : asked.streams })),
      element("div", { class: "lab-pictures" }, ...pictures.map((names) => picture(points, knob, names))),
      points.length ? element("div", { class: "admin-scroll" }, table(columns, points.map((point) => columns.map((name) => cell(point[name]))))) : null,
      points.length ? element("a", { href: new URL(`admin/lab/csv?run=${number}`, base), download: `lab-${number}.csv`, "data-part": "lab-csv" }, say("lab.page.csv")) : null,
    );
  }
}

const cell = (value) => (Array.isArray(value) ? value.join(" ") : String(value ?? "–"));

function labelled(name, field) {
  return element("label", { class: field.type === "checkbox" ? "admin-check" : "" }, ...(field.type === "checkbox"
    ? [field, element("span", {}, say(`lab.page.${name}`))] : [element("span", {}, say(`lab.page.${name}`)), field]));
}

function picture(points, knob, names) {
  const drawn = curves(points, knob, names, `${names.join(", ")} / ${knob}`);
  if (!drawn) return null;
  const legend = names.map((name, number) => element("span", { class: `lab-key-${isPlanned(name) ? "planned" : number}` }, name));
  return element("figure", {}, drawn, element("figcaption", {}, ...legend, ` / ${knob}`));
}

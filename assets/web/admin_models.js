// The models of the Admin tab: which checkpoints are known, what each holds or would need; loading and unloading them.
import { button, table } from "./elements.js";
import { ask, askJson, say } from "./page.js";

const EVERY = 5; // looks, while nothing is under way
const MOVING = ["fetching", "loading", "unloading"];
const gb = (bytes) => (bytes / 1e9).toFixed(1);

export class Models {
  // done: what was begun has come to its end; shown: another model is looked at.
  constructor(part, failed, { done, shown }) {
    Object.assign(this, { part, failed, done, looks: 0, moving: false });
    part("model").addEventListener("change", shown);
  }

  // The name of the model whose figures are shown, for an address.
  get shown() { return encodeURIComponent(this.part("model").value); }

  // Called at each look of the tab.
  async follow() { if (this.moving || ++this.looks % EVERY === 0) await this.look(); }

  async look() {
    const { models } = await askJson("admin/models");
    const moving = models.some(({ state }) => MOVING.includes(state));
    if (this.moving && !moving) await this.done();
    this.moving = moving;
    this.showChoice(models.filter(({ state }) => state === "loaded").map(({ name }) => name));
    const known = models.length > 1;
    this.part("models-note").textContent = say(known ? "models.note" : "models.none");
    this.part("models-abort-row").hidden = this.part("models-force-row").hidden = !known;
    const told = JSON.stringify(models);
    if (told === this.told) return; // a button that is about to be pressed stays
    this.told = told;
    const heads = ["name", "place", "state", "memory"].map((name) => say(`models.${name}`));
    this.part("models").replaceChildren(table([...heads, ""], models.map((model) => this.row(model))));
  }

  // One that is shown and goes is replaced by the first.
  showChoice(names) {
    const select = this.part("model"), before = select.value;
    this.part("shown").hidden = names.length < 2;
    if ([...select.options].map(({ value }) => value).join() === names.join()) return;
    select.replaceChildren(...names.map((name) => new Option(name, name)));
    select.value = names.includes(before) ? before : names[0];
    if (select.value !== before) select.dispatchEvent(new Event("change"));
  }

  row(model) {
    const { name, place, state, fit, held_mb: held } = model;
    const requests = model.running + model.waiting ? ` · ${say("models.requests", model)}` : "";
    const told = state === "loaded" && !model.ready ? "starting" : state;
    const fetched = { reason: model.reason, percent: Math.round(100 * model.fraction) };
    const why = state === "unloaded" && model.reason ? ` · ${model.reason}` : "";
    const memory = held !== null ? say("models.holds", { held: held.toFixed(0) }) : fit
      ? say("models.needs", { needs: gb(fit.needs_bytes), free: fit.free_bytes === null ? "?" : gb(fit.free_bytes) })
      : state === "unloaded" ? say("models.needs_unknown") : "–";
    return [name, place, say(`models.state_${told}`, fetched) + why + requests, memory, this.action(model)];
  }

  action({ name, state, default: usual }) {
    if (usual || MOVING.includes(state)) return null;
    const act = state === "loaded" ? "unload" : "load";
    const label = say(`models.${act}`);
    return button(label, ({ target }) => this.begin(target, name, act), { "aria-label": `${label} ${name}` });
  }

  async begin(pressed, name, act) {
    const told = this.part("models-error");
    pressed.disabled = told.hidden = true;
    const body = act === "load" ? { force: this.part("models-force").checked } : { running: this.part("models-abort").checked ? "abort" : "drain" };
    try {
      await ask(`admin/models/${name.split("/").map(encodeURIComponent).join("/")}/${act}`, { method: "POST", body });
      this.moving = true;
      await this.look();
    } catch (error) {
      this.failed(error);
      told.textContent = error.told ?? say("status.lost");
      told.hidden = false;
      pressed.disabled = false;
    }
  }
}

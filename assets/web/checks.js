// Checks of the take in the player: what is wrong and where, and more takes beside it, the best of which is kept.
import { element } from "./elements.js";
import { ask, base, loaded, say, sayIn } from "./page.js";

const MORE = 3;

export async function mountChecks(root) {
  await loaded;
  sayIn(root);
  new Checks(root, document.querySelector("#player [data-state]"));
}

class Checks {
  constructor(root, player) {
    this.root = root;
    this.part = (name) => root.querySelector(`[data-part=${name}]`);
    this.take = null;
    this.part("best").textContent = say("check.best_button", { count: MORE });
    this.part("check").addEventListener("click", () => this.work("check.checking", () => this.check()));
    this.part("best").addEventListener("click", () => this.work("check.making", () => this.best()));
    // The player tells its state in the page; a take can be checked once all of it was heard.
    const look = () => this.follow(player.dataset.state);
    new MutationObserver(look).observe(player, { attributes: true, attributeFilter: ["data-state"] });
    look();
  }

  follow(state) {
    const take = state === "done" ? window.studio?.takeId() : state === "asking" ? null : this.take;
    if (take === this.take) return;
    this.take = take;
    this.root.hidden = !take;
    this.show("", []);
  }

  show(sentence, rows) {
    this.part("said").textContent = sentence;
    this.part("list").replaceChildren(...rows);
  }

  // One thing at a time; what comes for a take that is gone meanwhile is not shown.
  async work(doing, what) {
    const take = this.take;
    this.show(say(doing, { count: MORE }), []);
    this.root.dataset.state = "busy";
    for (const name of ["check", "best"]) this.part(name).disabled = true;
    try {
      const show = await what();
      if (take === this.take) show();
    } catch (error) {
      if (take === this.take) this.show(error.told ?? say("player.broken"), []);
    } finally {
      this.root.dataset.state = "idle";
      for (const name of ["check", "best"]) this.part(name).disabled = false;
    }
  }

  async check() {
    const found = await (await ask(`v1/audio/takes/${this.take}/check`, { method: "POST" })).json();
    return () => {
      this.show(found.summary, found.reasons.map((reason) => element("li", {}, reason)));
      window.studio.marks(found.marks);
    };
  }

  async best() {
    const body = { takes: MORE };
    const { best, takes } = await (await ask(`v1/audio/takes/${this.take}/best`, { method: "POST", body })).json();
    return () => {
      const number = takes.findIndex((take) => take.id === best) + 1;
      this.show(say("check.kept", { number, count: takes.length }), takes.map((take, n) => this.row(take, n + 1, best)));
    };
  }

  row(take, number, best) {
    const name = say("check.take", { number });
    const label = element("b", {}, name);
    if (!take.id) return element("li", {}, label, ` ${take.error}`);
    const src = new URL(`v1/audio/takes/${take.id}/audio`, base);
    const audio = element("audio", { controls: true, preload: "none", src, "aria-label": name });
    const told = [take.summary, ...take.reasons].filter(Boolean).join(" · ");
    return element("li", { "data-best": take.id === best ? "true" : null }, label, ` ${told}`, audio);
  }
}

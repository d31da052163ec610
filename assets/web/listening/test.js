// One test: what is wrong with it, its material, its links, how far its raters are, its results, its end.
import { ask, base, language, say } from "../page.js";
import { button, element } from "../elements.js";

const LOOK_MS = 1500;

export function testPage({ id, tell, fail, edit, back }) {
  const path = `v1/listening/tests/${id}`;
  const node = element("article", { class: "test" });
  let test = null;
  let pictures = []; // of the report, by name
  let timer = null, left = false;
  const at = (name) => new URL(`${path}/${name}`, base).href;
  const did = async (work) => {
    try {
      tell("");
      await work();
      await refresh();
    } catch (error) { fail(error); }
  };
  const post = (verb, body = {}) => ask(`${path}/${verb}`, { method: "POST", body });

  function problems() {
    if (test.making || !test.problems.length) return null; // what is being made is not lacking
    return element("ul", { class: "problems" }, ...test.problems.map((one) =>
      element("li", { "data-level": one.level }, element("strong", {}, say(`listen.level.${one.level}`)), ` ${one.message}`)));
  }

  function materialRow(condition) {
    const clips = test.clips.filter((clip) => clip.condition === condition.id);
    const file = element("input", { type: "file", multiple: true, accept: "audio/*,.zip,.txt", "aria-label": say("listen.upload_for", { name: condition.name }), "data-upload": condition.name, onchange: () => did(() => upload(condition, file)) });
    const settings = Object.entries({ ...condition.source.settings, ...condition.source.studio }).map(([name, value]) => `${name} ${value}`);
    const about = [say(`listen.source.${condition.source.kind}`), ...settings, condition.source.folder ?? ""].filter(Boolean).join(" · ");
    const heard = clips.slice(0, 40).map((clip) => button(`▶ ${clip.item}`, () => listen(clip), { title: clip.text, "aria-label": say("listen.hear", { item: clip.item, name: condition.name }) }));
    return element("tr", {}, element("th", { scope: "row" }, condition.name), element("td", {}, about),
      element("td", {}, String(clips.length)),
      element("td", {}, element("span", { class: "clips" }, ...heard), test.state === "draft" && condition.source.kind === "upload" ? file : null));
  }

  function listen(clip) {
    new Audio(at(`material/${clip.condition}/${encodeURIComponent(clip.item)}`)).play().catch(() => tell(say("status.lost")));
  }

  async function upload(condition, file) {
    const body = new FormData();
    body.append("condition", condition.id);
    for (const one of file.files) body.append("files", one, one.webkitRelativePath || one.name);
    await ask(`${path}/material`, { method: "POST", body });
  }

  const words = (settings) => Object.entries(settings).map(([name, value]) => `${name} ${value}`).join(", ");

  // Conditions that need other settings of the engine: an administrator has them made at one press.
  function series() {
    const { series: now, waiting } = test;
    if (now?.phase === "waiting") return [element("p", { role: "status" }, say("listen.series_resumes"))];
    if (now) {
      const told = { part: now.part, parts: now.parts, settings: words(now.settings) || "–", phase: say(`admin.phase.${now.phase}`) };
      return [element("p", { role: "status", "data-part": "series-at" }, say("listen.series_at", told)),
        button(say("listen.series_stop"), () => did(() => ask(`admin/listening/${id}/make`, { method: "DELETE" })), { "data-part": "series-stop" })];
    }
    if (!waiting.length || test.state !== "draft") return [];
    const flags = Object.entries(waiting[0].wanted).map(([name, value]) => `--${name.replaceAll("_", "-")} ${value}`).join(" ");
    return [element("ul", {}, ...waiting.map((one) => element("li", {}, say("listen.waiting", { name: one.condition, wanted: words(one.wanted) })))),
      test.can_borrow ? button(say("listen.series"), () => did(() => ask(`admin/listening/${id}/make`, { method: "POST" })), { class: "primary", disabled: test.making, "data-part": "series" }) : null,
      element("p", {}, element("small", {}, test.can_borrow ? `${say("listen.series_how")} ` : "", say("listen.series_by_hand", { flags })))].filter(Boolean);
  }

  function material() {
    const lacking = test.to_make - test.made;
    // What only waits for other settings is not made by this button.
    const waits = test.waiting.map((one) => test.design.conditions.find((condition) => condition.name === one.condition).id);
    const alone = test.design.conditions.filter((one) => one.source.kind === "speech" && !waits.includes(one.id));
    const makeable = alone.some((one) => test.clips.filter((clip) => clip.condition === one.id).length < test.design.texts.length);
    return element("section", {}, element("h3", {}, say("listen.material")),
      element("table", {}, element("thead", {}, element("tr", {}, ...["name", "source", "clips", "listen"].map((one) => element("th", { scope: "col" }, say(`listen.column.${one}`))))),
        element("tbody", {}, ...test.design.conditions.map(materialRow))),
      test.to_make ? element("p", { role: "status" }, element("progress", { max: test.to_make, value: test.made, "aria-label": say("listen.making") }), ` ${say("listen.made", { made: test.made, wanted: test.to_make })}`) : null,
      test.problem ? element("p", { class: "field-error", role: "alert" }, test.problem) : null,
      ...(lacking > 0 || test.series ? series() : []),
      test.state === "draft" && makeable && !test.series && !(waits.length && test.can_borrow) ? button(say(test.making ? "listen.making" : "listen.make"), () => did(() => post("make")), { disabled: test.making, "data-part": "make" }) : null);
  }

  function links() {
    const names = element("input", { type: "text", "aria-label": say("listen.names"), placeholder: say("listen.names") });
    const days = element("input", { type: "number", min: 1, max: 365, value: 14, "aria-label": say("listen.days") });
    const invite = () => did(() => post("invitations", { names: names.value.split(",").map((one) => one.trim()).filter(Boolean), days: Number(days.value) || 14 }));
    const rows = test.invitations.map((one) => {
      const url = new URL(`listen/${one.token}`, base).href;
      return element("li", {}, element("a", { href: url, target: "_blank", rel: "noreferrer", "data-link": one.token }, one.name || say("listen.anyone")),
        element("code", {}, url), button(say("listen.copy"), () => navigator.clipboard?.writeText(url).then(() => tell(say("listen.copied")))),
        element("small", {}, say("listen.expires", { day: new Date(one.expires_s * 1000).toLocaleDateString() })),
        button(say("listen.withdraw"), () => did(() => ask(`${path}/invitations/${one.token}`, { method: "DELETE" }))));
    });
    return element("section", {}, element("h3", {}, say("listen.links")), element("ul", { class: "links" }, ...rows),
      element("div", { class: "tools" }, names, element("label", {}, days, ` ${say("listen.days")}`), button(say("listen.invite"), invite, { "data-part": "invite" })));
  }

  function results() {
    const { joined, finished, answers, timeouts } = test.counts;
    const shown = test.state !== "open" || finished >= test.design.min_results;
    const inPageLanguage = (name) => `${name}?language=${language()}`;
    const link = (name, label) => element("a", { href: at(name.startsWith("report") ? inPageLanguage(name) : name), target: "_blank", rel: "noreferrer", "data-result": name }, say(label));
    const measure = async ({ target }) => {
      target.disabled = true;
      target.textContent = say("report.measuring");
      await did(() => post("measures"));
      target.disabled = false; // it is still there if that was refused
      target.textContent = say("report.measure");
    };
    return element("section", {}, element("h3", {}, say("listen.results")),
      element("p", { "data-part": "counts" }, say("listen.counts", { joined, finished, answers, timeouts })),
      shown ? element("p", { class: "tools" }, link("report", "listen.report"), link("report.pdf", "listen.pdf"), link("answers.csv", "listen.csv"), link("webmushra.csv", "listen.webmushra"), link("export.zip", "listen.export"))
        : element("p", {}, say("listening.too_early", { finished, wanted: test.design.min_results })),
      test.clips.length ? element("p", { class: "tools" }, button(say("report.measure"), measure, { "data-part": "measure" }), element("small", {}, say("report.measure_how"))) : null,
      ...(shown ? pictures : []).map((name) => element("img", { src: at(inPageLanguage(`pictures/${name}.svg`)), alt: say(`report.shows.${name}`), class: "picture", "data-picture": name })));
  }

  function remove() {
    const title = element("input", { type: "text", "aria-label": say("listen.field.title"), autocomplete: "off" });
    const error = element("p", { class: "field-error", role: "alert", hidden: true });
    const gone = async (event) => {
      event.preventDefault();
      try {
        const { export: kept } = await (await ask(path, { method: "DELETE", body: { title: title.value } })).json();
        dialog.close();
        leave();
        node.replaceChildren(element("p", { "data-part": "deleted" }, say("listen.deleted"), " ", element("a", { href: new URL(kept.slice(1), base).href }, say("listen.export"))), button(say("listen.back"), back));
      } catch (refusal) {
        error.textContent = refusal.told ?? say("status.lost");
        error.hidden = false;
      }
    };
    const dialog = element("dialog", { "aria-label": say("listen.delete") }, element("form", { onsubmit: gone },
      element("p", {}, say("listening.confirm", { title: test.design.title })), title, error,
      element("div", { class: "tools" }, element("button", { type: "submit", class: "danger", "data-part": "really" }, say("listen.delete")), button(say("listen.cancel"), () => dialog.close()))));
    dialog.addEventListener("close", () => dialog.remove());
    node.append(dialog);
    dialog.showModal();
  }

  // A part of the page is made anew only when what it shows has changed: nobody loses what they are typing.
  const kept = new Map();
  function same(make, about) {
    const key = JSON.stringify([language(), about]);
    if (kept.get(make)?.key !== key) kept.set(make, { key, node: make() });
    return kept.get(make).node;
  }

  let newest = null;

  async function refresh() {
    const mine = (newest = {});
    const found = await (await ask(path)).json();
    const answered = found.counts.answers && (found.state !== "open" || found.counts.finished >= found.design.min_results);
    const drawn = answered ? (await (await ask(`${path}/report.json`)).json()).pictures : [];
    if (left || mine !== newest) return; // what was asked for later knows more, whichever comes first
    [test, pictures] = [found, drawn];
    clearTimeout(timer);
    if (test.making || test.series) timer = setTimeout(() => refresh().catch(fail), LOOK_MS);
    if (node.querySelector("dialog[open]")) return; // somebody is about to delete it
    const draft = test.state === "draft";
    node.replaceChildren(...[
      element("div", { class: "tools" }, button(`← ${say("listen.back")}`, back, { "data-part": "back" }), button(say("listen.refresh"), () => did(async () => {}))),
      element("h2", {}, test.design.title, " ", element("span", { class: "badge", "data-state": test.state }, say(`listen.state.${test.state}`))),
      element("p", { class: "about" }, say(`listen.kind.${test.design.kind}`), " · ", say("listen.seed", { seed: test.design.seed })),
      problems(), test.design.arena ? null : material(), same(links, test.invitations), same(results, [test.counts, test.state, pictures, test.clips.length]),
      element("div", { class: "tools" },
        draft ? button(say("listen.edit"), () => edit(test), { "data-part": "edit" }) : null,
        draft ? button(say("listen.open"), () => did(() => post("open")), { class: "primary", "data-part": "open" }) : null,
        test.state === "open" ? button(say("listen.close"), () => did(() => post("close")), { "data-part": "close" }) : null,
        button(say("listen.delete"), remove, { class: "danger", "data-part": "delete" }))].filter(Boolean));
  }
  const leave = () => { left = true; clearTimeout(timer); };
  return { node, refresh, leave };
}

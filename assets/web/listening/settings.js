// Settings of a condition: chosen from those that there are, each with a field of its kind; of its requests or of the engine.
import { say } from "../page.js";
import { button, element } from "../elements.js";

// offered: { request, studio }, rows with name, kind, least, most, choices, value, effect; given: { settings, studio }.
export function settingsPicker(offered, given) {
  const groups = { settings: offered.request, studio: offered.studio };
  const list = element("ul", { class: "settings" });
  const more = element("select", { "aria-label": say("listen.setting_add"), "data-part": "add-setting", onchange: () => {
    const [group, name] = more.value.split("/");
    add(group, name).querySelector("input, select").focus();
  } });

  function refresh() {
    const chosen = new Set([...list.children].map((one) => one.dataset.setting));
    const options = Object.entries(groups).map(([group, rows]) => {
      const left = rows.filter((row) => !chosen.has(`${group}/${row.name}`));
      return left.length ? element("optgroup", { label: say(`listen.field.${group}`) }, ...left.map((row) => element("option", { value: `${group}/${row.name}`, title: row.effect }, row.name))) : null;
    });
    more.replaceChildren(element("option", { value: "" }, say("listen.setting_add")), ...options.filter(Boolean));
    more.value = "";
  }

  function add(group, name, value) {
    const row = groups[group].find((one) => one.name === name) ?? { name, kind: typeof value === "number" ? "float" : "str", value };
    const input = fieldOf(row, value ?? row.value);
    const item = element("li", {}, element("label", { title: row.effect }, element("span", {}, name), input, row.unit ? element("small", {}, row.unit) : null),
      button("×", () => { item.remove(); refresh(); more.focus(); }, { class: "remove", "aria-label": say("listen.setting_remove", { name }) }));
    item.dataset.setting = `${group}/${name}`;
    item.read = () => [group, name, valueOf(input, row)];
    list.append(item);
    refresh();
    return item;
  }

  for (const group of Object.keys(groups)) for (const [name, value] of Object.entries(given?.[group] ?? {})) add(group, name, value);
  refresh();
  const node = element("div", { class: "settings-of" }, list, more);
  node.read = () => {
    const found = { settings: {}, studio: {} };
    for (const [group, name, value] of [...list.children].map((one) => one.read())) found[group][name] = value;
    return found;
  };
  // An arena speaks with the settings that the studio runs with.
  node.withoutStudio = (without) => {
    groups.studio = without ? [] : offered.studio;
    if (without) for (const one of list.querySelectorAll("[data-setting^='studio/']")) one.remove();
    refresh();
  };
  return node;
}

function fieldOf({ choices, kind, least, most }, value) {
  if (choices) return element("select", {}, ...choices.map((one) => element("option", { value: one, selected: one === value }, one)));
  if (kind === "bool") return element("input", { type: "checkbox", checked: value === true });
  if (kind === "str") return element("input", { type: "text", value: value ?? "" });
  return element("input", { type: "number", min: least, max: most, step: kind === "int" ? 1 : "any", value: value ?? "" });
}

function valueOf(input, { kind }) {
  if (input.type === "checkbox") return input.checked;
  if (input.type !== "number") return input.value;
  return input.value === "" ? null : Number(input.value);
}

// Fields of our own forms: what sliders say, and errors at the field that they are about.
import { say } from "./page.js";

const units = {
  pitch: (value) => say("design.semitones", { count: (value > 0 ? "+" : "") + value }),
  speed: (value) => `${value.toFixed(2)}×`,
  weight: (value) => `${Math.round(value)} %`,
};

export function showOutputs(form) {
  for (const output of form.querySelectorAll("output[data-of]")) {
    const input = output.parentElement.querySelector("input");
    output.textContent = units[output.dataset.of](Number(input.value));
    input.setAttribute("aria-valuetext", output.textContent);
  }
}

export const inWords = (name, value) => units[name](value);

export function clearErrors(form) {
  for (const place of form.querySelectorAll("[data-error]")) { place.hidden = true; place.textContent = ""; }
  for (const input of form.querySelectorAll("[aria-invalid]")) input.removeAttribute("aria-invalid");
}

// Gives whether there is such a field, so that the error is told in one place.
export function markError(form, error) {
  const place = error.told && form.querySelector(`[data-error="${CSS.escape(error.param ?? "")}"]`);
  if (!place) return false;
  place.textContent = error.told;
  place.hidden = false;
  const input = form.querySelector(`[name="${CSS.escape(error.param.replace("defaults.", ""))}"]`);
  input?.setAttribute("aria-invalid", "true");
  input?.focus();
  return true;
}

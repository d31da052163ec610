// Languages by the names that they have in the page's language.
import { language } from "./page.js";

export const nameOf = (code) => new Intl.DisplayNames([language()], { type: "language" }).of(code);

export const languageOptions = (codes) => codes.map((code) => new Option(nameOf(code), code));

// The arena's leaderboard. It is asked for between two pairs only: the server gives no names while a vote is due.
import { table } from "../elements.js";
import { el } from "./dom.js";

const percent = (share) => `${(100 * share).toFixed(0)} %`;
const range = ({ low, high }) => (low === null || high === null ? "–" : `${percent(low)} – ${percent(high)}`);

export async function leaderboard({ link, say }) {
  const { votes, wanted, rows } = await link.json("leaderboard");
  const title = el("h2", {}, say("rate.leaderboard"));
  if (!rows.length) return [title, el("p", {}, say(votes < wanted ? "rate.leaderboard_wait" : "rate.leaderboard_open", { votes, wanted }))];
  const heads = ["place", "name", "share", "range"].map((name) => say(`rate.leaderboard_${name}`));
  return [title, table(heads, rows.map((row, n) => [String(n + 1), row.name, percent(row.share), range(row)])),
    el("p", { className: "instructions" }, say("rate.leaderboard_how", { votes }))];
}

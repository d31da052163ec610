// Curves of a run of the lab as SVG: a value along the bottom, figures of it upwards; what was planned is dashed.
const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 420, HEIGHT = 220, LEFT = 48, RIGHT = 24, TOP = 12, BOTTOM = 30, GRID = 4;

function drawn(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

export const isPlanned = (name) => name.startsWith("planned_");

// A round number not below a value: 1, 2, 2.5 or 5 times a power of ten.
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value || 1));
  return power * [1, 2, 2.5, 5, 10].find((step) => step * power >= value * 0.999);
}

// points: rows of figures; along: the figure along the bottom; names: those upwards. null where there is nothing to draw.
export function curves(points, along, names, label) {
  const shown = names.filter((name) => points.some((point) => typeof point[name] === "number"));
  if (!shown.length) return null;
  const most = roundUp(Math.max(...shown.flatMap((name) => points.map((point) => point[name] ?? 0))));
  const x = (at) => LEFT + (points.length > 1 ? at / (points.length - 1) : 0.5) * (WIDTH - LEFT - RIGHT);
  const y = (value) => HEIGHT - BOTTOM - (value / most) * (HEIGHT - TOP - BOTTOM);
  const picture = drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label, class: "lab-curves" });
  for (let line = 0; line <= GRID; line++) {
    const value = (most * line) / GRID;
    picture.append(
      drawn("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value), class: "lab-grid" }),
      drawn("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, String(Number(value.toPrecision(3)))),
    );
  }
  points.forEach((point, at) => {
    picture.append(drawn("text", { x: x(at), y: HEIGHT - 10, "text-anchor": "middle" }, String(point[along])));
    if (point.outcome !== "measured") picture.append(drawn("text", { x: x(at), y: y(0) - 4, "text-anchor": "middle", class: "lab-missing" }, "×"));
  });
  shown.forEach((name, number) => picture.append(...curve(points, name, number, x, y)));
  return picture;
}

function curve(points, name, number, x, y) {
  const known = points.map((point, at) => [at, point[name]]).filter(([, value]) => typeof value === "number");
  const kind = `lab-curve lab-curve-${isPlanned(name) ? "planned" : number}`;
  const line = drawn("polyline", { points: known.map(([at, value]) => `${x(at)},${y(value)}`).join(" "), class: kind, "data-curve": name });
  const dots = known.map(([at, value]) => {
    const dot = drawn("circle", { cx: x(at), cy: y(value), r: 3, class: kind });
    dot.append(drawn("title", {}, `${name}: ${value}`));
    return dot;
  });
  return [line, ...dots];
}

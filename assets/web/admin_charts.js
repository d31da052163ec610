// Pictures of the Admin tab: a line over time, and a bar for each request, coloured by stage.
export const STAGES = [
  { key: "admin.stage.waiting", shade: "--admin-waiting", until: "queue_s" },
  { key: "admin.stage.reading", shade: "--admin-reading", until: "read_s" },
  { key: "admin.stage.first sound", shade: "--admin-first", until: "first_s" },
  { key: "admin.stage.speaking", shade: "--admin-speaking", until: "whole_s" },
];

function prepared(canvas) {
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(canvas.clientWidth * scale);
  canvas.height = Math.round(canvas.clientHeight * scale);
  const draw = canvas.getContext("2d");
  draw.clearRect(0, 0, canvas.width, canvas.height);
  return { draw, width: canvas.width, height: canvas.height, scale, style: getComputedStyle(canvas) };
}

// Values, the oldest first, null where there was none; one between two of none is a dot. Gives the largest, or null.
export function drawLine(canvas, values) {
  const { draw, width, height, scale, style } = prepared(canvas);
  const known = values.filter((value) => value !== null);
  if (!known.length || !width) return null;
  const most = Math.max(...known), full = most || 1;
  draw.strokeStyle = draw.fillStyle = style.getPropertyValue("--admin-line");
  draw.lineWidth = 1.5 * scale;
  draw.beginPath();
  let pen = false;
  values.forEach((value, at) => {
    if (value === null) { pen = false; return; }
    const x = values.length > 1 ? (at / (values.length - 1)) * width : 0;
    const y = height - scale - (value / full) * (height - 2 * scale);
    if (pen) draw.lineTo(x, y); else draw.moveTo(x, y);
    const alone = !pen && (values[at + 1] ?? null) === null;
    if (alone) draw.fillRect(x - 1.5 * scale, Math.max(0, Math.min(height - 3 * scale, y - 1.5 * scale)), 3 * scale, 3 * scale);
    pen = true;
  });
  draw.stroke();
  return most;
}

// Requests side by side, the oldest at the left; height is time, longest one full. Gives its seconds, or null of none.
export function drawBars(canvas, requests) {
  const { draw, width, height, scale, style } = prepared(canvas);
  if (!requests.length || !width) return null;
  const longest = Math.max(...requests.map((request) => request.whole_s), 1e-3);
  const bar = Math.min(12 * scale, width / requests.length), thick = Math.max(scale, Math.floor(bar - scale));
  requests.forEach((request, at) => {
    const left = Math.round(at * bar);  // whole pixels: thin bars keep their colours
    let from = 0;
    for (const { shade, until } of STAGES) {
      const to = (request[until] / longest) * height;
      draw.fillStyle = style.getPropertyValue(shade);
      draw.fillRect(left, height - to, thick, Math.max(0, to - from));
      from = to;
    }
    if (request.reason !== "stop") {
      draw.fillStyle = style.getPropertyValue("--admin-failed");
      draw.fillRect(left, height - 3 * scale, thick, 3 * scale);
    }
  });
  return longest;
}

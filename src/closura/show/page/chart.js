"use strict";
// Figures as SVG: layers over two axes, with values under the pointer. Names only ever become text nodes.

const NAMESPACE = new DOMParser().parseFromString("<svg></svg>", "text/html").querySelector("svg").namespaceURI;
const FONT = 12, SIDE = 56, TOP = 22, FOOT = 36;

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) if (value != null) node.setAttribute(name, value);
  node.append(...children.flat().filter((child) => child != null));
  return node;
}
const html = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const shape = (tag, attributes = {}, ...children) => fill(document.createElementNS(NAMESPACE, tag), attributes, children);

/** Finite numbers only: their least and greatest. */
function ends(...arrays) {
  let low = Infinity, high = -Infinity;
  for (const array of arrays) for (const value of array) {
    if (!Number.isFinite(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

/** A number with as many digits as a range of that width deserves. */
function number(value, width) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value), fine = width > 0 ? width / 2000 : size / 2000;
  if (size >= 1e6 || (size > 0 && size < 1e-4 && fine < 1e-5)) return value.toPrecision(4).replace("-", "−").replace("e-", "e−");
  const digits = fine > 0 ? Math.max(0, Math.min(8, Math.ceil(-Math.log10(fine)))) : 0;
  return String(Number(value.toFixed(digits))).replace("-", "−");
}

function short(text, letters) {
  const line = text.split(/\s+/).join(" ");
  return line.length <= letters ? line : line.slice(0, Math.max(1, letters - 4)) + "…" + line.slice(-3);
}

/** Round values between the ends, about `count` of them. */
function ticks(low, high, count) {
  const raw = (high - low) / Math.max(1, count), power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((digit) => digit * power >= raw * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) found.push(i * step);
  return found.map((value) => [value, number(value, step * 20)]);
}

function logTicks(low, high, count) {
  const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
  if (last - first < 1) return ticks(low, high, Math.min(3, count));
  const every = Math.ceil((last - first + 1) / count), found = [];
  for (let power = first; power <= last; power += every) found.push([10 ** power, `1e${power}`.replace("-", "−")]);
  return found;
}

/** Where the value lies in an array that ascends: the index of the nearest. */
function nearest(array, value) {
  let low = 0, high = array.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (array[middle] < value) low = middle; else high = middle;
  }
  return Math.abs(array[low] - value) <= Math.abs(array[high] - value) ? low : high;
}

function path(x, y, at) {
  let text = "", pen = "M";
  for (let i = 0; i < x.length; i++) {
    if (!Number.isFinite(y[i])) { pen = "M"; continue; }
    text += `${pen}${at.x(x[i]).toFixed(1)} ${at.y(y[i]).toFixed(1)}`;
    pen = "L";
  }
  return text;
}

const colourOf = (palette, share) => {
  const place = Math.max(0, Math.min(1, share)) * (palette.length - 1), left = Math.min(palette.length - 2, Math.floor(place));
  const part = (text, k) => parseInt(text.slice(1 + 2 * k, 3 + 2 * k), 16);
  const mixed = [0, 1, 2].map((k) => Math.round(part(palette[left], k) + (place - left) * (part(palette[left + 1], k) - part(palette[left], k))));
  return `rgb(${mixed.join(",")})`;
};

/** Borders of the cells around points of a line. */
const borders = (line) => line.length < 2 ? [line[0] - 0.5, line[0] + 0.5]
  : [line[0], ...Array.from({ length: line.length - 1 }, (_, i) => (line[i] + line[i + 1]) / 2), line[line.length - 1]];

/** Every kind of layer: what range it needs (`reach`), how it looks (`draw`), what it says at a place (`tell`). */
const LAYERS = {
  line: {
    reach: (l) => [ends(l.x), ends(l.y)],
    draw: (l, at) => l.x.length > 1
      ? [shape("path", { d: path(l.x, l.y, at), fill: "none", stroke: l.colour, "stroke-width": l.width ?? 2,
        "stroke-dasharray": l.dash, "stroke-opacity": l.opacity, "stroke-linejoin": "round" })]
      : [...l.x].map((x, i) => shape("rect", { x: at.x(x) - 3.5, y: at.y(l.y[i]) - 3.5, width: 7, height: 7, fill: l.colour })),
    tell: (l, x, y, at) => number(l.y[nearest(l.x, x)], at.height),
  },
  band: {
    reach: (l) => [ends(l.x), ends(l.low, l.high)],
    draw(l, at) {
      const x = [...l.x], wide = x.length === 1 ? [x[0], x[0]] : x;
      const there = [...l.low, ...l.high].every(Number.isFinite);
      const low = wide.map((_, i) => l.low[Math.min(i, x.length - 1)]), high = wide.map((_, i) => l.high[Math.min(i, x.length - 1)]);
      const d = there ? path([...wide, ...wide.slice().reverse()], [...low, ...high.slice().reverse()], at) + "Z" : "";
      return [shape("path", { d, fill: l.colour, "fill-opacity": l.opacity ?? 0.22,
        ...(x.length === 1 ? { stroke: l.colour, "stroke-width": 6, "stroke-opacity": 0.25 } : {}) })];
    },
    tell: (l, x, y, at) => { const i = nearest(l.x, x); return l.say?.(i) ?? `${number(l.low[i], at.height)} to ${number(l.high[i], at.height)}`; },
  },
  dots: {
    reach: (l) => [ends(l.x), l.error ? ends(l.y.map((y, i) => y - l.error[i]), l.y.map((y, i) => y + l.error[i])) : ends(l.y)],
    draw: (l, at) => [
      l.error && shape("path", { stroke: l.colour, "stroke-width": 1, d: [...l.x].map((x, i) =>
        `M${at.x(x).toFixed(1)} ${at.y(l.y[i] - l.error[i]).toFixed(1)}V${at.y(l.y[i] + l.error[i]).toFixed(1)}`).join("") }),
      ...[...l.x].map((x, i) => shape("circle", { cx: at.x(x).toFixed(1), cy: at.y(l.y[i]).toFixed(1), r: l.size ?? 3, fill: l.colour,
        stroke: l.edge })),
    ],
    tell(l, x, y, at) {
      let best = -1, least = 20;
      for (let i = 0; i < l.x.length; i++) {
        const apart = Math.hypot(at.x(l.x[i]) - at.x(x), (at.y(l.y[i]) - at.y(y)) * (l.loose ? 0.2 : 1));
        if (apart < least) { best = i; least = apart; }
      }
      return best < 0 ? null : l.say(best, at);
    },
  },
  bars: {
    reach: (l) => [ends(l.edges), [0, ends(l.y)[1]]],
    draw: (l, at) => [shape("path", { fill: l.colour, "fill-opacity": l.opacity ?? 0.5, d: [...l.y].map((y, i) =>
      `M${at.x(l.edges[i]).toFixed(1)} ${at.y(l.base ?? 0).toFixed(1)}V${at.y((l.base ?? 0) + y).toFixed(1)}H${at.x(l.edges[i + 1]).toFixed(1)}V${at.y(l.base ?? 0).toFixed(1)}Z`).join("") })],
    tell: (l, x, y) => l.say?.(Math.max(0, Math.min(l.y.length, l.edges.filter((edge) => edge <= x).length) - 1), y) ?? null,
  },
  span: {
    reach: () => [[], []],
    draw: (l, at) => [
      shape("rect", { x: at.x(l.from), y: at.top, width: Math.max(0, at.x(l.to) - at.x(l.from)), height: at.bottom - at.top, fill: l.colour }),
      l.label && at.x(l.to) - at.x(l.from) > 7 * l.label.length ? shape("text", { x: at.x(l.from) + 4, y: at.top + 12 }, l.label) : null,
    ],
    tell: (l, x) => x > l.from && x < l.to ? "" : null,
  },
  level: {
    reach: (l) => l.stretch === false ? [[], []] : [[], [l.y]],
    draw: (l, at) => [shape("path", { d: `M${at.left} ${at.y(l.y)}H${at.right}`, stroke: l.colour, "stroke-width": l.width ?? 1.3,
      "stroke-dasharray": l.dash })],
    tell: (l, x, y, at) => l.name ? number(l.y, at.height) : null,
  },
  rows: {
    reach: (l) => [ends(...l.columns), [-0.7, l.order.length - 0.3]],
    draw(l, at) {
      const [low, left, mid, right, high, truth] = l.columns, many = l.order.length > 60;
      const line = (a, b, only) => l.order.map((s, row) => only != null && s !== only || !Number.isFinite(a[s]) ? "" :
        `M${at.x(a[s]).toFixed(1)} ${at.y(row).toFixed(1)}H${at.x(b[s]).toFixed(1)}`).join("");
      const tick = l.order.map((s, row) => Number.isFinite(truth[s]) ? `M${at.x(truth[s]).toFixed(1)} ${(at.y(row) - (many ? 1 : 4)).toFixed(1)}v${many ? 2 : 8}` : "").join("");
      const thin = { stroke: l.colour, "stroke-opacity": 0.45, "stroke-width": many ? 1 : 1.5, d: line(low, high) };
      const row = l.order.indexOf(l.chosen);
      return [
        shape("path", thin),
        many ? null : shape("path", { stroke: l.colour, "stroke-width": 3.5, d: line(left, right) }),
        ...l.order.map((s, k) => shape("circle", { cx: at.x(mid[s]).toFixed(1), cy: at.y(k).toFixed(1), r: many ? 1 : 2.6, fill: l.colour })),
        shape("path", { stroke: l.mark, "stroke-width": 2, d: line(low, high, l.chosen) }),
        shape("circle", { cx: at.x(mid[l.chosen]), cy: at.y(row), r: 4, fill: l.mark }),
        shape("path", { stroke: l.true, "stroke-width": many ? 2 : 1.8, d: tick }),
      ];
    },
    tell: (l, x, y) => l.say(l.order[Math.max(0, Math.min(l.order.length - 1, Math.round(y)))]),
  },
  field: {
    reach: (l) => [ends(l.x), ends(l.y)],
    draw(l, at) {
      const canvas = html("canvas"), [columns, rows] = [borders(l.x), borders(l.y)];
      canvas.width = Math.round(at.right - at.left); canvas.height = Math.round(at.bottom - at.top);
      const pen = canvas.getContext("2d");
      for (let i = 0; i < l.x.length; i++) for (let j = 0; j < l.y.length; j++) {
        const value = l.values[i * l.y.length + j];
        if (!Number.isFinite(value)) continue;
        const [x, y] = [Math.floor(at.x(columns[i]) - at.left), Math.floor(at.y(rows[j + 1]) - at.top)];
        const size = [Math.ceil(at.x(columns[i + 1]) - at.left - x), Math.ceil(at.y(rows[j]) - at.top - y)];
        pen.fillStyle = colourOf(l.palette, (value - l.low) / (l.high - l.low || 1));
        pen.fillRect(x, y, ...size);
        if (l.visited && !l.visited[i * l.y.length + j]) { pen.fillStyle = "rgba(235,235,235,.8)"; pen.fillRect(x, y, ...size); }
      }
      return [shape("image", { href: canvas.toDataURL(), x: at.left, y: at.top, width: at.right - at.left, height: at.bottom - at.top,
        preserveAspectRatio: "none" })];
    },
    tell: (l, x, y) => number(l.values[nearest(l.x, x) * l.y.length + nearest(l.y, y)], l.high - l.low),
  },
};

const padded = ([low, high], share) => {
  if (!(low <= high)) return [0, 1];
  const room = share * (high - low) || Math.abs(low) * 0.05 || 1;
  return high > low ? [low - room * (share > 0), high + room * (share > 0)] : [low - room, high + room];
};

/** Draw `spec` into `host`: {said, x: {name, ends?, top?}, y: {name, ends?, log?, hidden?}, height, layers, pick?}. */
function chart(host, spec) {
  const width = Math.max(200, Math.floor(host.clientWidth)), { layers } = spec, quiet = spec.y.hidden;
  const reach = layers.map((l) => LAYERS[l.kind].reach(l));
  const xs = spec.x.ends ?? padded(ends(...reach.map((r) => r[0])), spec.x.tight === false ? 0.04 : 0);
  const known = ends(...reach.map((r) => r[1])), log = spec.y.log && known[0] > 0;
  const ys = spec.y.ends ?? (log ? [known[0] / 1.2, known[1] * 1.2] : padded(known, spec.y.tight ? 0 : 0.05));
  const topped = spec.x.top?.length > 0;
  const height = typeof spec.height === "function" ? spec.height(width) : spec.height;
  const at = { left: quiet ? 6 : SIDE, right: width - 10, top: TOP + (topped ? 18 : 0), bottom: height - (spec.x.bare ? 8 : FOOT) };
  const bent = log ? Math.log10 : (v) => v, [y0, y1] = ys.map(bent);
  at.x = (v) => at.left + ((v - xs[0]) / (xs[1] - xs[0])) * (at.right - at.left);
  at.y = (v) => at.bottom - ((bent(v) - y0) / (y1 - y0)) * (at.bottom - at.top);
  at.height = log ? 0 : ys[1] - ys[0];
  at.width = xs[1] - xs[0];
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": spec.said });
  const clip = `clip${chart.count = (chart.count ?? 0) + 1}`;
  svg.append(shape("clipPath", { id: clip }, shape("rect", { x: at.left, y: at.top - 4, width: at.right - at.left, height: at.bottom - at.top + 8 })));
  const write = (x, y, text, anchor, more = {}) => shape("text", { x, y, "text-anchor": anchor, ...more }, text);
  const axis = shape("g", { class: "axis" });
  if (!quiet && !spec.y.blank) for (const [value, text] of (log ? logTicks : ticks)(...ys, Math.max(2, (at.bottom - at.top) / 26))) {
    axis.append(shape("path", { class: "grid", d: `M${at.left} ${at.y(value)}H${at.right}` }), write(at.left - 6, at.y(value) + 4, text, "end"));
  }
  if (!spec.x.bare) {
    for (const [value, text] of ticks(...xs, Math.max(2, (at.right - at.left) / 50))) {
      axis.append(shape("path", { class: "tick", d: `M${at.x(value)} ${at.bottom}v4` }), write(at.x(value), at.bottom + 16, text, "middle"));
    }
    axis.append(write((at.left + at.right) / 2, height - 4, short(spec.x.name, width / 8), "middle", { class: "name" }));
  }
  axis.append(shape("path", { class: "tick", d: `M${at.left} ${at.bottom}H${at.right}` }));
  let last = -Infinity;
  for (const [value, text] of topped ? spec.x.top : []) {
    const place = at.x(value), wide = 7 * text.length + 10;
    if (place < at.left || place > at.right || place - last < wide) continue;
    axis.append(shape("path", { class: "tick", d: `M${place} ${at.top}v-4` }), write(place, at.top - 7, text, "middle"));
    last = place;
  }
  if (spec.y.name) axis.append(write(quiet ? 6 : 2, 13, short(spec.y.name, width / 7.5), "start", { class: "name" }));
  if (topped) axis.append(write(at.right, 13, short(spec.x.above, width / 16), "end", { class: "name" }));
  const drawing = shape("g", { "clip-path": `url(#${clip})` }, layers.flatMap((l) => LAYERS[l.kind].draw(l, at)));
  svg.append(axis, drawing);
  const tip = html("div", { class: "tip", hidden: "" });
  host.replaceChildren(svg, tip);
  hover(host, svg, tip, spec, layers, at, xs, ys.map(bent), log);
}

/** Values at the pointer, for mouse and finger. */
function hover(host, svg, tip, spec, layers, at, xs, ys, log) {
  const guide = shape("path", { class: "guide" });
  svg.append(guide);
  const place = (event) => {
    const box = svg.getBoundingClientRect(), ratio = svg.viewBox.baseVal.width / box.width;
    const [px, py] = [(event.clientX - box.left) * ratio, (event.clientY - box.top) * ratio];
    const y = ys[0] + ((at.bottom - py) / (at.bottom - at.top)) * (ys[1] - ys[0]);
    return { px, py, x: xs[0] + ((px - at.left) / (at.right - at.left)) * at.width, y: log ? 10 ** y : y };
  };
  const away = () => { tip.hidden = true; guide.removeAttribute("d"); };
  svg.addEventListener("pointermove", show);
  svg.addEventListener("pointerdown", show);
  svg.addEventListener("pointerleave", away);
  if (spec.pick) svg.addEventListener("click", (event) => { const { x, y } = place(event); spec.pick(x, y); });
  function show(event) {
    const { px, py, x, y } = place(event);
    if (px < at.left - 4 || px > at.right + 4 || py < at.top - 8 || py > at.bottom + 8) return away();
    const told = layers.filter((l) => l.name || l.say).map((l) => [l.name, LAYERS[l.kind].tell(l, x, y, at)]).filter(([, said]) => said != null);
    const rows = told.filter(([name]) => name).map(([name, said]) => html("div", {}, said ? `${name}: ${said}` : name));
    const others = told.filter(([name]) => !name).map(([, said]) => html("div", {}, said));
    const head = spec.tip === false ? [] : [html("b", {}, spec.tip?.(x, y) ?? `${spec.x.name} ${number(x, at.width)}`)];
    tip.replaceChildren(...head, ...others, ...rows);
    tip.hidden = false;
    if (spec.tip !== false) guide.setAttribute("d", `M${px} ${at.top}V${at.bottom}`);
    const room = host.clientWidth, wide = tip.offsetWidth;
    tip.style.left = `${Math.max(0, Math.min(room - wide, px > room / 2 ? px - wide - 14 : px + 14))}px`;
    tip.style.top = `${Math.max(0, py - 10)}px`;
  }
}

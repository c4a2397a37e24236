"use strict";
// Figures as SVG: layers over two axes, with values under the pointer. Names only ever become text nodes.

const NAMESPACE = new DOMParser().parseFromString("<svg></svg>", "text/html").querySelector("svg").namespaceURI;
const SIDE = 56, RIGHT = 16, TOP = 22, FOOT = 36;

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) if (value != null) node.setAttribute(name, value);
  node.append(...children.flat().filter((child) => child != null));
  return node;
}
const html = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const shape = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(NAMESPACE, tag), attributes, children);

/** The least and the greatest of what is finite. */
function ends(...arrays) {
  let low = Infinity, high = -Infinity;
  for (const array of arrays) for (const value of array) {
    if (!Number.isFinite(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

/** Ends with a share of room around them; something drawable where there is no range. */
function padded([low, high], share) {
  if (!(low <= high)) return [0, 1];
  const room = high > low ? share * (high - low) : 0.05 * Math.abs(low) || 1;
  return [low - room, high + room];
}

/** A number with as many digits as a range of that width deserves; four where none is given. */
function number(value, width) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value), fine = width / 2000, tiny = size > 0 && size < 1e-4 && fine < 1e-5;
  if (!(width > 0) || size >= 1e6 || tiny) return String(Number(value.toPrecision(4))).replace(/-/g, "−");
  const digits = Math.max(0, Math.min(8, Math.ceil(-Math.log10(fine))));
  return String(Number(value.toFixed(digits))).replace("-", "−");
}

function short(text, letters) {
  const line = text.split(/\s+/).join(" ");
  return line.length <= letters ? line : `${line.slice(0, Math.max(1, letters - 4))}…${line.slice(-3)}`;
}

/** Round values between the ends, at most about `count`, each with its text. */
function ticks(low, high, count, whole) {
  const raw = (high - low) / Math.max(1, count), power = 10 ** Math.floor(Math.log10(raw));
  const round = power * [1, 2, 5, 10].find((digit) => digit * power >= raw * 0.999);
  const step = whole ? Math.max(1, round) : round;
  const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
  const values = Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => (first + i) * step);
  return values.map((value) => [value, number(value, step * 20)]);
}

function logTicks(low, high, count) {
  const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
  if (last - first < 1) return ticks(low, high, Math.min(3, count));
  const every = Math.ceil((last - first + 1) / count), found = [];
  for (let power = first; power <= last; power += every) found.push([10 ** power, `1e${power}`.replace("-", "−")]);
  return found;
}

/** The index of the nearest in an array that ascends. */
function nearest(array, value) {
  let low = 0, high = array.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (array[middle] < value) low = middle; else high = middle;
  }
  return Math.abs(array[low] - value) <= Math.abs(array[high] - value) ? low : high;
}

const point = (value) => value.toFixed(1);

function path(x, y, at) {
  let text = "", pen = "M";
  for (let i = 0; i < x.length; i++) {
    if (!Number.isFinite(y[i])) { pen = "M"; continue; }
    text += `${pen}${point(at.x(x[i]))} ${point(at.y(y[i]))}`;
    pen = "L";
  }
  return text;
}

/** Stretches of a band where both of its edges are finite, as closed paths. */
function ribbon({ x, low, high }, at) {
  let text = "";
  for (let start = 0, i = 0; i <= x.length; i++) {
    if (i < x.length && Number.isFinite(low[i]) && Number.isFinite(high[i])) continue;
    const there = x.slice(start, i), back = (values) => Array.from(values.slice(start, i)).reverse();
    if (there.length) text += `${path(there, high.slice(start, i), at)}L${path(back(x), back(low), at).slice(1)}Z`;
    start = i + 1;
  }
  return text;
}

function mixed(palette, share) {
  const place = Math.max(0, Math.min(1, share)) * (palette.length - 1);
  const left = Math.min(palette.length - 2, Math.floor(place)), weight = place - left;
  const part = (i, k) => parseInt(palette[i].slice(1 + 2 * k, 3 + 2 * k), 16);
  const mix = (k) => Math.round((1 - weight) * part(left, k) + weight * part(left + 1, k));
  return `rgb(${mix(0)},${mix(1)},${mix(2)})`;
}

/** Borders of the cells around the points of a line. */
function borders(line) {
  if (line.length < 2) return [line[0] - 0.5, line[0] + 0.5];
  return [line[0], ...Array.from(line.slice(1), (value, i) => (line[i] + value) / 2), line[line.length - 1]];
}

/** Every kind of layer: the range it needs (`reach`), how it looks (`draw`), what it says of a place (`tell`). */
const LAYERS = {
  line: {
    reach: (l) => [ends(l.x), ends(l.y)],
    draw(l, at) {
      if (l.x.length === 1) {
        return [shape("rect", { x: at.x(l.x[0]) - 3.5, y: at.y(l.y[0]) - 3.5, width: 7, height: 7, fill: l.colour })];
      }
      return [shape("path", { d: path(l.x, l.y, at), fill: "none", stroke: l.colour, "stroke-width": l.width ?? 2,
        "stroke-dasharray": l.dash, "stroke-opacity": l.opacity, "stroke-linejoin": "round" })];
    },
    tell(l, x, y, at) {
      const i = nearest(l.x, x);
      return l.say?.(i, at) ?? number(l.y[i], at.height);
    },
  },
  band: {
    reach: (l) => [ends(l.x), ends(l.low, l.high)],
    draw(l, at) {
      const edge = l.x.length === 1 ? { stroke: l.colour, "stroke-width": 6, "stroke-opacity": 0.25 } : {};
      if (l.dash) Object.assign(edge, { stroke: l.colour, "stroke-dasharray": l.dash });
      return [shape("path", { d: ribbon(l, at), fill: l.colour, "fill-opacity": l.opacity ?? 0.22, ...edge })];
    },
    tell(l, x, y, at) {
      const i = nearest(l.x, x);
      return l.say?.(i) ?? `${number(l.low[i], at.height)} to ${number(l.high[i], at.height)}`;
    },
  },
  threads: { // many lines, there while the pointer is over the plot
    reach: (l) => [ends(l.x), []],
    draw: (l, at) => [shape("g", { class: "threads", fill: "none", stroke: l.colour, "stroke-width": 0.8 },
      l.lines.map((y) => shape("path", { d: path(l.x, y, at) })))],
    tell: () => null,
  },
  dots: {
    reach: (l) => [ends(l.x), ends(l.y, l.low ?? [], l.high ?? [])],
    draw(l, at) {
      const bar = (x, i) => Number.isFinite(l.high[i] - l.low[i])
        ? `M${point(at.x(x))} ${point(at.y(l.low[i]))}V${point(at.y(l.high[i]))}` : "";
      const bars = l.low && shape("path", { stroke: l.colour, "stroke-width": 1, d: Array.from(l.x, bar).join("") });
      const look = { r: l.size ?? 3, fill: l.colour, stroke: l.edge };
      const dot = (x, i) => shape("circle", { cx: point(at.x(x)), cy: point(at.y(l.y[i])), ...look });
      return [bars, ...Array.from(l.x, dot)];
    },
    tell(l, x, y, at) {
      let best = -1, least = 20;
      for (let i = 0; i < l.x.length; i++) {
        const apart = Math.hypot(at.x(l.x[i]) - at.x(x), (at.y(l.y[i]) - at.y(y)) * (l.wide ? 0.2 : 1));
        if (apart < least) { best = i; least = apart; }
      }
      return best < 0 ? null : l.say(best, at);
    },
  },
  bars: {
    reach: (l) => [ends(l.edges), [0, ends(l.y)[1]]],
    draw(l, at) {
      const base = l.base ?? 0, foot = point(at.y(base)), edge = (i) => point(at.x(l.edges[i]));
      const bar = (y, i) => `M${edge(i)} ${foot}V${point(at.y(base + y))}H${edge(i + 1)}V${foot}Z`;
      return [shape("path", { fill: l.colour, "fill-opacity": l.opacity ?? 0.5, d: l.y.map(bar).join("") })];
    },
    tell(l, x, y) {
      const i = l.edges.filter((edge) => edge <= x).length - 1;
      return i < 0 || i >= l.y.length ? null : l.say(i, y);
    },
  },
  span: {
    reach: () => [[], []],
    draw(l, at) {
      const x = at.x(l.from), width = Math.max(0, at.x(l.to) - x);
      return [shape("rect", { x, y: at.top, width, height: at.bottom - at.top, fill: l.colour })];
    },
    tell: (l, x) => x > l.from && x < l.to ? "" : null,
  },
  level: {
    reach: (l) => [[], [l.y]],
    draw: (l, at) => [shape("path", { d: `M${at.left} ${point(at.y(l.y))}H${at.right}`, stroke: l.colour,
      "stroke-width": l.width ?? 1.3, "stroke-dasharray": l.dash })],
    tell: (l, x, y, at) => number(l.y, at.height),
  },
  rows: {
    reach: (l) => [ends(...l.columns), [-0.7, l.order.length - 0.3]],
    draw(l, at) {
      const [low, left, middle, right, high, truth] = l.columns, many = l.order.length > 60, tall = many ? 2 : 8;
      const all = l.order.map((system, row) => [system, row]).filter(([system]) => Number.isFinite(middle[system]));
      const x = (column, s) => point(at.x(column[s])), y = (row) => point(at.y(row));
      const across = (of, a, b) => of.map(([s, row]) => `M${x(a, s)} ${y(row)}H${x(b, s)}`).join("");
      const dots = (of, r, colour) =>
        of.map(([s, row]) => shape("circle", { cx: x(middle, s), cy: y(row), r, fill: colour }));
      const tick = ([s, row]) => `M${x(truth, s)} ${point(at.y(row) - tall / 2)}v${tall}`;
      const known = all.filter(([s]) => Number.isFinite(truth[s])), chosen = all.filter(([s]) => s === l.chosen);
      return [
        shape("path", { stroke: l.colour, "stroke-opacity": 0.45, "stroke-width": 1.4, d: across(all, low, high) }),
        shape("path", { stroke: l.colour, "stroke-width": many ? 0 : 3.5, d: across(all, left, right) }),
        ...dots(all, many ? 1 : 2.6, l.colour),
        shape("path", { stroke: l.mark, "stroke-width": 2, d: across(chosen, low, high) }),
        ...dots(chosen, 4, l.mark),
        shape("path", { stroke: l.true, "stroke-width": 1.8, d: known.map(tick).join("") }),
      ];
    },
    tell: (l, x, y) => l.say(l.order[Math.max(0, Math.min(l.order.length - 1, Math.round(y)))]),
  },
  field: {
    reach: (l) => [ends(l.x), ends(l.y)],
    draw(l, at) {
      const canvas = html("canvas"), columns = borders(l.x), lines = borders(l.y), pen = canvas.getContext("2d");
      const box = { x: at.left, y: at.top, width: at.right - at.left, height: at.bottom - at.top };
      [canvas.width, canvas.height] = [Math.round(box.width), Math.round(box.height)];
      l.values.forEach((value, k) => {
        if (!Number.isFinite(value)) return;
        const i = Math.floor(k / l.y.length), j = k % l.y.length;
        const x = Math.floor(at.x(columns[i]) - at.left), y = Math.floor(at.y(lines[j + 1]) - at.top);
        const size = [Math.ceil(at.x(columns[i + 1]) - at.left) - x, Math.ceil(at.y(lines[j]) - at.top) - y];
        const paint = (colour) => { pen.fillStyle = colour; pen.fillRect(x, y, ...size); };
        paint(mixed(l.palette, (value - l.low) / (l.high - l.low || 1)));
        if (l.visited && !l.visited[k]) paint("#ebebebcc");
      });
      return [shape("image", { href: canvas.toDataURL(), ...box, preserveAspectRatio: "none" })];
    },
    tell: (l, x, y) => number(l.values[nearest(l.x, x) * l.y.length + nearest(l.y, y)], l.high - l.low),
  },
};

/** Draw `spec` into `host`.
 *
 *  said: what it shows, for those who cannot see it; height: pixels, or a function of the width; layers;
 *  x: {name, ends?, loose?, whole?, bare? (no ticks), top? [[place, text]], above? (name of their axis)};
 *  y: {name, ends?, log?, tight?, hidden? (no axis), blank? (no ticks), side? (a name beside it)};
 *  tip?: text for a place, or false; near?: of many lines only the nearest speaks; pick?: what a click does.
 */
function chart(host, spec) {
  const { x, y, layers } = spec, width = Math.max(200, Math.floor(host.clientWidth));
  const height = Math.round(typeof spec.height === "function" ? spec.height(width) : spec.height);
  const reach = layers.map((layer) => LAYERS[layer.kind].reach(layer)), known = ends(...reach.map((r) => r[1]));
  const xs = x.ends ?? padded(ends(...reach.map((r) => r[0])), x.loose ? 0.04 : 0), log = y.log && known[0] > 0;
  const ys = y.ends ?? (log ? [known[0] / 1.2, known[1] * 1.2] : padded(known, y.tight ? 0 : 0.05));
  const bent = log ? Math.log10 : (value) => value, [bottom, top] = ys.map(bent);
  const at = { left: y.hidden ? 6 : SIDE, right: width - RIGHT, top: TOP + (x.top?.length ? 18 : 0),
    bottom: height - (x.bare ? 8 : FOOT), width: xs[1] - xs[0], height: log ? 0 : ys[1] - ys[0] };
  at.x = (value) => at.left + ((value - xs[0]) / at.width) * (at.right - at.left);
  at.y = (value) => at.bottom - ((bent(value) - bottom) / (top - bottom)) * (at.bottom - at.top);
  at.back = (px, py) => {
    const up = bottom + ((at.bottom - py) / (at.bottom - at.top)) * (top - bottom);
    return [xs[0] + ((px - at.left) / (at.right - at.left)) * at.width, log ? 10 ** up : up];
  };
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": spec.said });
  const clip = `clip${chart.count = (chart.count ?? 0) + 1}`;
  const nodes = layers.flatMap((layer) => LAYERS[layer.kind].draw(layer, at));
  // A little wider than the axes: a dot at either end is whole.
  const box = { x: at.left - 4, y: at.top - 4, width: at.right - at.left + 8, height: at.bottom - at.top + 8 };
  svg.append(shape("clipPath", { id: clip }, shape("rect", box)), axes(spec, at, xs, ys, width, height, log),
    shape("g", { "clip-path": `url(#${clip})` }, nodes));
  const tip = html("div", { class: "tip", hidden: "" });
  host.replaceChildren(svg, tip);
  hover(host, svg, tip, spec, at);
}

function axes({ x, y }, at, xs, ys, width, height, log) {
  const group = shape("g"), line = (name, d) => shape("path", { class: name, d });
  const write = (left, down, text, anchor, more) =>
    shape("text", { x: left, y: down, "text-anchor": anchor, ...more }, text);
  const bold = { class: "name" };
  // Under its tick, but never past an edge of the picture.
  const inside = (place, text) => Math.max(3.6 * text.length, Math.min(width - 3.6 * text.length, place));
  const shown = y.hidden || y.blank ? [] : (log ? logTicks : ticks)(...ys, Math.max(2, (at.bottom - at.top) / 26));
  for (const [value, text] of shown) {
    const down = at.y(value);
    group.append(line("grid", `M${at.left} ${down}H${at.right}`), write(at.left - 6, down + 4, text, "end"));
  }
  for (const [value, text] of x.bare ? [] : ticks(...xs, Math.max(2, (at.right - at.left) / 50), x.whole)) {
    group.append(line("tick", `M${at.x(value)} ${at.bottom}v4`), write(inside(at.x(value), text), at.bottom + 16, text, "middle"));
  }
  group.append(line("tick", `M${at.left} ${at.bottom}H${at.right}`));
  let last = -Infinity;
  for (const [value, text] of x.top ?? []) {
    const place = at.x(value), middle = inside(place, text);
    if (place < at.left || place > at.right || middle - last < 7 * text.length + 10) continue;
    group.append(write(middle, at.top - 7, text, "middle"));
    if (x.above) group.append(line("tick", `M${place} ${at.top}v-4`));
    last = middle;
  }
  if (!x.bare) group.append(write((at.left + at.right) / 2, height - 4, short(x.name, width / 8), "middle", bold));
  if (y.name) group.append(write(2, 13, short(y.name, width / (x.above ? 16 : 8)), "start", bold));
  if (x.above) group.append(write(at.right, 13, short(x.above, width / 16), "end", bold));
  const middle = (at.top + at.bottom) / 2, upright = { ...bold, transform: `rotate(-90 12 ${middle})` };
  if (y.side) group.append(write(12, middle, short(y.side, height / 9), "middle", upright));
  return group;
}

/** Of many lines the one nearest to the place, with all that is not a line. */
function closest(layers, x, y) {
  const off = (layer) => layer.kind === "line" ? Math.abs(layer.y[nearest(layer.x, x)] - y) : Infinity;
  const best = layers.reduce((one, other) => off(other) < off(one) ? other : one);
  return layers.filter((layer) => layer.kind !== "line" || layer === best);
}

/** Values at the pointer; those under a finger stay when it is lifted, until it touches another place. */
function hover(host, svg, tip, spec, at) {
  const guide = shape("path", { class: "guide" }), told = spec.layers.filter((layer) => layer.name || layer.say);
  svg.append(guide);
  const place = (event) => {
    const box = svg.getBoundingClientRect(), ratio = svg.viewBox.baseVal.width / box.width;
    return [(event.clientX - box.left) * ratio, (event.clientY - box.top) * ratio];
  };
  const away = () => { tip.hidden = true; guide.removeAttribute("d"); svg.classList.remove("over"); };
  const show = (event) => {
    const [px, py] = place(event), [x, y] = at.back(px, py);
    if (px < at.left - 4 || px > at.right + 4 || py < at.top - 8 || py > at.bottom + 8) return away();
    const said = (spec.near ? closest(told, x, y) : told)
      .map((layer) => [layer.name, LAYERS[layer.kind].tell(layer, x, y, at)]).filter(([, text]) => text != null);
    const lines = said.map(([name, text]) => html("div", {}, name && text ? `${name}: ${text}` : name || text));
    const where = () => `${spec.x.name} ${number(spec.x.whole ? Math.round(x) : x, at.width)}`;
    const head = spec.tip === false ? [] : [html("b", {}, spec.tip?.(x, y) ?? where())];
    if (!head.length && !lines.length) return away();
    tip.replaceChildren(...head, ...lines);
    tip.hidden = false;
    svg.classList.add("over");
    if (head.length) guide.setAttribute("d", `M${px} ${at.top}V${at.bottom}`);
    const room = host.clientWidth, wide = tip.offsetWidth, left = px > room / 2 ? px - wide - 14 : px + 14;
    tip.style.left = `${Math.max(0, Math.min(room - wide, left))}px`;
    tip.style.top = `${Math.max(0, py - 10)}px`;
  };
  svg.addEventListener("pointermove", show);
  svg.addEventListener("pointerdown", show);
  svg.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") away(); });
  svg.addEventListener("away", away);
  if (spec.pick) svg.addEventListener("click", (event) => spec.pick(...at.back(...place(event))));
}

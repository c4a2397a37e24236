// What the page shows: each part says its figures as layers for `chart`, from the numbers embedded in the page.

const D = JSON.parse(document.getElementById("data").textContent), { names, colours } = D;
const state = { system: 0, draws: "system" };
const find = (id) => document.getElementById(id);

/** The numbers of a packed array, flat; `rows` cuts them by the last axis. */
function unpack(packed) {
  const bytes = atob(packed.b64), values = new Float64Array(bytes.length / 2);
  for (let i = 0; i < values.length; i++) {
    const code = bytes.charCodeAt(2 * i) + 256 * bytes.charCodeAt(2 * i + 1);
    values[i] = code === 65535 ? NaN : packed.at + packed.by * code;
  }
  return values;
}
function rows(packed) {
  const values = unpack(packed), size = packed.of[packed.of.length - 1];
  return Array.from({ length: size ? values.length / size : 0 }, (_, i) => values.subarray(i * size, (i + 1) * size));
}
const truthLine = (x, y, name = "truth") => ({ kind: "line", x, y, name, colour: colours.truth, dash: "6 4", width: 1.5 });
const grid = D.grid.at.map(unpack);

function fitPart() {
  if (D.grid.kind === "none") return null;
  const one = D.systems[state.system];
  const cells = one.fit.flatMap((fit, q) => {
    const lines = rows(fit.curves), named = Object.fromEntries(fit.of.map((name, i) => [name, lines[i]]));
    return (D.grid.kind === "curve" ? curveCells : fieldCells)(named, one.seen[q], names.quantities[q]);
  });
  const thinned = one.seen.some((seen) => seen && seen.count > 1000) ? " At most 1000 observations of each quantity are drawn." : "";
  const what = D.grid.kind === "curve" ? "Mean of the fit with its 95 % band, and the data with their noise (± σ)."
    : "Dots are observations. The band is the 95 % interval of the solution.";
  return { cells, caption: what + thinned, who: true, columns: cells.length > 1 };
}

function curveCells(fit, seen, quantity) {
  const [x] = grid, layers = [
    { kind: "band", x, low: fit.low, high: fit.high, colour: colours.fit, name: "95 % band" },
    fit.truth && truthLine(x, fit.truth),
    { kind: "line", x, y: fit.mean, colour: colours.fit, name: "fit" },
    fit.surrogate && { kind: "line", x, y: fit.surrogate, colour: colours.surrogate, dash: "2 4", width: 2.5, name: "surrogate" },
    seen && observed(unpack(seen.at[0]), unpack(seen.value), unpack(seen.sigma)),
  ];
  return [[{ said: `${quantity} of ${names.systems[state.system]}`, x: { name: names.axes[0], tight: x.length > 1 ? undefined : false },
    y: { name: quantity }, height: 300, layers: layers.filter(Boolean) }]];
}

function observed(x, y, error) {
  const say = (i, at) => `${number(y[i], at.height)} ± ${number(error[i], at.height)}`;
  return { kind: "dots", x, y, error, say, colour: colours.data, name: "data ± σ" };
}

function fieldCells(fit, seen, quantity) {
  const [x, y] = grid, width = fit.high.map((high, i) => high - fit.low[i]);
  const [low, high] = ends(fit.mean, fit.truth ?? [], fit.surrogate ?? []);
  const shown = [["fit", fit.mean, low, high, "viridis"], ["width of 95 % band", width, 0, ends(width)[1], "magma"]];
  if (fit.surrogate) shown.push(["surrogate", fit.surrogate, low, high, "viridis"]);
  if (fit.truth) {
    const apart = fit.mean.map((value, i) => value - fit.truth[i]), size = Math.max(...ends(apart).map(Math.abs));
    shown.push(["truth", fit.truth, low, high, "viridis"], ["fit − truth", apart, -size, size, "RdBu_r"]);
  }
  const values = seen && unpack(seen.value);
  const dots = seen && { kind: "dots", x: unpack(seen.at[0]), y: unpack(seen.at[1]), say: (i) => number(values[i], high - low),
    colour: colours.data, edge: "#fff", name: "data" };
  return shown.map(([name, z, from, to, map]) => fieldCell(`${quantity}: ${name}`, { x, y, values: z, low: from, high: to, map }, names.axes, dots));
}

function fieldCell(name, field, axes, dots) {
  const [wide, tall] = [ends(field.x), ends(field.y)].map(([low, high]) => high - low);
  const ratio = axes.includes("time") ? 0.6 : Math.max(0.3, Math.min(1.1, tall / wide));
  const layer = { kind: "field", ...field, palette: colours.maps[field.map], name: short(name, 40), legend: null };
  return [{ said: name, x: { name: axes[0] }, y: { name: `${axes[1]} ↑   ${name}`, tight: true }, height: (width) => 70 + ratio * (width - 70),
    layers: [layer, dots].filter(Boolean), scale: [layer.palette, field.low, field.high],
    tip: (x, y) => `${axes[0]} ${number(x, wide)}, ${axes[1]} ${number(y, tall)}` }];
}

function lawPart() {
  if (!D.laws.length) return null;
  const notes = D.laws.filter((law) => !law.value).map((law) => `${law.name}, of ${law.inputs.length} inputs, is not drawn.`);
  const cells = D.laws.filter((law) => law.value).flatMap((law) => law.x ? [curveLaw(law)] : surfaceLaw(law));
  const what = cells.length ? "Below or paler: where the systems went. Where it is grey no system did: the law is extrapolated there." : "";
  return { cells, caption: [what, ...notes].join(" ").trim(), columns: cells.length > 1 };
}

function curveLaw(law) {
  const x = unpack(law.x), value = unpack(law.value), density = unpack(law.density), kind = law.known ? "given" : "learned";
  const [low, high] = law.support ?? ends(x), inside = value.map((v, i) => x[i] >= low && x[i] <= high ? v : NaN);
  const empty = [[x[0], Math.min(low, x[x.length - 1])], [Math.max(high, x[0]), x[x.length - 1]]].filter(([from, to]) => to > from)
    .map(([from, to]) => ({ kind: "span", from, to, colour: "#ececec", name: "no data here" }));
  const curves = [
    { kind: "line", x, y: value, colour: colours.fit, opacity: 0.45, width: 1.3 },
    { kind: "line", x, y: inside, colour: colours.fit, width: 2.4, name: `${kind} ${law.name}` },
    law.truth && truthLine(x, unpack(law.truth)),
  ].filter(Boolean);
  const bars = { kind: "band", x, low: density.map(() => 0), high: density, colour: colours.data, opacity: 0.75, name: "density of the data" };
  bars.say = (i) => number(density[i]);
  return [
    { said: `law ${law.name}`, x: { name: law.inputs[0], bare: true }, y: { name: `${law.name}(${law.inputs[0]})`, ends: law.limits ?? undefined },
      height: 300, layers: [...empty, ...curves] },
    { said: `where data were, for ${law.name}`, x: { name: law.inputs[0] }, y: { name: "data", blank: true, ends: [0, ends(density)[1] || 1] },
      height: 110, layers: [...empty.map((span) => ({ ...span })), bars] },
  ];
}

function surfaceLaw(law) {
  const [x, y] = law.at.map(unpack), parts = [[law.known ? "given" : "learned", unpack(law.value)]];
  if (law.truth) parts.push(["true", unpack(law.truth)]);
  const where = (values) => law.visited ? values.filter((_, i) => law.visited[i]) : values;
  const [low, high] = ends(...parts.map(([, values]) => where(values)));
  return parts.map(([kind, values]) => fieldCell(`${kind} ${law.name}`, { x, y, values, low, high, map: "viridis", visited: law.visited }, law.inputs));
}

function populationPart() {
  const cells = D.population.map((one, index) => {
    const columns = rows(one.rows), mean = columns[2], label = names.labels[index];
    const order = names.systems.map((_, i) => i).sort((a, b) => mean[a] - mean[b]);
    const density = one.density && { x: unpack(one.density.x), curves: rows(one.density.curves) };
    const span = padded(ends(...columns, density ? density.x : []), 0.02), [low, , middle, , high, truth] = columns, wide = span[1] - span[0];
    const say = (s) => `${names.systems[s]}: ${number(middle[s], wide)} (${number(low[s], wide)} to ${number(high[s], wide)})`
      + (Number.isFinite(truth[s]) ? `, true ${number(truth[s], wide)}` : "");
    const forest = { kind: "rows", columns, order, say, chosen: state.system, colour: colours.fit, mark: colours.chosen, true: colours.truth };
    const lower = { said: `${label} of each system`, x: { name: label, ends: span }, y: { hidden: true, name: index || order.length < 2 ? "" : `${order.length} systems, sorted` },
      height: Math.round(TOP + FOOT + Math.max(40, Math.min(16 * order.length, 420))), layers: [forest], tip: false,
      pick: (x, y) => choose(order[Math.max(0, Math.min(order.length - 1, Math.round(y)))]) };
    return [{ said: `population of ${label}`, x: { name: label, ends: span, bare: true, top: one.top, above: names.parameters[index] },
      y: { hidden: true, name: one.shared ? `${short(label, 16)}: the same in all systems` : label }, height: 150, layers: populationLayers(one, density, mean) }, lower];
  });
  const known = D.draws.truth ? [["true value", { kind: "level", colour: colours.truth }]] : [];
  const legend = [["estimate, 50 % and 95 % interval", { kind: "line", colour: colours.fit }], ["chosen system", { kind: "line", colour: colours.chosen }], ...known];
  return { cells, legend, columns: true, caption: "How the systems spread: all together above, each system's estimate beneath; click one to choose it." };
}

function populationLayers(one, density, mean) {
  if (!density) {
    if (one.shared) return [];
    const [edges, y] = histogram(mean, Math.min(20, 2 + Math.floor(mean.length / 3)));
    return [{ kind: "bars", edges, y, colour: colours.fit, opacity: 0.3, name: "spread of estimates", say: (i) => String(y[i]) }];
  }
  const { x, curves: [low, middle, high, truth] } = density;
  return [{ kind: "band", x, low, high, colour: colours.fit, name: "its 95 % band" }, { kind: "line", x, y: middle, colour: colours.fit, name: "inferred population" },
    ...(truth && Number.isFinite(truth[0]) ? [truthLine(x, truth)] : [])];
}

function histogram(values, bins) {
  const good = [...values].filter(Number.isFinite), [low, high] = padded(ends(good), 0), y = new Array(bins).fill(0);
  for (const value of good) y[Math.min(bins - 1, Math.floor(((value - low) / (high - low)) * bins))]++;
  return [Array.from({ length: bins + 1 }, (_, i) => low + (i / bins) * (high - low)), y];
}

function drawsPart() {
  const { steps, chains, groups, total } = D.draws, of = D.draws.population.find((one) => one.name === state.draws);
  const draws = of ? of.draws : D.systems[state.system].draws, truth = of ? of.truth : D.draws.truth?.[state.system];
  const owner = of ? `population, ${of.name}` : names.systems[state.system], group = (c) => colours.groups[groups[c] % colours.groups.length];
  const cells = draws.flatMap((packed, index) => {
    const lines = rows(packed), label = names.labels[index], known = truth?.[index], flat = unpack(packed);
    const level = known == null ? [] : [{ kind: "level", y: known, colour: colours.truth, dash: "6 4", name: "truth" }];
    const trace = { said: `draws of ${label}, ${owner}`, x: { name: "kept draw", tight: steps.length > 1 ? undefined : false }, y: { name: label }, height: 170,
      layers: [...lines.map((y, c) => ({ kind: "line", x: steps, y, colour: group(c), width: 0.8, opacity: 0.8, name: `chain ${chains[c]}`, legend: `chain group ${groups[c]}` })), ...level] };
    const [edges, y] = histogram(flat, Math.max(5, Math.min(40, Math.round(Math.sqrt(flat.length)))));
    const share = (i) => `${number(edges[i], edges[edges.length - 1] - edges[0])} to ${number(edges[i + 1], edges[edges.length - 1] - edges[0])}`;
    const upright = known == null ? [] : [{ kind: "line", x: [known, known], y: [0, Math.max(...y)], colour: colours.truth, dash: "6 4", width: 1.5 }];
    const posterior = { said: `posterior of ${label}, ${owner}`, x: { name: label }, y: { hidden: true, name: "posterior", tight: true }, height: 170, tip: (x) => `${label} ${number(x, edges[edges.length - 1] - edges[0])}`,
      layers: [{ kind: "bars", edges, y, colour: colours.fit, name: "share of draws", legend: null, say: (i) => `${number(100 * y[i] / flat.length, 100)} % in ${share(i)}` }, ...upright] };
    return [[trace], [posterior], ...(steps.length * chains.length >= 40 && chains.length > 1 ? [[rankSpec(lines, label, owner, group)]] : [])];
  });
  const few = steps.length < total || chains.length < D.draws.all_chains;
  const kept = few ? `Shown: ${steps.length} of ${total} draws of ${chains.length} of ${D.draws.all_chains} chains, evenly picked.` : "";
  const none = total === 1 ? "One draw a chain: the run was stopped before it kept draws; this is where its chains stand." : "";
  const how = "Chains that agree overlap and do not drift, and the ranks of each are spread evenly (bars near their dotted line).";
  return { cells, caption: [none || how, kept].join(" ").trim(), who: !of, triple: true };
}

/** Ranks of each chain's draws among those of all: even where chains agree. */
function rankSpec(lines, label, owner, group) {
  const all = lines.flatMap((line, c) => [...line].map((value) => [value, c])).sort((a, b) => a[0] - b[0]);
  const bins = Math.max(5, Math.min(20, Math.floor(lines[0].length / 8))), counts = lines.map(() => new Array(bins).fill(0));
  all.forEach(([, c], rank) => counts[c][Math.floor((rank / all.length) * bins)]++);
  const expected = lines[0].length / bins, unit = 2.2 * expected, edges = Array.from({ length: bins + 1 }, (_, i) => (i / bins) * all.length);
  const layers = counts.flatMap((count, c) => [
    { kind: "bars", edges, base: c, y: count.map((n) => Math.min(0.95, n / unit)), colour: group(c), opacity: 0.75,
      say: (i, y) => Math.floor(y) === c ? `chain ${D.draws.chains[c]}: ${count[i]} of its draws, ${number(expected, 10)} expected` : null },
    { kind: "level", y: c + 1 / 2.2, colour: "#333", dash: "1 3", width: 1 },
  ]);
  return { said: `ranks of ${label}, ${owner}`, x: { name: "rank among all chains" }, y: { hidden: true, name: "ranks, a row a chain", ends: [0, lines.length] }, height: 170, layers };
}

function historyPart() {
  if (!D.history) return null;
  const x = unpack(D.history.iteration), last = x[x.length - 1], { phases } = D.history;
  const spans = phases.map((phase, i) => ({ kind: "span", from: phase.from, to: phases[i + 1]?.from ?? last, colour: i % 2 ? "#fff" : "#f2f4f6",
    label: phase.name, name: phase.name && `phase ${phase.name}`, legend: null }));
  const cells = D.history.course.map(({ key, name, values }) => {
    const y = unpack(values), good = [...y].filter(Number.isFinite).sort((a, b) => a - b), top = good[good.length - 1];
    // The first steps lie so far below that the rest would be a flat line.
    const low = good[Math.floor(0.05 * good.length)], floor = key === "loglik" && top > low ? padded([low, top], 0.05) : undefined;
    return [{ said: name, x: { name: "iteration", tight: x.length > 1 ? undefined : false }, y: { name: key === "surrogate_loss" ? `${name} (log scale)` : name, ends: floor, log: key === "surrogate_loss" }, height: 200,
      layers: [...spans, { kind: "line", x, y, colour: key === "surrogate_loss" ? colours.surrogate : colours.fit, width: 1.3, name, legend: null }] }];
  });
  const thin = x.length < D.history.total ? ` Shown: ${x.length} of ${D.history.total} iterations, evenly picked.` : "";
  return { cells, columns: true, caption: `The lowest 5 % of the log-likelihood may lie below the edge.${thin}` };
}

function surrogatePart() {
  if (!D.surrogate) return null;
  const size = unpack(D.surrogate.size), sigma = rows(D.surrogate.sigma), one = D.systems[state.system], x = [...size].map((_, i) => i + 1);
  const dots = (indices, colour, radius) => ({ kind: "dots", x: indices.map((i) => i + 1), y: indices.map((i) => size[i]), colour, size: radius, loose: true,
    say: (k) => `${names.systems[indices[k]]}: ${number(size[indices[k]])}` });
  const all = x.map((_, i) => i).filter((i) => Number.isFinite(size[i]));
  const cells = [[{ said: "surrogate error of each system", x: { name: "system, as listed", tight: false }, y: { name: "surrogate − solver, in units of the noise" }, height: 240,
    tip: false, pick: (at) => choose(Math.max(0, Math.min(size.length - 1, Math.round(at) - 1))),
    layers: [dots(all, colours.surrogate, 3), { ...dots(all.filter((i) => i === state.system), colours.chosen, 5), say: () => null },
      { kind: "level", y: 0.5, colour: "#333", dash: "2 4", name: "half the noise" }] }]];
  if (D.grid.kind === "curve") one.fit.forEach((fit, q) => {
    const lines = rows(fit.curves), [mean, said] = ["mean", "surrogate"].map((name) => lines[fit.of.indexOf(name)]);
    cells.push([{ said: `surrogate error, ${names.quantities[q]} of ${names.systems[state.system]}`, x: { name: names.axes[0] }, height: 240,
      y: { name: `${names.quantities[q]}: surrogate − solver, in noise` },
      layers: [{ kind: "level", y: 0, colour: "#999", width: 1 }, { kind: "line", x: grid[0], y: said.map((v, i) => (v - mean[i]) / sigma[state.system][q]),
        colour: colours.surrogate, name: names.quantities[q], legend: null }] }]);
  });
  return { cells, columns: true, who: true, caption: "Mean solutions of surrogate and solver over the same draws: root mean square over the whole solution of each system, and along that of the chosen one." };
}

const PARTS = { fit: fitPart, law: lawPart, population: populationPart, draws: drawsPart, history: historyPart, surrogate: surrogatePart };
const OWN = ["fit", "population", "draws", "surrogate"];

function show(ids) {
  for (const id of ids) {
    const part = PARTS[id](), host = find(id);
    host.hidden = !part;
    if (!part) continue;
    const plots = host.querySelector(".plots");
    plots.className = `plots ${part.triple ? "triple" : part.columns ? "several" : ""}`;
    const hosts = part.cells.map((cell) => html("div", { class: "cell" }, cell.map(() => html("div", { class: "plot" }))));
    plots.style.minHeight = `${plots.offsetHeight}px`; // the page does not jump while it is drawn anew
    plots.replaceChildren(...hosts);
    part.cells.forEach((cell, i) => cell.forEach((spec, k) => { chart(hosts[i].children[k], spec); if (spec.scale) hosts[i].append(scaleBar(...spec.scale)); }));
    plots.style.minHeight = "";
    host.querySelector(".who").textContent = part.who && names.systems.length > 1 ? ` · ${names.systems[state.system]}` : "";
    host.querySelector(".caption").textContent = part.caption;
    const entries = new Map(part.cells.flat().flatMap((spec) => spec.layers).filter((l) => l.name && l.legend !== null).map((l) => [l.legend ?? l.name, l]));
    host.querySelector(".legend").replaceChildren(...[...entries, ...(part.legend ?? [])].map(([name, layer]) => html("span", {}, swatch(layer), name)));
  }
}

function scaleBar(palette, low, high) {
  const bar = html("i");
  bar.style.background = `linear-gradient(90deg, ${palette.join(",")})`;
  return html("div", { class: "scale" }, number(low, high - low), bar, number(high, high - low));
}

function swatch(layer) {
  const svg = shape("svg", { width: 24, height: 12, "aria-hidden": "true" });
  const solid = { band: 0.25, bars: layer.opacity, span: 1 }[layer.kind];
  if (solid) svg.append(shape("rect", { x: 0, y: 1, width: 24, height: 10, fill: layer.colour, "fill-opacity": solid }));
  else if (layer.kind === "dots") svg.append(shape("circle", { cx: 12, cy: 6, r: 3.5, fill: layer.colour }));
  else svg.append(shape("path", { d: "M0 6H24", stroke: layer.colour, "stroke-width": 2, "stroke-dasharray": layer.dash }));
  return svg;
}

function choose(system) {
  state.system = system;
  find("system").value = String(system);
  try { history.replaceState(null, "", `#system=${encodeURIComponent(names.systems[system])}`); } catch { /* a page inside another may not */ }
  show(OWN);
}

function listSystems(wanted) {
  const fitting = names.systems.map((name, i) => [name, i]).filter(([name]) => name.toLowerCase().includes(wanted.toLowerCase()));
  find("system").replaceChildren(...fitting.map(([name, i]) => html("option", { value: i }, name)));
  return fitting.map(([, i]) => i);
}

function fromAddress() {
  const wanted = /[#&]system=([^&]*)/.exec(location.hash);
  if (!wanted) return 0;
  try { return Math.max(0, names.systems.indexOf(decodeURIComponent(wanted[1]))); } catch { return 0; }
}

function begin() {
  let listed = listSystems("");
  const select = find("system"), filter = find("filter");
  find("picker").hidden = names.systems.length < 2;
  filter.hidden = names.systems.length <= 20;
  select.addEventListener("change", () => choose(Number(select.value)));
  filter.addEventListener("input", () => {
    listed = listSystems(filter.value);
    if (listed.length) choose(listed.includes(state.system) ? state.system : listed[0]);
  });
  const step = (by) => { const { length } = listed; if (length) choose(listed[(Math.max(0, listed.indexOf(state.system)) + by + length) % length]); };
  find("back").addEventListener("click", () => step(-1));
  find("next").addEventListener("click", () => step(1));
  const of = find("of");
  of.append(html("option", { value: "system" }, "the chosen system"), ...D.draws.population.map(({ name }) => html("option", { value: name }, `the population: ${name}`)));
  of.parentNode.hidden = !D.draws.population.length;
  of.addEventListener("change", () => { state.draws = of.value; show(["draws"]); });
  state.system = fromAddress();
  select.value = String(state.system);
  show(Object.keys(PARTS));
  addEventListener("hashchange", () => choose(fromAddress()));
  let width = innerWidth, timer;
  addEventListener("resize", () => { clearTimeout(timer); timer = setTimeout(() => { if (innerWidth !== width) { width = innerWidth; show(Object.keys(PARTS)); } }, 100); });
}
begin();

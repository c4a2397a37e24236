// The parts of the page: each says its figures as layers for `chart`, from the numbers embedded in the page.

const D = JSON.parse(document.getElementById("data").textContent), { names, colours } = D;
const state = { system: 0, draws: "system" };

/** The numbers of a packed array, flat; `rows` cuts them along the last axis. */
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

const grid = D.grid.at.map(unpack);
const several = names.systems.length > 1;
const between = (value, low, high) => Math.max(low, Math.min(high, value));
const sentences = (...parts) => parts.filter(Boolean).join(" ");
const axisOf = (name, points) => ({ name, loose: points < 2 });
const truthLine = (x, y) => ({ kind: "line", x, y, name: "truth", colour: colours.truth, dash: "6 4", width: 1.5 });
const truthLevel = (y) => y == null ? [] : [{ kind: "level", y, name: "truth", colour: colours.truth, dash: "6 4" }];

function fitPart() {
  if (D.grid.kind === "none") return null;
  const one = D.systems[state.system], curves = D.grid.kind === "curve";
  const cells = one.fit.flatMap((fit, q) => {
    const lines = rows(fit.curves), named = Object.fromEntries(fit.of.map((name, i) => [name, lines[i]]));
    return (curves ? curveCells : fieldCells)(named, one.seen[q], names.quantities[q]);
  });
  const many = one.seen.some((seen) => seen && seen.count > 1000);
  const caption = sentences(
    curves ? "Mean of the fit with its 95 % band."
      : "Dots are observations; the band is the 95 % interval of the solution.",
    !one.seen.some(Boolean) && "This system was not observed.",
    many && "Of each quantity 1000 observations are drawn, evenly picked.");
  return { cells, caption, who: true, columns: cells.length < 2 ? "" : curves ? "several" : "pair" };
}

function curveCells(fit, seen, quantity) {
  const [x] = grid;
  const layers = [
    { kind: "band", x, low: fit.low, high: fit.high, colour: colours.fit, name: "95 % band" },
    fit.truth && truthLine(x, fit.truth),
    { kind: "line", x, y: fit.mean, colour: colours.fit, name: "fit" },
    fit.surrogate && { kind: "line", x, y: fit.surrogate, colour: colours.surrogate, dash: "2 4", width: 2.5,
      name: "surrogate" },
    seen && observed(...[seen.at[0], seen.value, seen.low, seen.high].map(unpack)),
  ].filter(Boolean);
  const said = `${quantity} of ${names.systems[state.system]}`;
  return [[{ said, x: axisOf(names.axes[0], x.length), y: { name: quantity }, height: 300, layers }]];
}

function observed(x, y, low, high) {
  const say = (i, { height }) => number(y[i], height) + (D.bars.symmetric
    ? ` ± ${number(high[i] - y[i], height)}` : ` (${number(low[i], height)} to ${number(high[i], height)})`);
  return { kind: "dots", x, y, low, high, say, colour: colours.data, name: D.bars.name };
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
  const dots = seen && { kind: "dots", x: unpack(seen.at[0]), y: unpack(seen.at[1]), colour: colours.data, edge: "#fff",
    name: "data", say: (i) => number(values[i], high - low) };
  return shown.map(([name, z, from, to, map]) =>
    fieldCell(`${quantity}: ${name}`, { x, y, values: z, low: from, high: to, map }, names.axes, dots));
}

function fieldCell(name, field, axes, dots) {
  const [wide, tall] = [ends(field.x), ends(field.y)].map(([low, high]) => high - low);
  const ratio = axes.includes("time") ? 0.6 : between(tall / wide || 1, 0.3, 1.1);
  const layer = { kind: "field", ...field, palette: colours.maps[field.map], name: short(name, 40), legend: null };
  return [{ said: name, x: { name: axes[0] }, y: { name, side: axes[1], tight: true },
    height: (width) => 70 + ratio * (width - 70), layers: dots ? [layer, dots] : [layer],
    scale: [layer.palette, field.low, field.high],
    tip: (x, y) => `${axes[0]} ${number(x, wide)}, ${axes[1]} ${number(y, tall)}` }];
}

function lawPart() {
  if (!D.laws.length) return null;
  const drawn = D.laws.filter((law) => law.value), others = D.laws.filter((law) => !law.value);
  const cells = drawn.flatMap((law) => law.x ? [curveLaw(law)] : surfaceLaw(law));
  const caption = sentences(
    cells.length > 0 && "Where it is grey or paler data do not support the law: it is extrapolated there.",
    drawn.some((law) => law.band) && "Under the pointer single draws of the posterior appear.",
    ...others.map((law) => `${law.name}, of ${law.inputs.length} inputs, is not drawn here.`));
  return { cells, caption, columns: cells.length > 1 ? "pair" : "" };
}

function curveLaw(law) {
  const [x, value, density] = [law.x, law.value, law.density].map(unpack), { name, spans } = law.undecided;
  const empty = spans.map(([from, to]) => ({ kind: "span", from, to, colour: "#ececec", name }));
  const inside = value.map((v, i) => spans.some(([from, to]) => x[i] > from && x[i] < to) ? NaN : v);
  const say = (i, at) => number(value[i], at.height); // also where it is extrapolated
  const curves = [
    ...(law.band ? bandLayers(law.band, x) : []),
    { kind: "line", x, y: value, colour: colours.fit, opacity: 0.45, width: 1.3 },
    { kind: "line", x, y: inside, colour: colours.fit, width: 2.4, name: law.line, say },
    law.truth && truthLine(x, unpack(law.truth)),
  ].filter(Boolean);
  const visits = { kind: "band", x, low: density.map(() => 0), high: density, colour: colours.data, opacity: 0.75,
    name: "density of the data", say: (i) => number(density[i]) };
  return [
    { said: `law ${law.name}`, x: { name: law.inputs[0], bare: true }, height: 300, layers: [...empty, ...curves],
      y: { name: `${law.name}(${law.inputs[0]})`, ends: law.limits } },
    ...(law.band ? [slopePlot(law, x, empty)] : []),
    { said: `where the data were, for ${law.name}`, x: { name: law.inputs[0] }, height: 110, layers: [...empty, visits],
      y: { name: "data", blank: true, ends: [0, ends(density)[1] || 1] } },
  ];
}

function bandLayers({ ends, prior, draws }, x) {
  const [low, high] = ends.map(unpack), before = prior?.map(unpack);
  return [
    before && { kind: "band", x, low: before[0], high: before[1], colour: colours.prior, opacity: 0.13, dash: "2 3",
      name: "prior, 95 % band" },
    { kind: "band", x, low, high, colour: colours.fit, name: "95 % band" },
    { kind: "threads", x, lines: rows(draws), colour: colours.fit },
  ].filter(Boolean);
}

function slopePlot(law, x, empty) {
  const [slope, low, high, truth] = law.band.slopes.map(unpack);
  const layers = [...empty,
    { kind: "band", x, low, high, colour: colours.fit, name: "95 % band", legend: null },
    { kind: "line", x, y: slope, colour: colours.fit, name: "slope, posterior mean", legend: null },
    truth && { ...truthLine(x, truth), legend: null }].filter(Boolean);
  return { said: `slope of ${law.name}`, x: { name: law.inputs[0], bare: true }, height: 150, layers,
    y: { name: `slope of ${law.name}`, ends: law.band.slope_limits } };
}

function surfaceLaw(law) {
  const [x, y] = law.at.map(unpack), parts = [[law.known ? "given" : "learned", unpack(law.value)]];
  if (law.truth) parts.push(["true", unpack(law.truth)]);
  const seen = parts.map(([, values]) => law.visited ? values.filter((_, i) => law.visited[i]) : values);
  const [low, high] = ends(...seen);
  return parts.map(([kind, values]) => fieldCell(`${kind} ${law.name}`,
    { x, y, values, low, high, map: "viridis", visited: law.visited }, law.inputs));
}

function populationPart() {
  const legend = [["estimate, 50 % and 95 % interval", { kind: "line", colour: colours.fit }]];
  if (several) legend.push(["chosen system", { kind: "line", colour: colours.chosen }]);
  if (D.draws.truth) legend.push(["true value", { kind: "line", colour: colours.truth }]);
  const caption = several
    ? "How the systems spread: all together above, each system's estimate beneath; click one to choose it."
    : "The population, and the estimate of the one system beneath.";
  return { cells: D.population.map(populationCell), legend, caption, columns: "several" };
}

function populationCell(one, index) {
  const columns = rows(one.rows), [low, , middle, , high, truth] = columns, label = names.labels[index];
  const order = names.systems.map((_, i) => i).sort((a, b) => middle[a] - middle[b]);
  const row = (y) => order[between(Math.round(y), 0, order.length - 1)];
  const x = one.density ? unpack(one.density.x) : [], span = padded(ends(...columns, x), 0.02);
  const text = (column, s) => number(column[s], span[1] - span[0]);
  const say = (s) => `${names.systems[s]}: ${text(middle, s)} (${text(low, s)} to ${text(high, s)})`
    + (Number.isFinite(truth[s]) ? `, true ${text(truth, s)}` : "");
  const forest = { kind: "rows", columns, order, say, chosen: state.system, colour: colours.fit, true: colours.truth,
    mark: several ? colours.chosen : colours.fit };
  const height = TOP + FOOT + between(16 * order.length, 40, 420);
  const above = one.top.length ? names.parameters[index] : "";
  return [
    { said: `population of ${label}`, x: { name: label, ends: span, bare: true, top: one.top, above },
      y: { hidden: true, name: one.shared ? `${short(label, 16)}: the same in all systems` : label },
      height: 150, layers: one.shared ? [] : populationLayers(one, x, middle) },
    { said: `${label} of each system`, x: { name: label, ends: span }, height, layers: [forest], tip: false,
      y: { hidden: true, name: index || !several ? "" : `${order.length} systems, sorted` },
      pick: several ? (x, y) => choose(row(y)) : null },
  ];
}

function populationLayers(one, x, means) {
  if (!one.density) {
    const [edges, y] = histogram(means, Math.min(20, 2 + Math.floor(means.length / 3)));
    return [{ kind: "bars", edges, y, colour: colours.fit, opacity: 0.3, name: "spread of estimates",
      say: (i) => String(y[i]) }];
  }
  const [low, middle, high, truth] = rows(one.density.curves);
  return [
    { kind: "band", x, low, high, colour: colours.fit, name: "its 95 % band" },
    { kind: "line", x, y: middle, colour: colours.fit, name: "inferred population" },
    ...(truth && Number.isFinite(truth[0]) ? [truthLine(x, truth)] : []),
  ];
}

function histogram(values, bins) {
  const good = [...values].filter(Number.isFinite), [low, high] = padded(ends(good), 0), y = new Array(bins).fill(0);
  for (const value of good) y[Math.min(bins - 1, Math.floor(((value - low) / (high - low)) * bins))]++;
  return [Array.from({ length: bins + 1 }, (_, i) => low + (i / bins) * (high - low)), y];
}

function drawsPart() {
  const { steps, chains, total, all_chains: all, population } = D.draws;
  const of = population.find((one) => one.name === state.draws);
  const draws = of ? of.draws : D.systems[state.system].draws, truth = of ? of.truth : D.draws.truth?.[state.system];
  const owner = of ? `population, ${of.name}` : names.systems[state.system];
  const ranked = chains.length > 1 && steps.length * chains.length >= 40;
  const cells = draws.flatMap((packed, index) => {
    const lines = rows(packed), label = (of ?? names).labels[index], known = truth?.[index];
    if (total === 1) return [[standing(lines, label, owner, known)]];
    const both = [[trace(lines, label, owner, known)], [posterior(unpack(packed), label, owner, known)]];
    return ranked ? [...both, [ranks(lines, label, owner)]] : both;
  });
  const caption = sentences(
    total === 1 && "One draw a chain: the run was stopped before it kept any; this is where its chains stand.",
    total > 1 && "Chains that agree overlap and do not drift.",
    ranked && "Their ranks are then spread evenly: bars end near the dotted lines.",
    total === 1 && chains.length < all && `Shown are ${chains.length} of ${all} chains.`,
    total > 1 && (steps.length < total || chains.length < all)
      && `Shown are ${steps.length} of ${total} draws of ${chains.length} of ${all} chains, evenly picked.`);
  return { cells, caption, who: !of, columns: total === 1 ? "several" : ranked ? "triple" : "double" };
}

const groupColour = (c) => colours.groups[D.draws.groups[c] % colours.groups.length];

function trace(lines, label, owner, known) {
  const layers = lines.map((y, c) => ({ kind: "line", x: D.draws.steps, y, colour: groupColour(c), width: 0.8,
    opacity: 0.8, name: `chain ${D.draws.chains[c]}`, legend: `chain group ${D.draws.groups[c]}` }));
  return { said: `draws of ${label}, ${owner}`, x: { name: "kept draw", whole: true }, y: { name: label },
    height: 170, near: true, layers: [...layers, ...truthLevel(known)] };
}

function standing(lines, label, owner, known) {
  const { chains } = D.draws;
  const layers = lines.map((y, c) => ({ kind: "dots", x: [c + 1], y, colour: groupColour(c), name: `chain ${chains[c]}`,
    legend: `chain group ${D.draws.groups[c]}`, say: (i, at) => number(y[i], at.height) }));
  return { said: `${label}, ${owner}`, x: { name: "chain", loose: true, whole: true }, y: { name: label },
    height: 170, tip: false, layers: [...layers, ...truthLevel(known)] };
}

function posterior(draws, label, owner, known) {
  const [edges, y] = histogram(draws, between(Math.round(Math.sqrt(draws.length)), 5, 40));
  const wide = edges[edges.length - 1] - edges[0], top = ends(y)[1];
  const edge = (i) => number(edges[i], wide);
  const say = (i) => `${number(100 * y[i] / draws.length, 100)} % from ${edge(i)} to ${edge(i + 1)}`;
  const truth = known == null ? [] : [{ ...truthLine([known, known], [0, top]), name: null }];
  return { said: `posterior of ${label}, ${owner}`, x: { name: label },
    y: { hidden: true, name: "posterior", tight: true }, height: 170, tip: false,
    layers: [{ kind: "bars", edges, y, colour: colours.fit, say }, ...truth] };
}

/** Ranks of each chain's draws among those of all: even where chains agree. */
function ranks(lines, label, owner) {
  const all = lines.flatMap((line, c) => [...line].map((value) => [value, c])).sort((a, b) => a[0] - b[0]);
  const bins = between(Math.floor(lines[0].length / 8), 5, 20), counts = lines.map(() => new Array(bins).fill(0));
  all.forEach(([, c], rank) => counts[c][Math.floor((rank / all.length) * bins)]++);
  const edges = Array.from({ length: bins + 1 }, (_, i) => (i / bins) * all.length);
  const expected = lines[0].length / bins, row = 2.2; // times what is expected fit between two chains
  const layers = counts.flatMap((count, c) => [
    { kind: "bars", edges, base: c, y: count.map((n) => Math.min(0.95, n / (row * expected))), colour: groupColour(c),
      opacity: 0.75, say: (i, y) => Math.floor(y) !== c ? null
        : `chain ${D.draws.chains[c]}: ${count[i]} draws, ${number(expected, 100)} expected` },
    { kind: "level", y: c + 1 / row, colour: "#333", dash: "1 3", width: 1 },
  ]);
  return { said: `ranks of ${label}, ${owner}`, x: { name: "rank among all chains" }, height: 170, layers, tip: false,
    y: { hidden: true, name: "ranks, a row a chain", ends: [0, lines.length] } };
}

function historyPart() {
  if (!D.history) return null;
  const x = unpack(D.history.iteration), { phases, course, total } = D.history;
  const spans = phases.map(({ name, from }, i) => ({ kind: "span", from, to: phases[i + 1]?.from ?? x[x.length - 1],
    colour: i % 2 ? "#fff" : "#f2f4f6", name: name && `phase ${name}`, legend: null }));
  const top = spans.map(({ from, to }, i) => [(from + to) / 2, phases[i].name]);
  let cut = false;
  const cells = course.map(({ key, name, values }) => {
    const y = unpack(values), log = key === "surrogate_loss";
    const sorted = [...y].filter(Number.isFinite).sort((a, b) => a - b);
    // The first steps lie so far below that the rest would be a flat line.
    const shown = [sorted[Math.floor(0.05 * sorted.length)], sorted[sorted.length - 1]];
    const clipped = key === "loglik" && shown[0] - sorted[0] > 0.5 * (shown[1] - shown[0]);
    cut = cut || clipped;
    const line = { kind: "line", x, y, colour: log ? colours.surrogate : colours.fit, width: 1.3, name, legend: null };
    return [{ said: name, x: { ...axisOf("iteration", x.length), whole: true, top }, height: 215,
      layers: [...spans, line],
      y: { name: log ? `${name} (log scale)` : name, log, ends: clipped ? padded(shown, 0.05) : null } }];
  });
  const caption = sentences(cut && "The lowest 5 % of the log-likelihood lie below the edge.",
    x.length < total && `Shown are ${x.length} of ${total} iterations, evenly picked.`);
  return { cells, columns: "several", caption };
}

function surrogatePart() {
  if (!D.surrogate) return null;
  const size = unpack(D.surrogate.size), count = names.quantities.length;
  const dots = (of, look) => ({ kind: "dots", x: of.map((i) => i + 1), y: of.map((i) => size[i]), wide: true,
    say: (k) => `${names.systems[of[k]]}: ${number(size[of[k]])}`, ...look });
  const known = names.systems.map((_, i) => i).filter((i) => Number.isFinite(size[i]));
  const marked = { colour: colours.chosen, size: 5, name: "chosen system", say: () => null };
  const cells = [[{ said: "surrogate error of each system", x: { name: "system, as listed", loose: true, whole: true },
    y: { name: "error, in units of the noise" }, height: 240, tip: false,
    pick: (x) => choose(between(Math.round(x) - 1, 0, size.length - 1)),
    layers: [dots(known, { colour: colours.surrogate }), dots(known.filter((i) => i === state.system), marked),
      { kind: "level", y: 0.5, colour: "#333", dash: "2 4", name: "half the noise" }] }]];
  if (D.surrogate.apart) rows(D.surrogate.apart).slice(count * state.system, count * (state.system + 1)).forEach((y, q) => {
    const name = names.quantities[q];
    if (!y.some(Number.isFinite)) return; // never observed: its noise is unknown
    cells.push([{ said: `surrogate error, ${name} of ${names.systems[state.system]}`, height: 240,
      x: axisOf(names.axes[0], y.length), y: { name: `${name}: error, in units of the noise` },
      layers: [{ kind: "level", y: 0, colour: "#999", width: 1 },
        { kind: "line", x: grid[0], y, colour: colours.surrogate, name: "surrogate − solver" }] }]);
  });
  const caption = "Mean solutions of surrogate and solver over the same draws: the root mean square of their "
    + "difference for each system, and the difference itself for the chosen one.";
  return { cells, columns: "several", who: true, caption };
}

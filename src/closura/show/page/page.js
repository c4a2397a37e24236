// The page itself: which system is chosen, and its parts drawn into their sections.

const PARTS = { fit: fitPart, law: lawPart, population: populationPart, draws: drawsPart, history: historyPart,
  surrogate: surrogatePart };
const OWN = ["fit", "population", "draws", "surrogate"]; // what another system changes
const find = (id) => document.getElementById(id);

function show(ids) {
  for (const id of ids) {
    const part = PARTS[id](), host = find(id);
    host.hidden = !part;
    if (!part) continue;
    const plots = host.querySelector(".plots");
    plots.style.minHeight = `${plots.offsetHeight}px`; // the page does not jump while this is drawn anew
    plots.className = `plots ${part.columns ?? ""}`;
    const hosts = part.cells.map((cell) =>
      html("div", { class: "cell" }, cell.map(() => html("div", { class: "plot" }))));
    plots.replaceChildren(...hosts);
    part.cells.forEach((cell, i) => cell.forEach((spec, k) => {
      chart(hosts[i].children[k], spec);
      if (spec.scale) hosts[i].append(scaleBar(...spec.scale));
    }));
    plots.style.minHeight = "";
    host.querySelector(".who").textContent = part.who && several ? ` · ${names.systems[state.system]}` : "";
    host.querySelector(".caption").textContent = part.caption;
    host.querySelector(".legend").replaceChildren(...legend(part));
  }
}

/** Every name of a layer once. */
function legend(part) {
  const named = part.cells.flat().flatMap((spec) => spec.layers).filter((layer) => layer.name && layer.legend !== null);
  const entries = new Map([...named.map((layer) => [layer.legend ?? layer.name, layer]), ...(part.legend ?? [])]);
  return [...entries].map(([name, layer]) => html("span", {}, swatch(layer), name));
}

function swatch(layer) {
  const { kind, colour, dash, opacity } = layer, solid = { band: opacity ?? 0.25, bars: opacity ?? 0.5, span: 1 }[kind];
  const line = { d: "M0 6H24", stroke: colour, "stroke-width": 2, "stroke-dasharray": dash };
  const mark = solid ? shape("rect", { x: 0, y: 1, width: 24, height: 10, fill: colour, "fill-opacity": solid })
    : kind === "dots" ? shape("circle", { cx: 12, cy: 6, r: 3.5, fill: colour }) : shape("path", line);
  return shape("svg", { width: 24, height: 12, "aria-hidden": "true" }, mark);
}

function scaleBar(palette, low, high) {
  const bar = html("i"), width = 20 * (high - low); // three digits are enough here
  bar.style.background = `linear-gradient(90deg, ${palette.join(",")})`;
  return html("div", { class: "scale" }, number(low, width), bar, number(high, width));
}

function choose(system) {
  state.system = system;
  find("system").value = String(system);
  try {
    history.replaceState(null, "", `#system=${encodeURIComponent(names.systems[system])}`);
  } catch { /* where the page may not touch its address, it goes on without */ }
  show(OWN);
}

/** Systems whose names hold the text go into the select box; returns their indices. */
function list(wanted) {
  const text = wanted.toLowerCase();
  const fitting = names.systems.map((_, i) => i).filter((i) => names.systems[i].toLowerCase().includes(text));
  find("system").replaceChildren(...fitting.map((i) => html("option", { value: i }, names.systems[i])));
  return fitting;
}

/** The system that the address asks for, as report.html#system=unit%2003 does; else the first. */
function fromAddress() {
  const wanted = /[#&]system=([^&]*)/.exec(location.hash);
  try {
    return wanted ? Math.max(0, names.systems.indexOf(decodeURIComponent(wanted[1]))) : 0;
  } catch {
    return 0;
  }
}

function begin() {
  const select = find("system"), filter = find("filter"), of = find("of");
  let listed = list("");
  find("picker").hidden = !several;
  filter.hidden = names.systems.length <= 20;
  select.addEventListener("change", () => choose(Number(select.value)));
  filter.addEventListener("input", () => {
    listed = list(filter.value);
    if (listed.length) choose(listed.includes(state.system) ? state.system : listed[0]);
  });
  const step = (by) => {
    const { length } = listed;
    if (length) choose(listed[(Math.max(0, listed.indexOf(state.system)) + by + length) % length]);
  };
  find("back").addEventListener("click", () => step(-1));
  find("next").addEventListener("click", () => step(1));
  of.append(html("option", { value: "system" }, several ? "the chosen system" : "the system"),
    ...D.draws.population.map(({ name }) => html("option", { value: name }, `the population: ${name}`)));
  of.closest("p").hidden = !D.draws.population.length;
  of.addEventListener("change", () => { state.draws = of.value; show(["draws"]); });
  state.system = fromAddress();
  select.value = String(state.system);
  show(Object.keys(PARTS));
  addEventListener("hashchange", () => choose(fromAddress()));
  addEventListener("pointerdown", () => {
    for (const svg of document.querySelectorAll(".plot svg")) svg.dispatchEvent(new Event("away"));
  }, true);
  let width = innerWidth, timer;
  addEventListener("resize", () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (innerWidth === width) return; // a phone's address bar comes and goes
      width = innerWidth;
      show(Object.keys(PARTS));
    }, 100);
  });
}
begin();

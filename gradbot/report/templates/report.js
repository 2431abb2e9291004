
"use strict";
(() => {
const $ = (id) => document.getElementById(id);
const cases = JSON.parse($("data").textContent);
const detailOf = (i) => JSON.parse($("d" + i).textContent);
const PAGE = 60;
const FILTERS = ["q", "class", "outcome", "check", "device", "dtype", "sort"];
const WORDS = { timed_out: "timed out", expected_failure: "expected failure", unexpected_pass: "unexpected pass" };

/* Elements. Text is only ever set as text. */
function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "class") made.className = value; else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((each) => each !== null && each !== undefined && each !== ""));
  return made;
}
function svg(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
const say = (words) => { $("live").textContent = words; };
function figure(x, digits = 3) {
  if (x === null || x === undefined) return "not finite";
  if (x === 0) return "0";
  const size = Math.abs(x);
  return size >= 1e5 || size < 1e-3 ? x.toExponential(digits - 1).replace("e+", "e") : String(Number(x.toPrecision(digits)));
}

/* Filters live in the address, so that a view can be sent to somebody. */
function fill(id, values, all) {
  $(id).append(el("option", { value: "" }, all), ...values.map((each) => el("option", { value: each }, WORDS[each] || each)));
}
const distinct = (key) => [...new Set(cases.flatMap((each) => each[key]))].filter(Boolean).sort();
fill("class", distinct("class"), "all");
fill("outcome", distinct("outcome"), "all");
fill("check", distinct("checks"), "all");
fill("device", distinct("device"), "all");
fill("dtype", distinct("dtype"), "all");
for (const part of document.querySelectorAll("[data-share]")) part.style.flexGrow = part.dataset.share;

const words = cases.map((each) => [each.id, each.headline, each.place, each.outcome, each.class, ...each.rules, ...each.checks].join(" ").toLowerCase());
let shown = [];
let drawn = 0;

function wanted() {
  const value = Object.fromEntries(FILTERS.map((id) => [id, $(id).value]));
  const asked = value.q.toLowerCase().split(/\s+/).filter(Boolean);
  const kept = [];
  cases.forEach((each, i) => {
    if (value.class && each.class !== value.class) return;
    if (value.outcome && each.outcome !== value.outcome) return;
    if (value.device && each.device !== value.device) return;
    if (value.dtype && each.dtype !== value.dtype) return;
    if (value.check && !(each.bad.length ? each.bad : each.checks).includes(value.check)) return;
    if (!asked.every((word) => words[i].includes(word))) return;
    kept.push(i);
  });
  const by = { target: (a, b) => cases[a].id < cases[b].id ? -1 : 1, error: (a, b) => cases[b].error - cases[a].error, seconds: (a, b) => cases[b].seconds - cases[a].seconds }[value.sort];
  return by ? kept.sort(by) : kept;
}
function refresh() {
  shown = wanted();
  drawn = 0;
  $("list").replaceChildren();
  $("found").textContent = shown.length === cases.length ? `${cases.length} cases` : `${shown.length} of ${cases.length} cases`;
  grow();
}
function grow(to) {
  const until = Math.min(shown.length, Math.max(drawn + PAGE, to || 0));
  const rows = document.createDocumentFragment();
  for (; drawn < until; drawn++) rows.append(row(shown[drawn]));
  $("list").append(rows);
  $("more").hidden = drawn >= shown.length;
}
function address() {
  const parts = new URLSearchParams();
  for (const id of FILTERS) if ($(id).value) parts.set(id, $(id).value);
  const open = document.querySelector(".case.open");
  if (open) parts.set("case", cases[open.dataset.i].id);
  const hash = "#" + (parts.toString() || "cases");
  if (location.hash !== hash) history.replaceState(null, "", hash);
}
function follow() {
  const hash = location.hash.slice(1);
  if (!hash.includes("=")) return;
  const parts = new URLSearchParams(hash);
  for (const id of FILTERS) $(id).value = parts.get(id) || "";
  refresh();
  const i = cases.findIndex((each) => each.id === parts.get("case"));
  if (i < 0) return;
  if (!shown.includes(i)) { for (const id of FILTERS) $(id).value = ""; refresh(); }
  grow(shown.indexOf(i) + 1);
  const found = $("list").querySelector(`[data-i="${i}"]`);
  open(found, true);
  found.scrollIntoView({ block: "start" });
  found.querySelector(".row").focus({ preventScroll: true });
}

/* One case of the list. */
function row(i) {
  const each = cases[i];
  const tags = el("span", { class: "tags" },
    each.class && each.class !== each.outcome ? el("span", { class: "tag " + (each.class === "new" ? "new" : "") }, each.class) : null,
    el("span", { class: "tag tone" }, WORDS[each.outcome] || each.outcome),
    ...each.bad.map((check) => el("span", { class: "tag" }, check)),
    el("span", { class: "tag" }, each.dtype), el("span", { class: "tag" }, each.device));
  const button = el("button", { type: "button", class: "row", "aria-expanded": "false", onclick: (event) => { toggle(event.currentTarget.parentNode); address(); } },
    el("span", { class: "who" }, each.target, el("small", {}, each.name + (each.place ? " · " + each.place : ""))),
    el("span", { class: "what" }, each.headline || "right"), tags);
  return el("li", { class: "case o-" + each.outcome, "data-i": i }, button);
}
function toggle(item) { open(item, !item.classList.contains("open")); }
function open(item, wantedOpen) {
  item.classList.toggle("open", wantedOpen);
  item.querySelector(".row").setAttribute("aria-expanded", wantedOpen);
  const old = item.querySelector(".detail");
  if (old) old.remove();
  if (wantedOpen) item.append(detail(Number(item.dataset.i)));
}

/* One case in full. */
function detail(i) {
  const full = detailOf(i);
  const said = [full.reference, full.test && "test: " + full.test, ...full.tensors, ...full.facts].filter(Boolean);
  const box = el("div", { class: "detail", role: "region", "aria-label": cases[i].id }, el("ul", {}, ...said.map((each) => el("li", {}, each))));
  if (full.ended) box.append(el("h4", {}, full.ended), full.place ? el("p", {}, place(full.place)) : "");
  if (full.output) box.append(el("p", { class: "soft" }, "Last output"), el("pre", { class: "output" }, full.output));
  const seen = new Set();
  for (const each of full.checks) box.append(check(each, seen));
  box.append(again(full.command, cases[i].id));
  return box;
}
function again(command, id) {
  const box = el("div", { class: "again" });
  if (!command) { box.append(el("p", { class: "soft" }, "No command: a name holds control characters.")); return box; }
  const pre = el("pre", { tabindex: "0" }, command);
  const copy = el("button", { type: "button", class: "quiet", onclick: () => copied(command, pre, copy) }, "Copy");
  const here = el("button", { type: "button", class: "quiet", onclick: () => copied(location.href.split("#")[0] + "#" + new URLSearchParams({ case: id }), pre, here) }, "Link");
  box.append(pre, copy, here);
  return box;
}
function copied(words, pre, button) {
  const before = button.textContent;
  const done = () => { button.textContent = "Copied"; say("Copied"); setTimeout(() => { button.textContent = before; }, 1200); };
  const byHand = () => {
    const area = el("textarea", { class: "hidden" });
    area.value = words; document.body.append(area); area.select();
    if (document.execCommand("copy")) done();
    area.remove();
  };
  if (navigator.clipboard) navigator.clipboard.writeText(words).then(done, byHand); else byHand();
}
function place(where) {
  const path = where.url ? el("a", { href: where.url }, where.text) : el("code", {}, where.text);
  return el("span", {}, path, where.symbol ? " in " : "", where.symbol ? el("code", {}, where.symbol) : "");
}
function check(each, seen) {
  const slim = !each.findings.length && !each.evidence?.steps && !each.evidence?.entries && !each.evidence?.maps;
  const box = el("section", { class: `verify o-${each.outcome} ${slim ? "slim" : ""}` },
    el("h3", {}, el("code", {}, each.check), " ", each.word, " ",
      el("small", {}, [each.class, each.because, each.seconds].filter(Boolean).join(" · "))));
  if (each.reason) box.append(el("p", { class: "soft" }, each.reason));
  for (const note of each.notes) box.append(el("p", { class: "soft" }, note));
  for (const fact of each.facts || []) box.append(el("p", { class: "soft" }, fact));
  if (each.evidence) box.append(...evidence(each.evidence));
  for (const finding of each.findings) {
    const what = el("div", { class: "finding" }, el("h4", {}, finding.headline),
      el("p", { class: "soft" }, `${finding.severity} · ${finding.certainty} · ${finding.rule}`, finding.place ? " · " : "", finding.place ? place(finding.place) : ""));
    for (const fact of finding.facts) what.append(el("p", {}, fact));
    if (finding.evidence) what.append(...evidence(finding.evidence));
    const at = finding.source && finding.source.path + finding.source.blamed;
    if (at && !seen.has(at)) { what.append(source(finding.source)); seen.add(at); }
    box.append(what);
  }
  if (each.more) box.append(el("p", { class: "soft" }, `and ${each.more} more findings in report.json`));
  return box;
}
function source(part) {
  const box = el("div", { class: "source", tabindex: "0", role: "region", "aria-label": part.path });
  part.lines.forEach((line, i) => {
    const at = part.first + i;
    box.append(el("div", { class: at >= part.blamed[0] && at <= part.blamed[1] ? "blamed" : "" }, el("span", {}, String(at)), line));
  });
  return box;
}

/* What evidence allows to draw. */
function evidence(shownEvidence) {
  const parts = [];
  const pictures = el("div", { class: "pictures" });
  if (shownEvidence.entries) parts.push(entries(shownEvidence.entries));
  for (const each of shownEvidence.maps || []) if (each.width && each.height) pictures.append(map(each));
  for (const each of shownEvidence.profiles || []) pictures.append(profile(each));
  if (shownEvidence.steps) pictures.append(steps(shownEvidence.steps));
  for (const each of shownEvidence.spreads || []) if (each.sizes.length) pictures.append(spread(each));
  if (shownEvidence.entries && shownEvidence.entries.rows.some((each) => each.numbers[2])) pictures.append(bars(shownEvidence.entries));
  if (pictures.children.length) parts.push(pictures);
  return parts;
}
function entries(some) {
  const cell = (name, words) => el("td", { class: name }, words);
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Worst entries" }, el("table", { class: "entries" },
    el("thead", {}, el("tr", {}, ...[some.input, some.output, "analytical", "numerical", "error", "tolerance"].map((each) => el("th", { scope: "col" }, each)))),
    el("tbody", {}, ...some.rows.map((each) => el("tr", {}, cell("", el("code", {}, each.input)), cell("", el("code", {}, each.output)),
      cell("n a", each.analytical), cell("n", each.numerical + (each.bar ? " ± " + each.bar : "")), cell("n", each.error), cell("n", each.tolerance))))));
}

/* Heat maps: a byte a block, 16 levels a decade below the largest magnitude, the upper half negative. */
const maps = new Set();
const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const dark = () => { const set = document.documentElement.dataset.theme; return set ? set === "dark" : matchMedia("(prefers-color-scheme: dark)").matches; };
function colour(level) {
  const night = dark();
  if (level === 128) return night ? [255, 240, 120] : [250, 204, 21];
  const strength = level === 0 ? 0 : Math.max(0.1, ((level & 127) / 127) ** 1.6);
  const end = level > 128 ? (night ? [96, 150, 255] : [29, 78, 216]) : (night ? [255, 130, 60] : [194, 50, 12]);
  const zero = night ? [26, 30, 39] : [255, 255, 255];
  return zero.map((from, k) => Math.round(from + (end[k] - from) * strength));
}
function paint(canvas, levels) {
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  levels.forEach((level, i) => { image.data.set([...colour(level), 255], 4 * i); });
  context.putImageData(image, 0, 0);
}
function magnitude(level, largest) {
  if (level === 128) return "not finite";
  if (level === 0) return largest ? "below " + figure(largest * 10 ** (-126 / 16), 1) : "0";
  return "about " + (level > 128 ? "−" : "") + figure(largest * 10 ** (((level & 127) - 127) / 16), 2);
}
function map(picture) {
  const levels = bytes(picture.levels);
  const { width, height, rows, columns } = picture;
  const canvas = el("canvas", { width, height, tabindex: "0", role: "img" });
  const read = el("div", { class: "read", "aria-hidden": "true" });
  const span = (k, of, size) => { const first = Math.floor(k * size / of), last = Math.ceil((k + 1) * size / of) - 1; return first >= last ? String(first) : `${first}..${last}`; };
  const words = (x, y) => `input ${span(y, height, rows)}, output ${span(x, width, columns)}: ${magnitude(levels[y * width + x], picture.largest)}`;
  const title = { error: "analytical − numerical", analytical: "analytical", numerical: "numerical" }[picture.what] || picture.what;
  const filled = levels.reduce((sum, level) => sum + (level > 0), 0);
  canvas.setAttribute("aria-label", `Heat map of ${title}: ${rows} inputs down, ${columns} outputs across, largest magnitude ${figure(picture.largest)}, ` +
    `${Math.round(100 * filled / levels.length)}% of the blocks are not zero. Arrow keys read single blocks.`);
  const at = { x: 0, y: 0 };
  canvas.addEventListener("mousemove", (event) => {
    const box = canvas.getBoundingClientRect();
    const x = Math.min(width - 1, Math.max(0, Math.floor((event.clientX - box.left) / box.width * width)));
    const y = Math.min(height - 1, Math.max(0, Math.floor((event.clientY - box.top) / box.height * height)));
    read.textContent = words(x, y);
  });
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!move) return;
    event.preventDefault();
    at.x = Math.min(width - 1, Math.max(0, at.x + move[0])); at.y = Math.min(height - 1, Math.max(0, at.y + move[1]));
    read.textContent = words(at.x, at.y); say(read.textContent);
  });
  const legend = el("canvas", { width: 255, height: 1, "aria-hidden": "true" });
  const ramp = Uint8Array.from({ length: 255 }, (_, i) => (i < 127 ? 255 - i : i === 127 ? 0 : i - 127));
  const draw = () => { paint(canvas, levels); paint(legend, ramp); };
  maps.add(draw); draw();
  return el("figure", { class: "map" }, el("figcaption", {}, el("b", {}, title)), el("div", { class: "axis" }, el("span", {}, "outputs →"), el("span", {}, String(columns))),
    canvas, el("div", { class: "axis" }, el("span", {}, `inputs ↓ ${rows}`), el("span", {}, "log scale")),
    el("div", { class: "scale" }, el("span", {}, "−" + figure(picture.largest, 2)), legend, el("span", {}, figure(picture.largest, 2))), read);
}

/* Charts. `frame` gives a plotting area with its scales. */
function frame(title, note, low, high, ticks) {
  const W = 300, H = 150, L = 48, B = 20, T = 8, R = 6;
  const y = (value) => T + (H - T - B) * (1 - (value - low) / (high - low || 1));
  const picture = svg("svg", { viewBox: `0 0 ${W} ${H}`, width: W, height: H, role: "img", "aria-label": title + ": " + note });
  for (const [value, label] of ticks) {
    picture.append(svg("line", { class: "grid", x1: L, x2: W - R, y1: y(value), y2: y(value) }), svg("text", { x: L - 5, y: y(value) + 4, "text-anchor": "end" }, label));
  }
  const x = (share) => L + (W - L - R) * share;
  const label = (share, words, anchor) => picture.append(svg("text", { x: x(share), y: H - 5, "text-anchor": anchor || "middle" }, words));
  return { picture, x, y, label, bottom: H - B, made: (more) => el("figure", {}, el("figcaption", {}, el("b", {}, title), " " + (more || "")), picture) };
}
function logTicks(low, high) {
  const ticks = [];
  const stride = Math.max(1, Math.ceil((high - low) / 4));
  for (let k = Math.ceil(low); k <= high; k += stride) ticks.push([k, "1e" + k]);
  return ticks;
}
function profile(each) {
  const values = each.values.map((value) => (value === null ? null : Math.abs(value)));
  const positive = values.filter((value) => value > 0);
  const top = positive.length ? Math.log10(Math.max(...positive)) : 0;
  const floor = Math.max(positive.length ? Math.log10(Math.min(...positive)) : -1, top - 8) - 0.3;
  const chart = frame(`Largest error by ${each.side}`, `${each.size} ${each.side} elements, largest ${figure(10 ** top)}`, floor, top + 0.1, logTicks(floor, top + 0.1));
  const points = values.map((value, i) => `${chart.x((i + 0.5) / values.length).toFixed(1)},${chart.y(value > 0 ? Math.max(floor, Math.log10(value)) : value === null ? top : floor).toFixed(1)}`);
  chart.picture.append(svg("polygon", { class: "area", points: `${chart.x(0)},${chart.bottom} ${points.join(" ")} ${chart.x(1)},${chart.bottom}` }), svg("polyline", { class: "curve", points: points.join(" ") }));
  chart.label(0, "0", "start"); chart.label(1, String(each.size - 1), "end");
  return chart.made();
}
function range(values) {
  const finite = values.filter((value) => Number.isFinite(value));
  let low = Math.min(...finite), high = Math.max(...finite);
  if (!finite.length) { low = 0; high = 1; }
  const pad = (high - low) * 0.08 || Math.abs(high) * 0.1 || 1;
  return [low - pad, high + pad];
}
function linear(low, high) {
  const rough = (high - low) / 3, unit = 10 ** Math.floor(Math.log10(rough));
  const stride = [1, 2, 5, 10].map((each) => each * unit).find((each) => each >= rough);
  const ticks = [];
  for (let k = Math.ceil(low / stride); k * stride <= high && ticks.length < 6; k++) ticks.push([k * stride, figure(k * stride, 4)]);
  return ticks;
}
function steps(rows) {
  const kept = rows.filter((each) => each[0] > 0 && each[1] !== null).sort((a, b) => b[0] - a[0]);
  if (!kept.length) return el("span");
  const close = kept.flatMap((each) => [each[1], each[3]]);
  const [low, high] = range([...close, ...kept.flatMap((each) => (each[2] === null ? [] : [each[1] - each[2], each[1] + each[2]])).filter((value) => Math.abs(value) < 10 * Math.max(...close.map(Math.abs), 1e-300))]);
  const chart = frame("Derivative by step size", kept.map((each) => `step ${figure(each[0])}: ${figure(each[1])} ± ${figure(each[2], 1)}`).join("; "), low, high, linear(low, high));
  const first = Math.log10(kept[0][0]), last = Math.log10(kept[kept.length - 1][0]);
  const x = (step) => chart.x(0.05 + 0.9 * (first === last ? 0.5 : (first - Math.log10(step)) / (first - last)));
  const clamp = (value) => chart.y(Math.min(high, Math.max(low, value)));
  const said = kept.find((each) => each[3] !== null);
  if (said) chart.picture.append(svg("line", { class: "said", x1: chart.x(0), x2: chart.x(1), y1: clamp(said[3]), y2: clamp(said[3]) }));
  for (const [step, value, bar] of kept) {
    if (bar) chart.picture.append(svg("line", { class: "curve", x1: x(step), x2: x(step), y1: clamp(value - bar), y2: clamp(value + bar) }));
    chart.picture.append(svg("circle", { class: "dot", cx: x(step), cy: clamp(value), r: 3.5 }));
  }
  chart.label(0.05, figure(kept[0][0], 1)); if (kept.length > 1) chart.label(0.95, figure(kept[kept.length - 1][0], 1));
  return chart.made("numerical with error bars, analytical dashed");
}
function spread(each) {
  const sizes = each.sizes.map((size) => (size === null ? 0 : size));
  const top = Math.max(...sizes, 0) || 1;
  const chart = frame("Difference by repeat", each.text, 0, top * 1.08, [[0, "0"], [top / 2, figure(top / 2, 2)], [top, figure(top, 2)]]);
  const width = 1 / sizes.length;
  sizes.forEach((size, i) => chart.picture.append(svg("rect", { class: "bars", x: chart.x((i + 0.15) * width), y: chart.y(size), width: Math.max(1, (chart.x(width) - chart.x(0)) * 0.7), height: Math.max(1, chart.bottom - chart.y(size)), rx: 1 })));
  chart.label(0, "repeat 1", "start"); chart.label(1, String(sizes.length), "end");
  return chart.made();
}
function bars(some) {
  const rows = some.rows.filter((each) => each.numbers.length === 4 && each.numbers[1] !== null).slice(0, 12);
  if (!rows.length) return el("span");
  const [low, high] = range(rows.flatMap(({ numbers: [a, n, bar, tolerance] }) => [a === null ? n : a, n - (bar || 0), n + (bar || 0), n - (tolerance || 0), n + (tolerance || 0)]));
  const chart = frame("Entries with error bars", rows.map((each) => `${each.input}: analytical ${each.analytical}, numerical ${each.numerical} ± ${each.bar}`).join("; "), low, high, linear(low, high));
  rows.forEach(({ numbers: [a, n, bar, tolerance], input }, i) => {
    const x = chart.x((i + 0.5) / rows.length), width = 9;
    chart.picture.append(
      svg("rect", { class: "band", x: x - width, width: 2 * width, y: chart.y(n + (tolerance || 0)), height: Math.max(1, chart.y(n - (tolerance || 0)) - chart.y(n + (tolerance || 0))) }),
      svg("line", { class: "curve", x1: x, x2: x, y1: chart.y(n - (bar || 0)), y2: chart.y(n + (bar || 0)) }),
      svg("circle", { class: "dot", cx: x, cy: chart.y(n), r: 3 }));
    if (a !== null) chart.picture.append(svg("path", { class: "fault", d: `M${x - 4},${chart.y(a)} l4,-4 l4,4 l-4,4z` }));
    if (rows.length < 7) chart.label((i + 0.5) / rows.length, input);
  });
  return chart.made("● numerical ± error bar, ◆ analytical, band: tolerance");
}

/* Wiring. */
let waiting = 0;
const later = () => { clearTimeout(waiting); waiting = setTimeout(() => { refresh(); address(); }, 90); };
$("filters").addEventListener("submit", (event) => event.preventDefault());
for (const id of FILTERS) $(id).addEventListener(id === "q" ? "input" : "change", later);
$("reset").addEventListener("click", () => { for (const id of FILTERS) $(id).value = ""; refresh(); address(); $("q").focus(); });
$("more").addEventListener("click", () => {
  const next = drawn;
  grow();
  $("list").children[next]?.querySelector(".row").focus();
});
new IntersectionObserver((seen) => { if (seen.some((each) => each.isIntersecting) && drawn && drawn < shown.length) grow(); }, { rootMargin: "600px" }).observe($("more"));
$("capabilities").addEventListener("click", (event) => {
  const name = event.target.dataset.target;
  if (!name) return;
  for (const id of FILTERS) $(id).value = "";
  $("q").value = name;
  refresh(); address();
  $("cases").scrollIntoView(); $("list").querySelector(".row")?.focus({ preventScroll: true });
});
const rest = JSON.parse($("rest").textContent);
if ($("more-targets")) $("more-targets").addEventListener("click", (event) => {
  const rows = rest.splice(0, 150).map((each) => el("tr", {}, el("th", { scope: "row" }, el("button", { type: "button", class: "link", "data-target": each.target, title: each.place }, each.target)),
    ...each.cells.map((cell) => el("td", {}, ...cell.map((mark) => el("span", { class: "mark m-" + mark.state }, el("i", { "aria-hidden": "true" }), el("span", { class: "hidden" }, mark.state),
      mark.device ? el("small", {}, mark.device) : "", mark.before ? el("small", {}, mark.state === "ok" && ["wrong", "broken"].includes(mark.before) ? "fixed" : "was " + mark.before) : ""))))));
  $("matrix").append(...rows);
  event.target.textContent = `Show more of ${rest.length} further targets`;
  event.target.hidden = !rest.length;
  rows[0].querySelector("button").focus();
});
document.addEventListener("keydown", (event) => {
  const typing = event.target.matches("input, select, textarea");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) { event.preventDefault(); $("q").focus(); return; }
  if (event.key === "Escape" && event.target.closest(".case.open")) {
    const item = event.target.closest(".case"); open(item, false); item.querySelector(".row").focus(); address(); return;
  }
  if (!event.target.matches(".row") || !["ArrowDown", "ArrowUp"].includes(event.key)) return;
  event.preventDefault();
  const item = event.target.parentNode;
  const next = event.key === "ArrowDown" ? item.nextElementSibling : item.previousElementSibling;
  if (next) next.querySelector(".row").focus();
});
$("theme").addEventListener("click", () => { document.documentElement.dataset.theme = dark() ? "light" : "dark"; for (const draw of maps) draw(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { for (const draw of maps) draw(); });
addEventListener("beforeprint", () => {
  grow(Math.min(shown.length, 400));
  [...$("list").children].filter((item) => cases[item.dataset.i].class).slice(0, 100).forEach((item) => open(item, true));
});
addEventListener("hashchange", follow);
refresh();
follow();
document.documentElement.dataset.ready = "yes";
})();

"use strict";
(() => {
const D = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const root = getComputedStyle(document.documentElement);
const css = name => root.getPropertyValue("--" + name).trim();
const clamp = (x, a, b) => Math.min(b, Math.max(a, x));
const hue = k => `hsl(${Math.round(210 + k * 137.508) % 360} 52% ${css("level")})`;
// many layers go from blue to orange in the order of the model, every second one lighter
const inOrder = D.ordered && D.labels.length > 8;
const tint = k => inOrder ? `hsl(${Math.round(240 - 215 * k / (D.labels.length - 1))} 52% calc(${css("level")} + ${k % 2 ? 5 : -3}%))` : hue(k);

function time(ns) {
  if (D.unit !== "ns") return `${Math.round(ns)} ${D.unit}`;
  const units = [["s", 1e9], ["ms", 1e6], ["us", 1e3]];
  for (const [unit, size] of units) if (Math.abs(ns) >= size) return `${+(ns / size).toPrecision(4)} ${unit}`;
  return `${Math.round(ns)} ns`;
}
function bytes(n) {
  for (const [unit, size] of [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3]])
    if (n >= size) return `${+(n / size).toFixed(2)} ${unit}`;
  return `${n} B`;
}

// bars and moves come as flat lists of integers; names as numbers of D.texts
const rows = D.rows.map(() => []);
for (let i = 0; i < D.bars.length; i += 6) {
  const [line, start, lasts, name, label, text] = D.bars.slice(i, i + 6);
  const fill = D.fills.length ? D.fills[i / 6] / 100 : 1;
  rows[line >> 1].push({row: line >> 1, move: line & 1, start, end: start + lasts, name: D.texts[name], label, text: text < 0 ? "" : D.texts[text], fill});
}
const moves = [];
for (let i = 0; i < D.moves.length; i += 6) {
  const [a, b, start, lasts, name, size] = D.moves.slice(i, i + 6);
  const move = {a, b, start, end: start + lasts, name: D.texts[name], size};
  moves.push(move);
  for (const row of new Set([a, b]))
    rows[row].push({row, move: 1, start, end: start + lasts, name: D.texts[name], label: -1, text: "", to: move, fill: 1});
}
const work = rows.map(bars => bars.filter(bar => !bar.move).sort((p, q) => p.start - q.start || p.end - q.end));
const sent = rows.map(bars => bars.filter(bar => bar.move).sort((p, q) => p.start - q.start || p.end - q.end));
const order = rows.map((_, k) => [...work[k], ...sent[k]].sort((p, q) => p.start - q.start || p.move - q.move));
const end = Math.max(1, D.end, D.bound || 0);

const LABEL = 18, THIN = 7, GAP = 9, AXIS = 22, PAD = 8, LEAST = 300;
const busy = order.filter(bars => bars.length).length, others = (LABEL + 4) * (rows.length - busy);
// few devices have higher bars: the picture is at least LEAST pixels high
const BAR = Math.max(22, Math.ceil((LEAST - AXIS - 6 - others) / Math.max(1, busy)) - LABEL - THIN - GAP);
const tall = k => order[k].length ? LABEL + BAR + THIN + GAP : LABEL + 4;
const tops = []; let height = 6;
for (let k = 0; k < rows.length; k++) { tops.push(height); height += tall(k); }

// ---- a canvas that is as sharp as the screen
function surface(canvas, high) {
  const wide = canvas.clientWidth, ratio = devicePixelRatio || 1;
  canvas.style.height = high + "px";
  canvas.width = Math.round(wide * ratio); canvas.height = Math.round(high * ratio);
  const c = canvas.getContext("2d");
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.clearRect(0, 0, wide, high);
  c.font = "12px system-ui, sans-serif"; c.textBaseline = "middle";
  return [c, wide];
}
function cut(c, text, room) {
  if (c.measureText(text).width <= room) return text;
  let n = text.length;
  while (n > 1 && c.measureText(text.slice(0, n) + "…").width > room) n = Math.floor(n * 0.8);
  return n > 1 ? text.slice(0, n) + "…" : "";
}

// ---- what runs when
let from = 0, to = end, chosen = null, waiting = false;
const view = $("time");
function draw() {
  const [c, wide] = surface(view, height + AXIS);
  const room = wide - 2 * PAD, x = t => PAD + (t - from) / (to - from) * room;
  c.save(); c.beginPath(); c.rect(PAD, 0, room, height + AXIS); c.clip();
  for (let k = 0; k < rows.length; k++) {
    const y = tops[k] + LABEL;
    if (!order[k].length) continue;
    c.fillStyle = css("idle"); c.fillRect(x(0), y, x(D.end) - x(0), BAR);
    for (const [bars, top, high] of [[work[k], y, BAR], [sent[k], y + BAR + 1, THIN]]) {
      let drawn = -1;
      for (const bar of bars) {
        if (bar.start > to) break;
        if (bar.end < from) continue;
        const left = Math.max(x(bar.start), PAD - 2), right = Math.min(x(bar.end), wide);
        if (right <= drawn) continue;
        const w = Math.max(right - left, 1);
        c.fillStyle = bar.move ? css("soft") : tint(bar.label);
        c.globalAlpha = Math.max(bar.fill, 0.08);  // the paler a block, the more of it is idle
        c.fillRect(left, top, w > 3 ? w - 0.6 : w, high);
        c.globalAlpha = 1;
        drawn = left + w < left + 1.01 ? left + 1 : left;
        if (!bar.move && w > 18) {
          const whole = c.measureText(bar.name).width <= w - 6;
          const text = cut(c, whole ? bar.name : bar.text || bar.name, w - 6);
          if (text) { c.fillStyle = bar.fill < 0.6 ? css("fg") : "#fff"; c.fillText(text, left + 3, top + high / 2 + 0.5); }
        }
      }
    }
  }
  c.strokeStyle = css("fg"); c.lineWidth = 2;
  for (let i = 0; i < D.path.length; i += 3) {
    const [row, a, b] = D.path.slice(i, i + 3), y = tops[row] + LABEL - 2;
    if (b < from || a > to) continue;
    c.beginPath(); c.moveTo(x(a), y); c.lineTo(Math.max(x(b), x(a) + 1), y); c.stroke();
  }
  const seen = moves.filter(m => m.end >= from && m.start <= to);
  if (seen.length <= room / 6) {
    c.lineWidth = 1; c.strokeStyle = css("soft"); c.globalAlpha = 0.6;
    for (const m of seen) {
      c.beginPath(); c.moveTo(x(m.start), tops[m.a] + LABEL + BAR + THIN);
      c.lineTo(x(m.end), tops[m.b] + LABEL + (m.b > m.a ? 0 : BAR + THIN)); c.stroke();
    }
    c.globalAlpha = 1;
  }
  if (D.bound !== null) {
    c.strokeStyle = css("warn"); c.lineWidth = 1.5; c.setLineDash([5, 4]);
    c.beginPath(); c.moveTo(x(D.bound), 0); c.lineTo(x(D.bound), height); c.stroke(); c.setLineDash([]);
  }
  if (chosen) {
    const y = tops[chosen.row] + LABEL + (chosen.move ? BAR + 1 : 0);
    c.strokeStyle = css("fg"); c.lineWidth = 2.5;
    c.strokeRect(x(chosen.start), y, Math.max(x(chosen.end) - x(chosen.start), 3), chosen.move ? THIN : BAR);
  }
  c.fillStyle = css("soft");
  const step = (() => { const raw = (to - from) / Math.max(2, Math.floor(room / 110)), ten = 10 ** Math.floor(Math.log10(raw)); return [1, 2, 5, 10].map(f => f * ten).find(s => s >= raw); })();
  for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
    c.fillRect(x(t), height, 1, 5);
    const text = time(t), w = c.measureText(text).width;
    c.fillText(text, clamp(x(t) - w / 2, PAD, wide - PAD - w), height + 13);
  }
  c.restore();
  for (let k = 0; k < rows.length; k++) {
    c.fillStyle = D.owner[k] < 0 ? css("soft") : hue(D.owner[k]);
    c.beginPath(); c.arc(PAD + 5, tops[k] + 9, 4.5, 0, 7); c.fill();
    c.fillStyle = css("fg");
    c.fillText(cut(c, D.rows[k] + (order[k].length ? "" : ": nothing to do"), room - 16), PAD + 14, tops[k] + 9);
  }
  if (D.timed) drawMemory();
}
const later = () => { if (!waiting) { waiting = true; requestAnimationFrame(() => { waiting = false; draw(); }); } };
function zoom(by, at) {
  const span = clamp((to - from) * by, Math.max(10, end / 1e6), end), share = (at - from) / (to - from);
  from = clamp(at - share * span, 0, end - span); to = from + span; later();
}
function pan(by) { const span = to - from; from = clamp(from + by, 0, end - span); to = from + span; later(); }
const fit = () => { from = 0; to = end; later(); };
const moment = px => from + (px - PAD) / (view.clientWidth - 2 * PAD) * (to - from);

function at(px, py) {
  const k = tops.findIndex((top, k) => py >= top && py < top + tall(k));
  if (k < 0) return null;
  const t = moment(px), slack = 3 * (to - from) / view.clientWidth;
  const among = py > tops[k] + LABEL + BAR ? sent[k] : work[k];
  let best = null, far = slack;
  for (const bar of among) {
    if (bar.start > t + slack) break;
    const off = Math.max(bar.start - t, t - bar.end, 0);
    if (off < far || (off === far && off === 0)) { best = bar; far = off; }
  }
  return best;
}
function describe(bar) {
  const label = bar.label >= 0 && D.texts[D.labels[bar.label]] !== bar.name ? `, ${D.texts[D.labels[bar.label]]}` : "";
  const way = bar.to ? `, from ${D.rows[bar.to.a]} to ${D.rows[bar.to.b]}${bar.to.size ? ", " + bytes(bar.to.size) : ""}` : "";
  const idle = bar.fill < 1 ? `, idle for ${Math.round(100 * (1 - bar.fill))} %` : "";
  return `${D.rows[bar.row]}: ${bar.name}${label}${way}; ${time(bar.end - bar.start)}${idle}, from ${time(bar.start)} to ${time(bar.end)}`;
}
function choose(bar) {
  chosen = bar;
  $("said").textContent = bar ? describe(bar) : "";
  if (bar && (bar.start < from || bar.end > to)) {
    const span = Math.max(to - from, Math.min(end, (bar.end - bar.start) * 1.5));
    from = clamp((bar.start + bar.end - span) / 2, 0, end - span); to = from + span;
  }
  later();
}
function step(by) {
  if (!chosen) { choose(order.find(bars => bars.length)?.[0] || null); return; }
  const bars = order[chosen.row];
  choose(bars[clamp(bars.indexOf(chosen) + by, 0, bars.length - 1)]);
}
function climb(by) {
  if (!chosen) { step(0); return; }
  for (let k = chosen.row + by; k >= 0 && k < rows.length; k += by) {
    if (!order[k].length) continue;
    choose(order[k].reduce((p, q) => Math.abs(q.start - chosen.start) < Math.abs(p.start - chosen.start) ? q : p));
    return;
  }
}
const middle = () => chosen ? (chosen.start + chosen.end) / 2 : (from + to) / 2;
const acts = {in: () => zoom(0.5, clamp(middle(), from, to)), out: () => zoom(2, clamp(middle(), from, to)), fit, prev: () => step(-1), next: () => step(1)};
for (const button of document.querySelectorAll("[data-do]")) button.addEventListener("click", acts[button.dataset.do]);
view.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const part = (to - from) / 5;
  const keys = {"+": acts.in, "=": acts.in, "-": acts.out, "0": fit, Home: fit, Escape: () => choose(null),
    ArrowLeft: event.shiftKey ? () => pan(-part) : acts.prev, ArrowRight: event.shiftKey ? () => pan(part) : acts.next,
    ArrowUp: () => climb(-1), ArrowDown: () => climb(1)};
  if (keys[event.key]) { keys[event.key](); event.preventDefault(); }
});

// ---- pointers: drag, pinch, wheel, hover
const tip = $("tip");
function hint(text, event) {
  tip.style.display = text ? "block" : "none";
  if (!text) return;
  tip.textContent = text;
  const box = tip.getBoundingClientRect();
  tip.style.left = clamp(event.clientX + 12, 4, innerWidth - box.width - 4) + "px";
  tip.style.top = (event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18) + "px";
}
function pointers(canvas, does) {
  const held = new Map(); let dragged = 0;
  canvas.addEventListener("pointerdown", event => {
    canvas.focus({preventScroll: true}); canvas.setPointerCapture(event.pointerId);
    held.set(event.pointerId, [event.offsetX, event.offsetY]); dragged = 0; hint("");
  });
  canvas.addEventListener("pointermove", event => {
    const old = held.get(event.pointerId);
    if (!old) { hint(does.hover(event.offsetX, event.offsetY), event); return; }
    const dx = event.offsetX - old[0], dy = event.offsetY - old[1];
    if (held.size === 2) {
      const other = [...held].find(([id]) => id !== event.pointerId)[1];
      const before = Math.hypot(old[0] - other[0], old[1] - other[1]), now = Math.hypot(event.offsetX - other[0], event.offsetY - other[1]);
      if (before > 5 && now > 5) does.zoom(before / now, (event.offsetX + other[0]) / 2, (event.offsetY + other[1]) / 2);
    } else does.drag(dx, dy);
    dragged += Math.abs(dx) + Math.abs(dy);
    held.set(event.pointerId, [event.offsetX, event.offsetY]);
  });
  canvas.addEventListener("pointerup", event => { held.delete(event.pointerId); if (dragged < 5) does.pick(event.offsetX, event.offsetY); });
  canvas.addEventListener("pointercancel", event => held.delete(event.pointerId));
  canvas.addEventListener("pointerleave", () => hint(""));
  canvas.addEventListener("wheel", event => {
    if (document.activeElement !== canvas && !event.ctrlKey) return;  // the page scrolls
    event.preventDefault();
    does.zoom(Math.exp(clamp(event.deltaY, -100, 100) / 250), event.offsetX, event.offsetY);
  }, {passive: false});
}
pointers(view, {
  hover: (px, py) => { const bar = at(px, py); return bar ? describe(bar) : ""; },
  drag: dx => pan(-dx / (view.clientWidth - 2 * PAD) * (to - from)),
  zoom: (by, px) => zoom(by, clamp(moment(px), from, to)),
  pick: (px, py) => choose(at(px, py)),
});

// ---- memory: one line for each device that holds something
function drawMemory() {
  const shown = D.memory.map((levels, k) => [levels, k]).filter(([levels]) => levels.length > 2 || levels[1] > 0);
  const high = 62, [c, wide] = surface($("memory"), shown.length * high + 8 + AXIS);
  const room = wide - 2 * PAD, most = Math.max(1, ...shown.map(([levels]) => levels.reduce((m, v, i) => i & 1 ? Math.max(m, v) : m, 0)));
  const a = D.timed ? from : 0, b = D.timed ? to : Math.max(1, D.steps), x = t => PAD + clamp((t - a) / (b - a), 0, 1) * room;
  shown.forEach(([levels, k], row) => {
    const base = (row + 1) * high, y = v => base - v / most * (high - 24);
    let peak = 0;
    c.beginPath(); c.moveTo(PAD, base);
    for (let i = 0; i < levels.length; i += 2) {
      const next = i + 2 < levels.length ? levels[i + 2] : D.timed ? end : D.steps;
      peak = Math.max(peak, levels[i + 1]);
      if (next < a || levels[i] > b) continue;
      c.lineTo(x(levels[i]), y(levels[i + 1])); c.lineTo(x(next), y(levels[i + 1]));
    }
    c.lineTo(PAD + room, base); c.closePath();
    c.globalAlpha = 0.75; c.fillStyle = hue(k); c.fill(); c.globalAlpha = 1;
    c.fillStyle = css("line"); c.fillRect(PAD, base, room, 1);
    const limit = D.limits[k];
    if (limit !== null && limit <= most * 1.15) { c.fillStyle = css("warn"); c.fillRect(PAD, y(limit), room, 1.5); }
    c.fillStyle = css("fg");
    c.fillText(cut(c, `${D.rows[k]}: at most ${bytes(peak)}${limit === null ? "" : " of " + bytes(limit)}`, room), PAD, base - high + 14);
  });
  c.fillStyle = css("soft");
  const last = D.timed ? time(b) : `step ${b}`, first = D.timed ? time(a) : "step 0", y = shown.length * high + 14;
  c.fillText(first, PAD, y); c.fillText(last, wide - PAD - c.measureText(last).width, y);
}

// ---- the graph
const G = D.graph, net = $("graph"), count = G.x.length;
const levels = Math.max(0, ...G.x) + 1, thick = Math.max(1, ...G.y.map(v => 2 * Math.abs(v) + 1));
let place = [], cell = 1, scale = 1, shiftX = 0, shiftY = 0, queued = false;
function lay() {
  const wide = net.clientWidth - 2 * PAD, high = clamp(wide * 0.55, 260, 560);
  let lines = 1;
  while (lines < levels && wide / Math.ceil(levels / lines) < high / (lines * (thick + 1))) lines++;
  const per = Math.ceil(levels / lines); cell = Math.min(wide / per, high / (lines * (thick + 1)), 26);
  const stepX = Math.min(wide / per, 60), stepY = Math.min(high / lines / (thick + 1), 26);
  place = G.x.map((x, i) => [PAD + (x % per + 0.5) * stepX, PAD + (Math.floor(x / per) + 0.5) * stepY * (thick + 1) + G.y[i] * stepY, Math.floor(x / per)]);
  return Math.min(high, lines * (thick + 1) * stepY) + 2 * PAD;
}
let netHigh = 0;
function drawGraph() {
  const [c] = surface(net, netHigh);
  c.translate(shiftX, shiftY); c.scale(scale, scale);
  const half = Math.max(cell / 2, 2);
  for (const cross of [false, true]) {
    c.beginPath();
    for (let i = 0; i < G.edges.length; i += 2) {
      const a = G.edges[i], b = G.edges[i + 1];
      if ((G.device[a] !== G.device[b]) !== cross) continue;
      const [ax, ay, al] = place[a], [bx, by, bl] = place[b];
      c.moveTo(ax, ay);
      if (al === bl) c.lineTo(bx, by); else { c.lineTo(ax + half, ay); c.moveTo(bx - half, by); c.lineTo(bx, by); }
    }
    c.strokeStyle = cross ? css("fg") : css("soft"); c.globalAlpha = cross ? 0.95 : 0.45; c.lineWidth = (cross ? 1.4 : 0.8) / Math.sqrt(scale); c.stroke();
  }
  c.globalAlpha = 1;
  const r = clamp(cell * 0.36, 1.3, 7);
  D.rows.forEach((_, k) => {
    c.beginPath();
    for (let i = 0; i < count; i++) if (G.device[i] === k) { c.moveTo(place[i][0] + r, place[i][1]); c.arc(place[i][0], place[i][1], r, 0, 7); }
    c.fillStyle = hue(k); c.fill();
  });
}
const laterGraph = () => { if (!queued) { queued = true; requestAnimationFrame(() => { queued = false; drawGraph(); }); } };
function zoomGraph(by, px, py) {
  const next = clamp(scale / by, 1, 60), f = next / scale;
  shiftX = clamp(px - (px - shiftX) * f, net.clientWidth * (1 - next), 0); shiftY = clamp(py - (py - shiftY) * f, netHigh * (1 - next), 0); scale = next; laterGraph();
}
function panGraph(dx, dy) { shiftX = clamp(shiftX + dx, net.clientWidth * (1 - scale), 0); shiftY = clamp(shiftY + dy, netHigh * (1 - scale), 0); laterGraph(); }
const fitGraph = () => { scale = 1; shiftX = shiftY = 0; laterGraph(); };
function nearest(px, py) {
  let best = -1, far = 12;
  for (let i = 0; i < count; i++) {
    const d = Math.hypot(place[i][0] * scale + shiftX - px, place[i][1] * scale + shiftY - py);
    if (d < far) { far = d; best = i; }
  }
  return best < 0 ? "" : `${D.texts[G.name[best]]} on ${D.rows[G.device[best]]}`;
}
const centre = by => zoomGraph(by, net.clientWidth / 2, netHigh / 2);
const graphActs = {in: () => centre(0.6), out: () => centre(1 / 0.6), fit: fitGraph};
for (const button of document.querySelectorAll("[data-graph]")) button.addEventListener("click", graphActs[button.dataset.graph]);
net.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const keys = {"+": graphActs.in, "=": graphActs.in, "-": graphActs.out, "0": fitGraph, Home: fitGraph, ArrowLeft: () => panGraph(60, 0), ArrowRight: () => panGraph(-60, 0), ArrowUp: () => panGraph(0, 60), ArrowDown: () => panGraph(0, -60)};
  if (keys[event.key]) { keys[event.key](); event.preventDefault(); }
});
pointers(net, {hover: nearest, drag: panGraph, zoom: zoomGraph, pick: (px, py) => { $("node").textContent = nearest(px, py); }});

// ---- legends, sizes, colours
function legend(list, entries, colour = hue) {
  list.replaceChildren(...entries.map(([k, name]) => {
    const item = document.createElement("li"), box = document.createElement("i");
    box.style.background = k < 0 ? css("soft") : colour(k);
    item.append(box, name);
    item.title = name;  // long ones are cut
    return item;
  }));
}
function all() {
  const all = D.labels.map((text, k) => [k, D.texts[text]]), every = inOrder ? Math.ceil(all.length / 24) : 1;
  const few = all.filter((_, k) => k % every === 0).slice(0, 24);
  if (all.length > few.length) few.push([-1, `and ${all.length - few.length} ${inOrder ? "between them" : "more"}`]);
  legend($("labels"), few, tint);
  legend($("devices"), G.used.map(k => [k, D.rows[k]]));
  netHigh = lay(); draw(); drawGraph(); drawMemory();
}
let widthNow = innerWidth;
addEventListener("resize", () => { if (innerWidth !== widthNow) { widthNow = innerWidth; fitGraph(); all(); } });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all);
all();
})();

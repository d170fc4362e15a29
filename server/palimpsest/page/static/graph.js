// Draw entities and what connects them on a canvas. It is moved with the pointer, the wheel and the keys.
"use strict";

const LABELS = 40; // More names than this cover each other on one screen.
const FRAME_MS = 14; // The layout works so long for each frame, so that the page still answers.
const MANY = 2000; // So many dashed lines take a canvas longer than a frame.
const [NAME_WIDTH, NAME_HEIGHT] = [72, 13]; // The room of a name, in CSS pixels.
const NEAR = 14; // How far from a node, in CSS pixels, a click still means it.

for (const canvas of document.querySelectorAll("canvas[data-graph]")) {
  fetch(canvas.dataset.graph, { headers: { accept: "application/json" } })
    .then((answer) => (answer.ok ? answer.json() : Promise.reject(new Error(answer.statusText))))
    .then((data) => draw(canvas, data))
    .catch((error) => { canvas.nextElementSibling.textContent = String(error.message); });
}

function draw(canvas, data) {
  const status = canvas.nextElementSibling;
  const context = canvas.getContext("2d");
  const view = { x: 0, y: 0, scale: 1 };
  const nodes = data.nodes.map((node) => ({ ...node, radius: 4 + 2 * Math.sqrt(Math.min(node.memories, 100)) }));
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const links = data.links.map((link) => ({ ...link }));
  const bySize = [...nodes].sort((one, other) => other.radius - one.radius);
  let selected = byId.get(data.centre) ?? null;
  let colours = {};
  let isFitted = false;
  let isDue = false;

  if (nodes.length === 0) {
    status.textContent = canvas.dataset.empty;
    return;
  }
  const spread = nodes.length > 500 ? 30 : 80;
  const simulation = d3.forceSimulation(nodes)
    .force("links", d3.forceLink(links).id((node) => node.id).distance(spread))
    .force("apart", d3.forceManyBody().strength(-3 * spread).theta(1.2).distanceMax(12 * spread))
    .force("x", d3.forceX().strength(0.06))
    .force("y", d3.forceY().strength(0.06))
    .alphaDecay(nodes.length > 500 ? 0.08 : 0.0228)
    .stop();

  function readColours() {
    const probe = document.createElement("span");
    document.body.append(probe);
    for (const name of ["ground", "ink", "faint", "line", "accent", "danger", "raised"]) {
      probe.className = `colour-${name}`;
      colours[name] = getComputedStyle(probe).color;
    }
    probe.remove();
    colours.font = getComputedStyle(document.body).fontFamily;
  }

  function resize() {
    const ratio = window.devicePixelRatio || 1;
    canvas.width = canvas.clientWidth * ratio;
    canvas.height = canvas.clientHeight * ratio;
    show();
  }

  function fit() {
    const xs = nodes.map((node) => node.x);
    const ys = nodes.map((node) => node.y);
    const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    const room = 0.85;
    view.scale = Math.min(
      2, (room * canvas.clientWidth) / (right - left + 80), (room * canvas.clientHeight) / (bottom - top + 40),
    );
    view.x = -((left + right) / 2) * view.scale;
    view.y = -((top + bottom) / 2) * view.scale;
  }

  const onScreen = (node) => [
    node.x * view.scale + view.x + canvas.clientWidth / 2, node.y * view.scale + view.y + canvas.clientHeight / 2,
  ];

  function show() {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(() => { isDue = false; paint(); });
  }

  function paint() {
    const ratio = window.devicePixelRatio || 1;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
    const isNear = (link) => selected !== null && (link.source === selected || link.target === selected);
    trace(links.filter((link) => link.name && !isNear(link)), colours.faint, 1, []);
    trace(links.filter((link) => !link.name && !isNear(link)), colours.faint, 1, [3, 4]);
    trace(links.filter((link) => link.name && isNear(link)), colours.accent, 2, []);
    trace(links.filter((link) => !link.name && isNear(link)), colours.accent, 2, [3, 4]);
    for (const link of links) {
      if (!link.name || !(isNear(link) || links.length <= LABELS)) continue;
      const [x, y] = onScreen(link.source);
      const [toX, toY] = onScreen(link.target);
      write(link.name, (x + toX) / 2, (y + toY) / 2, colours.faint, 11);
    }
    const taken = [];
    if (selected !== null) taken.push([onScreen(selected)[0], onScreen(selected)[1] - selected.radius - 6]);
    for (const node of bySize) {
      const [x, y] = onScreen(node);
      if (x < -20 || y < -20 || x > canvas.clientWidth + 20 || y > canvas.clientHeight + 20) continue;
      const radius = Math.max(2, node.radius * Math.min(view.scale, 1));
      context.beginPath();
      context.arc(x, y, radius, 0, 2 * Math.PI);
      context.fillStyle = node === selected ? colours.danger : node.type === "person" ? colours.accent : colours.faint;
      context.fill();
      if (node !== selected && taken.length < LABELS && isFree(taken, x, y - radius - 6)) {
        write(node.name, x, y - radius - 6, colours.ink, 12);
        taken.push([x, y - radius - 6]);
      }
    }
    if (selected !== null) write(selected.name, ...taken[0], colours.ink, 13);
  }

  // All lines of one kind are one path: thousands of them are drawn at once.
  function trace(lines, colour, width, dashes) {
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.setLineDash(lines.length > MANY ? [] : dashes);
    context.globalAlpha = width > 1 ? 1 : Math.min(0.6, 0.08 + 300 / Math.max(lines.length, 1));
    context.beginPath();
    for (const line of lines) {
      context.moveTo(...onScreen(line.source));
      context.lineTo(...onScreen(line.target));
    }
    context.stroke();
    context.setLineDash([]);
    context.globalAlpha = 1;
  }

  // Names that would cover each other are left out, of the smaller node.
  const isFree = (taken, x, y) => taken.every(([otherX, otherY]) => Math.abs(x - otherX) > NAME_WIDTH || Math.abs(y - otherY) > NAME_HEIGHT);

  function write(text, x, y, colour, size) {
    const shown = text.length > 28 ? `${text.slice(0, 27)}…` : text;
    context.font = `${size}px ${colours.font}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.lineWidth = 4;
    context.lineJoin = "round";
    context.strokeStyle = colours.ground;
    context.strokeText(shown, x, y);
    context.fillStyle = colour;
    context.fillText(shown, x, y);
  }

  function work() {
    const until = performance.now() + FRAME_MS;
    while (simulation.alpha() > simulation.alphaMin() && performance.now() < until) simulation.tick();
    if (!isFitted) fit();
    paint();
    if (simulation.alpha() > simulation.alphaMin()) requestAnimationFrame(work);
    else canvas.dataset.state = "still";
  }

  function zoom(factor, x, y) {
    const scale = Math.min(8, Math.max(0.02, view.scale * factor));
    const [centreX, centreY] = [x - canvas.clientWidth / 2, y - canvas.clientHeight / 2];
    view.x = centreX - ((centreX - view.x) * scale) / view.scale;
    view.y = centreY - ((centreY - view.y) * scale) / view.scale;
    view.scale = scale;
    isFitted = true;
    show();
  }

  function nearest(x, y) {
    let found = null;
    let least = NEAR;
    for (const node of nodes) {
      const [nodeX, nodeY] = onScreen(node);
      const away = Math.hypot(nodeX - x, nodeY - y) - node.radius * Math.min(view.scale, 1);
      if (away < least) [found, least] = [node, away];
    }
    return found;
  }

  function select(node) {
    selected = node;
    const near = links.filter((link) => link.source === node || link.target === node);
    status.textContent = `${node.name}: ${near.slice(0, 8).map((link) => `${link.source.name} – ${link.name || "…"} – ${link.target.name}`).join("; ")}`;
    show();
  }

  function step(towardsX, towardsY) {
    const from = selected ?? bySize[0];
    let found = null;
    let least = Infinity;
    for (const node of nodes) {
      const along = (node.x - from.x) * towardsX + (node.y - from.y) * towardsY;
      const aside = Math.abs((node.x - from.x) * towardsY) + Math.abs((node.y - from.y) * towardsX);
      if (node !== from && along > 0 && along + 2 * aside < least) [found, least] = [node, along + 2 * aside];
    }
    select(found ?? from);
  }

  const KEYS = {
    ArrowLeft: () => step(-1, 0),
    ArrowRight: () => step(1, 0),
    ArrowUp: () => step(0, -1),
    ArrowDown: () => step(0, 1),
    "+": () => zoom(1.25, canvas.clientWidth / 2, canvas.clientHeight / 2),
    "-": () => zoom(0.8, canvas.clientWidth / 2, canvas.clientHeight / 2),
    Enter: () => { if (selected) window.location.assign(selected.path); },
  };
  canvas.addEventListener("keydown", (event) => {
    if (!(event.key in KEYS) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    KEYS[event.key]();
  });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(event.deltaY < 0 ? 1.15 : 0.87, event.offsetX, event.offsetY);
  }, { passive: false });

  let held = null;
  canvas.addEventListener("pointerdown", (event) => {
    held = { x: event.offsetX, y: event.offsetY, moved: 0 };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (held === null) {
      const node = nearest(event.offsetX, event.offsetY);
      canvas.classList.toggle("over", node !== null);
      if (node !== null && node !== selected) select(node);
      return;
    }
    const [byX, byY] = [event.offsetX - held.x, event.offsetY - held.y];
    held = { x: event.offsetX, y: event.offsetY, moved: held.moved + Math.hypot(byX, byY) };
    view.x += byX;
    view.y += byY;
    isFitted = true;
    show();
  });
  canvas.addEventListener("pointerup", (event) => {
    const node = held !== null && held.moved < 5 ? nearest(event.offsetX, event.offsetY) : null;
    held = null;
    if (node !== null) window.location.assign(node.path);
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); show(); });
  new ResizeObserver(resize).observe(canvas);

  readColours();
  resize();
  if (window.matchMedia("(prefers-reduced-motion: reduce)").matches && nodes.length <= 500) {
    while (simulation.alpha() > simulation.alphaMin()) simulation.tick();
  }
  work();
}

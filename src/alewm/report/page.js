"use strict";
// Players: films of one pair side by side, with one pause button and one scrubber for all of them.
for (const player of document.querySelectorAll(".player")) {
  const films = [...player.querySelectorAll("canvas")].map((canvas) => {
    const sheet = new Image();
    sheet.src = canvas.dataset.sheet;
    return { canvas, sheet, frames: +canvas.dataset.frames, columns: +canvas.dataset.columns };
  });
  const button = player.querySelector("button"), range = player.querySelector("input"), step = player.querySelector("output");
  const last = +range.max;
  let playing = !matchMedia("(prefers-reduced-motion: reduce)").matches, wait = 0;
  const draw = () => {
    for (const { canvas, sheet, frames, columns } of films) {
      const index = Math.min(+range.value, frames - 1), { width, height } = canvas;
      const x = (index % columns) * width, y = Math.floor(index / columns) * height;
      canvas.getContext("2d").drawImage(sheet, x, y, width, height, 0, 0, width, height);
    }
    step.textContent = `step ${range.value} of ${last}`;
    button.textContent = playing ? "Pause" : "Play";
  };
  for (const { sheet } of films) sheet.decode().then(draw);
  button.addEventListener("click", () => {
    playing = !playing;
    if (playing && +range.value === last) range.value = 0;
    draw();
  });
  range.addEventListener("input", () => { playing = false; draw(); });
  setInterval(() => {
    if (!playing || player.closest("details:not([open])")) return;
    if (+range.value < last) range.value = +range.value + 1;
    else if (++wait > 12) { range.value = 0; wait = 0; }
    draw();
  }, 83);
}
// Curves: the values under the pointer.
for (const figure of document.querySelectorAll("figure[data-curves]")) {
  const { box, x, curves } = JSON.parse(figure.dataset.curves), picture = figure.querySelector("img");
  const frame = document.createElement("div"), line = document.createElement("i"), note = document.createElement("div");
  frame.className = "hover"; note.className = "values";
  picture.replaceWith(frame);
  frame.append(picture, line, note);
  const short = (value) => Math.abs(value) >= 1e4 || (value !== 0 && Math.abs(value) < 1e-3) ? value.toExponential(2) : +value.toPrecision(4);
  const leave = () => { line.style.display = note.style.display = "none"; };
  leave();
  frame.addEventListener("pointerleave", leave);
  frame.addEventListener("pointermove", (event) => {
    const place = frame.getBoundingClientRect(), share = (event.clientX - place.left) / place.width;
    const at = x[0] + ((share - box[0]) / (box[2] - box[0])) * (x[1] - x[0]);
    if (share < box[0] || share > box[2]) return leave();
    note.replaceChildren();
    let nearest = at;
    for (const curve of curves) {
      let best = 0;
      curve.x.forEach((value, i) => { if (Math.abs(value - at) < Math.abs(curve.x[best] - at)) best = i; });
      nearest = curve.x[best];
      const row = document.createElement("div"), dot = document.createElement("b");
      dot.style.background = `var(--run-${curve.color})`;
      row.append(dot, `${curve.name ? curve.name + " " : ""}${short(curve.y[best])}`);
      note.append(row);
    }
    note.prepend(short(nearest));
    const left = box[0] + ((nearest - x[0]) / (x[1] - x[0])) * (box[2] - box[0]);
    line.style.cssText = `left:${100 * left}%;top:${100 * (1 - box[3])}%;height:${100 * (box[3] - box[1])}%`;
    note.style.cssText = left > 0.5 ? `right:${100 * (1 - left) + 1}%;top:6%` : `left:${100 * left + 1}%;top:6%`;
  });
}
// Tables that are wider than the page say so.
const mark = () => {
  for (const box of document.querySelectorAll(".scroll"))
    box.classList.toggle("wide", box.scrollLeft + box.clientWidth < box.scrollWidth - 4);
};
addEventListener("resize", mark);
document.addEventListener("scroll", mark, true);
document.addEventListener("toggle", mark, true);
mark();

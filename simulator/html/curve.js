// SPDX-License-Identifier: Apache-2.0
// What a policy adds to the step over the rate of the links: both axes logarithmic, lines told apart by dashes and
// marks, too.

const CURVE_FLOOR = 1e-5;  // less overhead than that is drawn there

function overheadChart() {
  const {x: xs, lines, x_name: xName, y_name: yName, here, note} = facts.overhead;
  byId('overhead-note').textContent = note;
  if (xs.length === 0) {
    byId('overhead-chart').hidden = true;
    byId('overhead-table').hidden = true;
    if (!note) byId('overhead').hidden = true;
    return;
  }
  const dashes = [[], [7, 3], [2, 3], [9, 3, 2, 3]];
  const colours = () => [palette.s2, palette.s3, palette.s0, palette.s4];
  const left = 62;
  const flat = lines.flatMap((line) => line.y).filter((y) => y !== null);
  const most = Math.max(CURVE_FLOOR * 10, ...flat);
  const least = Math.max(CURVE_FLOOR, Math.min(most / 10, ...flat.map((y) => Math.max(y, CURVE_FLOOR))));
  const low = 10 ** Math.floor(Math.log10(least) + 1e-9);
  const high = 10 ** Math.ceil(Math.log10(most) - 1e-9);
  const surface = new Surface('overhead-chart', ({g, width, height}) => {
    legend('overhead-legend', lines.map((line, i) => [line.name, colours()[i % 4]]));
    const right = width - 96;
    const top = 30;
    const bottom = height - 34;
    const xOf = (x) => (xs.length === 1 ? (left + right) / 2
      : left + Math.log(x / xs[0]) / Math.log(xs[xs.length - 1] / xs[0]) * (right - left));
    const yOf = (y) => bottom - Math.log(Math.max(y, low) / low) / Math.log(high / low) * (bottom - top);
    for (let decade = low; decade <= high * 1.001; decade *= 10) {
      surface.line(left, yOf(decade), right, yOf(decade));
      surface.text(`${Number((decade * 100).toPrecision(1))} %`, left - 5, yOf(decade), {align: 'right'});
    }
    for (const x of xs) {
      surface.line(xOf(x), top, xOf(x), bottom);
      // The rate of this step stands before one beside it.
      const hidden = x !== here && here > 0 && Math.abs(xOf(x) - xOf(here)) < 32;
      if (!hidden) surface.text(String(Number(x.toPrecision(4))), xOf(x), bottom + 10, {align: 'center'});
    }
    surface.text(xName, (left + right) / 2, height - 8, {align: 'center'});
    surface.text(yName, 4, 8);
    if (here > 0 && here >= xs[0] * 0.999 && here <= xs[xs.length - 1] * 1.001) {
      surface.line(xOf(here), top, xOf(here), bottom, palette.mark, 1.5);
      surface.text('here', xOf(here) + 5, top + 6, {fill: palette.mark});
    }
    const ends = [];
    lines.forEach((line, i) => {
      const colour = colours()[i % 4];
      g.strokeStyle = colour;
      g.lineWidth = 2;
      g.setLineDash(dashes[i % 4]);
      g.beginPath();
      let begun = false;
      line.y.forEach((y, k) => {
        if (y === null) return;
        if (begun) g.lineTo(xOf(xs[k]), yOf(y));
        else g.moveTo(xOf(xs[k]), yOf(y));
        begun = true;
      });
      g.stroke();
      g.setLineDash([]);
      g.fillStyle = colour;
      line.y.forEach((y, k) => y !== null && mark(g, i, xOf(xs[k]), yOf(y)));
      const last = line.y.findLastIndex((y) => y !== null);
      if (last >= 0) ends.push({name: line.name, y: yOf(line.y[last]), colour});
    });
    // Names at the right ends, moved apart where lines meet.
    ends.sort((a, b) => a.y - b.y);
    ends.forEach((end, i) => { if (i > 0) end.y = Math.max(end.y, ends[i - 1].y + 13); });
    const over = ends.length ? Math.max(0, ends[ends.length - 1].y - bottom) : 0;
    for (const end of ends) surface.text(end.name, right + 8, end.y - over, {fill: palette.ink});
  });
  surface.setHeight(300);
  surface.canvas.setAttribute('aria-label', `${yName} against ${xName} for ${lines.map((line) => line.name).join(', ')}; the numbers are in a table below`);
  tipOn(surface, (px) => {
    const right = surface.width - 96;
    const at = xs.map((x) => (xs.length === 1 ? (left + right) / 2 : left + Math.log(x / xs[0]) / Math.log(xs[xs.length - 1] / xs[0]) * (right - left)));
    const k = at.reduce((best, x, i) => (Math.abs(x - px) < Math.abs(at[best] - px) ? i : best), 0);
    return [`${Number(xs[k].toPrecision(6))} ${xName}`, ...lines.map((line) => `${line.name}: ${line.y[k] === null ? 'not simulated' : `${line.y[k] < 0 ? '' : '+'}${(line.y[k] * 100).toFixed(3)} %`}`)];
  });
}

function mark(g, kind, x, y) {
  g.beginPath();
  if (kind % 4 === 0) g.arc(x, y, 3.5, 0, 7);
  else if (kind % 4 === 1) g.rect(x - 3, y - 3, 6, 6);
  else if (kind % 4 === 2) { g.moveTo(x, y - 4.5); g.lineTo(x + 4.5, y + 3.5); g.lineTo(x - 4.5, y + 3.5); }
  else { g.moveTo(x, y - 4.5); g.lineTo(x + 4.5, y); g.lineTo(x, y + 4.5); g.lineTo(x - 4.5, y); }
  g.fill();
}

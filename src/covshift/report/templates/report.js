"use strict";
// Reads the numbers of charts out by pointer, touch and keyboard. Texts are set as text, never as markup.
(() => {
  const say = (value) => {
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-4 || size >= 1e9)) return value.toExponential(3);
    return Number(value.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 8 });
  };

  const place = (axis, value) => {
    const on = (v) => (axis.log ? Math.log10(Math.max(v, axis.low)) : v);
    const share = (on(value) - on(axis.low)) / (on(axis.high) - on(axis.low));
    return axis.start + Math.min(1, Math.max(0, share)) * (axis.end - axis.start);
  };

  const nearest = (values, wanted) => {
    let best = 0;
    values.forEach((value, k) => {
      if (Math.abs(value - wanted) < Math.abs(values[best] - wanted)) best = k;
    });
    return best;
  };

  const line = (parent, text, kind) => {
    const element = document.createElement(kind === "head" ? "b" : "div");
    if (kind === "each") element.className = "each";
    element.textContent = text;
    parent.append(element);
    return element;
  };

  const ofRun = (run, x) => {
    const k = run.x.indexOf(x);
    if (k >= 0) return say(run.y[k]);
    const ended = run.x.length === 0 || x > run.x[run.x.length - 1];
    return ended && run.status === "diverged" ? "diverged" : "no value";
  };

  const tell = (tip, data, arm, k) => {
    tip.replaceChildren();
    const head = line(tip, arm.label, "head");
    const dot = document.createElement("i");
    dot.style.background = arm.color;
    head.prepend(dot);
    if (arm.notes) {
      line(tip, arm.notes[k]);
      return;
    }
    const x = arm.x[k];
    line(tip, `${data.x.label}: ${say(x)}`);
    const alive = arm.runs.filter((run) => run.x.includes(x)).length;
    line(tip, `interquartile mean: ${say(arm.middle[k])} (${alive} of ${arm.runs.length} runs)`);
    line(tip, alive === 1 ? "one run has no interval" : `interval: ${say(arm.low[k])} to ${say(arm.high[k])}`);
    arm.runs.forEach((run) => line(tip, `${run.name}: ${ofRun(run, x)}`, "each"));
  };

  const watch = (box) => {
    const svg = box.querySelector("svg.chart");
    const tip = box.querySelector(".tip");
    const data = JSON.parse(box.querySelector("script").textContent);
    const arms = data.arms.filter((arm) => arm.x.length > 0);
    const groups = arms.map((arm) => svg.querySelectorAll(`.arm-${data.arms.indexOf(arm)}`));
    if (arms.length === 0) return;
    const spots = arms.map((arm) => arm.x.map((x, k) => [place(data.x, x), place(data.y, arm.middle[k])]));
    let at = { arm: 0, k: spots[0].length - 1 };

    const hide = () => {
      tip.hidden = true;
      svg.classList.remove("reading");
    };

    const show = () => {
      const [x, y] = spots[at.arm][at.k];
      tell(tip, data, arms[at.arm], at.k);
      groups.forEach((group, k) => group.forEach((part) => part.classList.toggle("read", k === at.arm)));
      const rule = svg.querySelector(".cursor .rule");
      const dot = svg.querySelector(".cursor circle");
      Object.entries({ x1: x, x2: x, y1: data.y.start, y2: data.y.end }).forEach(([name, value]) => rule.setAttribute(name, value));
      Object.entries({ cx: x, cy: y, fill: arms[at.arm].color }).forEach(([name, value]) => dot.setAttribute(name, value));
      svg.classList.add("reading");
      tip.hidden = false;
      const scale = svg.clientWidth / svg.viewBox.baseVal.width;
      const right = x * scale + 14 + tip.offsetWidth <= svg.clientWidth;
      const left = right ? x * scale + 14 : Math.max(0, x * scale - 14 - tip.offsetWidth);
      tip.style.transform = `translate(${left}px, ${Math.max(0, y * scale - tip.offsetHeight - 10)}px)`;
    };

    const point = (event) => {
      const area = svg.getBoundingClientRect();
      const scale = svg.viewBox.baseVal.width / area.width;
      const x = (event.clientX - area.left) * scale;
      const y = (event.clientY - area.top) * scale;
      const near = spots.map((spot) => nearest(spot.map((p) => p[0]), x));
      const away = near.map((k, arm) => Math.hypot(spots[arm][k][0] - x, spots[arm][k][1] - y));
      const arm = away.indexOf(Math.min(...away));
      at = { arm, k: near[arm] };
      show();
    };

    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    const press = (event) => {
      if (event.key === "Escape") return hide();
      const move = moves[event.key];
      if (!move) return undefined;
      event.preventDefault();
      const x = arms[at.arm].x[at.k];
      const arm = (at.arm + move[0] + arms.length) % arms.length;
      const k = move[0] ? nearest(arms[arm].x, x) : at.k + move[1];
      at = { arm, k: Math.min(arms[arm].x.length - 1, Math.max(0, k)) };
      return show();
    };

    svg.addEventListener("pointerdown", point);
    svg.addEventListener("pointermove", point);
    // The numbers stay after a finger is lifted, so that they can be read.
    svg.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && document.activeElement !== svg && hide());
    svg.addEventListener("focus", () => svg.matches(":focus-visible") && show());
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", press);
    document.addEventListener("pointerdown", (event) => !svg.contains(event.target) && hide());
  };

  document.querySelectorAll(".chart-box").forEach(watch);

  const dialog = document.getElementById("enlarged");
  document.querySelectorAll("button.frame").forEach((button) => {
    button.addEventListener("click", () => {
      const picture = button.querySelector("img");
      dialog.querySelector("img").src = picture.src;
      dialog.querySelector("img").alt = picture.alt;
      dialog.querySelector("p").textContent = button.querySelector("span").textContent;
      dialog.showModal();
    });
  });
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());

  // Folded parts are printed too.
  let folded = [];
  window.addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    folded.forEach((details) => { details.open = true; });
  });
  window.addEventListener("afterprint", () => folded.forEach((details) => { details.open = false; }));
})();

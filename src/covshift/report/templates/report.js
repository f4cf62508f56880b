"use strict";
// Reads the numbers of charts out by pointer, touch and keyboard. Texts are set as text, never as markup.
(() => {
  const nearest = (values, wanted) => {
    let best = 0;
    values.forEach((value, k) => {
      if (Math.abs(value - wanted) < Math.abs(values[best] - wanted)) best = k;
    });
    return best;
  };

  const line = (parent, text, kind = "div") => {
    const element = document.createElement(kind);
    element.textContent = text;
    parent.append(element);
    return element;
  };

  const tell = (tip, curve, k) => {
    tip.replaceChildren();
    const dot = document.createElement("i");
    dot.style.background = curve.color;
    line(tip, curve.label, "b").prepend(dot);
    curve.texts[k].forEach((text) => line(tip, text));
    curve.runs[k].forEach((text) => { line(tip, text).className = "each"; });
  };

  const watch = (box) => {
    const svg = box.querySelector("svg.chart");
    const tip = box.querySelector(".tip");
    const all = JSON.parse(box.querySelector("script").textContent);
    const curves = all.filter((curve) => curve.points.length > 0);
    if (curves.length === 0) return;
    const groups = curves.map((curve) => svg.querySelectorAll(`.arm-${all.indexOf(curve)}`));
    const across = curves.map((curve) => curve.points.map((point) => point[0]));
    let at = { curve: 0, k: across[0].length - 1 };
    const isOff = (curve) => groups[curve].length > 0 && groups[curve][0].classList.contains("off");

    const hide = () => {
      tip.hidden = true;
      svg.classList.remove("reading");
    };

    const show = () => {
      const [x, y] = curves[at.curve].points[at.k];
      tell(tip, curves[at.curve], at.k);
      groups.forEach((group, k) => group.forEach((part) => part.classList.toggle("read", k === at.curve)));
      const rule = svg.querySelector(".cursor .rule");
      const dot = svg.querySelector(".cursor circle");
      Object.entries({ x1: x, x2: x }).forEach(([name, value]) => rule.setAttribute(name, value));
      Object.entries({ cx: x, cy: y, fill: curves[at.curve].color }).forEach(([name, value]) => dot.setAttribute(name, value));
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
      const near = across.map((xs) => nearest(xs, x));
      const away = curves.map(({ points }, c) => (isOff(c) ? Infinity : Math.hypot(points[near[c]][0] - x, points[near[c]][1] - y)));
      if (Math.min(...away) === Infinity) return;
      const curve = away.indexOf(Math.min(...away));
      at = { curve, k: near[curve] };
      show();
    };

    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    const press = (event) => {
      if (event.key === "Escape") return hide();
      const move = moves[event.key];
      if (!move) return undefined;
      event.preventDefault();
      let curve = at.curve;
      do curve = (curve + move[0] + curves.length) % curves.length;
      while (move[0] && isOff(curve) && curve !== at.curve);
      const k = move[0] ? nearest(across[curve], across[at.curve][at.k]) : at.k + move[1];
      at = { curve, k: Math.min(across[curve].length - 1, Math.max(0, k)) };
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

  // A name in a legend switches its arm in all charts of its figure.
  document.querySelectorAll("button.switch").forEach((button) => {
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") !== "true";
      const { arm } = button.dataset;
      button.closest("section").querySelectorAll(".chart-box").forEach((box) => {
        const svg = box.querySelector("svg.chart");
        if (arm === undefined) svg.classList.toggle("runs", on);
        JSON.parse(box.querySelector("script").textContent).forEach((curve, k) => {
          if (curve.label === arm) svg.querySelectorAll(`.arm-${k}`).forEach((part) => part.classList.toggle("off", !on));
        });
        box.querySelectorAll("button.switch").forEach((other) => {
          if (other.dataset.arm === arm) other.setAttribute("aria-pressed", String(on));
        });
      });
    });
  });

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

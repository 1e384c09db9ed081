// The form works without this: it adds sliders, and renews the figures while one is moved.
"use strict";
(() => {
  const form = document.getElementById("plan-form");
  const place = document.getElementById("plan-figures");
  if (!form || !place) return;

  // A slider beside each number; on a logarithmic one equal steps multiply
  const steps = 200;
  const addSlider = (field) => {
    const { lo, hi } = field.dataset;
    const low = Number(lo), high = Number(hi), isLog = "log" in field.dataset, isWhole = "whole" in field.dataset;
    const slider = document.createElement("input");
    slider.type = "range";
    slider.min = 0;
    slider.max = steps;
    slider.setAttribute("aria-label", field.labels[0].textContent + ", as a slider");
    const valueAt = (step) => {
      const share = step / steps;
      const value = isLog ? low * Math.pow(high / low, share) : low + (high - low) * share;
      if (high >= 1e9) return value >= 1e9 ? Number((value / 1e9).toPrecision(3)) + "B" : Number((value / 1e6).toPrecision(3)) + "M";
      return isWhole ? Math.round(value) : Number(value.toPrecision(2));
    };
    const units = { K: 1e3, M: 1e6, B: 1e9, T: 1e12, "%": 0.01 };
    const follow = () => {
      const found = /^\s*\$?\s*([\d.eE+-]+)\s*([KMBT%]?)/i.exec(field.value);
      const value = found ? Number(found[1]) * (units[found[2].toUpperCase()] || 1) : NaN;
      if (!(value >= 0)) return;
      const share = isLog ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
      slider.value = Math.round(steps * Math.min(1, Math.max(0, share)));
    };
    slider.addEventListener("input", () => {
      field.value = valueAt(Number(slider.value));
      renew();
    });
    field.addEventListener("input", follow);
    field.after(slider);
    follow();
  };

  // One request at a time, and the last state is never left out
  let isAsking = false, isWanted = false;
  const query = () => {
    const given = [...new FormData(form)].filter(([, value]) => String(value).trim() !== "");
    return new URLSearchParams(given).toString();
  };
  const renew = async () => {
    isWanted = true;
    if (isAsking) return;
    isAsking = true;
    try {
      while (isWanted) {
        isWanted = false;
        const reply = await fetch(form.dataset.figures + "?" + query(), { headers: { accept: "text/html" } });
        if (!reply.ok || reply.redirected) break;
        const made = new DOMParser().parseFromString(await reply.text(), "text/html");
        place.replaceChildren(...made.body.childNodes);
        link();
      }
    } catch {
      const told = document.createElement("p");
      told.className = "problem";
      told.textContent = "The server does not answer. The figures shown are from its last answer.";
      if (!place.querySelector(".problem")) place.prepend(told);
    } finally {
      isAsking = false;
    }
  };

  // The address holds the state: it can be kept and sent
  const json = document.getElementById("plan-json");
  const api = json ? json.getAttribute("href").split("?")[0] : "";
  const link = () => {
    const found = place.querySelector("[data-query]");
    if (!found) return;
    const state = found.dataset.query ? "?" + found.dataset.query : "";
    history.replaceState(null, "", location.pathname + state);
    if (json) json.href = api + state;
  };

  for (const field of form.querySelectorAll("input[data-lo]")) addSlider(field);
  form.addEventListener("input", (event) => { if (event.target.name) renew(); });
  form.addEventListener("submit", (event) => { event.preventDefault(); renew(); });
  form.classList.add("scripted");
  link();
})();

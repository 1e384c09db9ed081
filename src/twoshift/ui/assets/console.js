// The pages are whole without this: it keeps figures moving, draws charts, and asks without a reload.
"use strict";
(() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const token = document.body.dataset.token;
  const most = { hour: 360, day: 1440 };

  // Times as the reader's clock has them
  const localize = (within) => {
    for (const each of all("time[datetime]", within)) {
      const at = new Date(each.dateTime);
      if (!Number.isNaN(at.getTime())) each.textContent = at.toLocaleString();
    }
  };

  // Charts
  const tone = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const kinds = {
    latency: { unit: " ms", series: [["p50", "p50", "blue"], ["p99", "p99", "orange"]], slo: true },
    rate: { unit: "/s", series: [["rate", "requests", "blue"], ["refused", "refused", "pink"]] },
    device: { unit: " %", series: [["live", "live", "blue"], ["harvested", "harvested", "orange"]], scale: 100, top: 100 },
    queue: { unit: "", series: [["waiting", "rows waiting", "blue"], ["replicas", "replicas", "teal"]] },
  };
  const short = (value, unit) => (value == null ? "—" : Number(value.toPrecision(3)).toLocaleString() + unit);

  const columns = (kind, data, slo) => {
    const scaled = kind.series.map(([key]) => data[key].map((y) => (y == null ? null : y * (kind.scale || 1))));
    return [data.at, ...scaled, ...(kind.slo && slo ? [data.at.map(() => slo)] : [])];
  };

  const draw = (place, kind, data, slo) => {
    const line = (key, label, colour) => ({
      label, stroke: tone(colour), width: 1.6, points: { show: false }, value: (_, y) => short(y, kind.unit),
    });
    const series = [{}, ...kind.series.map((each) => line(...each))];
    if (kind.slo && slo) {
      series.push({ label: "objective", stroke: tone("mark"), width: 1.2, dash: [5, 4], points: { show: false },
        value: (_, y) => short(y, kind.unit) });
    }
    const axis = { stroke: tone("quiet"), grid: { stroke: tone("grid"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
    const range = (_, low, high) => [0, kind.top || Math.max(high || 0, (kind.slo && slo) || 0, 1e-3) * 1.1];
    const times = (_, first, last) => { // five minutes at least: one point would get years
      const end = last ?? Date.now() / 1000;
      return [Math.min(first ?? end, end - 300), end];
    };
    return new uPlot({
      width: Math.max(200, place.clientWidth), height: 170, series, scales: { x: { range: times }, y: { range } },
      axes: [axis, { ...axis, size: 72, values: (_, ticks) => ticks.map((y) => short(y, kind.unit)) }],
    }, columns(kind, data, slo), place);
  };

  class Deployment {
    constructor(section) {
      this.section = section;
      this.slo = Number(section.dataset.sloMs) || null;
      this.span = "hour";
      this.plots = new Map();
    }

    async load(span) {
      this.span = span;
      const reply = await fetch("/console/history/" + encodeURIComponent(this.section.dataset.deployment) + "?span=" + span);
      if (!reply.ok) return;
      this.data = await reply.json();
      this.section.querySelector(".charts").hidden = false;
      this.redraw();
    }

    redraw() {
      if (!this.data) return;
      for (const place of all("[data-chart]", this.section)) {
        this.plots.get(place)?.destroy();
        this.plots.set(place, draw(place, kinds[place.dataset.chart], this.data, this.slo));
      }
    }

    hear(told) {
      for (const each of all("[data-figure]", this.section)) {
        const text = told.text[each.dataset.figure];
        if (text !== undefined && each.textContent !== text) each.textContent = text;
      }
      this.section.dataset.good = told.good == null ? "" : String(told.good);
      const verdict = this.section.querySelector("[data-verdict]");
      verdict.textContent = told.good == null ? "" : told.good ? "inside the objective" : "over the objective";
      if (told.shares) this.share(told.shares, told.text);
      if (told.point && this.data && this.span === "hour") this.add(told.point);
    }

    share(shares, text) {
      let x = 0;
      for (const each of all("[data-share]", this.section)) {
        const width = 100 * shares[each.dataset.share];
        each.setAttribute("x", x);
        each.setAttribute("width", width);
        x += width;
      }
      const told = `Share of device time: live ${text.live}, harvested ${text.harvested}, idle ${text.idle}`;
      this.section.querySelector(".bar").setAttribute("aria-label", told);
    }

    add(point) {
      Object.keys(this.data).forEach((key, place) => {
        this.data[key].push(point[place]);
        if (this.data[key].length > most.hour) this.data[key].shift();
      });
      for (const [place, plot] of this.plots) plot.setData(columns(kinds[place.dataset.chart], this.data, this.slo));
    }
  }

  // Parts of a page, all of one address, that are fetched again as long as somebody looks
  const isUsed = (part) => part.contains(document.activeElement) || all("[name=reason]", part).some((each) => each.value);
  const refresh = async (parts) => {
    const free = parts.filter((part) => !isUsed(part));
    if (!free.length) return;
    const reply = await fetch(free[0].dataset.src, { headers: { accept: "text/html" } });
    if (!reply.ok || reply.redirected) return;
    const made = new DOMParser().parseFromString(await reply.text(), "text/html");
    for (const part of free) {
      const found = made.getElementById(part.id);
      if (found) part.replaceChildren(...found.childNodes);
      localize(part);
    }
  };

  const live = () => {
    const deployments = new Map(all("[data-deployment]").map((each) => [each.dataset.deployment, new Deployment(each)]));
    const parts = all("[data-src]");
    if (!deployments.size && !parts.length) return;
    const status = document.querySelector("[data-status]");
    let source = null, span = "hour", ticks = 0;
    const open = () => {
      source = new EventSource("/console/events");
      source.addEventListener("now", (event) => {
        const told = JSON.parse(event.data);
        for (const [name, each] of deployments) if (told[name]) each.hear(told[name]);
        if (ticks++ % 2 === 0) refresh(parts);
        if (status) status.textContent = "Live: figures of the last 10 seconds.";
      });
      source.onerror = () => {
        if (status) status.textContent = "The connection is lost. Trying again…";
        if (source.readyState === EventSource.CLOSED) setTimeout(again, 5000); // refused: the browser gives up
      };
    };
    const again = async () => {
      if (document.hidden) return;
      const reply = await fetch(location.href, { headers: { accept: "text/html" } }).catch(() => null);
      if (reply?.redirected) location.reload(); // to the login
      else if (reply?.ok) look();
      else setTimeout(again, 5000);
    };
    const load = () => deployments.forEach((each) => each.load(span));
    const look = () => {
      source?.close();
      source = null;
      if (document.hidden) return; // nobody looks: the server has nothing to send
      open();
      load();
    };
    document.addEventListener("visibilitychange", look);
    window.addEventListener("pagehide", () => source?.close());
    let resizing;
    window.addEventListener("resize", () => {
      clearTimeout(resizing);
      resizing = setTimeout(() => deployments.forEach((each) => each.redraw()), 150);
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => deployments.forEach((each) => each.redraw()));
    const chooser = document.querySelector("[data-span]");
    if (chooser) {
      chooser.hidden = false;
      chooser.addEventListener("click", (event) => {
        if (!event.target.dataset.value) return;
        span = event.target.dataset.value;
        for (const each of all("button", chooser)) each.setAttribute("aria-pressed", String(each.dataset.value === span));
        load();
      });
    }
    look();
  };

  // A streamed answer; without this script the form gets the whole answer at once
  const chat = (form) => {
    const answer = document.querySelector("[data-answer]");
    const text = answer.querySelector("[data-text]"), timing = answer.querySelector("[data-timing]");
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      answer.hidden = false;
      text.textContent = timing.textContent = "";
      const began = performance.now();
      let first = 0, pieces = 0, rest = "";
      const body = JSON.stringify({ model: form.elements.model.value, stream: true, max_tokens: 256,
        messages: [{ role: "user", content: form.elements.text.value }] });
      const headers = { "content-type": "application/json", "x-console-token": token };
      const reply = await fetch("/console/ask/chat", { method: "POST", headers, body });
      if (!reply.ok) {
        text.textContent = (await reply.json()).error?.message || "The request failed.";
        return;
      }
      const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const lines = (rest + value).split("\n");
        rest = lines.pop();
        for (const line of lines) {
          if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
          const told = JSON.parse(line.slice(6));
          const more = told.choices?.[0]?.delta?.content || told.error?.message || "";
          if (more && !first) first = performance.now();
          pieces += more ? 1 : 0;
          text.textContent += more;
        }
      }
      const total = performance.now() - began;
      const each = pieces > 1 ? `, ${short((performance.now() - first) / (pieces - 1), " ms")} per further token` : "";
      timing.textContent = `First token after ${short(first - began, " ms")}${each}; ${short(total, " ms")} in total. ` +
        `Server-Timing: ${reply.headers.get("server-timing") || "—"}`;
    });
  };
  all("form[data-chat]").forEach(chat);

  window.twoshift = { all, token, localize, short, tone };
  localize(document);
  live();
})();

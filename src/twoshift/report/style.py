"""The look: one sheet, two palettes, paper included. Tones keep apart under the common colour blindnesses."""

from __future__ import annotations

__all__ = ["CHART_CSS", "PAGE_CSS", "PALETTE_CSS"]

# Okabe and Ito's palette, darkened on white and lightened on black to keep 3:1 against the card
PALETTE_CSS = """
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #18202c; --soft: #4b5666; --quiet: #6b7686;
  --rule: #e3e7ec; --grid: #e9ecf0; --base: #b4bdc9; --mark: #c2410c; --good: #0b7a55; --bad: #c2410c;
  --blue: #0b6fb8; --orange: #e0900a; --teal: #119a77; --pink: #c0629a; --sky: #58aee0; --muted: #c3cbd5;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0e1217; --card: #161b22; --ink: #e8ecf1; --soft: #b3bdc9; --quiet: #8c97a5;
    --rule: #262d37; --grid: #242b34; --base: #515c6a; --mark: #ff8f5e; --good: #3fcf9f; --bad: #ff8f5e;
    --blue: #4d9fe0; --orange: #e9a33b; --teal: #35b892; --pink: #d889b6; --sky: #8ecbf0; --muted: #5d6977;
  }
}
@media print {
  :root {
    color-scheme: light;
    --page: #ffffff; --card: #ffffff; --ink: #18202c; --soft: #4b5666; --quiet: #6b7686;
    --rule: #d5dae1; --grid: #e6e9ee; --base: #b4bdc9; --mark: #c2410c; --good: #0b7a55; --bad: #c2410c;
    --blue: #0b6fb8; --orange: #e0900a; --teal: #119a77; --pink: #c0629a; --sky: #58aee0; --muted: #c3cbd5;
  }
}
"""

CHART_CSS = """
.blue { --tone: var(--blue); } .orange { --tone: var(--orange); } .teal { --tone: var(--teal); }
.pink { --tone: var(--pink); } .sky { --tone: var(--sky); } .muted { --tone: var(--muted); }
.chart { display: block; width: 100%; height: auto; overflow: visible;
  font: 12px/1 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
.chart text { fill: var(--soft); font-variant-numeric: tabular-nums; }
.chart .tick, .chart .quiet { fill: var(--quiet); }
.chart .caption { fill: var(--quiet); }
.chart .name { fill: var(--ink); }
.chart .value { fill: var(--ink); font-weight: 600; }
.chart .value .quiet { font-weight: 400; }
.chart .grid { stroke: var(--grid); }
.chart .base { stroke: var(--base); }
.chart .line { fill: none; stroke: var(--tone); stroke-width: 1.9; stroke-linejoin: round; stroke-linecap: round; }
.chart .shade { fill: var(--tone); opacity: 0.09; }
.chart .overlay { fill: var(--tone); opacity: 0.22; }
.chart .band { fill: var(--tone); stroke: var(--card); stroke-width: 1; stroke-linejoin: round; opacity: 0.9; }
.chart .bar { fill: var(--tone); }
.chart .leader { fill: none; stroke: var(--tone); stroke-width: 1.9; stroke-linejoin: round; }
.chart .mark { stroke: var(--mark); stroke-width: 1.3; stroke-dasharray: 5 4; }
.chart .mark-label, .chart .peak { font-weight: 600; paint-order: stroke; stroke: var(--card); stroke-width: 4px;
  stroke-linejoin: round; }
.chart .mark-label { fill: var(--mark); }
.chart .peak { fill: var(--ink); }
.chart .hit rect { fill: transparent; }
.chart .hit line { stroke: var(--quiet); visibility: hidden; pointer-events: none; }
.chart .hit circle { fill: var(--tone); stroke: var(--card); stroke-width: 1.5; visibility: hidden;
  pointer-events: none; }
.chart .hit:hover line, .chart .hit:hover circle { visibility: visible; }
"""

PAGE_CSS = """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--page); color: var(--ink); -webkit-font-smoothing: antialiased;
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  overflow-wrap: break-word; }
main, header, footer { max-width: 1000px; margin: 0 auto; padding: 0 20px; }
header { padding-top: 40px; }
.brand { display: flex; align-items: center; gap: 8px; margin: 0 0 18px; color: var(--quiet); font-size: 13px;
  font-weight: 600; letter-spacing: 0.02em; }
.brand svg { width: 18px; height: 18px; display: block; }
h1 { margin: 0; font-size: 30px; line-height: 1.2; letter-spacing: -0.018em; font-weight: 650; text-wrap: balance; }
.subtitle { margin: 8px 0 0; color: var(--soft); font-size: 16px; max-width: 46em; }
section { margin: 36px 0 0; }
h2 { margin: 0 0 4px; font-size: 19px; line-height: 1.3; letter-spacing: -0.01em; font-weight: 650; }
.intro { margin: 0; color: var(--soft); max-width: 46em; }
section > * + .card, section > * + .cards, section > * + .pair { margin-top: 16px; }
.prose { max-width: 46em; margin-top: 12px; }
.prose p { margin: 0 0 10px; }
.card { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; }
figure { margin: 0; padding: 18px 20px 14px; container-type: inline-size; }
figcaption { font-weight: 600; font-size: 15px; line-height: 1.35; margin-bottom: 12px; }
figcaption small { display: block; font-weight: 400; font-size: 13.5px; color: var(--quiet); }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 16px; }
.narrow, .legend { display: none; }
@container (max-width: 619px) {
  .wide { display: none; }
  .narrow { display: block; }
  .legend { display: flex; }
}
.legend { flex-wrap: wrap; gap: 4px 16px; margin: -4px 0 10px; padding: 0; list-style: none; font-size: 13px;
  color: var(--soft); }
.legend li { display: flex; align-items: center; gap: 6px; }
.legend i { width: 12px; height: 12px; border-radius: 3px; background: var(--tone); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 168px), 1fr)); gap: 12px; }
.cards .card { padding: 14px 16px 13px; }
.cards dt { color: var(--quiet); font-size: 13px; line-height: 1.35; }
.cards dd { margin: 0; }
.cards .figure { margin-top: 3px; font-size: 27px; line-height: 1.2; font-weight: 650; letter-spacing: -0.02em;
  font-variant-numeric: tabular-nums; }
.cards .note { margin-top: 3px; font-size: 13px; line-height: 1.4; color: var(--soft); }
.cards .good .note::before { content: "✓ "; color: var(--good); font-weight: 700; }
.cards .bad .note::before { content: "▲ "; color: var(--bad); font-weight: 700; }
.table { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { padding: 9px 18px; text-align: left; vertical-align: baseline; border-top: 1px solid var(--rule); }
th { border-top: 0; color: var(--quiet); font-size: 13px; font-weight: 600; white-space: nowrap; }
td.number, th.number { text-align: right; white-space: nowrap; }
td:not(:last-child) { white-space: nowrap; }
footer { margin-top: 40px; padding-bottom: 40px; color: var(--quiet); font-size: 13px; }
footer p { margin: 0; border-top: 1px solid var(--rule); padding-top: 14px; }
@media (max-width: 560px) {
  main, header, footer { padding-left: 14px; padding-right: 14px; }
  header { padding-top: 24px; }
  h1 { font-size: 24px; }
  figure { padding: 14px 12px 10px; }
  .cards { grid-template-columns: 1fr 1fr; gap: 10px; }
  .cards .figure { font-size: 22px; }
  th, td { padding: 8px 12px; }
}
@media print {
  @page { margin: 14mm; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  main, header, footer { max-width: none; padding-left: 1px; padding-right: 1px; }
  header { padding-top: 0; }
  section { margin-top: 24px; }
  .pair { grid-template-columns: 1fr 1fr; }
  .cards { grid-template-columns: repeat(auto-fit, minmax(118px, 1fr)); }
  .cards .figure { font-size: 20px; }
  .card, tr { break-inside: avoid; }
  h2, .intro { break-after: avoid; }
}
"""

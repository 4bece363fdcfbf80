#include "compiler_core/page/blocks.h"

namespace kiln::page {

// Colours are named once for light and once for dark; each text colour has a contrast of 4.5 or more
// on every background it stands on.
std::string_view style() {
  return R"css(
:root {
  color-scheme: light dark;
  --ground: #faf8f5; --card: #ffffff; --ink: #1f1b18; --quiet: #645c55; --line: #e3ddd5;
  --accent: #a33b09; --good: #19692f; --warning: #7a4d00; --bad: #a8201a;
  --busy: #d9661f; --waits: #e8c34a; --idle: #cfd8dc; --held: #b3261e; --drains: #8d7bb8;
  --s0: #1f6f8b; --s1: #c2600a; --s2: #a8201a; --room: #eee8df;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #171412; --card: #211d1a; --ink: #efe9e2; --quiet: #b0a69b; --line: #3a342f;
    --accent: #ffa36e; --good: #74d391; --warning: #f2c063; --bad: #ff9a91;
    --busy: #f08a46; --waits: #d8b43c; --idle: #4a4f52; --held: #ff7a70; --drains: #a796d6;
    --s0: #6cc4e0; --s1: #ffab5e; --s2: #ff9a91; --room: #38322d;
  }
}
* { box-sizing: border-box; }
html { font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif; }
body { margin: 0; background: var(--ground); color: var(--ink); }
a { color: var(--accent); text-decoration-thickness: 1px; text-underline-offset: 2px; }
a.plain, a.good, a.warning, a.bad, a.quiet { color: inherit; text-decoration-color: var(--line); }
a:hover { text-decoration-color: currentColor; }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; border-radius: 3px; }
.skip { position: absolute; left: -999px; }
.skip:focus { left: 8px; top: 8px; background: var(--card); padding: 6px 10px; z-index: 2; }
header { display: flex; flex-wrap: wrap; align-items: center; gap: 4px 18px; padding: 8px 20px;
  background: var(--card); border-bottom: 1px solid var(--line); }
.brand { display: flex; align-items: center; gap: 8px; font-weight: 650; font-size: 1.15rem;
  color: var(--ink); text-decoration: none; }
nav ul { display: flex; flex-wrap: wrap; gap: 2px; list-style: none; margin: 0; padding: 0; }
nav li a { display: block; padding: 5px 10px; border-radius: 6px; color: var(--ink);
  text-decoration: none; }
nav li a:hover { background: var(--room); }
nav li a[aria-current] { background: var(--room); font-weight: 600; box-shadow: inset 0 -2px var(--accent); }
.who { margin-left: auto; display: flex; gap: 10px; align-items: center; color: var(--quiet); }
main { max-width: 1320px; margin: 0 auto; padding: 18px 20px 40px; outline: none; }
h1 { font-size: 1.5rem; margin: 6px 0 2px; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 0 0 8px; }
.about { color: var(--quiet); margin: 0 0 14px; max-width: 75ch; }
#live { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 14px; }
#live > * { grid-column: 1 / -1; margin: 0; }
#live > .half { grid-column: auto; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 14px 16px; margin: 14px 0; }
.note { color: var(--quiet); margin: 6px 0; max-width: 80ch; }
.nothing { color: var(--quiet); margin: 2px 0; }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 12px;
  margin: 14px 0; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 10px 14px; }
.tile dt { color: var(--quiet); font-size: .87rem; }
.tile dd { margin: 0; font-size: 1.45rem; font-weight: 600; font-variant-numeric: tabular-nums; }
.tile dd small { display: block; font-size: .8rem; font-weight: 400; color: var(--quiet);
  line-height: 1.35; }
.facts { display: grid; grid-template-columns: minmax(110px, max-content) 1fr; gap: 3px 18px;
  margin: 0; }
.facts dt { color: var(--quiet); }
.facts dd { margin: 0; overflow-wrap: anywhere; }
.facts dd > span, td.word > span { white-space: pre-line; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th { text-align: left; font-size: .84rem; font-weight: 600; color: var(--quiet);
  white-space: nowrap; }
th, td { padding: 5px 14px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tbody tr:last-child td { border-bottom: 0; }
tbody tr:hover { background: color-mix(in srgb, var(--room) 45%, transparent); }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.word { min-width: 4.5rem; max-width: 34rem; overflow-wrap: break-word; }
td.word a.code { display: inline-block; min-width: 7rem; overflow-wrap: normal; }
td.word span.code { min-width: 15rem; }
td.word > span { display: inline-block; max-width: 34rem; max-height: 12em; overflow: auto;
  overflow-wrap: break-word; }
td:has(svg.bar) { min-width: 11.5rem; }
a.bars { text-decoration: none; }
a.bars svg.bar { width: 50px; margin-left: 6px; }
.code, code, pre { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: .88em; }
pre { overflow-x: auto; margin: 0; max-height: 60vh; }
.k { color: var(--s0); } .c { color: var(--quiet); font-style: italic; } .s { color: var(--good); }
.n { color: var(--warning); } .p { color: var(--accent); }
summary { cursor: pointer; } summary h2 { display: inline; } details[open] > summary { margin-bottom: 8px; }
.good { color: var(--good); } .warning { color: var(--warning); } .bad { color: var(--bad); }
.quiet { color: var(--quiet); }
.tile.good, .tile.warning, .tile.bad { color: inherit; }
.tile.good { border-left: 4px solid var(--good); }
.tile.warning { border-left: 4px solid var(--warning); }
.tile.bad { border-left: 4px solid var(--bad); }
.notice { background: var(--card); border: 1px solid var(--line); border-left: 4px solid var(--quiet);
  border-radius: 8px; padding: 8px 14px; margin: 10px 0; color: var(--ink); overflow-wrap: anywhere; }
.notice.good { border-left-color: var(--good); } .notice.bad { border-left-color: var(--bad); }
.notice.warning { border-left-color: var(--warning); }
button, input { font: inherit; color: inherit; }
button { background: var(--room); border: 1px solid var(--line); border-radius: 6px; padding: 3px 11px;
  cursor: pointer; }
button:hover { border-color: var(--accent); }
input { background: var(--ground); border: 1px solid var(--quiet); border-radius: 6px; padding: 4px 8px;
  min-width: 0; }
.filter { display: flex; flex-wrap: wrap; gap: 8px; align-items: center; margin-bottom: 10px; }
.filter input { flex: 0 1 320px; }
.act { display: inline-block; margin-left: 8px; }
.act button { font-size: .85rem; font-weight: 400; white-space: nowrap; }
.sign-in { display: grid; gap: 10px; max-width: 480px; }
.pages { display: flex; gap: 16px; margin-top: 10px; }
svg { display: block; max-width: 100%; }
svg.bar { width: 84px; height: 8px; display: inline-block; margin-left: 8px; vertical-align: middle; }
.bar .room { fill: var(--room); } .bar .fill { fill: var(--accent); }
svg.strip { width: 100%; min-width: 130px; height: 14px; border-radius: 3px; background: var(--room); }
.busy { fill: var(--busy); } .waits { fill: var(--waits); } .idle { fill: var(--idle); }
.held { fill: var(--held); } .drains { fill: var(--drains); } .gone { fill: transparent; }
.choices ul { display: flex; flex-wrap: wrap; gap: 4px 6px; align-items: center; list-style: none; margin: 0;
  padding: 0; }
.choices li a { display: block; padding: 3px 10px; border-radius: 6px; color: var(--ink);
  text-decoration: none; border: 1px solid var(--line); }
.choices li a[aria-current] { background: var(--room); font-weight: 600; }
.chart { margin: 0; } .chart svg, svg.race { width: 100%; height: auto; }
svg.race { min-width: 560px; }
svg text { fill: var(--quiet); font-size: 11px; }
.grid { stroke: var(--line); stroke-width: 1; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.s0 { stroke: var(--s0); } .s1 { stroke: var(--s1); stroke-dasharray: 7 3; }
.s2 { stroke: var(--s2); stroke-dasharray: 2 3; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 20px; list-style: none; margin: 4px 0 0; padding: 0;
  color: var(--quiet); font-size: .88rem; }
.legend li { display: flex; align-items: center; gap: 7px; } .legend svg { width: 24px; height: 8px; }
.runner circle { fill: var(--s0); opacity: .45; } .runner .median { stroke: var(--ink); stroke-width: 2; }
.runner.won circle { fill: var(--s1); opacity: .6; } .runner.won text { fill: var(--ink); font-weight: 600; }
footer { display: flex; flex-wrap: wrap; gap: 4px 20px; padding: 12px 20px 24px; color: var(--quiet);
  max-width: 1320px; margin: 0 auto; font-size: .87rem; }
@media (max-width: 600px) {
  header, main, footer { padding-left: 12px; padding-right: 12px; }
  #live > .half { grid-column: 1 / -1; }
  section { padding: 12px; } .facts { grid-template-columns: 1fr; gap: 0; } .facts dd { margin-bottom: 7px; }
  .tiles { grid-template-columns: repeat(auto-fill, minmax(135px, 1fr)); gap: 8px; }
}
@media print {
  :root { --ground: #fff; --card: #fff; --ink: #000; --quiet: #444; --line: #bbb; --room: #e5e5e5; --accent: #7a2c07;
    --good: #14532d; --s0: #14506a; --s1: #8a4205; --s2: #7f1813; color-scheme: light; }
  html { font-size: 11px; } main { max-width: none; padding: 0; }
  header nav, button, .filter, .skip, footer a { display: none; }
  .scroll, pre, td.word > span { overflow: visible; max-height: none; }
  pre, td.word span.code { white-space: pre-wrap; overflow-wrap: anywhere; min-width: 0; }
  th { white-space: normal; } tr, .tile, .notice { break-inside: avoid; } h2 { break-after: avoid; }
  details::details-content { content-visibility: visible; height: auto; }
}
)css";
}

std::string_view icon() {
  return R"svg(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#a33b09"/><path d="M6 26V15a10 10 0 0 1 20 0v11z" fill="#ffe1cc"/><path d="M16 26c-4 0-6-2.500-6-5.500 0-4 4.500-5.500 4.500-10 4 1.500 7.500 6 7.500 10 0 3-2 5.500-6 5.500z" fill="#e0661a"/></svg>)svg";
}

}  // namespace kiln::page

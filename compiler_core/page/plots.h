// Plots as SVG, drawn by the server: they need no script, take their colours from the style sheet,
// and say in words what they show. Pure functions.
#pragma once

#include "compiler_core/page/document.h"
#include "compiler_core/page/html.h"

namespace kiln::page {

// A bar that is full for a share of 1. `said`: for those who do not see it.
Html bar(double share, std::string_view said);

// One cell for each letter, the oldest first: b busy, w waiting, i idle, q in quarantine, d
// draining, anything else: not connected.
Html strip(std::string_view letters);

Html line_chart(const Chart& chart);

// One line a candidate, the samples as dots on a logarithmic scale, the median as a mark.
Html race_plot(const Race& race);

}  // namespace kiln::page

// A graph behind one rewrite, which computes what it did.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "compiler_core/ir/interpreter.h"
#include "compiler_core/ir/text.h"
#include "tests/compiler_core/passes/random_graph.h"

namespace kiln::testing {

// The text of what `pass` makes of the graph of these lines, without the first.
inline std::string rewritten(const std::string& body, Result<Graph> (*pass)(const Graph&)) {
  const auto graph = parse_graph("kiln.graph 1\n" + body);
  EXPECT_TRUE(graph.has_value()) << graph.error().message;
  const auto after = pass(*graph);
  EXPECT_TRUE(after.has_value()) << after.error().message;
  const std::vector<Tensor> inputs = random_inputs(*graph, 1);
  std::vector<const Tensor*> pointers;
  for (const Tensor& input : inputs) pointers.push_back(&input);
  const auto expected = interpret(*graph, pointers), got = interpret(*after, pointers);
  EXPECT_TRUE(expected && got);
  for (size_t i = 0; expected && got && i < got->size(); ++i)
    EXPECT_EQ(0, std::memcmp((*got)[i].bytes().data(), (*expected)[i].bytes().data(),
                             (*got)[i].bytes().size()))
        << "output " << i << " of\n"
        << print(*after);
  return print(*after);
}

// How often `word` stands in `text`.
inline size_t count(const std::string& text, const std::string& word) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; ++at) ++found;
  return found;
}

}  // namespace kiln::testing

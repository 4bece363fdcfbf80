// Small models whose sizes come at run time, in normal form: for what plans, compiles and runs
// them, on the host and on a GPU.
#pragma once

#include <span>
#include <vector>

#include "compiler_core/base/tensor.h"
#include "compiler_core/passes/normalise.h"

namespace kiln::testing {

// Of any batch: a stem, a residual of a strided window and a 1 x 1 shortcut, channels on their own,
// a classifier.
NormalForm convolutional_network();
// Of any batch of images whose sides are any multiples of 4: as it, with the greatest of a channel.
NormalForm network_of_any_image();
// Of any batch and length.
NormalForm embedding_loss();
NormalForm embedding_of_fixed_positions();
NormalForm transformer_of_any_batch();
NormalForm transformer_of_any_batch_and_length();
// Embeddings of tokens and of positions, a causal layer, logits, and the best token of each place.
// Symbols: positions (128 at most), batch.
NormalForm language_model();
// Of any batch: the five greatest of each row, running sums of what they are, and counts of where
// they lie.
NormalForm sorts_scans_and_scatters();

std::vector<int64_t> sizes_at(const Shape& shape, std::span<const int64_t> symbols);
// Floats in [-1, 1], no two of a row alike; integers that are positions in a table of 50.
std::vector<Tensor> model_inputs(const Graph& model, std::span<const int64_t> symbols);

}  // namespace kiln::testing

// softmax(x) over rows through Kiln's C++ library, on the caller's buffers, with no service:
// compiled here. Exit code 0 when every row sums to one.
#include <cmath>
#include <cstdio>

#include "client/client.h"
#include "compiler_core/ir/builder.h"

int main() {
  kiln::GraphBuilder b;
  const kiln::NodeId x = b.input(kiln::DType::kF32, {4, 100});
  const kiln::NodeId top = b.reduce(kiln::Op::kReduceMax, x, {1}, true);
  const kiln::NodeId e =
      b.unary(kiln::Op::kExp, b.binary(kiln::Op::kSub, x, b.broadcast(top, {4, 100})));
  const kiln::NodeId sum = b.reduce(kiln::Op::kReduceSum, e, {1}, true);
  auto graph = b.finish({b.binary(kiln::Op::kDiv, e, b.broadcast(sum, {4, 100}))});

  auto client = kiln::Client::create({});
  if (!graph || !client) return 2;
  auto program = (*client)->compile(*graph, {});
  if (!program) {
    std::fprintf(stderr, "%s\n", program.error().message.c_str());
    return 2;
  }
  kiln::Tensor input(kiln::DType::kF32, {4, 100});
  for (int64_t i = 0; i < input.numel(); ++i) input.set(i, static_cast<double>(i % 7));
  const kiln::Tensor* inputs[] = {&input};
  auto outputs = (*program)->run(inputs);
  if (!outputs) return 2;
  for (int64_t row = 0; row < 4; ++row) {
    double total = 0;
    for (int64_t i = 0; i < 100; ++i) total += (*outputs)[0].get(row * 100 + i);
    if (std::fabs(total - 1) > 1e-5) return 1;
  }
  return 0;
}

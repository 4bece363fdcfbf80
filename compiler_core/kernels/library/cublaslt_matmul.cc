#include "compiler_core/kernels/library/cublaslt_matmul.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "compiler_core/ir/shape.h"
#include "compiler_core/kernels/analysis/device_limits.h"
#include "compiler_core/kernels/decisions.h"
#include "compiler_core/kernels/matmul/matmul_problem.h"

namespace kiln {
namespace {

struct CublasLtSchedule {
  static constexpr std::string_view kTemplate = "cublaslt.matmul";
  int rank = 0;
  static void fields(auto& f, auto& s) { f("rank", s.rank, between(0, kLibraryRanks - 1)); }
};

constexpr Values kVersions = between(0, 99'999'999);  // 0: any

tl::unexpected<Error> lacks(std::string_view what) {
  return fail(Code::kUnsupported, fmt::format("cuBLASLt has no product {}", what));
}

bool is_multiplied(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF32 ||
         dtype == DType::kF64;
}

// Whether a >= b, as far as that is seen without the symbols' values.
bool is_at_least(const Dim& a, const Dim& b) {
  return a == b || (a.is_constant() && b.is_constant() && a.constant() >= b.constant());
}

// The one stride from each of `sizes` matrices to the next; nothing when there is none.
std::optional<Dim> batch_stride(const std::vector<Dim>& sizes, const std::vector<Dim>& strides) {
  std::optional<Dim> innermost;
  Dim next = 0;  // what the stride of the next outer axis has to be
  for (size_t axis = sizes.size(); axis-- > 0;) {
    if (sizes[axis].is(1)) continue;
    if (innermost && strides[axis] != next) return std::nullopt;
    if (!innermost) innermost = strides[axis];
    next = strides[axis] * sizes[axis];
  }
  if (innermost && innermost->is_constant() && innermost->constant() < 0) return std::nullopt;
  return innermost.value_or(0);
}

// A matrix of `rows` x `columns`. Along an axis of size 1 a stride says nothing.
Result<LibraryCall::Matrix> operand_of(const SizedMatmul& problem,
                                       const SizedMatmulOperand& operand, const Dim& rows,
                                       const Dim& columns) {
  LibraryCall::Matrix matrix;
  matrix.buffer = operand.input;
  matrix.dtype = problem.stored;
  const auto stride = batch_stride(problem.batch, operand.batch_strides);
  if (!stride) return lacks("of matrices that do not follow each other at one stride");
  matrix.batch_stride = *stride;
  matrix.offset = operand.offset;
  const bool by_rows = (operand.column_stride.is(1) || columns.is(1));
  const bool by_columns = (operand.row_stride.is(1) || rows.is(1));
  const Dim& across = by_rows ? operand.row_stride : operand.column_stride;
  matrix.transposed = !by_rows;
  const Dim& line = by_rows ? columns : rows;
  matrix.ld = (by_rows ? rows : columns).is(1) ? line : across;
  if (!(by_rows || by_columns) || !is_at_least(matrix.ld, line))
    return lacks("of a matrix without a contiguous axis, or whose lines overlap");
  return matrix;
}

// The epilogue: what is added to the product.
class Epilogue {
 public:
  Epilogue(const Graph& graph, const SizedMatmul& problem, LibraryCall& call)
      : graph_(graph), problem_(problem), call_(call) {}

  Status read() {
    const Node& output = graph_.node(graph_.outputs()[0]);
    call_.d.dtype = output.dtype;
    if (output.dtype != problem_.stored && output.dtype != problem_.result)
      return lacks(
          fmt::format("of {} that gives {}", to_string(problem_.stored), to_string(output.dtype)));
    return add(graph_.outputs()[0]);
  }

 private:
  // A value before it was converted between f32 and the type of the operands or the result: what
  // is rounded in between is rounded once, at the end.
  NodeId widened(NodeId id) const {
    const auto is_passed = [this](DType dtype) {
      return dtype == DType::kF32 || dtype == problem_.stored;
    };
    while (graph_.node(id).op == Op::kCast && is_passed(graph_.node(id).dtype) &&
           is_passed(graph_.node(graph_.node(id).operands[0]).dtype))
      id = graph_.node(id).operands[0];
    return id;
  }

  Status add(NodeId id) {
    id = widened(id);
    if (id == problem_.product) return {};
    const Node& node = graph_.node(id);
    if (node.op != Op::kAdd) return add_term(node);
    TRY_STATUS(add(node.operands[0]));
    return add(node.operands[1]);
  }

  // An addend is of the result's dtype and as large, or one row for all.
  Status add_term(const Node& node) {
    const Node* source = &node;
    std::vector<Dim> strides = contiguous_strides(node.shape);
    if (node.op == Op::kView) {
      const auto& view = std::get<ViewAttr>(node.attr);
      if (!view.offset.is(0)) return unknown(node);
      strides = view.strides;
      source = &graph_.node(node.operands[0]);
    }
    if (source->op != Op::kInput || source->dtype != call_.d.dtype) return unknown(node);
    const int buffer = std::get<InputAttr>(source->attr).index;
    if (call_.c < 0 && follows(node.shape, strides, contiguous_strides(node.shape))) {
      call_.c = buffer;
      return {};
    }
    std::vector<Dim> row(node.shape.size(), Dim(0));
    row.back() = 1;
    if (call_.bias >= 0 || !follows(node.shape, strides, row)) return unknown(node);
    call_.bias = buffer;
    call_.epilogue = "bias";
    return {};
  }

  // Whether two ways to walk `shape` are one.
  static bool follows(const Shape& shape, const std::vector<Dim>& strides,
                      const std::vector<Dim>& wanted) {
    for (size_t axis = 0; axis < shape.size(); ++axis)
      if (!shape[axis].is(1) && strides[axis] != wanted[axis]) return false;
    return true;
  }

  static tl::unexpected<Error> unknown(const Node& node) {
    return lacks(fmt::format("followed by {}", traits(node.op).name));
  }

  const Graph& graph_;
  const SizedMatmul& problem_;
  LibraryCall& call_;
};

// One matrix instead of many, where the rows of a and of the result go on from each to the next.
void fold_batch(LibraryCall& call) {
  const bool goes_on = !call.a.transposed && call.a.batch_stride == call.a.ld * call.m;
  if (call.batch.is(1) || !call.b.batch_stride.is(0) || !goes_on) return;
  call.m = call.m * call.batch;
  call.batch = 1;
}

bool has_symbols(const LibraryCall& call) {
  return !std::ranges::all_of(sizes_of(call), &Dim::is_constant);
}

class CublasLtMatmul final : public KernelTemplate {
 public:
  std::string_view name() const override { return CublasLtSchedule::kTemplate; }
  int version() const override { return 1; }
  std::string_view library() const override { return "cublaslt"; }

  bool covers(const Workload& workload, const Target& target) const override {
    return workload.family == Family::kMatmul && target.backend == Backend::kCuda &&
           sm_number(target) >= 80 && check_operands_are_stored(workload);
  }

  // Parts of an H200's roofline, as tests/gpu/RESULTS.md has them: long products of halves
  // reach nearly all, full f32 does without tensor cores, products of few rows are read at some two
  // thirds of the bandwidth.
  double expected_efficiency(const Workload& workload, const Target& /*target*/) const override {
    constexpr int64_t kFewRows = 64;
    const SizedMatmul problem = SizedMatmul::of(workload.graph);
    if (problem.m.is_constant() && problem.m.constant() <= kFewRows) return 0.65;
    return is_half(problem.stored) ? 0.9 : 0.15;
  }

  Result<std::vector<Schedule>> candidates(const Workload& workload,
                                           const Target& /*target*/) const override {
    TRY(const LibraryCall call, cublaslt_call(workload));
    std::vector<Schedule> space;
    // At other sizes than those that are timed, the library's own first choice is the best guess.
    const int ranks = has_symbols(call) ? 1 : kLibraryRanks;
    for (int rank = 0; rank < ranks; ++rank) space.push_back(to_schedule(CublasLtSchedule{rank}));
    return space;
  }

  Result<Buildable> instantiate(const Workload& workload, const Schedule& schedule,
                                const Target& /*target*/) const override {
    TRY(LibraryCall call, cublaslt_call(workload));
    TRY(const CublasLtSchedule decisions, decisions_of<CublasLtSchedule>(schedule));
    const int64_t version = schedule.get(kVersionDecision, 0);
    if (!kVersions.has(version) || (decisions.rank > 0 && has_symbols(call)))
      return fail(Code::kInvalidArgument, "out of range: " + schedule.to_string());
    call.rank = decisions.rank;
    if (version > 0) call.version = std::to_string(version);
    Recipe recipe = argument_recipe(workload.graph);
    recipe.phases.resize(1);
    recipe.phases[0].call = std::move(call);
    recipe.workspace_bytes = kLibraryWorkspaceBytes;
    return library_artifact(std::move(recipe));
  }
};

}  // namespace

Result<LibraryCall> cublaslt_call(const Workload& workload) {
  const Graph& graph = workload.graph;
  const SizedMatmul problem = SizedMatmul::of(graph);
  if (!is_multiplied(problem.stored))
    return lacks(fmt::format("of {} operands", to_string(problem.stored)));
  LibraryCall call;
  call.library = "cublaslt";
  call.compute = problem.stored == DType::kF64 ? "f64" : "f32";
  call.m = problem.m, call.n = problem.n, call.k = problem.k, call.batch = problem.batches;
  TRY(call.a, operand_of(problem, problem.a, call.m, call.k));
  TRY(call.b, operand_of(problem, problem.b, call.k, call.n));
  call.d.buffer = static_cast<int>(graph.inputs().size());
  call.d.ld = call.n;
  call.d.batch_stride = call.m * call.n;
  TRY_STATUS(Epilogue(graph, problem, call).read());
  fold_batch(call);
  return call;
}

const KernelTemplate& cublaslt_matmul() {
  static const CublasLtMatmul made;
  return made;
}

}  // namespace kiln

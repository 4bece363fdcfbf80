// Another project: softmax(x) over rows through Kiln's C++ library, on its own buffers and with no
// service, and one use of every public type. Prints the first check that fails and exits with 1.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "client/client.h"
#include "client/specialised_program.h"
#include "client/tiered_program.h"
#include "compiler_core/frontend/exported_program.h"
#include "compiler_core/frontend/safetensors.h"
#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/custom_call.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/program/program.h"
#include "quoted.h"

namespace {

void check(bool ok, const char* what, const std::string& why = "") {
  if (ok) return;
  std::fprintf(stderr, "%s: %s\n", what, why.c_str());
  std::exit(1);
}

template <class T>
T must(kiln::Result<T> result, const char* what) {
  check(result.has_value(), what, result ? "" : result.error().message);
  return *std::move(result);
}

// softmax over the last axis of [rows, 100]; any number of rows when `rows` is a symbol.
kiln::Graph softmax(kiln::GraphBuilder b, const kiln::Dim& rows) {
  const kiln::Shape shape = {rows, 100};
  const kiln::NodeId x = b.input(kiln::DType::kF32, shape);
  const kiln::NodeId top = b.reduce(kiln::Op::kReduceMax, x, {1}, true);
  const kiln::NodeId e =
      b.unary(kiln::Op::kExp, b.binary(kiln::Op::kSub, x, b.broadcast(top, shape)));
  const kiln::NodeId sum = b.reduce(kiln::Op::kReduceSum, e, {1}, true);
  return must(b.finish({b.binary(kiln::Op::kDiv, e, b.broadcast(sum, shape))}), "the graph");
}

kiln::Tensor filled(int64_t rows) {
  kiln::Tensor input(kiln::DType::kF32, {rows, 100});
  for (int64_t i = 0; i < input.numel(); ++i) input.set(i, static_cast<double>(i % 7));
  return input;
}

void check_rows(const kiln::Tensor& output) {
  for (int64_t row = 0; row < output.sizes()[0]; ++row) {
    double total = 0;
    for (int64_t i = 0; i < 100; ++i) total += output.get(row * 100 + i);
    check(std::fabs(total - 1) < 1e-5, "a row of softmax sums to one");
  }
}

void use_one_program(kiln::Client& client) {
  const kiln::Graph graph = softmax({}, 4);
  kiln::CompileOptions options;
  options.target = must(kiln::Target::parse("cpu"), "Target");
  options.on_progress = [](const kiln::CompileProgress&) {};
  check(client.look_up(graph, options).error().code == kiln::Code::kNotFound, "look_up() misses");
  const auto program = must(client.compile(graph, options), "compile()");
  check(program->outcome() == kiln::Outcome::kLocal, "Outcome",
        std::string(to_string(program->outcome())));
  const kiln::Tensor input = filled(4);
  const kiln::Tensor* inputs[] = {&input};
  std::vector<kiln::Tensor> outputs = must(program->run(inputs), "run()");
  check_rows(outputs[0]);
  kiln::Tensor* targets[] = {&outputs[0]};
  check(program->run(inputs, targets).has_value(), "run() on buffers of one's own");
  const kiln::CudaStream stream = nullptr;
  const kiln::DevicePtr pointer = 256;
  check(program->launch({&pointer, 1}, {&pointer, 1}, stream).error().code ==
            kiln::Code::kUnsupported,
        "launch() of a program for the CPU");
  check(program->start_up().fetch_ms > 0 && program->seconds() > 0, "StartUp");
  check(!program->memory_only() && program->signature().empty() && !program->verified(),
        "it was compiled here");
  check(program->input_order().size() == 1, "input_order()");

  const kiln::Program& manifest = program->program();
  const kiln::Program again = must(kiln::program_from_json(program->manifest()), "manifest()");
  check(manifest == again && manifest.target.can_run(again.target), "Program");
  const kiln::ProgramKernel& kernel = manifest.kernels.at(0);
  const kiln::Artifact& artifact = program->artifacts()[0];
  check(kiln::Digest::of(artifact.binary) == kernel.blob, "Artifact and Digest");
  check(
      artifact.recipe == must(kiln::recipe_from_json(kiln::recipe_to_json(kernel.recipe)), "json"),
      "Recipe");
  const kiln::Phase& phase = artifact.recipe.phases.at(0);
  check(must(phase.grid.blocks({}), "Grid") > 0, "Phase");
  const kiln::TensorSpec& spec = artifact.recipe.inputs.at(0);
  check(must(kiln::element_count(spec, {}), "TensorSpec") == 400, "element_count()");
  check(manifest.launches.at(0).args.size() == 2, "Launch");
  check(manifest.buffers.at(0).kind == kiln::Buffer::Kind::kInput, "Buffer");
  check(kernel.report == kiln::KernelReport{.candidates = kernel.report.candidates},
        "KernelReport");
  check(client.fetch(graph, options).has_value(), "fetch()");
  check(!client.open_exported(graph, "/nonexistent", options), "open_exported()");
  check(client.load_bundle("/nonexistent").error().code == kiln::Code::kNotFound, "load_bundle()");
  check(!client.submit(graph, options), "submit() without a service");
  check(client.service_state() == kiln::ServiceState::kUnknown, "ServiceState");
}

void use_a_dynamic_program(kiln::Client& client) {
  kiln::GraphBuilder builder;
  const kiln::Dim rows = kiln::Dim::symbol(builder.symbol({1, 64}, 8));
  const kiln::Graph graph = softmax(std::move(builder), rows);
  const std::vector<std::vector<int64_t>> hints = {{2, 16}};
  auto parts = must(kiln::parts_of_hints(graph.symbols(), hints), "parts_of_hints()");
  const auto compile = [&client](const kiln::Graph& part) { return client.compile(part, {}); };
  const auto set = must(kiln::SpecialisedProgram::make(graph, std::move(parts), compile), "make()");
  check(set->parts().size() == 2, "SpecialisedProgram::Part");
  const kiln::Guard& guard = set->parts()[0].guards.at(0);
  const int64_t one = 1;
  check(must(guard.holds({&one, 1}), "Guard"), "holds()", guard.to_string());
  for (const int64_t size : {1, 33}) {
    const kiln::Tensor input = filled(size);
    const kiln::Tensor* inputs[] = {&input};
    check_rows(must(set->run(inputs), "SpecialisedProgram::run()")[0]);
  }
  const kiln::ProgramSymbol& symbol = set->parts()[0].program->program().symbols.at(0);
  check(symbol.hint == 2, "ProgramSymbol");
}

void use_a_tiered_program(std::shared_ptr<kiln::Client> client) {
  const auto tiered = must(kiln::TieredProgram::compile(std::move(client), softmax({}, 4),
                                                        {.mode = kiln::Mode::kMaxAutotune}),
                           "TieredProgram::compile()");
  check(tiered->wait(std::chrono::milliseconds(0)) == kiln::TieredProgram::State::kTuned,
        "without a service nothing is awaited");
  check(!tiered->has_successor() && tiered->current() == tiered->first(), "current()");
}

void use_a_custom_op(kiln::Client& client) {
  const kiln::Graph graph = must(graph_with_a_custom_op(), "CustomOp");
  const auto program = must(client.compile(graph, {}), "compile() of a custom op");
  kiln::Tensor x(kiln::DType::kF32, {64, 256}), bias(kiln::DType::kF32, {64, 256});
  for (int64_t i = 0; i < x.numel(); ++i) x.set(i, 1), bias.set(i, -0.5);
  const kiln::Tensor* inputs[] = {&x, &bias};
  const double sine = std::sin(1.0), wanted = std::tanh(sine / (1 + std::exp(-sine)) - 0.5);
  check(std::fabs(must(program->run(inputs), "run()")[0].get(77) - wanted) < 1e-5, "a custom op");
}

void use_graphs_and_files(const std::filesystem::path& folder) {
  const kiln::Graph graph = softmax({}, 4);
  const std::string text = kiln::print(graph);
  check(must(kiln::parse_graph(text), "parse_graph()") == graph, "Graph");
  const kiln::Node& node = graph.node(graph.outputs()[0]);
  check(node.op == kiln::Op::kDiv && to_string(node.dtype) == "f32", "Node, Op and DType");
  check(kiln::numel(node.shape).is(400) && graph.origins().empty(), "Shape and Origin");
  kiln::CustomCall call;
  call.kernels.emplace_back().backend = "cpu";
  check(call.kernel("cpu") != nullptr && !kiln::verify_custom_call(call), "CustomCall");

  const kiln::Tensor tensor = filled(1);
  const std::filesystem::path file = folder / "x.safetensors";
  check(kiln::write_safetensors(file, {{"x", &tensor}}).has_value(), "write_safetensors()");
  check(must(kiln::read_safetensors(file), "read_safetensors()").contains("x"), "safetensors");
  const kiln::Result<kiln::ExportedProgram> exported = kiln::read_graph_file(folder / "none.pt2");
  check(exported.error().code == kiln::Code::kNotFound, "read_graph_file()");
  kiln::ExportedInput input;
  check(kiln::is_dense(input), "ExportedInput");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string version = std::to_string(KILN_VERSION_MAJOR) + "." +
                              std::to_string(KILN_VERSION_MINOR) + "." +
                              std::to_string(KILN_VERSION_PATCH);
  check(version == KILN_PACKAGE_VERSION, "the headers' version is the package's", version);
  const auto client = must(kiln::Client::create({.threads = 2}), "create()");
  use_one_program(*client);
  use_a_dynamic_program(*client);
  use_a_tiered_program(must(kiln::Client::create({.threads = 2}), "create()"));
  use_a_custom_op(*client);
  use_graphs_and_files(argc > 1 ? argv[1] : ".");
  return 0;
}

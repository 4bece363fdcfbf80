// `kiln up` with a GPU (the fake one): a search from a machine without a GPU, and what a machine
// with one finds of it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "client/compiled_program.h"
#include "tests/support/process.h"
#include "tests/system/fake_gpu.h"

#ifdef KILN_FAKE_LIBCUDA

namespace kiln::testing {
namespace {

using nlohmann::json;

constexpr char kSumGraph[] =
    "kiln.graph 1\n"
    "%0 = input 0 : f32[1024]\n"
    "%1 = input 1 : f32[1024]\n"
    "%2 = add %0 %1 : f32[1024]\n"
    "return %2\n";

class GpuService : public ::testing::Test {
 protected:
  GpuService() : dir_(*TempDir::create()) {
    EXPECT_TRUE(write_file(dir_.path() / "add.kiln", kSumGraph));
  }
  Finished compile(const Service& service, const std::string& target,
                   const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {
        binary("kiln"), "compile", dir_.path() / "add.kiln", "--target",        target, "--mode",
        "max-autotune", "--json",  "--coordinator",          service.endpoint()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return ask(arguments);
  }
  TempDir dir_;
};

TEST_F(GpuService, WhatIsTunedWithoutAGpuIsAHitWithOne) {
  const Service service(dir_.path() / "data", worker_of_fake_gpu());
  ASSERT_FALSE(service.endpoint().empty()) << service.log();
  const json stats =
      run({binary("kiln"), "stats", "--json", "--coordinator", service.endpoint()}).json();
  ASSERT_EQ(stats["workers"].size(), 1u);
  EXPECT_EQ(stats["workers"][0]["name"], "local-cuda:0");
  EXPECT_EQ(stats["workers"][0]["target"], "cuda:sm_90a");
  EXPECT_TRUE(stats["workers"][0]["toolkit"].get<std::string>().starts_with("nvrtc 13."));

  const Finished tuned = compile(service, "cuda:sm_90a");
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err << service.log();
  EXPECT_EQ(tuned.json()["cache"], "tuned");
  EXPECT_GT(tuned.json()["kernels"][0]["measured"].get<int>(), 0) << tuned.out;

  const Finished hit = compile(service, "cuda", {"--libcuda", KILN_FAKE_LIBCUDA, "--check"});
  EXPECT_EQ(hit.exit_code, 0) << hit.err;
  EXPECT_EQ(hit.json()["cache"], "hit");
}

Tensor ones(std::vector<int64_t> sizes) {
  Tensor tensor(DType::kBF16, std::move(sizes));
  for (int64_t i = 0; i < tensor.numel(); ++i) tensor.set(i, 1);
  return tensor;
}

// A small product, which the fake cuBLASLt does in no time, while an emulated kernel does a tile.
class GpuServiceLibraries : public GpuService {
 protected:
  GpuServiceLibraries() {
    EXPECT_TRUE(write_file(product_,
                           "kiln.graph 1\n"
                           "%0 = input 0 : bf16[6,16]\n"
                           "%1 = input 1 : bf16[16,8]\n"
                           "%2 = matmul %0 %1 : f32[6,8]\n"
                           "%3 = cast %2 : bf16[6,8]\n"
                           "return %3\n"));
  }
  static std::vector<std::string> with_gpu(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(),
                     {"--libcuda", KILN_FAKE_LIBCUDA, "--libnvrtc", KILN_FAKE_LIBNVRTC});
    return arguments;
  }
  Finished kiln(const char* command, const std::string& endpoint,
                const std::vector<std::string>& more = {},
                const std::vector<std::string>& environment = {}) const {
    std::vector<std::string> arguments =
        with_gpu({binary("kiln"), command, product_, "--target", "cuda", "--mode", "max-autotune",
                  "--json", "--coordinator", endpoint, "--no-fallback"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return ask(arguments, environment);
  }

  const std::string product_ = (dir_.path() / "product.kiln").string();
};

TEST_F(GpuServiceLibraries, ALibraryThatWinsIsServedWithAnOwnKernelBesideIt) {
  const Service service(dir_.path() / "data", with_gpu({"--device", "cuda:0"}));
  ASSERT_FALSE(service.endpoint().empty()) << service.log();
  const std::string made = (dir_.path() / "made").string();
  const Finished tuned = kiln("compile", service.endpoint(), {"--out", made});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err << service.log();
  const std::string schedule = tuned.json()["kernels"][0]["schedule"];
  ASSERT_TRUE(schedule.starts_with("cublaslt.matmul rank=")) << schedule << service.log();
  EXPECT_TRUE(schedule.ends_with(" version=130100")) << schedule;
  const json kernel = json::parse(*read_file(Path(made) / "manifest.json"))["kernels"][0];
  EXPECT_TRUE(kernel["fallback"]["schedule"].get<std::string>().starts_with("cuda.matmul "));
  EXPECT_GT(kernel["fallback"]["us"].get<double>(), kernel["report"]["best_us"].get<double>());
  EXPECT_EQ(kernel["recipe"]["phases"][0]["call"]["version"], "130100");

  // From the directory alone, which the caller vouches for: a client with the library, and one without.
  const Tensor a = ones({6, 16}), b = ones({16, 8});
  for (const char* library : {KILN_FAKE_LIBCUBLASLT, "none"}) {
    const auto client = Client::create(
        {.compiler = "/bin/false", .libcuda = KILN_FAKE_LIBCUDA, .libcublaslt = library});
    ASSERT_TRUE(client) << client.error().message;
    const auto program = (*client)->open_exported(made, {}, Client::kUnsigned);
    ASSERT_TRUE(program) << program.error().message;
    EXPECT_EQ(libraries_left_out(**program).empty(), library != std::string("none"));
    const auto outputs = (*program)->run(std::vector<const Tensor*>{&a, &b});
    ASSERT_TRUE(outputs) << outputs.error().message;
    for (int64_t i = 0; i < 48; ++i) EXPECT_EQ((*outputs)[0].get(i), 16.0);
  }

  // From any machine: with the library, without it, with another version of it.
  const auto run_it = [&](std::vector<std::string> more,
                          const std::vector<std::string>& environment = {}) {
    more.insert(more.end(), {"--runs", "1"});
    const Finished ran = kiln("run", service.endpoint(), more, environment);
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    EXPECT_EQ(ran.json()["cache"], "hit");
    return ran.err;
  };
  EXPECT_EQ(run_it({}), "");
  EXPECT_EQ(run_it({"--reduce-overhead"}), "");
  EXPECT_NE(run_it({"--no-libraries"})
                .find("a kernel of Kiln's own runs in the place of cublaslt 130100: cuBLASLt is "
                      "left out"),
            std::string::npos);
  EXPECT_NE(run_it({"--libcublaslt", "/nowhere/libcublasLt.so.13"}).find("no cuBLASLt here"),
            std::string::npos);
  EXPECT_NE(run_it({}, {"KILN_FAKE_CUBLASLT_VERSION=120900"}).find("the one here is 120900"),
            std::string::npos);

  const Finished explained =
      run({binary("kiln"), "explain", product_, "--target", "cuda", "--mode", "max-autotune",
           "--coordinator", service.endpoint(), "--libcuda", KILN_FAKE_LIBCUDA});
  ASSERT_EQ(explained.exit_code, 0) << explained.err;
  EXPECT_NE(explained.out.find("matmul of cublaslt 130100"), std::string::npos) << explained.out;
  EXPECT_NE(explained.out.find("cuda.matmul "), std::string::npos) << explained.out;
}

TEST_F(GpuServiceLibraries, AWorkerWithoutLibrariesTunesWithoutThem) {
  const Service service(dir_.path() / "data", with_gpu({"--device", "cuda:0", "--no-libraries"}));
  ASSERT_FALSE(service.endpoint().empty()) << service.log();
  const Finished tuned = kiln("compile", service.endpoint());
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err << service.log();
  const json kernel = tuned.json()["kernels"][0];
  EXPECT_TRUE(kernel["schedule"].get<std::string>().starts_with("cuda.matmul ")) << kernel;
  EXPECT_EQ(kernel["rejected"], 0) << kernel;
  EXPECT_EQ(kiln("compile", service.endpoint(), {"--check"}).json()["cache"], "hit");
}

// A program of one kernel, of which every candidate is measured.
class GpuServiceKernel : public GpuService {
 protected:
  // What `kiln compile` says of the kernel.
  json tuned(const std::string& graph) {
    const std::string file = (dir_.path() / "kernel.kiln").string();
    EXPECT_TRUE(write_file(file, graph));
    const Service service(dir_.path() / "data", worker_of_fake_gpu());
    EXPECT_FALSE(service.endpoint().empty()) << service.log();
    const Finished compiled =
        run({binary("kiln"), "compile", file, "--target", "cuda:sm_90a", "--mode", "max-autotune",
             "--json", "--coordinator", service.endpoint(), "--no-fallback"});
    EXPECT_EQ(compiled.exit_code, 0) << compiled.err << service.log();
    if (compiled.exit_code != 0) return {};
    const json kernels = compiled.json()["kernels"];
    EXPECT_EQ(kernels.size(), 1u) << compiled.out;
    EXPECT_EQ(kernels[0]["rejected"], 0) << service.log();
    EXPECT_EQ(kernels[0]["measured"], kernels[0]["candidates"]) << service.log();
    return kernels[0];
  }
};

// Rows of four experts that an index on the device picks, with what follows in a model: rounded inside.
TEST_F(GpuServiceKernel, AMixtureOfExpertsIsTunedWithItsMatricesWhereTheyLie) {
  const json kernel = tuned(
      "kiln.graph 1\n"
      "%0 = input 0 : bf16[150,1,72]\n"
      "%1 = input 1 : bf16[4,72,64]\n"
      "%2 = input 2 : i64[150]\n"
      "%3 = gather %1 %2 : bf16[150,72,64]\n"
      "%4 = matmul %0 %3 : f32[150,1,64]\n"
      "%5 = cast %4 : bf16[150,1,64]\n"
      "%6 = tanh %5 : bf16[150,1,64]\n"
      "return %6\n");
  EXPECT_TRUE(kernel.value("schedule", std::string()).starts_with("cuda.matmul.wgmma.picked "))
      << kernel;
}

// Few rows: kernels that wait for memory and those on wgmma.
TEST_F(GpuServiceKernel, AGateAndWhatItScalesAreTunedAsOneKernel) {
  const json kernel = tuned(
      "kiln.graph 1\n"
      "%0 = input 0 : bf16[5,72]\n"
      "%1 = input 1 : bf16[64,72]\n"
      "%2 = view %1 strides=[1,72] offset=[0] : bf16[72,64]\n"
      "%3 = input 2 : bf16[64,72]\n"
      "%4 = view %3 strides=[1,72] offset=[0] : bf16[72,64]\n"
      "%5 = matmul %0 %2 : f32[5,64]\n"
      "%6 = tanh %5 : f32[5,64]\n"
      "%7 = matmul %0 %4 : f32[5,64]\n"
      "%8 = mul %6 %7 : f32[5,64]\n"
      "%9 = cast %8 : bf16[5,64]\n"
      "return %9\n");
  EXPECT_TRUE(kernel.value("schedule", std::string()).starts_with("cuda.products.")) << kernel;
}

// Windows that threads gather, and that the copy engine brings for tiles of a block each and for tiles
// that blocks share.
TEST_F(GpuServiceKernel, AConvolutionOfImagesChannelsLastIsTunedWithEachWayToReadWindows) {
  const json kernel = tuned(
      "kiln.graph 1\n"
      "%0 = input 0 : bf16[1,6,5,64]\n"
      "%1 = view %0 strides=[1920,1,320,64] offset=[0] : bf16[1,64,6,5]\n"
      "%2 = input 1 : bf16[32,64,3,3]\n"
      "%3 = convolution %1 %2 stride=[1,1] dilation=[1,1] low=[1,1] high=[1,1] groups=1 : "
      "f32[1,32,6,5]\n"
      "%4 = view %3 strides=[960,5,1,30] offset=[0] : f32[1,6,5,32]\n"
      "%5 = cast %4 : bf16[1,6,5,32]\n"
      "return %5\n");
  EXPECT_EQ(kernel.value("candidates", 0), 3) << "of one tile" << kernel;
}

TEST_F(GpuService, ASearchThatNobodyCanRunFailsAtOnceAndNamesWhatThereIs) {
  const Service service(dir_.path() / "data", {"--device", "cpu"});
  ASSERT_FALSE(service.endpoint().empty()) << service.log();
  const Finished refused = compile(service, "cuda:sm_90a");
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_NE(refused.err.find("cuda:sm_90a"), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find("cpu:x86-64"), std::string::npos) << refused.err;
}

TEST_F(GpuService, AGpuThatIsNotThereIsSaid) {
  const Finished up = run({binary("kiln"), "up", "--data-dir", dir_.path() / "data", "--listen",
                           "tcp://127.0.0.1:0", "--device", "cuda:7", "--libcuda",
                           KILN_FAKE_LIBCUDA, "--libnvrtc", KILN_FAKE_LIBNVRTC});
  EXPECT_EQ(up.exit_code, 2) << up.out;
  EXPECT_NE(up.err.find("cuda:7"), std::string::npos) << up.err;
}

}  // namespace
}  // namespace kiln::testing

#endif

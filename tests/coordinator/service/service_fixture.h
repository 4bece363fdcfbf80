#pragma once

#include <gtest/gtest.h>

#include "coordinator/service/service.h"
#include "tests/coordinator/fake_fleet.h"

namespace kiln {

// A coordinator on a directory of its own, and what it logs.
class ServiceTest : public ::testing::Test {
 protected:
  ServiceTest() : dir_(*TempDir::create("kiln-service")) { start(); }

  // Workers and clients of these tests are never lost because this machine stood still.
  void start(ServiceOptions options = {}) {
    options.data_dir = dir_.path() / "data";
    options.core.worker_timeout_ms = options.core.lease_timeout_ms = kMinutesMs;
    options.core.graph_timeout_ms = options.core.hedge_least_ms = kMinutesMs;
    options.log = [this](const LogLine& line) {
      const std::lock_guard lock(log_mutex_);
      log_ += line.logfmt() + "\n";
    };
    auto started = Service::start(std::move(options));
    ASSERT_TRUE(started.has_value()) << started.error().message;
    service_ = *std::move(started);
  }
  const std::string& endpoint() const { return service_->endpoint(); }
  FakeWorkerOptions worker_named(const std::string& name) const {
    FakeWorkerOptions options;
    options.name = name;
    return options;
  }
  std::string log() {
    const std::lock_guard lock(log_mutex_);
    return log_;
  }
  std::vector<Path> stored_blobs() const {
    std::vector<Path> files;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(dir_.path() / "data" / "blobs")) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
    return files;
  }

  static constexpr int64_t kMinutesMs = 600'000;
  const TempDir dir_;
  std::mutex log_mutex_;
  std::string log_;
  Tally tally_;
  std::unique_ptr<Service> service_;
};

inline Program program_of(const CompileReply& reply) {
  auto program = program_from_json(reply.program_json);
  EXPECT_TRUE(program.has_value()) << program.error().message;
  return program ? *program : Program{};
}

inline std::vector<Digest> blobs_of(const Program& program) {
  std::vector<Digest> digests;
  for (const ProgramKernel& kernel : program.kernels) digests.push_back(kernel.blob);
  return digests;
}

}  // namespace kiln

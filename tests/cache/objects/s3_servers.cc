#include "tests/cache/objects/s3_servers.h"

#include <fmt/core.h>
#include <signal.h>

#include <thread>

#include "compiler_core/base/check.h"
#include "tests/support/loopback.h"

namespace kiln::testing {
namespace {

constexpr char kAccessKey[] = "test-access-key", kSecretKey[] = "test-secret-key";

}  // namespace

std::string S3Server::program(Kind kind) {
  const Path file =
      Path(KILN_SOURCE_DIR) / "build/servers/bin" / (kind == Kind::kSeaweedFS ? "weed" : "rclone");
  return std::filesystem::exists(file) ? file.string() : "";
}

S3Server& S3Server::shared(Kind kind) {
  static std::array<std::unique_ptr<S3Server>, 2> servers;
  auto& server = servers[static_cast<size_t>(kind)];
  if (server == nullptr) server.reset(new S3Server(kind));
  return *server;
}

// A port may be somebody's who does not ask free_port(): then the server ends, and the next try has others.
S3Server::S3Server(Kind kind) : kind_(kind) {
  for (int tries = 0; tries < 5; ++tries) {
    ports_.clear();
    while (ports_.size() < 11) ports_.push_back(free_port());
    start();
    wait_until_it_serves();
    if (child_.running()) return;
  }
  CHECK(false, "the S3 server starts: " + read_file(dir_.path() / "err").value_or(""));
}

S3Server::~S3Server() {
  child_.signal(SIGKILL);
}

void S3Server::start() {
  const Path data = dir_.path() / "data";
  CHECK(make_directories(data / kBucket), "a folder for the server");
  std::vector<std::string> arguments = {program(kind_)};
  std::vector<std::string> environment = {"HOME=" + dir_.path().string()};
  if (kind_ == Kind::kSeaweedFS) {
    const char* const flags[] = {"s3.port",          "s3.port.grpc",    "master.port",
                                 "master.port.grpc", "volume.port",     "volume.port.grpc",
                                 "filer.port",       "filer.port.grpc", "admin.port",
                                 "admin.port.grpc",  "debug.port"};
    for (const std::string& more :
         {std::string("mini"), "-dir=" + data.string(), std::string("-ip=127.0.0.1"),
          std::string("-ip.bind=127.0.0.1"), std::string("-bucket=") + kBucket,
          std::string("-admin.ui=false"), std::string("-webdav=false"),
          std::string("-s3.port.iceberg=0"), std::string("-s3.port.lance=0")})
      arguments.push_back(more);
    for (size_t i = 0; i < std::size(flags); ++i)
      arguments.push_back(fmt::format("-{}={}", flags[i], ports_[i]));
    environment.push_back(std::string("AWS_ACCESS_KEY_ID=") + kAccessKey);
    environment.push_back(std::string("AWS_SECRET_ACCESS_KEY=") + kSecretKey);
  } else {
    for (const std::string& more :
         {std::string("serve"), std::string("s3"), data.string(), std::string("--addr"),
          fmt::format("127.0.0.1:{}", ports_[0]), std::string("--auth-key"),
          fmt::format("{},{}", kAccessKey, kSecretKey), std::string("--vfs-cache-mode"),
          std::string("off"), std::string("--config"), (dir_.path() / "none.conf").string()})
      arguments.push_back(more);
  }
  child_ = Child::start(arguments, dir_.path() / "out", dir_.path() / "err", environment);
}

void S3Server::wait_until_it_serves() const {
  const auto opened = open_objects(fmt::format("s3://{}/ready", kBucket), {options()});
  CHECK(opened, opened ? "" : opened.error().message);
  const auto& store = *opened;
  for (int i = 0; i < 300; ++i) {
    if (put(*store, "here", "x")) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

void S3Server::kill_and_restart() {
  child_.signal(SIGKILL);
  child_.wait();
  start();
  wait_until_it_serves();
}

S3Options S3Server::options() const {
  S3Options options;
  options.endpoint = fmt::format("http://127.0.0.1:{}", ports_[0]);
  options.credentials = []() -> Result<S3Credentials> {
    return S3Credentials{kAccessKey, kSecretKey};
  };
  options.deadline = std::chrono::seconds(20);
  return options;
}

S3Place::S3Place(S3Server::Kind kind)
    : server_(S3Server::shared(kind)), url_([] {
        static int number = 0;
        return fmt::format("s3://{}/place{}", S3Server::kBucket, number++);
      }()) {}

std::unique_ptr<ObjectStore> S3Place::open() {
  return open_objects(url_, {server_.options()}).value();
}

}  // namespace kiln::testing

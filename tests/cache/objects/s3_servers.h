// S3 services for tests, each a process of this test's own on free ports, with its files in a
// temporary folder: SeaweedFS, which checks and keeps everything, and rclone's, whose dialect is
// small. `ops/python servers` installs both.
#pragma once

#include <string>

#include "tests/cache/objects/places.h"
#include "tests/support/process.h"

namespace kiln::testing {

class S3Server {
 public:
  enum class Kind { kSeaweedFS, kRclone };
  // Where its program is; empty: it is not installed.
  static std::string program(Kind kind);
  // Started by the first call and shared by the rest of the process; answers requests.
  // REQUIRES: its program is installed.
  static S3Server& shared(Kind kind);
  ~S3Server();

  S3Options options() const;  // with credentials that it takes
  static constexpr char kBucket[] = "kiln";
  void kill_and_restart();  // -9; it answers again

 private:
  explicit S3Server(Kind kind);
  void start();
  void wait_until_it_serves() const;

  const Kind kind_;
  TempDir dir_ = TempDir::create("kiln-s3").value();
  std::vector<int> ports_;
  Child child_ = Child::none();
};

// A prefix of its own in the bucket of a shared server.
class S3Place final : public Place {
 public:
  explicit S3Place(S3Server::Kind kind);
  std::unique_ptr<ObjectStore> open() override;
  bool has_links() const override { return true; }

 private:
  S3Server& server_;
  const std::string url_;
};

}  // namespace kiln::testing

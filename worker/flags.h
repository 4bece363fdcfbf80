// WorkerFlags: what kiln-worker was told, by its command line and environment. A value; constant after
// parse_flags().
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace kiln {

struct WorkerFlags {
  std::string role = "measure";
  std::string device;  // empty: "cpu", or "cuda" for a builder
  std::string target;
  std::string libcuda;
  std::string libnvrtc;
  std::string libcublaslt;
  bool no_libraries = false;
  bool list_devices = false;
  bool check = false;
  std::string coordinator = "tcp://127.0.0.1:7557";
  std::string name;
  std::string key;
  std::string cache_dir;
  std::string runner;
  std::string device_lock;
  std::string lock_dir;  // empty: one of this user's in /tmp
  std::string compiler;
  std::string http = "none";
  std::string otlp_endpoint;
  std::string log_level = "info";
  std::string sandbox = "auto";
  std::vector<std::string> sandbox_read;
  int jobs = 0;
  int threads = 0;
  int drain_timeout_s = 20;
  bool builds() const { return role == "build"; }
};

// A variable of the environment; empty where there is none.
using Environment = std::string(const char* name);

// Parses into `flags` and fills in what the environment says; an exit code when the program should
// end now, with everything said.
std::optional<int> parse_flags(int argc, char** argv, Environment* environment, WorkerFlags& flags);

}  // namespace kiln

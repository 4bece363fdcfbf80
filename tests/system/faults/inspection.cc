#include "tests/system/faults/inspection.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "compiler_core/base/digest.h"
#include "tests/support/http_get.h"
#include "tests/system/faults/processes.h"

namespace kiln::testing {
namespace {

constexpr int kMaxDescriptors = 200, kTries = 3'000, kPauseMs = 20;
constexpr const char* kFiller = "filler";

void pause() {
  std::this_thread::sleep_for(std::chrono::milliseconds(kPauseMs));
}

bool is_blob(const Path& file) {
  return file.filename().string().size() == 64 && file.parent_path().filename() != "quarantine";
}

int descriptors(pid_t pid) {
  std::error_code error;
  const auto all =
      std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", error);
  return error ? 0 : static_cast<int>(std::distance(begin(all), end(all)));
}

// What should not be there, and may be about to go.
std::vector<std::string> litter(const LiveService& service) {
  std::vector<std::string> found;
  for (const Path& place : {service.data(), service.objects()})
    for (const std::string& file : half_written(place)) found.push_back("left behind: " + file);
  size_t scratches = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(service.temp(), error)) {
    if (entry.path().filename().string().starts_with("kiln-worker-"))
      ++scratches;
    else
      found.push_back("left behind: " + entry.path().string());
  }
  if (scratches > service.workers())
    found.push_back(
        fmt::format("{} scratch directories of {} workers", scratches, service.workers()));
  return found;
}

// Whoever is none of the service's processes and no kiln program that one of them started. A
// runner whose worker was killed is ours instead, and nobody will ever ask it for anything.
std::vector<std::string> strangers(LiveService& service, const std::set<pid_t>& guests) {
  std::set<pid_t> own = {service.coordinator().pid()};
  for (size_t n = 0; n < service.workers(); ++n) own.insert(service.worker(n).pid());
  std::vector<std::string> found;
  for (const Descendant& process : living_descendants()) {
    if (own.contains(process.pid) || guests.contains(process.pid)) continue;
    if (own.contains(process.parent) && process.name.starts_with("kiln")) continue;
    found.push_back(fmt::format("still running: {} {}, child of {}", process.name, process.pid,
                                process.parent));
  }
  return found;
}

bool listens(const std::string& endpoint) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int refused = connect_to_loopback(fd, std::stoi(endpoint.substr(endpoint.rfind(':') + 1)));
  ::close(fd);
  return refused == 0;
}

std::vector<std::string> unwell(const LiveService& service) {
  std::vector<std::string> found;
  for (const std::string& endpoint : service.http_endpoints())
    for (const char* path : {"/healthz", "/readyz", "/metrics"}) {
      const std::string said = listens(endpoint) ? http_get(endpoint, path) : "nothing";
      if (!said.starts_with("HTTP/1.1 200 "))
        found.push_back(fmt::format("{}{} says {}", endpoint, path, said.substr(0, 200)));
    }
  return found;
}

}  // namespace

std::vector<std::string> half_written(const Path& directory) {
  std::vector<std::string> found;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator at(directory, error), end; !error && at != end;
       at.increment(error))
    if (at->path().filename().string().find(".tmp.") != std::string::npos)
      found.push_back(at->path().string());
  return found;
}

std::vector<std::string> inspect_house(LiveService& service, const std::set<pid_t>& guests) {
  std::vector<std::string> found;
  for (int tries = 0; tries < kTries; ++tries) {
    if (tries > 0) pause();
    found = litter(service);
    for (std::string& stranger : strangers(service, guests)) found.push_back(std::move(stranger));
    for (std::string& sick : unwell(service)) found.push_back(std::move(sick));
    if (found.empty()) break;
  }
  for (size_t n = 0; n <= service.workers(); ++n) {
    const Child& child = n == 0 ? service.coordinator() : service.worker(n - 1);
    if (const int open = descriptors(child.pid()); open > kMaxDescriptors)
      found.push_back(
          fmt::format("{} holds {} descriptors", n == 0 ? "the coordinator" : "a worker", open));
  }
  return found;
}

std::vector<std::string> inspect_blobs(const LiveService& service, const std::set<Path>& rotten) {
  std::vector<std::string> found;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator at(service.data() / "blobs", error), end;
       !error && at != end; at.increment(error)) {
    if (!at->is_regular_file() || !is_blob(at->path()) || rotten.contains(at->path())) continue;
    const auto bytes = read_file(at->path());
    if (bytes && Digest::of(*bytes).hex() != at->path().filename())
      found.push_back("not what its name says: " + at->path().string());
  }
  return found;
}

std::vector<std::string> inspect_end(const LiveService& service) {
  std::vector<std::string> found;
  for (int tries = 0; tries < kTries; ++tries) {
    found.clear();
    for (const Descendant& process : living_descendants())
      found.push_back(fmt::format("still running: {} {}", process.name, process.pid));
    if (found.empty()) break;
    pause();
  }
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(service.temp(), error))
    found.push_back("left behind: " + entry.path().string());
  return found;
}

Path rot(const LiveService& service, uint64_t n) {
  std::vector<Path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(service.data() / "blobs"))
    if (entry.is_regular_file() && entry.path().filename().string().size() == 64)
      files.push_back(entry.path());
  if (files.empty()) return {};
  const Path& file = files[n % files.size()];
  std::string bytes = read_file(file).value_or("");
  if (bytes.empty()) return {};
  bytes[n / 7 % bytes.size()] ^= 1;
  (void)write_file(file, bytes);
  return file;
}

void fill_disk(const Path& directory) {
  const int fd = ::open((directory / kFiller).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  const std::string block(4096, 'x');
  while (::write(fd, block.data(), block.size()) > 0) {
  }
  ::close(fd);
}

void free_disk(const Path& directory) {
  std::error_code ignored;
  std::filesystem::remove(directory / kFiller, ignored);
}

}  // namespace kiln::testing

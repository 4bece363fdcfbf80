#include "tests/support/fake_cuda/host_cubin.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <thread>

#include "tests/support/kept_objects.h"

namespace kiln::testing {
namespace {

namespace fs = std::filesystem;

struct EntryHead {
  std::string name;
  int max_threads = 0;
};

// A reader of the little of C++ that stands in a kernel's head.
struct HeadReader {
  std::string_view rest;

  void skip_spaces() { rest.remove_prefix(std::min(rest.size(), rest.find_first_not_of(" \t\n"))); }
  bool take(std::string_view word) {
    skip_spaces();
    if (!rest.starts_with(word)) return false;
    rest.remove_prefix(word.size());
    return true;
  }
  std::string_view take_name() {
    skip_spaces();
    size_t length = 0;
    while (length < rest.size() &&
           (std::isalnum(static_cast<unsigned char>(rest[length])) != 0 || rest[length] == '_'))
      ++length;
    const std::string_view name = rest.substr(0, length);
    rest.remove_prefix(length);
    return name;
  }
  // "(128, 4)": the first number; 0 when it is none.
  int take_arguments() {
    if (!take("(")) return 0;
    int first = 0;
    std::from_chars(rest.data(), rest.data() + rest.size(), first);
    rest.remove_prefix(std::min(rest.size(), rest.find(')') + 1));
    return first;
  }
};

// The kernel whose head begins at `text`; no name when none does.
EntryHead read_head(std::string_view text) {
  EntryHead head;
  HeadReader reader{text};
  if (reader.take("KILN_KERNEL")) {
    head.max_threads = reader.take_arguments();
  } else if (!reader.take("extern") || !reader.take("\"C\"") || !reader.take("__global__") ||
             !reader.take("void")) {
    return head;
  }
  if (reader.take("__launch_bounds__")) head.max_threads = reader.take_arguments();
  if (reader.take("__cluster_dims__")) reader.take_arguments();
  const std::string_view name = reader.take_name();
  if (reader.take("(")) head.name = name;
  return head;
}

// The kernels of a source, from the heads that generated ones have:
//   KILN_KERNEL(128, 4) name(
//   extern "C" __global__ void __launch_bounds__(128, 4) name(
std::vector<EntryHead> find_entries(std::string_view source) {
  std::vector<EntryHead> entries;
  for (const std::string_view opening : {"KILN_KERNEL", "extern"})
    for (size_t at = 0; (at = source.find(opening, at)) != source.npos; at += opening.size())
      if (EntryHead head = read_head(source.substr(at)); !head.name.empty())
        entries.push_back(std::move(head));
  return entries;
}

// What follows the source: the table through which the engine finds and calls its kernels.
std::string module_text(const std::vector<EntryHead>& entries, const std::string& architecture) {
  std::string text = "\nnamespace {\n";
  for (const EntryHead& entry : entries)
    text += fmt::format(
        "void kiln_fake_call_{0}(void* const* parameters) {{ kiln_fake::call({0}, parameters); "
        "}}\n",
        entry.name);
  text += "const kiln_fake::Entry kiln_fake_entries[] = {\n";
  for (const EntryHead& entry : entries)
    text += fmt::format(
        "  {{\"{0}\", kiln_fake_call_{0}, kiln_fake::parameter_count({0}), {1}, "
        "kiln_fake::parameter_bytes({0})}},\n",
        entry.name, entry.max_threads);
  return text + fmt::format(
                    "}};\n}}\nextern \"C\" __attribute__((visibility(\"default\"))) const "
                    "kiln_fake::Module kiln_fake_module;\nconst kiln_fake::Module "
                    "kiln_fake_module = {{\"{}\", kiln_fake_entries, {}, &kiln_fake_current}};\n",
                    architecture, entries.size());
}

// "sm_90a" is 900.
std::string architecture_number(const std::string& architecture) {
  std::string digits;
  for (char c : architecture)
    if (c >= '0' && c <= '9') digits += c;
  return digits + "0";
}

std::string read_all(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::string> compile_flags(const HostCubinOptions& options) {
  std::vector<std::string> flags = {"-std=gnu++17",
                                    "-O1",
                                    "-march=x86-64-v3",
                                    "-ffp-contract=fast",
                                    "-fPIC",
                                    "-shared",
                                    "-Wl,-Bsymbolic",
                                    "-w",
                                    "-fno-exceptions",
                                    "-fno-rtti",
                                    "-fvisibility=hidden",
                                    "-fno-math-errno",
                                    "-fno-strict-aliasing",
                                    "-fwrapv",
                                    "-fsanitize=alignment,bounds-strict",
                                    "-fno-sanitize-recover=all",
                                    "-DKILN_ON_HOST=1",
                                    "-D__CUDA_ARCH__=" + architecture_number(options.architecture)};
  if (*KILN_FAKE_LINKER != '\0') flags.emplace_back(KILN_FAKE_LINKER);
  for (const std::string& define : options.defines) flags.push_back("-D" + define);
  return flags;
}

std::vector<std::string> command_line(const HostCubinOptions& options) {
  std::vector<std::string> command = {KILN_FAKE_CXX, "-include", KILN_FAKE_SHIM};
  for (std::string& flag : compile_flags(options)) command.push_back(std::move(flag));
  command.insert(command.end(), {"-x", "c++", "kernel.cu", "-o", "kernel.so", "-lm"});
  return command;
}

// The digest covers the names and texts of the headers that come before every source.
Digest digest_of_shim() {
  std::map<std::string, std::string> texts;
  for (const auto& header : fs::directory_iterator(fs::path(KILN_FAKE_SHIM).parent_path()))
    texts[header.path().filename()] = read_all(header.path());
  Hasher hasher("kiln.test.shim.v1");
  for (const auto& [name, text] : texts) hasher.add(name).add(text);
  return hasher.finish();
}

// The key covers all that the object depends on. It has no paths, so that clones share objects.
Digest cubin_key(const std::string& text, const HostCubinOptions& options) {
  static const Digest shim = digest_of_shim();
  const std::vector<std::string> flags = compile_flags(options);
  Hasher hasher("kiln.test.cubin.v1");
  hasher.add(text).add(shim).add(KILN_FAKE_CXX_BUILD).begin_list(flags.size());
  for (const std::string& flag : flags) hasher.add(flag);
  return hasher.finish();
}

// A folder of its own for one compilation.
struct Workplace {
  Workplace() {
    std::string pattern = fs::temp_directory_path() / "kiln-fake-XXXXXX";
    if (::mkdtemp(pattern.data()) != nullptr) path = pattern;
  }
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;
  ~Workplace() {
    std::error_code ignored;
    if (!path.empty()) fs::remove_all(path, ignored);
  }
  fs::path path;
};

// The compiler's exit status; its messages go to messages.txt. -1: it was cancelled.
Result<int> run_compiler(std::vector<std::string> command, const fs::path& folder,
                         const std::function<bool()>& cancelled) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  ::posix_spawn_file_actions_addopen(&actions, 1, "messages.txt", O_WRONLY | O_CREAT | O_TRUNC,
                                     0600);
  ::posix_spawn_file_actions_adddup2(&actions, 1, 2);
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int error =
      ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0)
    return fail(Code::kNotFound,
                fmt::format("cannot start {}: {}", command[0], std::strerror(error)));
  int status = 0;
  while (::waitpid(child, &status, cancelled ? WNOHANG : 0) != child) {
    if (!cancelled) continue;
    if (cancelled()) {
      ::kill(child, SIGKILL);
      while (::waitpid(child, &status, 0) != child) {
      }
      return -1;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

Result<std::string> compile_text(const std::string& text, const HostCubinOptions& options) {
  const Workplace workplace;
  if (workplace.path.empty()) return fail(Code::kUnavailable, "no temporary folder");
  std::ofstream(workplace.path / "kernel.cu") << text;
  TRY(const int status, run_compiler(command_line(options), workplace.path, options.cancelled));
  if (status < 0) return fail(Code::kDeadlineExceeded, "the compilation was cancelled");
  if (status != 0) return fail(Code::kInvalidArgument, read_all(workplace.path / "messages.txt"));
  return read_all(workplace.path / "kernel.so");
}

}  // namespace

// A caller that can cancel tests the compilation itself, so nothing kept is taken for it.
Result<HostCubin> compile_host_cubin(std::string_view source, const HostCubinOptions& options) {
  const std::vector<EntryHead> entries = find_entries(source);
  if (entries.empty()) return fail(Code::kInvalidArgument, "the source has no kernel");
  const std::string text = fmt::format("#line 1 \"kernel.cu\"\n{}{}", source,
                                       module_text(entries, options.architecture));
  HostCubin cubin;
  if (options.cancelled) {
    TRY(cubin.bytes, compile_text(text, options));
  } else {
    TRY(cubin.bytes,
        kept_object(cubin_key(text, options), [&] { return compile_text(text, options); }));
  }
  for (const EntryHead& entry : entries) cubin.entries.push_back(entry.name);
  return cubin;
}

std::optional<std::string_view> host_cubin_bytes(const void* code) {
  if (std::strncmp(static_cast<const char*>(code), ELFMAG, SELFMAG) != 0) return std::nullopt;
  Elf64_Ehdr header;
  std::memcpy(&header, code, sizeof header);
  if (header.e_type != ET_DYN || header.e_machine != EM_X86_64) return std::nullopt;
  // The table of sections is the last thing in the file.
  const size_t bytes = header.e_shoff + size_t{header.e_shnum} * header.e_shentsize;
  return std::string_view(static_cast<const char*>(code), bytes);
}

// Through a file that is gone at once: the loader takes two files of one path for the same object,
// which rules out /proc/self/fd.
Result<std::shared_ptr<const HostModule>> HostModule::load(std::string_view bytes) {
  std::string path = fs::temp_directory_path() / "kiln-fake-cubin-XXXXXX";
  const int file = ::mkostemp(path.data(), O_CLOEXEC);
  if (file < 0 || ::write(file, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
    return fail(Code::kUnavailable, "cannot write a cubin into " + path);
  ::close(file);
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  ::unlink(path.c_str());
  if (handle == nullptr) return fail(Code::kInvalidArgument, ::dlerror());
  const auto* module = static_cast<const kiln_fake::Module*>(::dlsym(handle, "kiln_fake_module"));
  if (module != nullptr) return std::shared_ptr<const HostModule>(new HostModule(handle, module));
  ::dlclose(handle);
  return fail(Code::kInvalidArgument, "the shared object is no fake cubin");
}

HostModule::~HostModule() {
  ::dlclose(handle_);
}

const kiln_fake::Entry* HostModule::find(std::string_view entry) const {
  for (int i = 0; i < module_->entry_count; ++i)
    if (module_->entries[i].name == entry) return &module_->entries[i];
  return nullptr;
}

}  // namespace kiln::testing
